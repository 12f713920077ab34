"""`defocus train` and `defocus deblur`: teach a network to undo defocus, and put photographs through it."""

from __future__ import annotations

import functools
import os
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from ..errors import ConfigError, DefocusError
from .options import DeviceOption, json_text, print_files, write_new
from .progress import ProgressBar, show_training

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
    anew: bool = typer.Option(
        False, "--anew", help="Remove what a training made in the folder, nothing else, and begin again."
    ),
) -> None:
    """Train a network on pairs of blurred and sharp pictures. Killed at any moment, the same command goes on."""
    from ..restore.config import TrainConfig, recipe_names, recipe_text

    if listed:
        for name in recipe_names():
            recipe = TrainConfig.from_toml(name)
            typer.echo(f"{name:16} {recipe.name}: {recipe.steps:,} steps, {recipe.model.name} ({recipe.model.size})")
        return
    if config is None:
        raise ConfigError("which settings? Give a file or a recipe's name; `defocus train --list` shows them")
    if write is not None:
        if Path(config).is_file():
            raise ConfigError(
                f"is a file, no recipe, and --write copies recipes: change the file itself, or copy it to {write}",
                file=config,
            )
        write_new(write, recipe_text(config), f"defocus train {write} --data FOLDER --out RUN")
        return
    settings = TrainConfig.from_toml(config, changes).with_folders(data)
    if check:
        from ..restore.build import check_build

        for note in check_build(settings):
            typer.echo(f"note: {note}", err=True)
        typer.echo(json_text(settings.as_json()))
        return

    from ..restore.run_folder import anew_notes
    from ..restore.training import train as run_training  # names the extra where PyTorch is missing

    if out is None:
        raise ConfigError("where to? --out gives the folder to train in")
    main = os.environ.get("RANK", "0") == "0"  # of those that `accelerate launch` started
    for note in anew_notes(out) if anew and main else ():
        typer.echo(note, err=True)
    with ProgressBar(counted=True) if main else nullcontext() as bar:
        watch = None if bar is None else functools.partial(show_training, bar)
        result = run_training(settings, out, anew=anew, accept_changes=accept_changes, progress=watch)
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


def deblur(
    source: Annotated[
        Path, typer.Argument(help="A photograph (PNG, JPEG, TIFF or RAW), or a folder.", metavar="INPUT")
    ],
    weights: Annotated[
        Path | None, "The network: a file of weights, ours or a published one; by default the one that is shipped."
    ] = None,
    out: Annotated[Path, "The folder for the results, under the photographs' names."] = Path("restored"),
    strength: Annotated[
        float, typer.Option(help="How much of the correction is taken, from 0 to 1.", min=0.0, max=1.0)
    ] = 1.0,
    blur_map: Annotated[
        Path | None,
        typer.Option(
            help="Write the estimated blur radius of the photograph too: a .tif in pixels, or a .png that is white "
            "at 16 pixels; of one photograph."
        ),
    ] = None,
    recursive: Annotated[bool, "Photographs in folders of the folder too."] = False,
    model: Annotated[str | None, "nrknet, iniknet, nafnet or restormer; by default what the file is."] = None,
    options: Annotated[
        list[str] | None,
        typer.Option("--set", help="KEY=VALUE of the network, where the file does not tell: size=small, width=32."),
    ] = None,
    local_pool: Annotated[
        int | None,
        typer.Option(help="NAFNet: means over a window of so many pixels, best those it was trained on.", min=16),
    ] = None,
    channels: Annotated[
        Literal["rgb", "bgr"] | None,
        "Order of colours that the weights were trained on; by default ours rgb, published nrknet and iniknet bgr.",
    ] = None,
    tile: Annotated[int, typer.Option(help="Side of the tiles, in pixels; memory goes with its square.", min=32)] = 512,
    overlap: Annotated[int, typer.Option(help="Pixels that neighbouring tiles share.", min=0)] = 64,
    batch: Annotated[int, typer.Option(help="Tiles at a time.", min=1)] = 1,
    device: DeviceOption = "auto",
    precision: Annotated[str, "float32, or bf16: half the memory, on GPUs faster."] = "float32",
    bits: Annotated[int | None, "8 or 16 bits per colour; by default the photograph's own (RAW: 16)."] = None,
    kind: Annotated[
        str | None, typer.Option("--format", help="png, jpg or tif; by default the photograph's own (RAW: png).")
    ] = None,
    overwrite: Annotated[bool, "Make results anew that are there and were made here."] = False,
) -> None:
    """Deblur photographs of any size with a trained network, tile by tile.

    EXIF data and colour profiles are kept. Results that are there are skipped, so that the same command goes on after a
    stop; those of other weights, settings or photographs are refused. One photograph that cannot be restored is told,
    and the others go on (exit code 1).
    """
    from ..files.ownership import file_sum
    from ..restore.blur_maps import check_map_file
    from ..restore.config import merged, parse_change
    from ..restore.deblurring import (
        SUM_LENGTH,
        DeblurFolder,
        DeblurWishes,
        TileSettings,
        choose_device,
        deblur_files,
        plan_jobs,
    )
    from ..restore.models.checkpoints import load_model
    from ..restore.shipped import shipped_weights
    from ..restore.tiles import check_precision, plan_tiles

    check_precision(precision)
    jobs = plan_jobs(source, out, recursive=recursive, kind=kind, bits=bits)  # type: ignore[arg-type]
    if blur_map is not None:
        check_map_file(blur_map, [job.photo for job in jobs], overwrite=overwrite)
    settings = TileSettings(tile, overlap, batch, choose_device(device), precision)
    weights = shipped_weights() if weights is None else weights
    switches = {"local_pool_px": local_pool, "channels": channels}
    changes: dict[str, Any] = {key: value for key, value in switches.items() if value is not None}
    for text in options or []:
        if not text.partition("=")[1]:
            raise DefocusError(f"--set {text}: expected KEY=VALUE of the network, such as width=32")
        changes = merged(changes, parse_change(text))
    network = load_model(weights, model, **changes)
    plan_tiles((tile, tile), tile, overlap, network.multiple)
    decisive = {"options": changes, "tile": tile, "overlap": overlap, "precision": precision, "bits": bits}
    if network.options.channels != "rgb":
        decisive["channels"] = network.options.channels  # older versions knew none but rgb
        typer.echo(f"{network.name} takes colours in the order {network.options.channels} (--channels)", err=True)
    if strength < 1.0:
        decisive["strength"] = strength
    by = {"weights": file_sum(weights)[:SUM_LENGTH], "model": network.name} | decisive
    with ProgressBar() as bar:
        folder, wishes = DeblurFolder(out, by), DeblurWishes(strength, blur_map)
        summary = deblur_files(network, jobs, settings, folder, overwrite=overwrite, progress=bar, wishes=wishes)
    for photo, note in summary.notes:
        typer.echo(f"{photo.name}: {note}")
    for _, reason in summary.failed:
        typer.echo(f"failed: {reason}", err=True)
    parts = [f"{len(summary.done)} of {len(jobs)} photographs restored by {network.name} in {summary.seconds:.1f} s"]
    if summary.skipped:
        parts.append(f"{len(summary.skipped)} were there already (--overwrite makes them anew)")
    if summary.failed:
        parts.append(f"{len(summary.failed)} failed")
    typer.echo("; ".join(parts))
    if summary.done:
        print_files(out)
    if summary.failed:
        raise typer.Exit(1)
