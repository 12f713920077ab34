"""Folders of pairs that others made, without metadata: DPDD (`train_c/source`, `train_c/target`) or input and target.

Names of a pair agree, or, as in the DPDD data set itself, none does and both folders are in the same order.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Float, Shaped

from ..errors import DatasetError
from ..files.pictures import decode_picture
from ..files.png import png_bits
from ..files.stores import Store

SUFFIXES = (".png", ".jpg", ".jpeg")
SIDES = {"source": "target", "input": "target", "inputC": "target", "blur": "sharp", "blurred": "sharp"}
SHARPER = 1.25  # a blurred picture with so many times the fine contrast of its sharp one is the sharper


def verify_foreign(
    store: Store, *, pictures: bool, progress: Callable[[int, int], None] | None
) -> tuple[dict[str, int], list[str]]:
    """Counts and problems. Raises `DatasetError` where there are no pairs to look for."""
    folders: dict[str, list[str]] = {}
    for path in store.listing():
        if path.lower().endswith(SUFFIXES):
            folders.setdefault(path.rpartition("/")[0], []).append(path)
    problems: list[str] = []
    pairs: list[tuple[str, str]] = []
    sides = [(folder, _other(folder)) for folder in sorted(folders) if _other(folder) is not None]
    for blurred, beside in sides:
        # Left and right views may share the targets of the middle one.
        middle = f"{blurred.rpartition('/')[0][:-2]}_c/target" if _view(blurred) else ""
        sharp = middle if beside not in folders and middle in folders else beside
        if sharp is None or sharp not in folders:
            problems.append(f"{blurred}: there is no folder {sharp} with its sharp pictures")
            continue
        found, told = _matched(folders[blurred], folders[sharp])
        pairs += found
        problems += told
    missing = {_other(folder) for folder in folders} | {None}
    problems += [
        f"{folder}: there is no folder with its blurred pictures"
        for folder in sorted(folders)
        if folder.rpartition("/")[2] in SIDES.values() and folder not in missing
    ]
    if not pairs and not problems:
        raise DatasetError(
            "no pairs here: expected source and target folders (DPDD), input and target folders, or a folder that "
            "`defocus synth run` made",
            file=store.root,
        )
    counts = {"pairs": len(pairs), "folders": len(sides)}
    if pictures:
        counts["pictures decoded"] = 0
        for number, (blurred, sharp) in enumerate(pairs, 1):
            told, seen = _look(store, blurred, sharp)
            problems += told
            counts["pictures decoded"] += seen
            if progress is not None:
                progress(number, len(pairs))
    return counts, problems


def fine_contrast(picture: Shaped[np.ndarray, "h w 3"]) -> float:
    """Root mean square of the steps between neighbours, over the mean; at half the size, where noise counts little."""
    grey = picture.astype(np.float32).mean(axis=2)
    half = _halved(grey)
    steps = np.square(np.diff(half, axis=0)).mean() + np.square(np.diff(half, axis=1)).mean()
    return float(np.sqrt(steps) / max(float(half.mean()), 1e-6))


def _halved(grey: Float[np.ndarray, "h w"]) -> Float[np.ndarray, "h2 w2"]:
    height, width = (n - n % 2 for n in grey.shape)
    return grey[:height, :width].reshape(height // 2, 2, width // 2, 2).mean(axis=(1, 3))


def _other(folder: str) -> str | None:
    """The folder of the sharp pictures that belong to a folder of blurred ones."""
    parent, _, name = folder.rpartition("/")
    if name not in SIDES:
        return None
    return f"{parent}/{SIDES[name]}" if parent else SIDES[name]


def _view(folder: str) -> bool:
    return folder.rpartition("/")[0].endswith(("_l", "_r"))


def _matched(blurred: list[str], sharp: list[str]) -> tuple[list[tuple[str, str]], list[str]]:
    """Pairs by name; in order where no name agrees and there are as many of both."""

    def names(paths: list[str]) -> dict[str, str]:
        return {path.rpartition("/")[2].rpartition(".")[0]: path for path in paths}

    a, b = names(blurred), names(sharp)
    both = sorted(set(a) & set(b))
    if not both and len(a) == len(b):
        return list(zip(sorted(blurred), sorted(sharp), strict=True)), []
    told = [f"{a[name]}: no sharp picture of this name" for name in sorted(set(a) - set(b))]
    told += [f"{b[name]}: no blurred picture of this name" for name in sorted(set(b) - set(a))]
    return [(a[name], b[name]) for name in both], told


def _look(store: Store, blurred: str, sharp: str) -> tuple[list[str], int]:
    told, values, bits = [], [], []
    for path in (blurred, sharp):
        try:
            data = store.read(path)
            values.append(decode_picture(data, path))
            bits.append(png_bits(data))
        except DatasetError as error:
            told.append(f"{path}: {error.message}")
    if len(values) < 2:
        return told, len(values)
    a, b = values
    if a.shape != b.shape:
        told.append(f"{blurred}: {a.shape[1]}×{a.shape[0]} pixels, but {sharp} has {b.shape[1]}×{b.shape[0]}")
        return told, 2
    if bits[0] != bits[1]:
        told.append(f"{blurred}: {bits[0]} bits, but {sharp} has {bits[1]}")
    if min(a.shape[:2]) < 8:
        return told, 2
    if np.array_equal(a, b):
        told.append(f"{blurred}: the same picture as {sharp}")
    ratio = fine_contrast(a) / max(fine_contrast(b), 1e-9)
    if ratio > SHARPER:
        told.append(f"{blurred}: {ratio:.2f} times the fine contrast of {sharp}: blurred and sharp look exchanged")
    return told, 2
