"""Options that several commands share, declared once; numbers in their texts; files that commands write."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import json
import math
import re
import typing
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import DefocusError

if TYPE_CHECKING:
    from .. import Camera

LensArgument = Annotated[
    str, typer.Argument(metavar="LENS", help="A built-in name or a lens file; LENS@STATE selects a state.")
]
PhotoArgument = Annotated[Path, typer.Argument(help="A RAW file, or a PNG, JPEG or TIFF in sRGB.", show_default=False)]
FigureOption = Annotated[Path | None, typer.Option(help="Draw it: .png, .svg or .pdf.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the report as JSON.")]
BandsOption = Annotated[str, typer.Option(help="d, rgb, rgb-full, or wavelengths in nm: 486.1,587.6")]
BitsOption = Annotated[int, typer.Option(help="8 or 16 bits per colour of a PNG or TIFF.")]
FieldOption = Annotated[tuple[float, float], typer.Option(help="Where the point appears: X Y, of the image radius.")]
StopOption = Annotated[float | None, typer.Option(help="Stop the lens down.")]
BladesOption = Annotated[int | None, typer.Option(help="Blades of the iris of a lens that is stopped down.")]
DeviceOption = Annotated[str, typer.Option(help="auto (a GPU where there is one), cpu, cuda or cuda:1.")]


def with_groups(command: Callable[..., None]) -> Callable[..., None]:
    """Let a parameter whose type is a dataclass stand for its fields, each an option of the command."""
    hints = typing.get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: hint for name, hint in hints.items() if dataclasses.is_dataclass(hint)}
    parameters = []
    for name, parameter in inspect.signature(command).parameters.items():
        if name not in groups:
            parameters.append(parameter.replace(annotation=hints[name], kind=inspect.Parameter.KEYWORD_ONLY))
            continue
        annotations = typing.get_type_hints(groups[name], include_extras=True)
        for field in dataclasses.fields(groups[name]):
            default = inspect.Parameter.empty if field.default is dataclasses.MISSING else field.default
            kind = inspect.Parameter.KEYWORD_ONLY
            parameters.append(inspect.Parameter(field.name, kind, default=default, annotation=annotations[field.name]))

    @functools.wraps(command)
    def run(**values: Any) -> None:
        arguments = {
            name: group(**{field.name: values.pop(field.name) for field in dataclasses.fields(group)})
            for name, group in groups.items()
        }
        command(**arguments, **values)

    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return run


@dataclass(frozen=True)
class LensOptions:
    """A lens as it is used: focus, stop and sensor plane."""

    lens: LensArgument
    focus_m: Annotated[float, typer.Option(help="Focus distance in metres; inf is allowed.")] = math.inf
    f_number: StopOption = None
    blades: BladesOption = None
    sensor_shift_mm: Annotated[
        float | None, typer.Option(help="Put the sensor this far behind the prescription's image plane.")
    ] = None

    def camera(self) -> Camera:
        """The camera of these options."""
        return make_camera(**vars(self))


@dataclass(frozen=True)
class CameraOptions(LensOptions):
    """A lens as it is used, and the pixels behind it."""

    pixel_um: Annotated[float | None, typer.Option(help="Pixel pitch; by default 1680×1120 fill the image.")] = None


def make_camera(lens: str, **options: Any) -> Camera:
    """A camera with a built-in lens or one from a file; `options` as for `Camera`."""
    from .. import Camera, load_lens

    return Camera(load_lens(lens), **options)


def numbers(option: str, text: str, expected: str) -> tuple[float, ...]:
    """Numbers between commas; inf is one, nan is not."""
    try:
        values = tuple(float(part) for part in text.split(","))
    except ValueError:
        values = (math.nan,)
    if any(math.isnan(value) for value in values):
        raise DefocusError(f"{option} {text!r}: expected numbers between commas ({expected})")
    return values


def whole_pair(option: str, text: str, expected: str) -> tuple[int, int]:
    """The two whole numbers of a text such as 3x5."""
    match = re.fullmatch(r"(\d+)[xX×](\d+)", text)
    if match is None:
        raise DefocusError(f"{option} {text}: expected {expected}")
    return int(match[1]), int(match[2])


def check_file(path: Path | None, suffix: str) -> None:
    """Refuse a name that does not end as it should, or lies in no folder: said before the long work."""
    if path is None:
        return
    if path.suffix != suffix:
        raise DefocusError(f"{path}: expected a name that ends in {suffix}")
    if not path.resolve().parent.is_dir():
        raise DefocusError(f"{path}: cannot be written: there is no folder {path.parent}")


def check_figure(path: Path | None) -> None:
    """Refuse a name that no figure can be written to."""
    if path is not None:
        from ..draw import check_figure_path

        check_figure_path(path)


def write_photo(path: Path, linear: Any, bits: int, srgb: Any = None) -> None:
    """Write a photograph: linear light as .npy or .npz, else its display values, by default those of sRGB."""
    import numpy as np

    from ..photo import SRGB, encode, write_linear, write_picture

    if path.suffix.lower() in (".npy", ".npz"):
        write_linear(path, linear)
    else:
        write_picture(path, np.asarray(encode(linear, SRGB)) if srgb is None else srgb, bits=bits)


def json_text(report: Any) -> str:
    """A report as JSON; infinite numbers, which JSON has not, are written as "inf"."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: plain(one) for key, one in value.items()}
        if isinstance(value, (list, tuple)):
            return [plain(one) for one in value]
        return "inf" if isinstance(value, float) and math.isinf(value) else value

    return json.dumps(plain(report), indent=1, allow_nan=False)


def print_report(report: dict[str, Any], *, width: int = 16, notes: Iterable[str] = ()) -> None:
    """Print names and values in two columns, then notes; what is None or empty is left out."""
    for name, value in report.items():
        if value not in (None, ""):
            typer.echo(f"{name:<{width}}{value:.6g}" if isinstance(value, float) else f"{name:<{width}}{value}")
    for text in notes:
        typer.echo(f"{'note':<{width}}{text}")


def print_files(*paths: Path | None) -> None:
    """Say which files were written."""
    for path in paths:
        if path is not None:
            typer.echo(f"wrote {path}")
