"""`defocus refocus`: a sharp photograph focused at several distances, or stopped down to several apertures."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import DefocusError
from .blur import SCENE, SWEEP_LONGEST, SWEEP_SCENE_SIZE, BlurOptions, SharpOptions, lens_metadata
from .options import JsonOption, check_outputs, json_text, numbers, print_files
from .progress import ProgressBar

if TYPE_CHECKING:
    from collections.abc import Sequence

SECONDS, FRAME_SECONDS = 0.6, 0.04  # of a picture, and of one of --frames


def refocus(
    source: SharpOptions,
    options: BlurOptions,
    out: Annotated[Path, "Side by side: .png, .jpg, .tif; animated: .gif, .webp, .mp4."],
    focus_m: Annotated[str | None, "Focus distances in metres: 0.7,1.2,inf; with --focus-at, behind that one."] = None,
    f_number: Annotated[str | None, "Stop the lens down; several, 1.4,2,2.8,4, are a sweep of the aperture."] = None,
    frames: Annotated[
        int | None,
        typer.Option(
            help="So many pictures of an animation, from the first distance or f-number to the last: even steps of "
            "inverse distance, or of stops.",
            min=2,
            max=2000,
        ),
    ] = None,
    breathing: Annotated[bool, "Each picture as large as the lens draws it at that focus; the widest fits."] = False,
    captions: Annotated[bool, typer.Option("--captions/--no-captions", help="The setting on each picture.")] = True,
    seconds: Annotated[
        float | None,
        typer.Option(
            help="How long an animation shows each picture. "
            f"[default: {SECONDS}; with --frames {FRAME_SECONDS}, 25 per second]",
            min=0.02,
            max=60,
        ),
    ] = None,
    report: Annotated[Path | None, "Also the reports, one per picture: .json."] = None,
    as_json: JsonOption = False,
) -> None:
    """Focus one photograph at several distances, or stop it down: side by side, or as an animation."""
    from ..draw import check_sweep_path, write_sweep
    from ..draw.sweep import is_animation
    from ..files.stores import write_file
    from ..render.distortion import breathing_zooms

    distances: tuple[float, ...] = ()
    stops: tuple[float | None, ...] = (None,)
    if f_number is not None:
        stops = numbers("--f-number", f_number, "f-numbers such as 1.4,2,2.8", low=math.ulp(0.0), high=1e6)
    if focus_m is not None:
        distances = numbers("--focus-m", focus_m, "distances in metres such as 0.7,1.2,inf", low=math.ulp(0.0))
    elif source.focus_at is None and not (len(stops) > 1 and source.photo.startswith(SCENE)):
        raise DefocusError("give --focus-m, the focus distances in metres, or --focus-at, a pixel of the photograph")
    count = len(distances) + (source.focus_at is not None)
    if count > 1 and len(stops) > 1:
        raise DefocusError("several distances and several f-numbers: sweep the focus or the aperture, one at a time")
    if frames is not None and max(count, len(stops)) < 2:
        raise DefocusError("--frames lie between several distances (--focus-m 0.7,inf) or f-numbers (--f-number 1.4,8)")
    if frames is not None and not is_animation(out):
        raise DefocusError(f"{out}: --frames are for an animation: .gif, .webp or .mp4")
    check_outputs((out, check_sweep_path), (report, ".json"), inputs=[source.photo, source.depth, options.lens])
    arguments = options.arguments()
    pictures, reports = [], []
    with ProgressBar() as bar:
        first = distances[0] if distances and source.focus_at is None else None
        light = source.read(first, SWEEP_LONGEST, SWEEP_SCENE_SIZE, bar)
        distances = distances if first is not None else (light.focus_m, *distances)
        settings = _settings(distances, stops, frames)
        arguments |= options.light_arguments(light) | {"progress": bar}
        # What can be wrong with a distance is said before the long work on the first.
        cameras = [options.camera(light, *setting) for setting in settings]
        rows, columns = light.depth_m.shape
        bent = bool(arguments["distortion"])
        zooms = breathing_zooms(cameras, (columns, rows), bent=bent) if breathing else [None] * len(cameras)
        for number, (camera, zoom) in enumerate(zip(cameras, zooms, strict=True), 1):
            bar.prefix = f"{number} of {len(cameras)}: "
            photograph = camera.photograph(light.linear, light.depth_m, **arguments, zoom=zoom)
            pictures.append(photograph.blurred.srgb)
            reports.append(options.report(source.photo, light, photograph))
    texts = [_caption(*setting, aperture=len(stops) > 1) if captions else "" for setting in settings]
    duration = seconds or (SECONDS if frames is None else FRAME_SECONDS)
    write_sweep(out, pictures, texts, lens_metadata(light, cameras[0]), seconds=duration)
    if report is not None:
        write_file(report, json_text(reports).encode() + b"\n")
    if as_json:
        typer.echo(json_text(reports))
        return
    for facts in reports:
        (low, high), took = facts["coc_px"], sum(facts["seconds"].values())
        stop = f", f/{facts['f_number']:.3g}" if len(stops) > 1 else ""
        size = f", enlarged by {facts['zoom']:.4f}" if breathing else ""
        typer.echo(f"focus {facts['focus_m']:.4g} m{stop}: blur radii {low:.1f} … {high:.1f} px{size}, {took:.0f} s")
    for note in dict.fromkeys(note for facts in reports for note in facts["notes"]):
        typer.echo(f"note: {note}")
    print_files(out, report)


def _settings(
    distances: Sequence[float], stops: Sequence[float | None], frames: int | None
) -> list[tuple[float, float | None]]:
    """Focus distance (m) and f-number of each picture: those that were asked for, or `frames` between them."""
    if frames is None:
        return [(distance, stop) for distance in distances for stop in stops]
    import numpy as np

    def between(values: np.ndarray) -> np.ndarray:
        return np.interp(np.linspace(0.0, len(values) - 1.0, frames), np.arange(len(values)), values)

    if len(stops) > 1:
        return [(distances[0], float(stop)) for stop in np.exp2(between(np.log2(np.array(stops, float))))]
    with np.errstate(divide="ignore"):
        return [(float(distance), stops[0]) for distance in 1.0 / between(1.0 / np.array(distances))]


def _caption(focus_m: float, f_number: float | None, *, aperture: bool) -> str:
    if aperture:
        return f"f/{f_number:.3g}"
    return f"{focus_m:.3g} m" if math.isfinite(focus_m) else "infinity"
