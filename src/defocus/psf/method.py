"""What tells one way to a PSF from another: the wavefront, its samples, the points per pixel, the transform.

`WAVE` is the best that we know, `paper.PAPER` the published one. `engine` computes either in the same full batches.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, get_args

from jaxtyping import Array, Float

from .propagate import Transform, matrix_dft
from .sampling import needed_samples
from .wavefronts import FindWavefront, Wavefronts, wavefront_on_sphere

Method = Literal["wave", "paper", "huygens", "fraunhofer", "gaussian", "disk"]
METHODS: tuple[Method, ...] = get_args(Method)
SampleCount = Callable[  # of wavefronts, the windows' widths and wavelengths in mm, and how finely the rim is cut
    [Wavefronts, Float[Array, "requests 1"], Float[Array, "requests waves"], Float[Array, ""]], Float[Array, "..."]
]


def samples_of_rays(
    waves: Wavefronts,
    window: Float[Array, "requests 1"],
    wavelength: Float[Array, "requests waves"],
    rim: Float[Array, ""],
) -> Float[Array, "requests waves"]:
    """As many as the blur of the traced rays takes; `rim` as `sampling.RIM`."""
    return needed_samples(waves.wavefront.radius, waves.wavefront.blur, window, wavelength, rim)


@dataclass(frozen=True)
class PsfMethod:
    """A way to a PSF; part of the compiled program, so that its functions stand at the top of a module.

    `samples` across the pupil follow from wavefronts, the window's width and the wavelengths (mm). A method with a
    `supersample` has these points per pixel and axis unless others are asked for. With `one_period`, points farther
    from the window's centre than half the distance of the sum's replicas are dark.
    """

    wavefront: FindWavefront = wavefront_on_sphere
    samples: SampleCount = samples_of_rays
    supersample: int | None = None
    transform: Transform = matrix_dft
    one_period: bool = False


WAVE = PsfMethod()
