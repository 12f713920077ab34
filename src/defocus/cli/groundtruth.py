"""`defocus groundtruth`: how far the sharp pictures of real pairs can serve as the truth."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


def groundtruth(
    folder: Annotated[
        Path, typer.Argument(help="Pairs: input and target, DPDD's layout, or the blurred ones of --sharp.")
    ],
    out: Annotated[Path, typer.Option(help="The page to write (.html); a .csv of the same name goes beside it.")],
    sharp: Annotated[
        Path | None, typer.Option(help="The folder of the sharp pictures, where FOLDER holds the blurred ones.")
    ] = None,
    kind: Annotated[
        str | None, typer.Option(help="A published set: dpdd, realdof, rtf, lfdof or syndof, complete or not.")
    ] = None,
    split: Annotated[str, typer.Option(help="train, validation or test.")] = "test",
    block: Annotated[int, typer.Option(help="Side of the blocks that are registered, in pixels.", min=16)] = 128,
    limit: Annotated[int | None, typer.Option(help="Measure only so many pairs, evenly spread.", min=1)] = None,
) -> None:
    """Measure misalignment, light and sharpness of the truths of real pairs, and what they do to PSNR."""
    from ..evaluate.ground_truth import find_real_pairs
    from ..evaluate.ground_truth_page import write_ground_truth
    from .progress import StageBar

    images = find_real_pairs(folder, sharp=sharp, kind=kind, split=split, limit=limit)
    title = folder.resolve().name + (f" against {sharp.resolve().name}" if sharp is not None else "")
    with StageBar() as bar:
        report = write_ground_truth(images, out, title=title, block_px=block, progress=bar)
    for name, reason in report.failures:
        typer.echo(f"not measured: {name}: {reason}", err=True)
    typer.echo(f"{len(report.pairs)} pairs measured; wrote {report.page} and {report.numbers}")
    if report.failures:
        raise typer.Exit(1)


__all__ = ["groundtruth"]
