"""How many samples of the pupil a PSF needs.

A sum over cells of width Δs repeats itself on the sensor with period λ/Δs. The replica of a blur that reaches from
b₋ to b₊ around the window's centre stays out of a window of width w if λ/Δs ≥ w/2 + max(|b₋|, |b₊|) + margin; with
the pupil's span 2h = N Δs,

    N ≥ 2h (w/2 + max|b| + margin) / λ.

The rim wants more: a cell that it cuts shines from its centre, not from the part inside. With the weights of
`pupil_function` that costs about 0.34 N₀ / N² in relative L1 (0.7 where cells count by their parts), where N₀ is the
number above: less light crosses the rim of a larger blur. Hence at least N = 25 √N₀, which keeps the error near 5e-4,
and near 1e-3 where blades make the rim straight.

The paper's bound comes from the defocus alone: N_inf = 4 NA² / √(1 − NA²) · |z| / λ, and it takes 2 N_inf.
"""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Float

MOST_SAMPLES = 8192  # a pupil function of 0.5 GiB
SAMPLE_BUCKETS = {  # each size is a program of its own, which an accelerator takes long to compile
    "cpu": (128, 256, 384, 512, 640, 768, 896, 1024, 1280, 1536, 2048, 3072, 4096),
    "gpu": (768, 1152, 1536, 2304, 3072, 4096, MOST_SAMPLES),
}
SUPERSAMPLE_BUCKETS = {"cpu": (5, 9, 15, 25, 45), "gpu": (5, 15, 45)}  # odd: a point in the middle of each pixel
FINEST = 1.5  # points per finest fringe
FAINT = 80.0
MARGIN = 0.3  # of the distance, for the fringes outside the geometric blur
RIM = 25.0  # times the square root of the number that replicas ask for
FEWEST = 128


def needed_samples(
    radius: Float[Any, "*#batch"],
    blur: Float[Any, "*#batch 2 2"],
    window: Float[Any, "*#batch"],
    wavelength: Float[Any, "*#batch"],
    rim: Float[Any, ""] | float = RIM,
    margin: float = MARGIN,
) -> Float[Any, "*#batch"]:
    """The ray-derived number of samples; `radius` of the pupil in direction cosines, `blur` and `window` (its width) in
    mm. A finer `rim` leaves an error of 0.34 over its square; without a `margin` fringes outside the blur may meet
    those of a replica."""
    xp = blur.__array_namespace__()  # numbers on the host stay there: JAX would compile every step
    reach = xp.max(xp.abs(blur), axis=-1)
    # The blur's corners after a turn to any azimuth.
    farthest = xp.linalg.norm(reach, axis=-1)
    replicas = 2.0 * radius * (window / 2.0 + farthest) * (1.0 + margin) / wavelength
    return xp.maximum(replicas, rim * xp.sqrt(replicas))


def window_samples(na: float, window: float, wavelength: float) -> float:
    """Samples that suffice for every blur that a window (its width, mm) holds, on the axis of a lens of this NA."""
    reach = window / 2.0 + window / np.sqrt(2.0)
    replicas = 2.0 * na * reach * (1.0 + MARGIN) / wavelength
    return float(max(replicas, RIM * np.sqrt(replicas)))


def paper_bound(
    na: Float[Any, "*#batch"], defocus: Float[Any, "*#batch"], wavelength: Float[Any, "*#batch"]
) -> Float[Any, "*#batch"]:
    """The paper's N_inf for a sensor `defocus` mm from the focus, in air."""
    return 4.0 * na**2 / (1.0 - na**2) ** 0.5 * abs(defocus) / wavelength


def needed_supersampling(
    radius: Float[Any, "*#batch"],
    core: Float[Any, "*#batch"],
    pixel: Float[Any, "*#batch"],
    wavelength: Float[Any, "*#batch"],
) -> Float[Any, "*#batch"]:
    """Points per pixel and axis at which their mean is the pixel's integral; `core` and `pixel` in mm.

    Two rays of a pupil of `radius` h cannot interfere in fringes finer than λ / 2h; steps somewhat shorter than that
    miss nothing. The wider the blur, the fainter its fringes: their contrast falls with √(λ / h·core), and u points
    across a pixel leave about one part in u of it. The smaller of the two numbers keeps the error of a PSF near 0.01 in
    relative L1.
    """
    finest = FINEST * pixel * 2.0 * radius / wavelength
    faint = FAINT * jnp.sqrt(wavelength / (radius * jnp.maximum(core, 1e-6)))
    return jnp.minimum(finest, faint)


def supersampling_bucket(wanted: float, sizes: tuple[int, ...] = SUPERSAMPLE_BUCKETS["cpu"]) -> int:
    """The smallest number of points per pixel in use that is at least `wanted`, or the largest."""
    return next((size for size in sizes if size >= wanted), sizes[-1])


def bucket(samples: float, sizes: tuple[int, ...] = SAMPLE_BUCKETS["cpu"]) -> int:
    """The smallest size in use that holds `samples`; sizes past the table grow by 1024."""
    wanted = max(float(samples), FEWEST)
    for size in sizes:
        if size >= wanted:
            return size
    return int(np.ceil(wanted / 1024.0) * 1024)
