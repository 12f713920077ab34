"""`defocus demo`: from nothing to a data set and a page that shows it."""

from __future__ import annotations

from pathlib import Path

import typer


def demo(
    out: Path = typer.Option(Path("demo"), "--out", help="Folder to make."),
    show: bool = typer.Option(False, "--open/--no-open", help="Open the report in a browser."),
) -> None:
    """Make a small data set of procedural scenes with real lenses, and a report to look at: a few minutes."""
    from ..synth.example_plans import demo_plan
    from ..synth.report import write_report
    from .synth import make_engine, run_with_bar, show_summary

    summary = run_with_bar(demo_plan(), str(out), make_engine("local", 1, None))
    show_summary(summary)
    page = write_report(out)
    typer.echo(f"look at {page} and {out / 'sample.png'}")
    if show:
        import webbrowser

        webbrowser.open(page.resolve().as_uri())
    if not summary.complete:
        raise typer.Exit(1)
