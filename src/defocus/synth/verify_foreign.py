"""Folders of pairs that others made, without metadata: whether all pairs are there, whole, and the right way round."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from jaxtyping import Shaped

from ..errors import DatasetError
from ..files.pair_folders import find_sides, match_names, sharp_name
from ..files.pictures import decode_picture
from ..files.png import png_bits
from ..files.stores import Store

SHARPER = 1.25  # a blurred picture with so many times the fine contrast of its sharp one is the sharper


def verify_foreign(
    store: Store, *, pictures: bool, progress: Callable[[int, int], None] | None
) -> tuple[dict[str, int], list[str]]:
    """Counts and problems. Raises `DatasetError` where there are no pairs to look for."""
    problems: list[str] = []
    pairs: list[tuple[str, str]] = []
    sides = find_sides(store, eyes=True)
    for side in sides:
        if not side.sharp:
            problems.append(f"{side.blurred}: there is no folder {sharp_name(side.blurred)} with its sharp pictures")
        elif not side.blurred:
            problems.append(f"{side.sharp}: there is no folder with its blurred pictures")
        else:
            matching = match_names(side.blurred_files, side.sharp_files)
            pairs += [(side.blurred_files[blurred], side.sharp_files[sharp]) for blurred, sharp in matching.pairs]
            blurred_alone = [side.blurred_files[name] for name in matching.blurred_alone]
            sharp_alone = [side.sharp_files[name] for name in matching.sharp_alone]
            problems += [f"{path}: no sharp picture of this name" for path in blurred_alone]
            problems += [f"{path}: no blurred picture of this name" for path in sharp_alone]
    if not sides:
        raise DatasetError(
            "no pairs here: expected source and target folders (DPDD), input and target folders, or a folder that "
            "`defocus synth run` made",
            file=store.root,
        )
    counts = {"pairs": len(pairs), "folders": sum(bool(side.blurred) for side in sides)}
    if pictures:
        counts["pictures decoded"] = 0
        for number, (blurred, sharp) in enumerate(pairs, 1):
            faults, decoded = _check_pair(store, blurred, sharp)
            problems += faults
            counts["pictures decoded"] += decoded
            if progress is not None:
                progress(number, len(pairs))
    return counts, problems


def fine_contrast(picture: Shaped[np.ndarray, "h w 3"]) -> float:
    """Root mean square of the steps between neighbours, over the mean; at half the size, where noise counts little."""
    grey = picture.astype(np.float32).mean(axis=2)
    height, width = (n - n % 2 for n in grey.shape)
    half = grey[:height, :width].reshape(height // 2, 2, width // 2, 2).mean(axis=(1, 3))
    steps = np.square(np.diff(half, axis=0)).mean() + np.square(np.diff(half, axis=1)).mean()
    return float(np.sqrt(steps) / max(float(half.mean()), 1e-6))


def _check_pair(store: Store, blurred: str, sharp: str) -> tuple[list[str], int]:
    """Problems of a pair, and how many of its pictures could be decoded."""
    faults, values, bits = [], [], []
    for path in (blurred, sharp):
        try:
            data = store.read(path)
            values.append(decode_picture(data, path))
            bits.append(png_bits(data))
        except DatasetError as error:
            faults.append(f"{path}: {error.message}")
    if len(values) < 2:
        return faults, len(values)
    a, b = values
    if a.shape != b.shape:
        faults.append(f"{blurred}: {a.shape[1]}×{a.shape[0]} pixels, but {sharp} has {b.shape[1]}×{b.shape[0]}")
        return faults, 2
    if bits[0] != bits[1]:
        faults.append(f"{blurred}: {bits[0]} bits, but {sharp} has {bits[1]}")
    if min(a.shape[:2]) < 8:
        return faults, 2
    if np.array_equal(a, b):
        faults.append(f"{blurred}: the same picture as {sharp}")
    ratio = fine_contrast(a) / max(fine_contrast(b), 1e-9)
    if ratio > SHARPER:
        faults.append(f"{blurred}: {ratio:.2f} times the fine contrast of {sharp}: blurred and sharp look exchanged")
    return faults, 2
