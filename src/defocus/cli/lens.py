"""`defocus lens`: list, show, draw, spots, card, survey, convert."""

from __future__ import annotations

import dataclasses
import json
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import DefocusError

if TYPE_CHECKING:
    from ..lens import Lens
    from ..survey import Measurement, SurveyRow

lens_app = typer.Typer(
    help="Read, measure, draw, survey and convert lens prescriptions.", no_args_is_help=True, rich_markup_mode=None
)

LensArgument = Annotated[
    str, typer.Argument(metavar="LENS", help="A built-in name or a lens file; LENS@STATE selects a state.")
]
OutOption = Annotated[Path, typer.Option("--out", help="Where to write the picture: .png, .svg or .pdf.")]


@lens_app.command("list")
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
    rows = [
        (
            e.name,
            f"{e.focal_length_mm:.4g}",
            f"{e.f_number:.3g}",
            f"{e.image_radius_mm:.4g}",
            e.type,
            str(e.year or ""),
            e.patent,
            " ".join(e.states),
        )
        for e in entries
    ]
    _print_table(("name", "f/mm", "F", "image/mm", "type", "year", "patent", "states"), rows)


@lens_app.command()
def show(
    lens: LensArgument, as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")] = False
) -> None:
    """Print what a lens is: first-order data, pupils, aberrations, states."""
    from ..lens import load_lens
    from ..survey import judge, measure_one

    prescription = load_lens(lens)
    measured = measure_one(prescription)
    facts = _facts(prescription, measured)
    verdict = judge(measured)
    facts |= {"category": verdict.category, "kept": verdict.kept, "reasons": list(verdict.reasons)}
    if as_json:
        typer.echo(json.dumps(facts, indent=1, ensure_ascii=False, allow_nan=False))
        return
    typer.echo(f"{prescription.name}\n{'=' * len(prescription.name)}")
    for text, value in _lines(facts):
        typer.echo(f"{text:<34}{value}")


@lens_app.command()
def draw(lens: LensArgument, out: OutOption) -> None:
    """Draw the layout: elements, stop, ray bundles of three fields, image plane."""
    _draw("layout", lens, out)


@lens_app.command()
def spots(lens: LensArgument, out: OutOption) -> None:
    """Draw spot diagrams over the field, in three colours."""
    _draw("spots", lens, out)


@lens_app.command()
def card(lens: LensArgument, out: OutOption) -> None:
    """Draw one page with layout, first-order data and spot diagrams."""
    _draw("card", lens, out)


def _draw(kind: str, lens: str, out: Path) -> None:
    """Write a figure of a lens; what can be wrong with its path is looked at before the long work."""
    from ..draw import check_figure_path, draw_card, draw_layout, draw_spots, save
    from ..lens import load_lens

    check_figure_path(out)
    figures: dict[str, Callable[[Lens], Any]] = {"layout": draw_layout, "spots": draw_spots, "card": draw_card}
    save(figures[kind](load_lens(lens)), out)
    typer.echo(f"wrote {out}")


@lens_app.command()
def convert(
    source: Annotated[str, typer.Argument(metavar="IN", help="A lens file or a built-in name.")],
    target: Annotated[Path, typer.Argument(metavar="OUT", help="The file to write: .json or .zmx.")],
) -> None:
    """Convert a lens file to JSON or Zemax."""
    from ..lens import load_lens, save_lens

    lens = load_lens(source)
    save_lens(lens, target)
    for note in lens.notes:
        typer.echo(f"note: {note}", err=True)
    typer.echo(f"wrote {target}")


@lens_app.command()
def survey(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A folder of lens files, read recursively.")],
    out: Annotated[Path, typer.Option("--out", help="The CSV file to write.")] = Path("survey.csv"),
    plots: Annotated[Path | None, typer.Option("--plots", help="A folder for the diversity figures.")] = None,
    states: Annotated[bool, typer.Option("--states", help="Add a row for each focus or zoom state.")] = False,
    max_f_number: Annotated[float, typer.Option(help="Largest F-number.")] = 8.0,
    interchangeable_min_image_radius_mm: Annotated[float, typer.Option(help="Smallest image, cameras.")] = 10.0,
    interchangeable_min_track_mm: Annotated[float, typer.Option(help="Shortest lens, cameras.")] = 25.0,
    phone_min_image_radius_mm: Annotated[float, typer.Option(help="Smallest image, phones.")] = 2.5,
    phone_max_image_radius_mm: Annotated[float, typer.Option(help="Largest image, phones.")] = 8.0,
    phone_max_track_mm: Annotated[float, typer.Option(help="Longest lens, phones.")] = 15.0,
    max_na: Annotated[float, typer.Option(help="NA must stay below this.")] = 0.6,
    max_phase_range_waves: Annotated[float, typer.Option(help="Phase range must stay below this.")] = 10.0,
    max_axial_rms: Annotated[float, typer.Option(help="Largest axial RMS spot over image radius.")] = 0.01,
) -> None:
    """Measure and classify every lens of a folder, and write one CSV row per lens."""
    from ..survey import Criteria, survey_folder, write_csv

    criteria = Criteria(
        max_f_number=max_f_number,
        interchangeable_min_image_radius_mm=interchangeable_min_image_radius_mm,
        interchangeable_min_track_mm=interchangeable_min_track_mm,
        phone_min_image_radius_mm=phone_min_image_radius_mm,
        phone_max_image_radius_mm=phone_max_image_radius_mm,
        phone_max_track_mm=phone_max_track_mm,
        max_na=max_na,
        max_phase_range_waves=max_phase_range_waves,
        max_axial_rms=max_axial_rms,
    )
    if not out.resolve().parent.is_dir():
        raise DefocusError(f"{out}: the folder {out.resolve().parent} does not exist")
    if out.is_dir():
        raise DefocusError(f"{out}: is a folder; give the name of a CSV file")
    if plots is not None and plots.exists() and not plots.is_dir():
        raise DefocusError(f"{plots}: is a file; --plots takes a folder")
    began = time.monotonic()
    with _Progress("tracing") as progress:
        rows = survey_folder(folder, criteria=criteria, states=states, progress=progress)
    if not rows:
        raise DefocusError(f"{folder}: no lens files (.zmx, .seq, .txt, .json) in this folder")
    write_csv(rows, out)
    _print_summary(rows, time.monotonic() - began)
    typer.echo(f"wrote {out}")
    if plots is not None:
        from ..draw import draw_diversity, save

        plots.mkdir(parents=True, exist_ok=True)
        for name, figure in draw_diversity(rows):
            save(figure, plots / f"{name}.png")
            typer.echo(f"wrote {plots / f'{name}.png'}")


class _Progress:
    """A progress bar on the terminal, nothing elsewhere."""

    def __init__(self, text: str) -> None:
        from rich.console import Console
        from rich.progress import Progress

        console = Console(stderr=True)
        self._bar = Progress(console=console, transient=True, disable=not console.is_terminal)
        self._task = self._bar.add_task(text, total=None)

    def __enter__(self) -> _Progress:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def __call__(self, done: int, total: int) -> None:
        self._bar.update(self._task, completed=done, total=total)


def _print_summary(rows: list[SurveyRow], seconds: float) -> None:
    for status in ("kept", "rejected", "unreadable"):
        members = [row for row in rows if row.status == status]
        kinds = {c: sum(row.category == c for row in members) for c in ("interchangeable", "phone")}
        detail = ", ".join(f"{n} {c}" for c, n in kinds.items() if n)
        typer.echo(f"{status:<11}{len(members):>6}" + (f"  ({detail})" if detail else ""))
    typer.echo(f"{len(rows)} lenses in {seconds:.1f} s")


def _facts(lens: Lens, m: Measurement) -> dict[str, Any]:
    def number(value: float) -> float | None:
        return None if math.isnan(value) or math.isinf(value) else value

    return {
        "name": lens.name,
        "patent": lens.patent,
        "source": lens.source,
        "surfaces": len(lens.surfaces),
        "aspheric_surfaces": sum(s.is_aspheric for s in lens.surfaces),
        "focal_length_mm": number(m.focal_length_mm),
        "f_number": number(m.f_number),
        "na": number(m.na),
        "back_focal_distance_mm": number(m.back_focal_distance_mm),
        "total_track_mm": number(m.total_track_mm),
        "image_radius_mm": number(m.image_radius_mm),
        "half_field_deg": number(m.half_field_deg),
        "stop_radius_mm": number(m.stop_radius_mm),
        "entrance_pupil": {
            "position_mm": number(m.entrance_pupil_mm),
            "radius_mm": number(m.entrance_pupil_radius_mm),
        },
        "exit_pupil": {
            "position_mm": number(m.exit_pupil_mm),
            "radius_mm": number(m.exit_pupil_radius_mm),
            "distance_to_image_mm": number(m.exit_pupil_to_image_mm),
        },
        "third_order": {"tsc_mm": number(m.tsc_mm), "cc_mm": number(m.cc_mm), "tac_mm": number(m.tac_mm)},
        "axial_rms_mm": number(m.axial_rms_mm),
        "best_focus_mm": number(m.best_focus_mm),
        "phase_range_axis_waves": number(m.phase_range_axis_waves),
        "phase_range_edge_waves": number(m.phase_range_edge_waves),
        "states": list(lens.state_names),
        "notes": list(lens.notes),
    }


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


def _print_table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> None:
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    for row in (head, *rows):
        typer.echo("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())
