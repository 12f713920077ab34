"""White balance and colour matrix of a RAW file, and what to do where it has none.

Rules, in this order; whatever is not the first is reported in the photograph's notes.

White balance: the camera's own, if its three gains are finite and positive. Else the daylight gains that follow from
the camera's matrix, a property of the sensor and not of the picture. Else, without a matrix, grey: each colour's mean
over the unsaturated mosaic becomes the same.

Matrix: the file's own (DNG), if it maps white to white and can be inverted. Else from LibRaw's table of cameras: XYZ →
camera of the model, chained with sRGB → XYZ, rows scaled so that white stays white, inverted. Else the identity: the
sensor's own colours are taken for sRGB, and the picture looks pale.

A file with neither is refused by the caller: LibRaw knows some cameras by nothing but the file's size.
"""

from __future__ import annotations

import numpy as np
from jaxtyping import Float

# sRGB → XYZ, white point D65 (IEC 61966-2-1)
XYZ_OF_SRGB = np.array([[0.412453, 0.357580, 0.180423], [0.212671, 0.715160, 0.072169], [0.019334, 0.119193, 0.950227]])


def valid_gains(gains: Float[np.ndarray, "3"] | None) -> bool:
    """Whether these can be the gains of red, green and blue."""
    return gains is not None and bool(np.all(np.isfinite(gains)) and np.all(gains > 1e-6))


def valid_matrix(matrix: Float[np.ndarray, "3 3"]) -> bool:
    """Whether a camera → sRGB matrix maps white to white and can be inverted."""
    if not np.all(np.isfinite(matrix)) or np.any(np.abs(matrix.sum(axis=1) - 1.0) > 0.02):
        return False
    return bool(np.linalg.cond(matrix) < 1e3)


def matrix_of_model(
    camera_of_xyz: Float[np.ndarray, "3 3"],
) -> tuple[Float[np.ndarray, "3 3"], Float[np.ndarray, "3"]] | None:
    """Camera → sRGB and daylight gains, from XYZ → camera; None if that is no matrix of a camera."""
    camera_of_srgb = camera_of_xyz @ XYZ_OF_SRGB
    sums = camera_of_srgb.sum(axis=1)
    if not np.all(np.isfinite(sums)) or np.any(sums <= 1e-6):
        return None
    camera_of_srgb = camera_of_srgb / sums[:, None]
    if np.linalg.cond(camera_of_srgb) > 1e3:
        return None
    return np.linalg.inv(camera_of_srgb), 1.0 / sums


def choose_matrix(
    of_file: Float[np.ndarray, "3 3"], camera_of_xyz: Float[np.ndarray, "3 3"]
) -> tuple[Float[np.ndarray, "3 3"] | None, Float[np.ndarray, "3"] | None, str | None]:
    """The matrix, its daylight gains where they follow, and a note; no matrix where neither is one."""
    model = matrix_of_model(camera_of_xyz)
    daylight = None if model is None else model[1]
    if valid_matrix(of_file):
        return of_file, daylight, None
    if model is not None:
        return model[0], daylight, None
    return None, None, "no valid colour matrix: the sensor's colours were taken for sRGB's"


def grey_gains(
    mosaic: Float[np.ndarray, "h w"], colours: tuple[np.ndarray, np.ndarray, np.ndarray]
) -> Float[np.ndarray, "3"] | None:
    """Gains that make the mean of the unsaturated pixels grey; None where a colour has no light."""
    means = []
    for plane in colours:
        values = mosaic[plane]
        values = values[values < 0.95]
        means.append(values.mean(dtype=np.float64) if values.size else 0.0)
    if min(means) <= 1e-6:
        return None
    return means[1] / np.array(means)


def choose_gains(
    camera: Float[np.ndarray, "3"],
    daylight: Float[np.ndarray, "3"] | None,
    grey: Float[np.ndarray, "3"] | None,
) -> tuple[Float[np.ndarray, "3"] | None, str | None]:
    """The first valid white balance of the three, and a note if it is not the camera's."""
    if valid_gains(camera):
        return camera, None
    said = ", ".join(f"{g:.4g}" for g in camera)
    for gains, name in ((daylight, "the camera's daylight gains"), (grey, "the gains that make the mean grey")):
        if gains is not None and valid_gains(gains):
            numbers = ", ".join(f"{g:.3f}" for g in gains / gains.min())
            return gains, f"the camera's white balance ({said}) is invalid: {name} ({numbers}) were used"
    return None, f"the camera's white balance ({said}) is invalid"
