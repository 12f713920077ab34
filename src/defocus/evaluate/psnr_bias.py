"""What the flaws of a truth do to PSNR: how a perfect restoration would score, and how much blur would improve it.

A perfect restoration of the blurred picture shows the scene as sharp as the truth, but where and in the light in which
the blurred picture saw it. It is made from the truth itself, moved and lit as was measured; its PSNR against the truth
is the ceiling for every method. Averaging over the misalignment costs less squared error than a sharp edge in a wrong
place: the same picture blurred by some σ scores higher, which is what a network learns from such pairs.

Noise in the truth is part of the ceilings where pixels move by fractions, for interpolation smooths it.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy import ndimage

from ..restore.similarity import psnr
from .photometry import Photometry, to_display, to_linear
from .registration import Registration, Similarity, displaced, middle_of

SIGMAS_PX = (0.0, 0.3, 0.5, 0.7, 1.0, 1.4, 2.0, 2.8, 4.0)


@dataclass(frozen=True)
class PsnrBias:
    """PSNR in dB, all over the same pixels, those that no displacement brings in from outside."""

    input_db: float  # of the blurred picture
    corrected_db: float  # of the blurred picture against the truth moved and lit as it is
    ceilings_db: dict[str, float]  # of a perfect restoration that has one flaw, or all of them
    sigmas_px: tuple[float, ...]
    blurred_db: tuple[float, ...]  # of the perfect restoration blurred by each σ
    truth_blurred_db: tuple[float, ...]  # of the truth itself blurred by each σ

    @property
    def best_sigma_px(self) -> float:
        """The blur that scores highest."""
        return self.sigmas_px[int(np.argmax(self.blurred_db))]

    @property
    def reward_db(self) -> float:
        """What that blur gains; nothing, where the perfect restoration is the truth itself, of infinite PSNR."""
        best = max(self.blurred_db)
        return 0.0 if best == self.blurred_db[0] else best - self.blurred_db[0]


def measure_bias(
    sharp: Float[np.ndarray, "h w 3"],
    blurred: Float[np.ndarray, "h w 3"],
    registration: Registration,
    light: Photometry | None,
) -> PsnrBias:
    """The bias of a pair of display values 0..1."""
    linear = to_linear(sharp)
    planes = [ndimage.spline_filter(linear[..., c].astype(np.float64), 3, mode="mirror") for c in range(3)]
    whole = registration.similarity
    shift = Similarity(whole.right_px, whole.down_px)
    fields = {
        "shift": field_of(registration, shift, local=False),
        "similarity": field_of(registration, whole, local=False),
        "local": field_of(registration, whole, local=True),
    }
    largest = max(float(np.abs(f).max()) for f in fields.values())
    height, width = sharp.shape[:2]
    margin = min(int(np.ceil(largest)) + 4, min(height, width) // 4)
    inner = np.s_[margin : height - margin, margin : width - margin]
    truth = sharp[inner]
    ceilings: dict[str, float] = {}
    moved = linear
    for name, field in fields.items():
        moved = np.stack([displaced(plane, *field) for plane in planes], axis=-1).astype(np.float32)
        ceilings[name] = psnr(to_display(moved)[inner], truth)
    if light is None:
        ceilings |= {"exposure": float("nan"), "colour": float("nan")}
        perfect = moved
    else:
        ceilings["exposure"] = psnr(to_display(light.exposed(linear))[inner], truth)
        ceilings["colour"] = psnr(to_display(light.applied(linear))[inner], truth)
        perfect = light.applied(moved)
    shown = to_display(perfect)
    ceilings["all"] = psnr(shown[inner], truth)
    return PsnrBias(
        input_db=psnr(blurred[inner], truth),
        corrected_db=psnr(blurred[inner], shown[inner]),
        ceilings_db=ceilings,
        sigmas_px=SIGMAS_PX,
        blurred_db=tuple(psnr(_blurred(shown, s)[inner], truth) for s in SIGMAS_PX),
        truth_blurred_db=tuple(psnr(_blurred(sharp, s)[inner], truth) for s in SIGMAS_PX),
    )


def field_of(registration: Registration, whole: Similarity, *, local: bool) -> Float[np.ndarray, "2 h w"]:
    """Where content went, to the right and down, at every pixel; with what the blocks add to the similarity, where that
    is more than their uncertainty, even between their middles."""
    width, height = registration.size
    y, x = np.indices((height, width), np.float64)
    field = np.stack(whole.displacement(x, y, middle_of(registration.size)))
    if not local:
        return field
    residual = registration.residual_px
    significant = registration.reliable & ~registration.differs
    significant &= np.hypot(residual[..., 0], residual[..., 1]) > 2.0 * registration.spread_px
    rows = np.interp(np.arange(height), registration.y, np.arange(len(registration.y)))
    cols = np.interp(np.arange(width), registration.x, np.arange(len(registration.x)))
    places = np.meshgrid(rows, cols, indexing="ij")
    for axis in (0, 1):
        values = np.where(significant, residual[..., axis], 0.0)
        field[axis] += ndimage.map_coordinates(values, places, order=1, mode="nearest")
    return field


def _blurred(image: Float[np.ndarray, "h w 3"], sigma: float) -> Float[np.ndarray, "h w 3"]:
    """The picture blurred in display values, as a network's average over what may be there is."""
    return image if sigma == 0.0 else ndimage.gaussian_filter(image, (sigma, sigma, 0.0), mode="mirror")
