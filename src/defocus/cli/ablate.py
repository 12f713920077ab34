"""`defocus ablate`: what each part of the synthesis is worth to a network."""

from __future__ import annotations

from pathlib import Path

import typer

from ..errors import ConfigError


def ablate(
    plan: Path = typer.Argument(..., help="A plan (TOML); 'defocus synth init' writes one.", metavar="PLAN"),
    config: str = typer.Option("nafnet-small", "--train", help="Settings (TOML) of the training, or a recipe's name."),
    out: Path = typer.Option(..., "--out", help="Folder for data, trainings and results; a run there goes on."),
    changes: list[str] = typer.Option([], "--set", help="KEY=VALUE of the training, such as steps=1000."),
    seeds: str = typer.Option("0", "--seeds", help="Trainings of each variant, such as 0,1,2."),
    photographs: Path | None = typer.Option(
        None, "--photographs", help="Real photographs to restore; needs a metric without truth."
    ),
    metrics: str = typer.Option("psnr,ssim", "--metrics", help="Measures, such as psnr,ssim,niqe."),
    workers: int = typer.Option(1, "--workers", min=1, help="Processes that make the pairs."),
) -> None:
    """Make the paper's four variants of a plan with the same patches, train a network on each, and compare them.

    The variants are the full synthesis, Gaussian PSFs, no ISP, and one depth for each patch.
    """
    from ..synth.engines import leave_room

    leave_room()  # JAX and PyTorch share the GPU
    from ..evaluate.ablation import CURVES, AblationStudy
    from ..restore.config import TrainConfig
    from ..synth.engines.local import LocalEngine
    from ..synth.plan import load_plan
    from .evaluate import show_results
    from .progress import StageBar
    from .synth_progress import SynthBar
    from .train_progress import TrainBar

    try:
        numbers = [int(seed) for seed in seeds.split(",")]
    except ValueError as error:
        raise ConfigError(f"--seeds {seeds!r}; expected whole numbers, such as 0,1,2") from error
    training, measures = TrainConfig.from_toml(config, changes), [metric.strip() for metric in metrics.split(",")]
    study = AblationStudy(load_plan(plan), training, out, numbers, photographs, measures)
    study.check()
    with SynthBar() as synth_bar:
        study.make_pairs(LocalEngine(workers), lambda name, state: synth_bar(state, name))
    with TrainBar() as train_bar:
        study.train(lambda name, state: train_bar(state, name))
    with StageBar() as stage_bar:
        ablation = study.judge(stage_bar)
    show_results(ablation.results)
    for missing in ablation.missing:
        typer.echo(missing)
    curves = f" and {out / CURVES}" if (out / CURVES).exists() else ""
    typer.echo(f"wrote {ablation.report}{curves}")
    if ablation.results.problems:
        typer.echo(f"{len(ablation.results.problems)} pictures had problems; {ablation.report} names them")
        raise typer.Exit(1)
