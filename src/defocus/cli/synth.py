"""`defocus synth`: plan, check, make, verify, show and report data sets of pairs; `defocus demo`: all of it at once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import typer

from ..errors import DatasetError, DefocusError
from ..files.ownership import check_not_input
from ..files.stores import check_output
from .help_in_groups import command_group
from .options import check_outputs, write_new
from .progress import ProgressBar, show_synthesis, status_line

if TYPE_CHECKING:
    from ..synth.check import PlanPreview
    from ..synth.engines import Engine
    from ..synth.plan import Plan
    from ..synth.run import Progress, RunSummary
    from ..synth.verify import Verification

synth_app = command_group("synth", "Plan, make, check and look at data sets of sharp and blurred pairs.")

PLAN = typer.Argument(..., help="A plan (TOML); 'defocus synth init' writes one.", metavar="PLAN")
EngineName = Literal["local", "ray"]
FOLDER = typer.Argument(..., help="A folder of pairs.", metavar="FOLDER")


@synth_app.command()
def init(
    file: Path = typer.Argument(Path("plan.toml"), help="Where to write the plan."),
    paper: bool = typer.Option(False, "--paper/--ours", help="The paper's data set, or a plan to begin with."),
    dpdd: Path | None = typer.Option(None, "--dpdd", help="With --paper: folder of DPDD's RAW files."),
    force: bool = typer.Option(False, "--force", help="Overwrite a file that is there."),
) -> None:
    """Write a commented plan that runs as it is, or the one that makes the paper's data set."""
    from ..synth.plan import paper_template, plan_template

    if dpdd is not None and not paper:
        raise DefocusError("--dpdd goes with --paper")
    text = paper_template(file.name, dpdd) if paper else plan_template(file.name)
    write_new(file, text, f"defocus synth check {file}", force=force)


@synth_app.command()
def check(
    plan: Path = PLAN,
    out: Path | None = typer.Option(None, "--out", help="Where it will be made, to see whether there is room."),
    read: bool = typer.Option(True, "--read/--no-read", help="Open every photograph and its depth."),
) -> None:
    """Check sources, lenses and room before any work, and say what will be made."""
    from ..synth.check import preview_plan
    from ..synth.metadata import bytes_text
    from ..synth.plan import load_plan

    with status_line("checking") as bar:
        preview = preview_plan(load_plan(plan), out, read=read, progress=bar)
    _show_preview(preview)
    if preview.bytes_free is not None and preview.bytes_free < preview.bytes_needed:
        raise DatasetError(
            f"about {bytes_text(preview.bytes_needed)} are needed, {bytes_text(preview.bytes_free)} are free", file=out
        )


@synth_app.command()
def run(
    plan: Path = PLAN,
    out: str = typer.Option(..., "--out", help="Folder to make, or to go on with; or an address that fsspec knows."),
    workers: int = typer.Option(1, "--workers", min=1, help="Processes, or actors of a cluster."),
    engine: EngineName = typer.Option("local", "--engine", help="What runs the work."),
    address: str | None = typer.Option(None, "--address", help="Of the Ray cluster; by default one is started here."),
    limit: int | None = typer.Option(None, "--limit", min=1, help="Stop when the folder holds so many pairs."),
    replan: bool = typer.Option(
        False,
        "--replan",
        help="Take another plan or other photographs: remove all pairs and make them anew.",
    ),
    ledger: Path | None = typer.Option(None, "--ledger", help="File of the ledger, if not in the folder."),
) -> None:
    """Make the pairs of a plan. Killed at any moment, the same command goes on; lost pictures are made again."""
    from ..synth.plan import load_plan

    doer = make_engine(engine, workers, address)
    if ledger is not None:
        check_output(ledger, (ledger.suffix.lower(),))
        check_not_input(ledger, [plan])
    summary = run_with_bar(load_plan(plan), out, doer, limit=limit, replan=replan, ledger_file=ledger)
    show_summary(summary)
    if not summary.complete and not summary.limited:
        raise typer.Exit(1)


@synth_app.command()
def verify(
    folder: str = FOLDER,
    pictures: bool = typer.Option(True, "--pictures/--no-pictures", help="Decode every picture."),
    repair: bool = typer.Option(False, "--repair", help="Make lost and damaged pictures of ours again."),
    plan: Path | None = typer.Option(None, "--plan", help="To repair: the plan, where its files lie elsewhere."),
    ledger: Path | None = typer.Option(None, "--ledger", help="To repair: file of the ledger, if not in the folder."),
) -> None:
    """Check a folder of pairs: ours, or a foreign one in the DPDD or input/target layout."""
    from ..synth.folder import open_folder

    if repair:
        with open_folder(folder):  # whoever asks for repair is told where there is nothing to repair from
            pass
    verdict = _verified(folder, pictures)
    if repair and not verdict.sound:
        show_summary(_repair(folder, plan, ledger))
        verdict = _verified(folder, pictures)
    typer.echo(", ".join(f"{count} {name}" for name, count in verdict.counts.items()))
    for problem in verdict.problems:
        typer.echo(f"problem: {problem}")
    if not verdict.sound:
        raise typer.Exit(1)
    typer.echo("sound")


def _verified(folder: str, pictures: bool) -> Verification:
    from ..synth.verify import verify_folder

    with status_line("verifying") as bar:
        return verify_folder(folder, pictures=pictures, progress=lambda done, total: bar("verifying", done, total))


@synth_app.command()
def show(
    folder: str = FOLDER,
    pair: str = typer.Argument(..., help="Name of the pair, such as train-000012.", metavar="ID"),
    out: Path | None = typer.Option(None, "--out", help="Figure to write; by default ID.png."),
    record: bool = typer.Option(False, "--json", help="Print the pair's metadata."),
    plan: Path | None = typer.Option(
        None, "--plan", help="The folder's plan, where its photographs or lenses lie elsewhere now."
    ),
) -> None:
    """Make one pair again from its metadata alone, compare it bit for bit, draw its PSFs, layers and depth."""
    from ..draw import draw_pair, save
    from ..synth.plan import load_plan
    from ..synth.show import show_pair

    file = out or Path(f"{pair}.png")
    check_outputs((file, "figure"))
    with status_line("making the pair again"):
        remade = show_pair(folder, pair, None if plan is None else load_plan(plan))
    verdict = "the same bytes" if remade.same else f"{', '.join(remade.differing)} DIFFER"
    figure = draw_pair(
        remade.record, remade.pictures, depth_m=remade.depth_m, coc_px=remade.coc_px,
        layer_depth_m=remade.layer_depth_m, layer_coc_px=remade.layer_coc_px, psfs=remade.psfs,
        verdict=f"made again: {verdict}",
    )  # fmt: skip
    save(figure, file)
    if record:
        typer.echo(json.dumps(remade.record, indent=1))
    typer.echo(f"wrote {file}; {verdict}")
    if not remade.same:
        raise typer.Exit(1)


@synth_app.command()
def report(
    folder: str = FOLDER,
    out: Path | None = typer.Option(None, "--out", help="HTML file; by default report.html in the folder."),
) -> None:
    """Write one page with a contact sheet, histograms, rejected items and speed."""
    from ..synth.report import write_report

    check_outputs((out, ".html"))
    with status_line("reading the data set"):
        page = write_report(folder, out)
    typer.echo(f"wrote {page}")


def demo(
    out: Path = typer.Option(Path("demo"), "--out", help="Folder to make."),
    show: bool = typer.Option(False, "--open/--no-open", help="Open the report in a browser."),
) -> None:
    """Make a small data set of procedural scenes with real lenses, and a report to look at: a few minutes."""
    from ..synth.plan import demo_plan
    from ..synth.report import write_report

    summary = run_with_bar(demo_plan(), str(out), make_engine("local", 1, None))
    show_summary(summary)
    with status_line("writing the page"):
        page = write_report(out)
    typer.echo(f"look at {page.resolve().as_uri()} and {out / 'sample.png'}")
    typer.echo("next: defocus blur scene:portrait --lens canon-rf-85-f1.2 --out portrait.png")
    typer.echo("or:   defocus explore, a page to play with (extra [web])")
    if show:
        import webbrowser

        webbrowser.open(page.resolve().as_uri())
    if not summary.complete:
        raise typer.Exit(1)


def make_engine(name: EngineName, workers: int, address: str | None) -> Engine:
    """The engine that was asked for."""
    if name == "local":
        if address is not None:
            raise DefocusError("--address is for --engine ray")
        from ..synth.engines.local import LocalEngine

        return LocalEngine(workers)
    from ..synth.engines.ray import RayEngine

    return RayEngine(workers, address)


def _repair(folder: str, plan: Path | None, ledger: Path | None) -> RunSummary:
    """Make again what of a folder's pairs is lost or has another sum than its record says, and no other pairs."""
    from ..synth.folder import open_folder
    from ..synth.plan import load_plan, make_plan

    with open_folder(folder) as pairs:
        own_plan = make_plan(pairs.plan) if plan is None else load_plan(plan)
        count = sum(1 for _ in pairs.records())
    return run_with_bar(own_plan, folder, make_engine("local", 1, None), limit=count, sums=True, ledger_file=ledger)


def run_with_bar(plan: Plan, out: str, engine: Engine, **options: Any) -> RunSummary:
    """`run_plan` with its progress on the terminal."""
    from ..synth.run import run_plan

    notices = 0

    def watch(progress: Progress) -> None:
        nonlocal notices
        for notice in progress.notices[notices:]:
            typer.echo(notice)
        notices = len(progress.notices)
        show_synthesis(bar, progress)

    with ProgressBar(counted=True) as bar:
        return run_plan(plan, out, engine, watch=watch, **options)


def show_summary(summary: RunSummary) -> None:
    """What was made, in a few lines."""
    for split, count in summary.pairs.items():
        typer.echo(f"{split}: {count} of {summary.planned[split]} pairs")
    if summary.rejected or summary.failed:
        lost = f"{summary.rejected} candidates rejected, {summary.failed} failed"
        typer.echo(f"{lost}, most often because (numbers may differ):")
        for reason, count in summary.reasons:
            typer.echo(f"  {count} × {reason}")
    if summary.left_out:
        typer.echo(f"{len(summary.left_out)} photographs have no depth and were left out; {summary.left_out[0]} is one")
    if summary.limited:
        typer.echo("stopped at the limit; the same command without it goes on")
    elif not summary.complete:
        typer.echo(
            "fewer than wanted, too many were rejected or failed: raise select.surplus, allow more lenses or wider "
            "limits, or mend the sources"
        )


def _show_preview(preview: PlanPreview) -> None:
    from ..synth.check import blur_bars
    from ..synth.metadata import bytes_text

    for split in preview.pairs:
        typer.echo(
            f"{split}: {preview.pairs[split]} pairs of {preview.candidates[split]} candidates, "
            f"{preview.images[split]} images, {preview.lenses[split]} lenses"
        )
    free = "" if preview.bytes_free is None else f", {bytes_text(preview.bytes_free)} free"
    typer.echo(f"about {bytes_text(preview.bytes_needed)} of pictures{free}")
    if preview.blur_px:
        unsafe = f"; no lens is safe for {preview.unsafe} more" if preview.unsafe else ""
        count, median = len(preview.blur_px), preview.median_blur_px
        typer.echo(f"largest blur radius of {count} candidates, median {median:.2g} px{unsafe}:")
        typer.echo("\n".join(blur_bars(preview.blur_px)))
    for name, why in preview.rejected_lenses:
        typer.echo(f"lens left out: {name}: {why}")
    for problem in preview.problems:
        typer.echo(f"left out: {problem}")
    for warning in preview.warnings:
        typer.echo(f"warning: {warning}")
