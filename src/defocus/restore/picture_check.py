"""A look at all pictures of a training before its first step: their heads tell sizes, and whether they are pictures.

Without it a picture that is too small, or is none, would end a training when its turn comes, which may be hours later.
Files of this machine are looked at, not those of addresses, where each look is a request.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from ..errors import DatasetError
from ..files.pair_folders import AT_ONCE, THREADS
from .data import PairDataset

ROLES = ("blurred", "sharp")
STAGE = "checking pictures"

Told = Callable[[str, int, int], None]  # a stage, how many are done, how many there are
Place = tuple[PairDataset, int]


def check_pictures(places: Sequence[Place], least_px: int, why: str, told: Told | None = None) -> None:
    """Raise `DatasetError` that names the file of a pair (data set and number) whose pictures differ in size, are less
    than `least_px` high or wide, or are no pictures. `why` says what needs so many pixels, and what to do."""
    local = [place for place in places if place[0].is_local]
    for data in dict.fromkeys(data for data, _ in local):
        data.prepare()
    parts = [local[first : first + AT_ONCE] for first in range(0, len(local), AT_ONCE)]
    small: list[tuple[int, int, Place]] = []
    done = 0
    threads = ThreadPoolExecutor(THREADS)
    try:
        for part, sizes in zip(parts, threads.map(_sizes, parts), strict=True):
            small += [(*size, place) for place, size in zip(part, sizes, strict=True) if min(size) < least_px]
            done += len(part)
            if told is not None:
                told(STAGE, done, len(local))
    finally:
        threads.shutdown(cancel_futures=True)
    if small:
        rows, cols, (data, index) = min(small, key=lambda one: min(one[:2]))
        others = f"; so it is with {len(small)} of {len(local)} pairs, this is the smallest" if len(small) > 1 else ""
        raise DatasetError(f"{cols}×{rows} pixels do not hold {why}{others}", file=data.place(index))


def _sizes(places: Sequence[Place]) -> list[tuple[int, int]]:
    return [_size(place) for place in places]


def _size(place: Place) -> tuple[int, int]:
    data, index = place
    first, other = (data.size(index, role)[:2] for role in ROLES)
    if first != other:
        told = " and ".join(f"{cols}×{rows}" for rows, cols in (first, other))
        raise DatasetError(f"the blurred and the sharp picture have {told} pixels", file=data.place(index, "sharp"))
    return first
