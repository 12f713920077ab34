"""`defocus blur`: a sharp photograph as a lens would have taken it; `defocus refocus`: at several distances."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import DefocusError
from .blur_input import ESTIMATORS, Asked, SharpInput, read_sharp, two_numbers
from .outputs import check_outputs, json_text
from .progress import StageBar

if TYPE_CHECKING:
    from ..photo import Noise
    from ..render import Camera, Photograph

PhotoOrScene = Annotated[
    str,
    typer.Argument(help="A RAW file, a PNG, JPEG or TIFF in sRGB, or scene:NAME[:SEED].", show_default=False),
]
DepthOption = Annotated[
    str | None, typer.Option(help=f"A depth map, or {', '.join(ESTIMATORS)}. A scene has its own.", show_default=False)
]
LensOption = Annotated[str, typer.Option(help="A built-in lens or a lens file.", show_default=False)]
FNumberOption = Annotated[float | None, typer.Option(help="Stop the lens down.")]
BladesOption = Annotated[int | None, typer.Option(help="Blades of the iris of a lens that is stopped down.")]
BandsOption = Annotated[
    str, typer.Option(help="rgb: a wavelength per colour; rgb-full: three per colour; d: one for all; or three in nm.")
]
NoiseOption = Annotated[bool, typer.Option("--noise/--no-noise", help="Sensor noise, drawn as in the paper.")]
SaturationOption = Annotated[
    str, typer.Option(help="Light beyond white in clipped highlights: none, paper (drawn), or its power.")
]
SeedOption = Annotated[int, typer.Option(help="Seed of noise and highlights.", min=0)]
FullFieldOption = Annotated[
    bool, typer.Option("--full-field/--patch", help="PSFs that change over the picture, or one for all of it.")
]
FieldOption = Annotated[tuple[float, float], typer.Option(help="Of --patch: X Y, of the image radius.")]
NodesOption = Annotated[str | None, typer.Option(help="Of --full-field: ROWSxCOLUMNS of PSFs. [default: 3x5]")]
LONGEST, SWEEP_LONGEST = 1680, 960  # pixels on the long side; the first is the paper's
SCENE_SIZE, SWEEP_SCENE_SIZE = "960x640", "480x320"


def _longest_option(default: int) -> Any:
    text = f"Larger photographs are reduced to this many pixels on their long side; 0: never. [default: {default}]"
    return typer.Option(help=text, min=0, show_default=False)


def _size_option(default: str) -> Any:
    return typer.Option(help=f"WIDTHxHEIGHT of a scene. [default: {default}]", show_default=False)


ResizeOption = Annotated[bool, typer.Option("--resize-depth", help="A depth map of another size is resized.")]
ScaleOption = Annotated[float | None, typer.Option(help="Metres of one unit of the depth map.")]
PixelOption = Annotated[
    str | None,
    typer.Option(help="Pixel pitch, or exif. By default the photograph fills the lens's image circle."),
]
SensorOption = Annotated[
    bool | None,
    typer.Option(
        "--sensor/--no-sensor",
        help="Through a mosaic and its development. [default: where the camera's colours are known, or for noise]",
        show_default=False,
    ),
]
VignettingOption = Annotated[bool, typer.Option("--vignetting", help="Also the lens's fall-off of light.")]
PartsOption = Annotated[
    int, typer.Option(help="Parts of the pupil followed separately at depth edges; 4: better, slower.", min=1, max=16)
]
ExactOption = Annotated[bool, typer.Option("--exact", help="PSFs with the diffraction of their wavelength: slow.")]
KernelOption = Annotated[int, typer.Option(help="Largest PSF in pixels.", min=32, max=2048)]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the report as JSON.")]


def blur(
    photo: PhotoOrScene,
    lens: LensOption,
    out: Annotated[Path, typer.Option(help="The picture: .png, .jpg, .tif; or linear light: .npy.")],
    depth: DepthOption = None,
    focus_m: Annotated[
        float | None, typer.Option(help="Focus distance in metres; inf is allowed. A scene has its own.")
    ] = None,
    f_number: FNumberOption = None,
    blades: BladesOption = None,
    bands: BandsOption = "rgb",
    noise: NoiseOption = False,
    saturation: SaturationOption = "none",
    seed: SeedOption = 0,
    full_field: FullFieldOption = True,
    field: FieldOption = (0.0, 0.0),
    nodes: NodesOption = None,
    dual_pixel: Annotated[
        bool, typer.Option("--dual-pixel", help="Also what the left and right half of the lens see: OUT-left, -right.")
    ] = False,
    max_side: Annotated[int | None, _longest_option(LONGEST)] = None,
    size: Annotated[str | None, _size_option(SCENE_SIZE)] = None,
    resize_depth: ResizeOption = False,
    scale_m: ScaleOption = None,
    pixel_um: PixelOption = None,
    sensor: SensorOption = None,
    vignetting: VignettingOption = False,
    parts: PartsOption = 1,
    max_kernel: KernelOption = 256,
    exact: ExactOption = False,
    bits: Annotated[int, typer.Option(help="8 or 16 bits per colour of a PNG or TIFF.")] = 8,
    sharp: Annotated[Path | None, typer.Option(help="Also the sharp picture, through the same sensor.")] = None,
    raw: Annotated[Path | None, typer.Option(help="Also the blurred mosaic, 0..1, with its colours: .npz.")] = None,
    report: Annotated[Path | None, typer.Option(help="Also the report: .json.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Blur a sharp photograph as a lens would have."""
    _check_outputs(out, sharp, raw, report, bits)
    if raw is not None and sensor is False:
        raise DefocusError("--raw: with --no-sensor there is no mosaic")
    sensor = True if raw is not None else sensor
    options = _options(
        bands, noise, saturation, seed, full_field, field, nodes, vignetting, parts, max_kernel, exact
    )  # fmt: skip
    with StageBar() as bar:
        asked = Asked(max_side, size, resize_depth, scale_m)
        given = read_sharp(photo, depth, focus_m, asked, longest=LONGEST, scene_size=SCENE_SIZE, bar=bar)
        camera = _camera(lens, given, given.focus_m, pixel_um, f_number, blades)
        options |= {"colour": given.colour, "sensor": _has_sensor(sensor, given, noise), "progress": bar}
        made = camera.photograph(given.linear, given.depth_m, **options)
        written = [(out, made.blurred)]
        if sharp is not None:
            written.append((sharp, made.sharp))
        halves = {}
        for side in ("left", "right") if dual_pixel else ():
            half = camera.photograph(given.linear, given.depth_m, side=side, **options)
            written.append((out.with_stem(f"{out.stem}-{side}"), half.blurred))
            halves[side] = {"node_light_mm2": half.report["node_light_mm2"], "notes": half.report["notes"]}
    for path, picture in written:
        _write(path, picture.srgb, picture.linear, bits)
    if raw is not None:
        _write_raw(raw, made, given)
    told = {"photo": photo, "pixel_from": given.pixel_from(pixel_um)} | made.report
    told["notes"] = [*given.notes, *made.report["notes"]]
    if halves:
        told["halves"] = halves
    if report is not None:
        report.write_text(json_text(told) + "\n", encoding="utf-8")
    files = [path for path, _ in written] + [path for path in (raw, report) if path is not None]
    _tell(told, files, as_json)


def refocus(
    photo: PhotoOrScene,
    lens: LensOption,
    focus_m: Annotated[str, typer.Option(help="Focus distances in metres: 0.7,1.2,inf", show_default=False)],
    out: Annotated[Path, typer.Option(help="Side by side: .png, .jpg, .tif; animated: .gif.", show_default=False)],
    depth: DepthOption = None,
    f_number: FNumberOption = None,
    blades: BladesOption = None,
    bands: BandsOption = "rgb",
    noise: NoiseOption = False,
    saturation: SaturationOption = "none",
    seed: SeedOption = 0,
    full_field: FullFieldOption = True,
    field: FieldOption = (0.0, 0.0),
    nodes: NodesOption = None,
    max_side: Annotated[int | None, _longest_option(SWEEP_LONGEST)] = None,
    size: Annotated[str | None, _size_option(SWEEP_SCENE_SIZE)] = None,
    resize_depth: ResizeOption = False,
    scale_m: ScaleOption = None,
    pixel_um: PixelOption = None,
    sensor: SensorOption = None,
    vignetting: VignettingOption = False,
    parts: PartsOption = 1,
    max_kernel: KernelOption = 256,
    exact: ExactOption = False,
    captions: Annotated[bool, typer.Option("--captions/--no-captions", help="The distance on each picture.")] = True,
    seconds: Annotated[float, typer.Option(help="How long a GIF shows each distance.", min=0.02, max=60)] = 0.6,
    report: Annotated[Path | None, typer.Option(help="Also the reports, one per distance: .json.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Focus one photograph at several distances: side by side, or as an animation."""
    from ..draw import check_sweep_path, write_sweep

    distances = _distances(focus_m)
    check_sweep_path(out)
    _check_report(report)
    options = _options(
        bands, noise, saturation, seed, full_field, field, nodes, vignetting, parts, max_kernel, exact
    )  # fmt: skip
    pictures, reports = [], []
    with StageBar() as bar:
        asked = Asked(max_side, size, resize_depth, scale_m)
        given = read_sharp(
            photo, depth, distances[0], asked, longest=SWEEP_LONGEST, scene_size=SWEEP_SCENE_SIZE, bar=bar
        )
        options |= {"colour": given.colour, "sensor": _has_sensor(sensor, given, noise)}
        # What can be wrong with a distance is said before the long work on the first.
        cameras = [_camera(lens, given, distance, pixel_um, f_number, blades) for distance in distances]
        for number, camera in enumerate(cameras, 1):
            bar.prefix = f"{number} of {len(cameras)}: "
            made = camera.photograph(given.linear, given.depth_m, progress=bar, **options)
            pictures.append(made.blurred.srgb)
            told = {"photo": photo, "pixel_from": given.pixel_from(pixel_um)} | made.report
            reports.append(told | {"notes": [*given.notes, *made.report["notes"]]})
    texts = [f"{d:g} m" if math.isfinite(d) else "infinity" for d in distances]
    write_sweep(out, pictures, texts if captions else [""] * len(texts), seconds=seconds)
    if report is not None:
        report.write_text(json_text(reports) + "\n", encoding="utf-8")
    if as_json:
        typer.echo(json_text(reports))
        return
    for told in reports:
        low, high = told["coc_px"]
        taken = sum(told["seconds"].values())
        typer.echo(f"focus {told['focus_m']:g} m: blur radii {low:.1f} … {high:.1f} px, {taken:.0f} s")
    for note in dict.fromkeys(note for told in reports for note in told["notes"]):
        typer.echo(f"note: {note}")
    for path in (out, report):
        if path is not None:
            typer.echo(f"wrote {path}")


def _camera(
    lens: str, given: SharpInput, focus_m: float, pixel_um: str | None, f_number: float | None, blades: int | None
) -> Camera:
    from ..lens import load_lens
    from ..render import Camera

    height, width = given.depth_m.shape
    pitch = given.pitch_um(pixel_um)
    return Camera(
        load_lens(lens),
        focus_m=focus_m,
        pixel_um=pitch,
        pixels=None if pitch is not None else (width, height),
        f_number=f_number,
        blades=blades,
    )


def _has_sensor(asked: bool | None, given: SharpInput, noise: bool) -> bool:
    """A mosaic of colours that are not the camera's adds its artefacts and nothing else, so it must be asked for."""
    return asked if asked is not None else given.colour is not None or noise


def _options(
    bands: str,
    noise: bool,
    saturation: str,
    seed: int,
    full_field: bool,
    field: tuple[float, float],
    nodes: str | None,
    vignetting: bool,
    parts: int,
    max_kernel: int,
    exact: bool,
) -> dict[str, Any]:
    """Arguments of `Camera.photograph`."""
    from ..render.photograph import photo_bands

    photo_bands(bands)
    if not full_field and nodes is not None:
        raise DefocusError("--nodes is for --full-field; --patch has one PSF for the whole picture")
    if full_field and field != (0.0, 0.0):
        raise DefocusError("--field is for --patch; with --full-field the picture's middle is the lens's axis")
    return {
        "bands": bands,
        "patch": None if full_field else field,
        "nodes": None if nodes is None else two_numbers(nodes, "--nodes", "ROWSxCOLUMNS such as 3x5"),
        "saturation": _saturation(saturation, seed),
        "noise": _noise(seed) if noise else None,
        "seed": seed,
        "relative_illumination": vignetting,
        "parts": parts,
        "most_kernel_px": max_kernel,
        "exact": exact,
    }


def _noise(seed: int) -> Noise:
    import jax

    from ..photo import draw_noise

    return draw_noise(jax.random.fold_in(jax.random.key(seed), 0))


def _saturation(text: str, seed: int) -> float:
    if text == "none":
        return 0.0
    if text == "paper":
        import jax

        from ..photo import draw_saturation

        return float(draw_saturation(jax.random.fold_in(jax.random.key(seed), 2)))
    try:
        power = float(text)
    except ValueError:
        power = math.nan
    if not 0.0 <= power <= 100.0:
        raise DefocusError(f"--saturation {text}: expected none, paper, or a number from 0 to 100")
    return power


def _distances(text: str) -> list[float]:
    try:
        distances = [float(part) for part in text.split(",")]
    except ValueError:
        distances = []
    if not distances or not all(d > 0.0 for d in distances):
        raise DefocusError(f"--focus-m {text}: expected distances in metres such as 0.7,1.2,inf")
    return distances


def _check_report(report: Path | None) -> None:
    if report is not None and report.suffix != ".json":
        raise DefocusError(f"{report}: expected a name that ends in .json")
    if report is not None and not report.resolve().parent.is_dir():
        raise DefocusError(f"{report}: cannot be written: there is no folder {report.parent}")


def _check_outputs(out: Path, sharp: Path | None, raw: Path | None, report: Path | None, bits: int) -> None:
    """What can be wrong with the files is said before the long work."""
    from ..photo import check_picture_path

    for path in (out, sharp):
        if path is not None:
            check_picture_path(path, bits=bits)
    check_outputs(raw, None)
    _check_report(report)


def _write(path: Path, srgb: Any, linear: Any, bits: int) -> None:
    from ..photo import write_linear, write_picture

    if path.suffix.lower() in (".npy", ".npz"):
        write_linear(path, linear)
    else:
        write_picture(path, srgb, bits=bits)


def _write_raw(path: Path, made: Photograph, given: SharpInput) -> None:
    import numpy as np

    from ..photo import SensorColour

    colour = given.colour or SensorColour.make()
    assert made.blurred.raw is not None
    np.savez_compressed(
        path,
        mosaic=made.blurred.raw,
        pattern=np.array(colour.pattern),
        white_balance=np.asarray(colour.white_balance),
        camera_to_srgb=np.asarray(colour.camera_to_srgb),
    )


def _tell(told: dict[str, Any], files: list[Path], as_json: bool) -> None:
    if as_json:
        typer.echo(json_text(told))
        return
    low, high = told["coc_px"]
    times = ", ".join(f"{name} {value:.1f} s" for name, value in told["seconds"].items())
    shown = {
        "lens": f"{told['lens']}, f/{told['f_number']:.3g}, focus {told['focus_m']:g} m",
        "picture": f"{told['size'][0]}×{told['size'][1]}, pixels of {told['pixel_um']:.3g} µm ({told['pixel_from']})",
        "depth": f"{told['nearest_m']:.3g} … {told['farthest_m']:.3g} m",
        "blur radii": f"{low:.1f} … {high:.1f} px in {told['layers']} layers",
        "PSFs": f"{told['psfs_computed']} of {told['kernel_px']} px or less at {told['nodes'][0]}×{told['nodes'][1]} "
        f"nodes, {', '.join(told['bands'])}",
        "time": times,
    }
    for name, value in shown.items():
        typer.echo(f"{name:<12}{value}")
    for note in told["notes"]:
        typer.echo(f"{'note':<12}{note}")
    for path in files:
        typer.echo(f"wrote {path}")


__all__ = ["blur", "refocus"]
