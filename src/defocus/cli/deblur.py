"""`defocus deblur`: photographs through a restoration network."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import DefocusError


def deblur(
    source: Annotated[
        Path, typer.Argument(help="A photograph (PNG, JPEG, TIFF or RAW), or a folder.", metavar="INPUT")
    ],
    weights: Annotated[Path, typer.Option(help="The network: a file of weights, ours or a published one.")],
    out: Annotated[Path, typer.Option(help="The folder for the results, under the photographs' names.")],
    recursive: Annotated[bool, typer.Option("--recursive", help="Photographs in folders of the folder too.")] = False,
    model: Annotated[
        str | None, typer.Option(help="nrknet, iniknet, nafnet or restormer; by default what the file is.")
    ] = None,
    options: Annotated[
        list[str] | None,
        typer.Option("--set", help="KEY=VALUE of the network, where the file does not tell: size=small, width=32."),
    ] = None,
    local_pool: Annotated[
        int | None,
        typer.Option(help="NAFNet: means over a window of so many pixels, best those it was trained on.", min=16),
    ] = None,
    tile: Annotated[int, typer.Option(help="Side of the tiles, in pixels; memory goes with its square.", min=32)] = 512,
    overlap: Annotated[int, typer.Option(help="Pixels that neighbouring tiles share.", min=0)] = 64,
    batch: Annotated[int, typer.Option(help="Tiles at a time.", min=1)] = 1,
    device: Annotated[str, typer.Option(help="auto (a GPU where there is one), cpu, cuda or cuda:1.")] = "auto",
    precision: Annotated[str, typer.Option(help="float32, or bf16: half the memory, on GPUs faster.")] = "float32",
    bits: Annotated[
        int | None, typer.Option(help="8 or 16 bits per colour; by default the photograph's own (RAW: 16).")
    ] = None,
    kind: Annotated[
        str | None, typer.Option("--format", help="png, jpg or tif; by default the photograph's own (RAW: png).")
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Make results anew that are there.")] = False,
) -> None:
    """Deblur photographs of any size with a trained network, tile by tile.

    EXIF data and colour profiles are kept. Results that are there are skipped, so that the same command goes on after a
    stop; those of other weights, settings or photographs are refused. One photograph that cannot be restored is told,
    and the others go on (exit code 1).
    """
    from ..restore.config import merged, parse_change
    from ..restore.deblurring import TileSettings, choose_device, deblur_files, plan_jobs
    from ..restore.made_by import MadeBy, file_sum
    from ..restore.models.checkpoints import load_model
    from ..restore.tiles import check_precision, plan_tiles
    from .progress import StageBar

    check_precision(precision)
    jobs = plan_jobs(source, out, recursive=recursive, kind=kind, bits=bits)  # type: ignore[arg-type]
    settings = TileSettings(tile, overlap, batch, choose_device(device), precision)
    more: dict[str, Any] = {} if local_pool is None else {"local_pool_px": local_pool}
    for text in options or []:
        if not text.partition("=")[1]:
            raise DefocusError(f"--set {text}: expected KEY=VALUE of the network, such as width=32")
        more = merged(more, parse_change(text))
    network = load_model(weights, model, **more)
    plan_tiles((tile, tile), tile, overlap, network.multiple)
    by = {"weights": file_sum(weights), "model": network.name, "options": more, "tile": tile, "overlap": overlap}
    made_by = MadeBy(out, by | {"precision": precision, "bits": bits})
    with StageBar() as bar:
        summary = deblur_files(network, jobs, settings, overwrite=overwrite, made_by=made_by, progress=bar)
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
        typer.echo(f"wrote {out}")
    if summary.failed:
        raise typer.Exit(1)


__all__ = ["deblur"]
