"""`defocus downstream`: depth and segments of blurred and restored pictures, against those of the sharp ones."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from ..errors import DefocusError


def downstream(
    folder: Annotated[
        Path, typer.Argument(help="Pairs: input and target, DPDD's layout, or the blurred ones of --sharp.")
    ],
    out: Annotated[Path, typer.Option(help="The folder for downstream.csv and downstream.md.")],
    restored: Annotated[
        list[str] | None,
        typer.Option(help="NAME=FOLDER of restored pictures, by their pairs' or files' names; repeatable."),
    ] = None,
    sharp: Annotated[Path | None, typer.Option(help="The folder of the sharp pictures.")] = None,
    kind: Annotated[str | None, typer.Option(help="A published set: dpdd, realdof, rtf, lfdof or syndof.")] = None,
    split: Annotated[str, typer.Option(help="train, validation or test.")] = "test",
    task: Annotated[str, typer.Option(help="depth, segmentation or both.")] = "both",
    depth_model: Annotated[
        str, typer.Option(help="Depth Anything V2: small, base, large, a name in the cache, or a folder.")
    ] = "large",
    segmentation_model: Annotated[
        str, typer.Option(help="SAM 2: tiny, small, base-plus, large, a name in the cache, or a folder.")
    ] = "large",
    prompt: Annotated[
        str, typer.Option(help="masks of the sharp picture, as in the paper, or their points.")
    ] = "masks",
    points: Annotated[int, typer.Option(help="Points of the grid along a side, to find masks.", min=1)] = 32,
    least_score: Annotated[float, typer.Option(help="Masks are kept that the network rates higher.")] = 0.8,
    least_stability: Annotated[float, typer.Option(help="Masks are kept that change less with the threshold.")] = 0.95,
    device: Annotated[str, typer.Option(help="auto (a GPU where there is one), cpu, cuda or cuda:1.")] = "auto",
    limit: Annotated[int | None, typer.Option(help="Only so many pictures, evenly spread.", min=1)] = None,
) -> None:
    """Judge restored pictures by what networks see in them: depth (Depth Anything V2) and segments (SAM 2)."""
    from ..evaluate.downstream.disparity import DisparityEstimator
    from ..evaluate.downstream.judgement import judge, restored_pictures
    from ..evaluate.downstream.segmentation import MaskChoice, Segmenter
    from ..evaluate.ground_truth import find_real_pairs
    from ..evaluate.tables import csv_text
    from ..files.stores import open_store
    from ..restore.deblurring import choose_device
    from .progress import StageBar

    if task not in ("depth", "segmentation", "both"):
        raise DefocusError(f"--task {task}: expected depth, segmentation or both")
    if prompt not in ("masks", "points"):
        raise DefocusError(f"--prompt {prompt}: expected masks or points")
    images = find_real_pairs(folder, sharp=sharp, kind=kind, split=split, limit=limit)
    rows = {}
    for text in restored or []:
        name, found, place = text.partition("=")
        if not found or not name or name in ("input", "sharp") or name in rows:
            raise DefocusError(f"--restored {text}: expected NAME=FOLDER, each name once, not input or sharp")
        rows[name] = restored_pictures(place, images)
    where = choose_device(device)
    store = open_store(out)
    store.check_writable()
    estimator = DisparityEstimator(depth_model, where) if task != "segmentation" else None
    segmenter = Segmenter(segmentation_model, where) if task != "depth" else None
    with StageBar() as bar:
        judgements = judge(
            images, rows, depth=estimator, segmenter=segmenter, prompt=prompt, progress=bar,  # type: ignore[arg-type]
            choice=MaskChoice(points, least_score, least_stability),
        )  # fmt: skip
    about = [f"Depth by {estimator.source}, root mean square error in its disparities."] if estimator else []
    if segmenter is not None:
        about.append(f"Segments by {segmenter.source}, prompts are {prompt} of the sharp picture.")
    text = judgements.markdown(f"Downstream: {folder.resolve().name}", about)
    store.write("downstream.csv", csv_text([asdict(one) for one in judgements.pictures]).encode())
    store.write("downstream.md", text.encode())
    typer.echo("\n".join(line for line in text.splitlines() if line.startswith("|")))
    for name, reason in judgements.failures:
        typer.echo(f"not judged: {name}: {reason}", err=True)
    typer.echo(f"wrote {out / 'downstream.csv'} and {out / 'downstream.md'}")
    if judgements.failures:
        raise typer.Exit(1)


__all__ = ["downstream"]
