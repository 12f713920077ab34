"""How pupils come to the sensor: as rays, as integrals over pixels or as points, and how many of them together.

Each way and number of samples is a program of its own. A GPU's take long to compile; where many PSFs are asked for,
those that most of them take compile side by side before it is known which PSF takes which.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Int

from .method import WAVE, PsfMethod
from .pixel_integral import is_cheaper, pixel_intensity
from .propagate import Intensity, compile_intensity
from .pupil_function import PupilFunction
from .ray_density import CELL_BUCKETS, ray_intensity
from .sampling import SAMPLE_BUCKETS, SUPERSAMPLE_BUCKETS
from .wavefronts import backend_kind

PUPIL_CELLS_AT_ONCE = {"cpu": 2**25, "gpu": 2**26}  # samples² × PSFs that are propagated together
MOST_AT_ONCE = {"cpu": 64, "gpu": 16}  # that a GPU lacks for a whole step it computes all the same
AHEAD = {"cpu": 0, "gpu": 2}  # batches that are computed while one is copied to the host
PROGRAMS_AT_ONCE = 8  # on a GPU
PIXELS_AT_ONCE = 2**22  # of the PSFs of one call of a GPU's program, which propagates a few of them after the other
COMMON_WINDOW = 128  # pixels across: a processor has one program of rays for all windows up to this
OF_RAYS = 0  # points per pixel, where light is that of rays
OF_PIXELS = 10**6  # where it is the integral over each pixel


def plan_propagation(samples: int, points: int, size: int, method: PsfMethod) -> tuple[int, dict[str, Any]]:
    """How many PSFs one call of a program takes, and what `intensity_batch` is told of them.

    A processor computes them one after the other; a GPU as many at once as fill it, in a loop.
    """
    across = 2 * samples if points == OF_PIXELS else max(samples, size * points)
    at_once = max(1, min(MOST_AT_ONCE[backend_kind()], PUPIL_CELLS_AT_ONCE[backend_kind()] // across**2))
    own = {"supersample": points, "transform": method.transform, "one_period": method.one_period}
    others: dict[int, Any] = {OF_RAYS: {"of": ray_intensity}, OF_PIXELS: {"of": pixel_intensity}}
    way = {"samples": samples, "size": size, **others.get(points, own)}
    if backend_kind() == "cpu":
        in_common = points == OF_RAYS and size <= COMMON_WINDOW
        return at_once, way | ({"size": COMMON_WINDOW, "window": size} if in_common else {})
    at_once = 1 << (at_once.bit_length() - 1)
    rows = 1 << max(PIXELS_AT_ONCE // size**2, 1).bit_length() - 1
    return max(at_once, min(rows, 256)), {"at_once": at_once, **way}


def compile_window(size: int) -> list[Callable[[], None]]:
    """What compiles a GPU's programs of most PSFs in windows of this size, the slowest first."""
    kinds = [(cells, OF_RAYS) for cells in CELL_BUCKETS["gpu"]]
    points = np.array(SUPERSAMPLE_BUCKETS["gpu"])
    for samples in SAMPLE_BUCKETS["gpu"][:-1]:
        ways = np.where(is_cheaper(np.full(len(points), samples), points, size), OF_PIXELS, points)
        kinds += [(samples, int(way)) for way in np.unique(ways)]
    plans = [plan_propagation(*kind, size, WAVE) for kind in kinds]
    return [partial(compile_intensity, rows, dtype=jnp.float32, **way) for rows, way in plans]


def compile_ahead(work: Sequence[Callable[[], None]]) -> None:
    """Begin to compile programs side by side.

    Nobody waits for the threads: whoever needs a program waits for that one, and says what is wrong.
    """
    pool = ThreadPoolExecutor(2 * PROGRAMS_AT_ONCE)
    for piece in work:
        pool.submit(piece)
    pool.shutdown(wait=False)


def in_batches(
    pairs: list[tuple[int, int]], batch: int, compute: Callable[[Int[np.ndarray, "batch 2"], int], Intensity]
) -> Iterator[tuple[list[tuple[int, int]], Intensity]]:
    """Some of the `pairs` at a time, and what `compute` makes of them and of their number, on the host."""
    parts = [pairs[start : start + batch] for start in range(0, len(pairs), batch)]
    ahead: deque[Intensity] = deque()
    for number, part in enumerate(parts):
        rows = np.array(part + [part[-1]] * (batch - len(part)))  # full, so that one size compiles
        ahead.append(compute(rows, len(part)))
        if len(ahead) > AHEAD[backend_kind()]:
            yield parts[number - len(ahead) + 1], jax.device_get(ahead.popleft())
    while ahead:
        yield parts[-len(ahead)], jax.device_get(ahead.popleft())


@jax.jit
def _take_on_device(pupils: PupilFunction, rows: Int[Array, " batch"], waves: Int[Array, " batch"]) -> PupilFunction:
    return jax.tree.map(lambda leaf: leaf[rows, waves], pupils)


def take_pupils(
    pupils: PupilFunction, rows: Int[np.ndarray, " batch"], waves: Int[np.ndarray, " batch"]
) -> PupilFunction:
    """Some of the pupils; a processor has their numbers where numpy finds them, without a program."""
    if backend_kind() == "cpu":
        return jax.tree.map(lambda leaf: np.asarray(leaf)[rows, waves], pupils)
    return _take_on_device(pupils, rows, waves)
