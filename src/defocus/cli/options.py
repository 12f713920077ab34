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

from ..errors import ConfigError, DefocusError

if TYPE_CHECKING:
    from .. import Camera
    from ..files.exif import Metadata


def lens_names(incomplete: str) -> list[str]:
    """Built-in lenses whose names begin so, for the shell to complete."""
    from ..lens import list_lenses

    return [entry.name for entry in list_lenses() if entry.name.startswith(incomplete)]


LensArgument = Annotated[
    str,
    typer.Argument(
        metavar="LENS", help="A built-in name or a lens file; LENS@STATE selects a state.", autocompletion=lens_names
    ),
]
PhotoArgument = Annotated[Path, typer.Argument(help="A RAW file, or a PNG, JPEG or TIFF in sRGB.")]
FigureOption = Annotated[Path, "Where to write the figure: .png, .svg or .pdf."]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the report as JSON.")]
BandsOption = Annotated[str, "d, rgb, rgb-full, or wavelengths in nm: 486.1,587.6"]
BitsOption = Annotated[int, "8 or 16 bits per colour of a PNG or TIFF."]
FieldOption = Annotated[str, "Where the point appears: X,Y, right and up, of the image radius."]
StopOption = Annotated[float | None, "Stop the lens down."]
BladesOption = Annotated[int | None, "Blades of the iris of a lens that is stopped down."]
DeviceOption = Annotated[str, "auto (a GPU where there is one), cpu, cuda or cuda:1."]


def command(
    app: typer.Typer, name: str | None = None, group: str | None = None
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add a function to an application as a command, in a group of its help.

    `Annotated[float, "help"]` declares an option with its help, `Annotated[bool, "help"]` with the default False a
    flag; a parameter whose type is a dataclass stands for its fields, each an option of the command.
    """

    def add(function: Callable[..., None]) -> Callable[..., None]:
        hints = typing.get_type_hints(function)
        groups: dict[str, Any] = {name: hint for name, hint in hints.items() if dataclasses.is_dataclass(hint)}

        @functools.wraps(function)
        def run(**values: Any) -> None:
            for parameter, holder in groups.items():
                values[parameter] = holder(
                    **{field: values.pop(field) for field in inspect.signature(holder).parameters}
                )
            function(**values)

        options = _options(function)
        run.__signature__ = inspect.Signature(options)  # type: ignore[attr-defined]
        run.__annotations__ = {option.name: option.annotation for option in options}
        app.command(name, rich_help_panel=group)(run)
        return function

    return add


def _options(source: Any) -> list[inspect.Parameter]:
    """The parameters of a function or dataclass as typer wants them."""
    options = []
    hints = typing.get_type_hints(source, include_extras=True)
    for name, parameter in inspect.signature(source).parameters.items():
        hint = hints[name]
        if dataclasses.is_dataclass(hint):
            options += _options(hint)
            continue
        kind, *more = typing.get_args(hint) if typing.get_origin(hint) is Annotated else (hint,)
        if more and isinstance(more[0], str):
            names = [f"--{name.replace('_', '-')}"] if kind is bool and parameter.default is False else []
            hint = Annotated[kind, typer.Option(*names, help=more[0])]
        options.append(parameter.replace(annotation=hint, kind=inspect.Parameter.KEYWORD_ONLY))
    return options


@dataclass(frozen=True)
class LensOptions:
    """A lens as it is used: focus, stop and sensor plane."""

    lens: LensArgument
    focus_m: Annotated[float, "Focus distance in metres; inf is allowed."] = math.inf
    f_number: StopOption = None
    blades: BladesOption = None
    sensor_shift_mm: Annotated[float | None, "Put the sensor this far behind the prescription's image plane."] = None

    def camera(self) -> Camera:
        """The camera of these options."""
        return make_camera(**vars(self))


@dataclass(frozen=True)
class CameraOptions(LensOptions):
    """A lens as it is used, and the pixels behind it."""

    pixel_um: Annotated[float | None, "Pixel pitch; by default 1680×1120 fill the image."] = None


def make_camera(lens: str, **options: Any) -> Camera:
    """A camera with a built-in lens or one from a file; `options` as for `Camera`."""
    from .. import Camera, load_lens

    camera = Camera(load_lens(lens), **options)
    nominal, full = options.get("f_number"), float(camera.f_number)
    if nominal is not None and nominal < 0.999 * full:
        _note_once(f"{camera.lens.name}: f/{nominal:g} is its full aperture as engraved; in truth f/{full:.4g}")
    return camera


@functools.cache
def _note_once(text: str) -> None:
    typer.echo(f"note: {text}", err=True)


def numbers(
    option: str, text: str, expected: str, count: int | None = None, low: float = -math.inf, high: float = math.inf
) -> tuple[float, ...]:
    """The numbers between commas, so many where there is a `count`, from `low` to `high`; inf is one, nan is not."""
    try:
        values = tuple(float(part) for part in text.split(","))
    except ValueError:
        values = (math.nan,)
    if not all(low <= value <= high for value in values) or count not in (None, len(values)):
        raise DefocusError(f"{option} {text}: expected {expected}")
    return values


def whole_pair(option: str, text: str, expected: str) -> tuple[int, int]:
    """The two whole numbers of a text such as 3x5."""
    match = re.fullmatch(r"(\d+)[xX×](\d+)", text)
    if match is None:
        raise DefocusError(f"{option} {text}: expected {expected}")
    return int(match[1]), int(match[2])


def point(text: str, option: str = "--field") -> tuple[float, float]:
    """The two numbers of a place such as 0.3,0.4."""
    x, y = numbers(option, text, "X,Y such as 0.3,0.4", 2)
    return x, y


def check_outputs(
    *outputs: tuple[Path | None, str | Callable[[Path], object]], inputs: Iterable[str | Path | None] = ()
) -> None:
    """Refuse, before the long work, a name that cannot be written, that is read here, or that two results have, and a
    place in a folder that one of our commands looks after.

    Each output comes with the ending that it must have, or with the function that looks at its name. "figure" means
    the endings of figures, also beside another one: "figure or .npz".
    """
    from ..files.ownership import check_no_folder_of_ours, check_not_input
    from ..files.stores import check_output

    names = [str(name) for name in inputs if name is not None]
    names += [name.partition("@")[0] for name in names if "@" in name]  # LENS@STATE
    places: set[Path] = set()
    for path, check in outputs:
        if path is None:
            continue
        if not isinstance(check, str):
            check(path)
        elif check.startswith("figure"):
            from ..draw import check_figure_path

            check_figure_path(path, *check.split(" or ")[1:])
        else:
            check_output(path, (check,))
        check_not_input(path, names)
        check_no_folder_of_ours(path)
        if path.resolve() in places:
            raise DefocusError(f"{path}: two results cannot have one name")
        places.add(path.resolve())


def write_photo(path: Path, linear: Any, bits: int, srgb: Any = None, metadata: Metadata | None = None) -> None:
    """Write a photograph: linear light as .npy or .npz, else its display values, by default those of sRGB."""
    import numpy as np

    from ..photo import SRGB, encode, write_linear, write_picture

    if path.suffix.lower() in (".npy", ".npz"):
        write_linear(path, linear)
    else:
        display = np.asarray(encode(linear, SRGB)) if srgb is None else srgb
        write_picture(path, display, bits=bits, metadata=metadata)


def json_text(report: Any) -> str:
    """A report as JSON; numbers that are not finite, which JSON has not, are written as "inf" and "nan"."""

    def plain(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: plain(one) for key, one in value.items()}
        if isinstance(value, (list, tuple)):
            return [plain(one) for one in value]
        return str(value) if isinstance(value, float) and not math.isfinite(value) else value

    return json.dumps(plain(report), indent=1, allow_nan=False)


def print_result(
    report: dict[str, Any],
    *files: Path | None,
    as_json: bool,
    lines: dict[str, Any] | None = None,
    width: int = 16,
) -> None:
    """Print a report as JSON, or its lines, notes and files in two columns; what is None or empty is left out."""
    if as_json:
        typer.echo(json_text(report))
        return
    for name, value in (lines or report).items():
        if name != "notes" and value not in (None, ""):
            typer.echo(f"{name:<{width}}{value:.6g}" if isinstance(value, float) else f"{name:<{width}}{value}")
    for text in report.get("notes", ()):
        typer.echo(f"{'note':<{width}}{text}")
    print_files(*files)


def write_new(path: Path, text: str, following: str, *, force: bool | None = None) -> None:
    """Write a text file that is not there yet, and say what to do next; a command with --force may write over one."""
    from ..files.stores import write_file

    if path.exists() and not force:
        way_out = "take another name" if force is None else "take another name, or --force"
        raise ConfigError(f"is there already; {way_out}", file=path)
    check_outputs((path, path.suffix.lower()))
    write_file(path, text.encode())
    typer.echo(f"wrote {path}; next: {following}")


def print_files(*paths: Path | None) -> None:
    """Say which files were written."""
    for path in paths:
        if path is not None:
            typer.echo(f"wrote {path}")
