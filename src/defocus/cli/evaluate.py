"""`defocus evaluate`, `groundtruth`, `downstream` and `ablate`: how good restorations, truths and data sets are."""

from __future__ import annotations

import math
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from ..errors import ConfigError, DefocusError
from ..files.ownership import check_no_folder_of_ours
from .options import DeviceOption, write_new
from .progress import ProgressBar, show_synthesis, show_training

if TYPE_CHECKING:
    from ..evaluate.results import Results
    from ..evaluate.table_file import EvaluationTable

PairsArgument = Annotated[
    Path, typer.Argument(help="Pairs: input and target, DPDD's layout, or the blurred ones of --sharp.")
]
SharpOption = Annotated[Path | None, "The folder of the sharp pictures, where FOLDER holds the blurred ones."]
KindOption = Annotated[str | None, "A published set: dpdd, realdof, rtf, lfdof or syndof, complete or not."]
SplitOption = Annotated[str, "train, validation or test."]
LimitOption = Annotated[int | None, typer.Option(help="Only so many pairs, evenly spread.", min=1)]


def evaluate(
    table: Path | None = typer.Argument(None, help="A table (TOML); --template writes one.", metavar="[TABLE]"),
    out: Path | None = typer.Option(None, "--out", help="Folder for pictures and results; a run there goes on."),
    images: tuple[Path, Path] | None = typer.Option(
        None, "--images", help="Instead of a table: two pictures or folders, the second with the truth."
    ),
    paper: str | None = typer.Option(None, "--paper", help="Instead of TABLE, one of the paper's: 1, 2, 3, S1, S4."),
    root: Path = typer.Option(Path(), "--root", help="With --paper: the folder with its runs and data."),
    partial: bool = typer.Option(
        False, "--partial", help="With --paper: test sets with fewer pictures than published, or other sizes."
    ),
    metrics: str | None = typer.Option(None, "--metrics", help="Such as psnr,ssim,lpips; in place of the table's."),
    lpips: Path | None = typer.Option(None, "--lpips", help="With --images: weights of LPIPS."),
    niqe: Path | None = typer.Option(None, "--niqe", help="With --images: parameters of NIQE."),
    device: str | None = typer.Option(None, "--device", help="auto, cpu, cuda; in place of the table's."),
    template: Path | None = typer.Option(None, "--template", help="Write a commented table to this file, no more."),
) -> None:
    """Restore test sets with each model of a table, measure the results, and write tables and figures.

    Exit code 1: some pictures could not be restored or measured; they are listed.
    """
    if sum(source is not None for source in (table, images, paper or template)) != 1:
        raise DefocusError(
            "give one of: a table with --out, --paper, --images with two pictures or folders, --template"
        )
    measures = None if metrics is None else [metric.strip() for metric in metrics.split(",")]
    if template is not None:
        _write_template(template, paper)
    elif images is not None:
        files = {key: path for key, path in (("lpips", lpips), ("niqe", niqe)) if path is not None}
        _compare(images, measures or ["psnr", "ssim"], files, device)
    else:
        if out is None:
            raise DefocusError("--out: a table needs a folder for its pictures and results")
        if lpips is not None or niqe is not None:
            raise DefocusError("--lpips and --niqe are for --images; a table says its own")
        from ..evaluate.paper_tables import paper_table
        from ..evaluate.table_file import load_table

        missing: list[str] = []
        if paper is not None:
            content, missing = paper_table(paper, root, partial=partial)
        else:
            assert table is not None
            content = load_table(table)
        for line in missing:
            typer.echo(f"left out: {line}", err=True)
        _evaluate_table(content.changed(metrics=measures, device=device), out)


def _evaluate_table(table: EvaluationTable, out: Path) -> None:
    from ..evaluate.evaluation import FIGURES, MARKDOWN, evaluate_table
    from ..evaluate.results import problem_lines

    with ProgressBar() as bar:
        results = evaluate_table(table, out, bar)
    show_results(results)
    figures = f" and {out / FIGURES}" if table.figures else ""
    typer.echo(f"wrote {out / MARKDOWN}, with CSV, JSON and LaTeX beside it{figures}")
    if results.problems:
        typer.echo(f"{len(results.problems)} problems:")
        for line in problem_lines(results):
            typer.echo(f"problem: {line}")
        raise typer.Exit(1)


def show_results(results: Results) -> None:
    """Print the tables of results."""
    from rich.console import Console
    from rich.table import Table

    from ..evaluate.measures import KINDS
    from ..evaluate.results import number_text, paper_comparison

    console = Console()
    for test in results.table.tests:
        metrics = results.metrics(test.key)
        table = Table(title=test.label, title_justify="left")
        for head in ("model", "trained on", *(KINDS[m].heading for m in metrics)):
            table.add_column(head)
        measures = {m: results.means(test.key, m) for m in metrics}
        for row in results.table.rows:
            means = [measures[m][row.key].value if row.key in measures[m] else math.nan for m in metrics]
            cells = [number_text(mean, KINDS[m].decimals) for mean, m in zip(means, metrics, strict=True)]
            table.add_row(row.label, row.trained_on, *cells)
        console.print(table)
        if comparison := paper_comparison(results, test):
            typer.echo(comparison)
        for note in results.notes.get(test.key, ()):
            typer.echo(f"{test.label}: {note}")


def _compare(images: tuple[Path, Path], metrics: list[str], files: dict[str, Path], device: str | None) -> None:
    from ..evaluate.evaluation import compare_pictures
    from ..evaluate.measures import KINDS
    from ..evaluate.results import number_text

    place = None if device in (None, "auto") else device
    with ProgressBar() as bar:
        comparison = compare_pictures(*images, metrics, files=files, device=place, progress=bar)

    def text(values: dict[str, float]) -> str:
        return "  ".join(f"{KINDS[m].label} {number_text(v, KINDS[m].decimals + 1)}" for m, v in values.items())

    for name, values in comparison.values.items():
        typer.echo(f"{name}: {text(values)}")
    if len(comparison.values) > 1:
        typer.echo(f"mean of {len(comparison.values)}: {text(comparison.means)}")
    for name, why in comparison.problems:
        typer.echo(f"problem: {name}: {why}")
    if comparison.problems:
        raise typer.Exit(1)


def _write_template(file: Path, paper: str | None) -> None:
    from ..evaluate.paper_tables import paper_text
    from ..evaluate.table_file import template as template_text

    text = template_text(file.name) if paper is None else paper_text(paper)
    write_new(file, text, "name your weights and test sets in it")


def groundtruth(
    folder: PairsArgument,
    out: Annotated[Path, "The page to write (.html); a .csv of the same name goes beside it."],
    sharp: SharpOption = None,
    kind: KindOption = None,
    split: SplitOption = "test",
    block: Annotated[int, typer.Option(help="Side of the blocks that are registered, in pixels.", min=16)] = 128,
    limit: LimitOption = None,
) -> None:
    """Measure misalignment, light and sharpness of the truths of real pairs, and what they do to PSNR."""
    from ..evaluate.ground_truth_page import write_ground_truth
    from ..evaluate.test_sets import find_real_pairs

    check_no_folder_of_ours(out)
    images = find_real_pairs(folder, sharp=sharp, kind=kind, split=split, limit=limit)
    title = folder.resolve().name + (f" against {sharp.resolve().name}" if sharp is not None else "")
    with ProgressBar() as bar:
        report = write_ground_truth(images, out, title=title, block_px=block, progress=bar)
    for name, reason in report.failures:
        typer.echo(f"not measured: {name}: {reason}", err=True)
    typer.echo(f"{len(report.pairs)} pairs measured; wrote {report.page} and {report.numbers}")
    if report.failures:
        raise typer.Exit(1)


def downstream(
    folder: PairsArgument,
    out: Annotated[Path, "The folder for downstream.csv, downstream.md and figures."],
    restored: Annotated[
        list[str] | None,
        "NAME=FOLDER of restored pictures, by their pairs' or files' names; repeatable.",
    ] = None,
    sharp: SharpOption = None,
    kind: KindOption = None,
    split: SplitOption = "test",
    task: Annotated[Literal["depth", "segmentation", "both"], "What the networks do."] = "both",
    depth_model: Annotated[str, "Depth Anything V2: small, base, large, a name in the cache, or a folder."] = "large",
    segmentation_model: Annotated[
        str, "SAM 2: tiny, small, base-plus, large, a name in the cache, or a folder."
    ] = "large",
    prompt: Annotated[
        Literal["masks", "points"], "Masks of the sharp picture, as in the paper, or their points."
    ] = "masks",
    points: Annotated[int, typer.Option(help="Points of the grid along a side, to find masks.", min=1)] = 32,
    least_score: Annotated[float, "Masks are kept that the network rates higher."] = 0.8,
    least_stability: Annotated[float, "Masks are kept that change less with the threshold."] = 0.95,
    device: DeviceOption = "auto",
    limit: LimitOption = None,
    figures: Annotated[int, typer.Option(help="Pictures whose depth errors and segments are drawn.", min=0)] = 3,
) -> None:
    """Judge restored pictures by what networks see in them: depth (Depth Anything V2) and segments (SAM 2)."""
    from ..evaluate.downstream import (
        DisparityEstimator,
        MaskChoice,
        Segmenter,
        TaskDrawings,
        judge,
        restored_pictures,
    )
    from ..evaluate.results import csv_text
    from ..evaluate.test_sets import find_real_pairs
    from ..files.ownership import OwnedFolder
    from ..restore.deblurring import choose_device

    images = find_real_pairs(folder, sharp=sharp, kind=kind, split=split, limit=limit)
    rows = {}
    for text in restored or []:
        name, sign, place = text.partition("=")
        if not sign or not name or name in ("input", "sharp") or name in rows:
            raise DefocusError(f"--restored {text}: expected NAME=FOLDER, each name once, not input or sharp")
        rows[name] = restored_pictures(place, images)
    where = choose_device(device)
    results = OwnedFolder(out, "judgement")
    drawings = TaskDrawings.spread(results, "figures", images, figures)
    results.require("downstream.csv", "downstream.md", *drawings.names)
    estimator = DisparityEstimator(depth_model, where) if task != "segmentation" else None
    segmenter = Segmenter(segmentation_model, where) if task != "depth" else None
    with ProgressBar() as bar:
        judgements = judge(
            images, rows, depth=estimator, segmenter=segmenter, prompt=prompt, drawings=drawings, progress=bar,
            choice=MaskChoice(points, least_score, least_stability),
        )  # fmt: skip
    about = [f"Depth by {estimator.source}, root mean square error in its disparities."] if estimator else []
    if segmenter is not None:
        about.append(f"Segments by {segmenter.source}, prompts are {prompt} of the sharp picture.")
    text = judgements.markdown(f"Downstream: {folder.resolve().name}", about)
    results.write("downstream.csv", csv_text([asdict(one) for one in judgements.pictures]).encode())
    results.write("downstream.md", text.encode())
    typer.echo("\n".join(line for line in text.splitlines() if line.startswith("|")))
    for name, reason in judgements.failures:
        typer.echo(f"not judged: {name}: {reason}", err=True)
    typer.echo(f"wrote {out / 'downstream.csv'}, {out / 'downstream.md'}")
    if figures:
        typer.echo(f"figures are in {out / 'figures'}")
    if judgements.failures:
        raise typer.Exit(1)


def ablate(
    plan: Path = typer.Argument(..., help="A plan (TOML); 'defocus synth init' writes one.", metavar="PLAN"),
    config: str = typer.Option("nafnet-small", "--train", help="Settings (TOML) of the training, or a recipe's name."),
    out: Path = typer.Option(..., "--out", help="Folder for data, trainings and results; a run there goes on."),
    changes: list[str] = typer.Option([], "--set", help="KEY=VALUE of the training, such as steps=1000."),
    seeds: str = typer.Option("0", "--seeds", help="Trainings of each variant, such as 0,1,2."),
    photographs: Path | None = typer.Option(
        None, "--photographs", help="Real photographs to restore; needs a metric without truth."
    ),
    tests: list[str] = typer.Option(
        [], "--test", help="KIND=FOLDER of a real test set with truth, such as realdof=data/realdof; can be repeated."
    ),
    metrics: str = typer.Option("psnr,ssim", "--metrics", help="Measures, such as psnr,ssim,niqe."),
    variants: str = typer.Option(
        "full,gaussian,no-isp,single-depth", "--variants", help="Which to make; 'paper' has the paper's own PSFs."
    ),
    workers: int = typer.Option(1, "--workers", min=1, help="Processes that make the pairs."),
) -> None:
    """Make the paper's four variants of a plan with the same patches, train a network on each, and compare them.

    The variants are the full synthesis, Gaussian PSFs, no ISP, and one depth for each patch.
    """
    from ..synth.engines import leave_room

    leave_room()  # JAX and PyTorch share the GPU
    from ..evaluate.ablation import CURVES, AblationStudy, variants_of
    from ..evaluate.table_file import Test
    from ..files.settings import validated
    from ..restore.config import TrainConfig
    from ..synth.engines.local import LocalEngine
    from ..synth.plan import load_plan

    try:
        numbers = [int(seed) for seed in seeds.split(",")]
    except ValueError as error:
        raise ConfigError(f"--seeds {seeds!r}; expected whole numbers, such as 0,1,2") from error
    training, measures = TrainConfig.from_toml(config, changes), [metric.strip() for metric in metrics.split(",")]
    selection = variants_of([name.strip() for name in variants.split(",")])
    real_tests = []
    for text in tests:
        kind, sign, folder = text.partition("=")
        if not sign or kind == "photographs":
            raise ConfigError(f"--test {text}: expected KIND=FOLDER, such as realdof=data/realdof")
        settings = {"kind": kind, "folder": str(Path(folder).absolute())}
        real_tests.append(validated(Test, settings, ConfigError))
    study = AblationStudy(load_plan(plan), training, out, numbers, photographs, measures, selection, real_tests)
    study.check()
    with ProgressBar(counted=True) as bar:
        study.make_pairs(LocalEngine(workers), lambda name, state: show_synthesis(bar, state, name))
        study.train(lambda name, state: show_training(bar, state, name))
    with ProgressBar() as stage_bar:
        ablation = study.judge(stage_bar)
    show_results(ablation.results)
    for missing in ablation.missing:
        typer.echo(missing)
    curves = f" and {out / CURVES}" if (out / CURVES).exists() else ""
    typer.echo(f"wrote {ablation.report}{curves}")
    if ablation.results.problems:
        typer.echo(f"{len(ablation.results.problems)} pictures had problems; {ablation.report} names them")
        raise typer.Exit(1)
