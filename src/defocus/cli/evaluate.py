"""`defocus evaluate`: models × training sets × test sets from one table file, or two folders quickly."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ..errors import ConfigError, DefocusError

if TYPE_CHECKING:
    from ..evaluate.results import Results


def evaluate(
    table: Path | None = typer.Argument(None, help="A table (TOML); --template writes one.", metavar="[TABLE]"),
    out: Path | None = typer.Option(None, "--out", help="Folder for pictures and results; a run there goes on."),
    images: tuple[Path, Path] | None = typer.Option(
        None, "--images", help="Instead of a table: two pictures or folders, the second with the truth."
    ),
    metrics: str | None = typer.Option(None, "--metrics", help="With --images, such as psnr,ssim,lpips."),
    lpips: Path | None = typer.Option(None, "--lpips", help="With --images: weights of LPIPS."),
    niqe: Path | None = typer.Option(None, "--niqe", help="With --images: parameters of NIQE."),
    device: str | None = typer.Option(None, "--device", help="auto, cpu, cuda; in place of the table's."),
    template: Path | None = typer.Option(None, "--template", help="Write a commented table to this file, no more."),
) -> None:
    """Restore test sets with each model of a table, measure the results, and write tables and figures.

    Exit code 1: some pictures could not be restored or measured; they are listed.
    """
    chosen = sum(given is not None for given in (table, images, template))
    if chosen != 1:
        raise DefocusError("give one of: a table with --out, --images with two pictures or folders, --template")
    if template is not None:
        _write_template(template)
    elif images is not None:
        files = {key: path for key, path in (("lpips", lpips), ("niqe", niqe)) if path is not None}
        _quick(images, (metrics or "psnr,ssim").split(","), files, device)
    elif table is not None:
        if out is None:
            raise DefocusError("--out: a table needs a folder for its pictures and results")
        if metrics is not None or lpips is not None or niqe is not None:
            raise DefocusError("--metrics, --lpips and --niqe are for --images; a table says its own")
        _matrix(table, out, device)


def _matrix(file: Path, out: Path, device: str | None) -> None:
    from ..evaluate.evaluation import FIGURES, MARKDOWN, evaluate_table
    from ..evaluate.table_file import load_table
    from ..evaluate.tables import problem_lines
    from .progress import StageBar

    table = load_table(file)
    if device is not None:
        table = table.model_copy(update={"device": device})
    with StageBar() as bar:
        results = evaluate_table(table, out, bar)
    show_results(results)
    drawn = f" and {out / FIGURES}" if table.figures else ""
    typer.echo(f"wrote {out / MARKDOWN}, with CSV, JSON and LaTeX beside it{drawn}")
    if results.problems:
        typer.echo(f"{len(results.problems)} problems:")
        for line in problem_lines(results):
            typer.echo(f"problem: {line}")
        raise typer.Exit(1)


def show_results(results: Results) -> None:
    """The tables, for a terminal."""
    from rich.console import Console
    from rich.table import Table as Drawn

    from ..evaluate.measures import KINDS
    from ..evaluate.tables import number_text

    console = Console()
    for test in results.table.tests:
        metrics = results.metrics(test.key)
        drawn = Drawn(title=test.label, title_justify="left")
        for head in ("model", "trained on", *(KINDS[m].heading for m in metrics)):
            drawn.add_column(head)
        found = {m: results.means(test.key, m) for m in metrics}
        for row in results.table.rows:
            means = [found[m][row.key].value if row.key in found[m] else math.nan for m in metrics]
            cells = [number_text(mean, KINDS[m].decimals) for mean, m in zip(means, metrics, strict=True)]
            drawn.add_row(row.label, row.trained_on, *cells)
        console.print(drawn)
        for note in results.notes.get(test.key, ()):
            typer.echo(f"{test.label}: {note}")


def _quick(images: tuple[Path, Path], metrics: list[str], files: dict[str, Path], device: str | None) -> None:
    from ..evaluate.evaluation import compare_pictures
    from ..evaluate.measures import KINDS
    from ..evaluate.tables import number_text
    from .progress import StageBar

    place = None if device in (None, "auto") else device
    with StageBar() as bar:
        found = compare_pictures(*images, [m.strip() for m in metrics], files=files, device=place, progress=bar)

    def told(values: dict[str, float]) -> str:
        return "  ".join(f"{KINDS[m].label} {number_text(v, KINDS[m].decimals + 1)}" for m, v in values.items())

    for name, values in found.values.items():
        typer.echo(f"{name}: {told(values)}")
    if len(found.values) > 1:
        typer.echo(f"mean of {len(found.values)}: {told(found.means)}")
    for name, why in found.problems:
        typer.echo(f"problem: {name}: {why}")
    if found.problems:
        raise typer.Exit(1)


def _write_template(file: Path) -> None:
    from ..evaluate.table_file import template as template_text

    if file.exists():
        raise ConfigError("is there already; take another name", file=file)
    file.write_text(template_text(file.name), encoding="utf-8")
    typer.echo(f"wrote {file}; next: name your weights and test sets in it")
