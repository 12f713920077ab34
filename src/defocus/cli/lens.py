"""`defocus lens`: list, show, analyse, draw, spots, card, survey, convert."""

from __future__ import annotations

import dataclasses
import json
import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from ..errors import DefocusError
from ..files.ownership import OwnedFolder, check_no_folder_of_ours, check_not_input
from ..survey.criteria import Criteria
from .help_in_groups import command_group
from .options import FigureOption, JsonOption, LensArgument, LensOptions, check_outputs, command, json_text, print_files
from .progress import status_line

if TYPE_CHECKING:
    from ..analysis import Analysis
    from ..lens import Lens
    from ..survey import Measurement, SurveyRow

lens_app = command_group("lens", "Read, measure, draw, survey and convert lens prescriptions.")

TRACING = "tracing rays; the first time compiles"


@command(lens_app, "list")
def list_(
    search: Annotated[str, typer.Argument(metavar="WORD", help="Show only lenses with this word.")] = "",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """List the built-in lenses."""
    from ..lens import list_lenses

    entries = [e for e in list_lenses() if search.lower() in " ".join(map(str, dataclasses.astuple(e))).lower()]
    if as_json:
        typer.echo(json.dumps([dataclasses.asdict(e) for e in entries], indent=1, ensure_ascii=False))
        return
    if not entries:
        raise DefocusError(f"no built-in lens matches {search!r}; 'defocus lens list' shows them all")
    rows = [("name", "f/mm", "F", "image/mm", "type", "year", "patent", "states")]
    for e in entries:
        values = (f"{e.focal_length_mm:.4g}", f"{e.f_number:.3g}", f"{e.image_radius_mm:.4g}")
        rows.append((e.name, *values, e.type, str(e.year or ""), e.patent, " ".join(e.states)))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        typer.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


@command(lens_app)
def show(
    lens: LensArgument, as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False
) -> None:
    """Print what a lens is: first-order data, pupils, aberrations, states."""
    from ..lens import load_lens

    prescription = load_lens(lens)
    with status_line(TRACING):
        from ..survey import judge, measure_one

        measurement = measure_one(prescription)
    facts = _facts(prescription, measurement)
    verdict = judge(measurement)
    facts |= {"category": verdict.category, "kept": verdict.kept, "reasons": list(verdict.reasons)}
    if as_json:
        typer.echo(json.dumps(facts, indent=1, ensure_ascii=False, allow_nan=False))
        return
    typer.echo(f"{prescription.name}\n{'=' * len(prescription.name)}")
    for text, value in _lines(facts):
        typer.echo(f"{text:<34}{value}")


@command(lens_app)
def analyse(
    options: LensOptions,
    out: Annotated[Path | None, typer.Option("--out", help="Draw everything on a page: .png, .svg or .pdf.")] = None,
    as_json: JsonOption = False,
) -> None:
    """MTF, distortion, field curvature, ray fans, colour, illumination and spots, at any stop and focus distance."""
    check_outputs((out, "figure"), inputs=[options.lens])
    camera = options.camera()
    check_not_input(out, [camera.lens.source])
    with status_line(TRACING):
        from ..analysis import Analysis

        analysis = Analysis(camera)
        if out is not None:
            from .. import draw

            draw.save(draw.draw_analysis(analysis), out)
        text = json_text(analysis.numbers()) if as_json else "" if out is not None else _contrast_table(analysis)
    if text:
        typer.echo(text)
    if not as_json:
        print_files(out)


def _contrast_table(analysis: Analysis) -> str:
    """MTF, light and spots at each field in columns, sagittal and tangential contrast beside each other."""
    mtf, bent = analysis.mtf(), analysis.distortion()
    light, spots = analysis.illumination(), analysis.spot_sizes()
    camera = analysis.camera
    head = [f"{v:g} lp/mm S  T" for v in mtf.frequency_lp_mm]
    lines = [f"{camera.lens.name}, f/{float(camera.f_number):.3g}", ""]
    lines.append("image/mm  " + "  ".join(head) + "  distortion/%  light  RMS/µm")
    for i, height in enumerate(mtf.field_mm):
        pairs = [f"{s:.3f} {t:.3f}" for s, t in zip(mtf.sagittal[i], mtf.tangential[i], strict=True)]
        cells = "  ".join(p.rjust(len(h)) for p, h in zip(pairs, head, strict=True))
        rest = f"{bent.percent[i]:12.3f}  {light.relative[i]:5.3f}  {spots.rms_mm[i] * 1e3:6.2f}"
        lines.append(f"{height:8.3f}  {cells}  {rest}")
    return "\n".join(lines).replace("nan", "  –")


def _add_figure(name: str, function: str, about: str) -> None:
    """Add a command that draws a lens; what can be wrong with the figure's path is looked at before the long work."""

    def write(lens: LensArgument, out: FigureOption) -> None:
        from .. import draw
        from ..lens import load_lens

        check_outputs((out, "figure"), inputs=[lens])
        prescription = load_lens(lens)
        check_not_input(out, [prescription.source])
        with status_line(TRACING):
            draw.save(getattr(draw, function)(prescription), out)
        print_files(out)

    write.__doc__ = about
    command(lens_app, name)(write)


_add_figure("draw", "draw_layout", "Draw the layout: elements, stop, ray bundles of three fields, image plane.")
_add_figure("spots", "draw_spots", "Draw spot diagrams over the field, in three colours.")
_add_figure("card", "draw_card", "Draw one page with layout, first-order data and spot diagrams.")


@command(lens_app)
def convert(
    source: Annotated[str, typer.Argument(metavar="IN", help="A lens file or a built-in name.")],
    target: Annotated[
        Path,
        typer.Argument(metavar="OUT", help="The file to write: .json, .zmx, .seq, .optiland.json, .deeplens.json."),
    ],
) -> None:
    """Convert a lens file for another program: Zemax, CODE V, Optiland, DeepLens; or to our JSON."""
    from ..lens import load_lens, save_lens

    lens = load_lens(source)
    check_not_input(target, [lens.source])
    check_no_folder_of_ours(target)
    save_lens(lens, target)
    for note in lens.notes:
        typer.echo(f"note: {note}", err=True)
    print_files(target)


@command(lens_app)
def survey(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A folder of lens files, read recursively.")],
    criteria: Criteria,
    out: Annotated[Path, typer.Option("--out", help="The CSV file to write.")] = Path("survey.csv"),
    plots: Annotated[Path | None, typer.Option("--plots", help="A folder for the diversity figures.")] = None,
    states: Annotated[bool, "Add a row for each focus or zoom state."] = False,
) -> None:
    """Measure and classify every lens of a folder, and write one CSV row per lens."""
    from ..survey import survey_folder, write_csv
    from ..survey.lens_folder import lens_files

    files = lens_files(folder)
    if not files:
        raise DefocusError(f"{folder}: no lens files (.zmx, .seq, .txt, .json) in this folder")
    check_outputs((out, out.suffix.lower()), inputs=files)  # any ending will do
    pictures = OwnedFolder(plots, "survey of lenses") if plots is not None else None
    began = time.monotonic()
    with status_line(TRACING) as bar:
        rows = survey_folder(
            folder, criteria=criteria, states=states, progress=lambda done, total: bar("tracing", done, total)
        )
    write_csv(rows, out)
    _print_summary(rows, time.monotonic() - began)
    print_files(out)
    if pictures is not None:
        from ..draw import draw_diversity
        from ..draw.style import figure_bytes

        for name, figure in draw_diversity(rows):
            pictures.write(f"{name}.png", figure_bytes(figure))
            print_files(pictures.path / f"{name}.png")


def _print_summary(rows: list[SurveyRow], seconds: float) -> None:
    from ..survey.lens_folder import Status

    for status in get_args(Status):
        members = [row for row in rows if row.status == status]
        kinds = {c: sum(row.category == c for row in members) for c in ("interchangeable", "phone")}
        detail = ", ".join(f"{n} {c}" for c, n in kinds.items() if n)
        typer.echo(f"{status:<12}{len(members):>6}" + (f"  ({detail})" if detail else ""))
    typer.echo(f"{len(rows)} lenses in {seconds:.1f} s")


_LABELS = {
    "patent": "patent",
    "surfaces": "surfaces",
    "aspheric_surfaces": "of them aspheric",
    "focal_length_mm": "focal length / mm",
    "f_number": "F-number",
    "na": "numerical aperture",
    "back_focal_distance_mm": "back focal distance / mm",
    "total_track_mm": "total track / mm",
    "image_radius_mm": "image radius / mm",
    "half_field_deg": "half field / °",
    "stop_radius_mm": "stop radius / mm",
    "entrance_pupil": "entrance pupil / mm",
    "exit_pupil": "exit pupil / mm",
    "third_order": "third order / mm",
    "axial_rms_mm": "RMS spot on the axis / mm",
    "best_focus_mm": "best focus from image plane / mm",
    "phase_range_axis_waves": "phase range, axis / waves",
    "phase_range_edge_waves": "phase range, edge / waves",
    "category": "category",
    "states": "states",
}


def _facts(lens: Lens, m: Measurement) -> dict[str, Any]:
    """What a lens is; numbers that are not known or infinite are None."""

    def number(name: str) -> float | None:
        value = float(getattr(m, name))
        return value if math.isfinite(value) else None

    facts: dict[str, Any] = {
        "name": lens.name,
        "patent": lens.patent,
        "source": lens.source,
        "surfaces": len(lens.surfaces),
        "aspheric_surfaces": sum(s.is_aspheric for s in lens.surfaces),
    }
    for name in _LABELS:
        if hasattr(m, name):
            facts[name] = number(name)
    return facts | {
        "entrance_pupil": {
            "position_mm": number("entrance_pupil_mm"),
            "radius_mm": number("entrance_pupil_radius_mm"),
        },
        "exit_pupil": {
            "position_mm": number("exit_pupil_mm"),
            "radius_mm": number("exit_pupil_radius_mm"),
            "distance_to_image_mm": number("exit_pupil_to_image_mm"),
        },
        "third_order": {name: number(name) for name in ("tsc_mm", "cc_mm", "tac_mm")},
        "states": list(lens.state_names),
        "notes": list(lens.notes),
    }


def _lines(facts: dict[str, Any]) -> list[tuple[str, str]]:
    def text(value: object) -> str:
        if isinstance(value, dict):
            return ", ".join(f"{k.removesuffix('_mm').replace('_', ' ')} {text(v)}" for k, v in value.items())
        if isinstance(value, list):
            return ", ".join(map(str, value))
        return "unknown" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)

    lines = [(label, text(facts[key])) for key, label in _LABELS.items() if facts[key] not in ("", [])]
    lines += [("survey", "kept")] if facts["kept"] else [("rejected", reason) for reason in facts["reasons"]]
    return lines + [("note", note) for note in facts["notes"]]
