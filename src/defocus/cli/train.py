"""`defocus train`: teach a network to undo defocus."""

from __future__ import annotations

import os
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from ..errors import ConfigError

if TYPE_CHECKING:
    from ..restore.training import TrainResult


def train(
    config: str | None = typer.Argument(None, help="Settings (TOML), or the name of a recipe.", metavar="CONFIG"),
    data: list[str] = typer.Option([], "--data", help="Folder of pairs, in place of those in CONFIG; can be repeated."),
    out: Path | None = typer.Option(None, "--out", help="Folder to train in, or to go on in."),
    changes: list[str] = typer.Option([], "--set", help="KEY=VALUE, such as steps=1000; can be repeated."),
    listed: bool = typer.Option(False, "--list", help="List the recipes."),
    write: Path | None = typer.Option(None, "--write", help="Write the recipe CONFIG to this file, to change it."),
    check: bool = typer.Option(False, "--check", help="Check CONFIG and show all settings, without training."),
    accept_changes: bool = typer.Option(False, "--accept-changes", help="Go on although settings or data changed."),
    anew: bool = typer.Option(False, "--anew", help="Forget what was trained in the folder, and begin again."),
) -> None:
    """Train a network on pairs of blurred and sharp pictures. Killed at any moment, the same command goes on."""
    from ..restore.config import TrainConfig, recipe_names, recipe_text

    if listed:
        for name in recipe_names():
            known = TrainConfig.from_toml(name)
            typer.echo(f"{name:16} {known.name}: {known.steps:,} steps, {known.model.name} ({known.model.size})")
        return
    if config is None:
        raise ConfigError("which settings? Give a file or a recipe's name; `defocus train --list` shows them")
    if write is not None:
        if Path(config).is_file():
            raise ConfigError(
                f"is a file, no recipe, and --write copies recipes: change the file itself, or copy it to {write}",
                file=config,
            )
        text = recipe_text(config)
        if write.exists():
            raise ConfigError("is there already; take another name", file=write)
        try:
            write.write_text(text, encoding="utf-8")
        except OSError as error:
            raise ConfigError(f"cannot be written: {error.strerror or error}", file=write) from error
        typer.echo(f"wrote {write}; next: defocus train {write} --data FOLDER --out RUN")
        return
    settings = TrainConfig.from_toml(config, changes).with_folders(data)
    if check:
        from ..restore.build import check_build
        from .outputs import json_text

        for note in check_build(settings):
            typer.echo(f"note: {note}", err=True)
        typer.echo(json_text(settings.as_json()))
        return
    if out is None:
        raise ConfigError("where to? --out gives the folder to train in")

    from ..restore.training import train as run_training
    from .train_progress import TrainBar

    main = os.environ.get("RANK", "0") == "0"  # of those that `accelerate launch` started
    with TrainBar() if main else nullcontext() as bar:
        result = run_training(settings, out, anew=anew, accept_changes=accept_changes, progress=bar)
    if main:
        _show(result)


def _show(result: TrainResult) -> None:
    kind = "moving average of the weights" if result.averaged else "weights"
    if result.history:
        best = max(result.history, key=lambda row: row["psnr"])
        typer.echo(
            f"best: {best['psnr']:.2f} dB, SSIM {best['ssim']:.4f} at step {best['step']:.0f} "
            f"(input {best['input_psnr']:.2f} dB)"
        )
    for file in (result.best, result.last):
        if file is not None:
            typer.echo(f"wrote {file} ({kind})")
