"""Images with known truth, and RAW files made by the tests themselves."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

SHAPE = (96, 128)  # one size for most tests: each new size compiles the programs again
SRGB_OF_XYZ = np.linalg.inv(
    [[0.412453, 0.357580, 0.180423], [0.212671, 0.715160, 0.072169], [0.019334, 0.119193, 0.950227]]
)
CAMERA_OF_XYZ = np.array([[0.6461, -0.1164, -0.0857], [-0.3825, 1.1597, 0.2534], [-0.0416, 0.1540, 0.6039]])


@pytest.fixture(scope="session")
def smooth() -> np.ndarray:
    """Linear sRGB without detail finer than 20 pixels."""
    y, x = np.mgrid[: SHAPE[0], : SHAPE[1]] / 100.0
    channels = [
        0.45 + 0.2 * np.sin(2.1 * x + p) * np.cos(1.7 * y - p) + 0.1 * np.cos(3.0 * (x + y) + p) for p in range(3)
    ]
    return np.stack(channels, axis=-1).astype(np.float32)


@pytest.fixture(scope="session")
def detailed() -> np.ndarray:
    """Linear sRGB with edges, lines at all angles and fine texture, its colours related as nature's are."""
    rng = np.random.default_rng(3)
    y, x = np.mgrid[: SHAPE[0], : SHAPE[1]].astype(float)
    radius = np.hypot(x - 60.0, y - 40.0)
    grey = 0.4 + 0.3 * np.tanh(np.sin(radius / 3.0) * 4.0) + 0.1 * ((x + 0.7 * y) % 17 < 8)
    tint = np.stack([0.9 + 0.1 * np.sin(x / 31.0), np.ones_like(x), 0.8 + 0.2 * np.cos(y / 23.0)], axis=-1)
    image = grey[..., None] * tint + 0.01 * rng.standard_normal((*SHAPE, 1))
    return np.clip(image, 0.02, 0.98).astype(np.float32)


def _rational(values: np.ndarray) -> tuple[int, ...]:
    return tuple(int(part) for v in np.ravel(values) for part in (round(float(v) * 10000), 10000))


@pytest.fixture(scope="session")
def write_dng() -> Callable[..., Path]:
    """Write a DNG: `stored` are the sensor's numbers, `pattern` that of the active area."""
    import tifffile

    def write(
        path: Path,
        stored: np.ndarray,
        *,
        pattern: str | None = "RGGB",
        black: tuple[int, ...] = (512,),
        white: int = 15872,
        neutral: tuple[float, ...] | None = (0.5, 1.0, 0.625),
        matrix: np.ndarray | None = CAMERA_OF_XYZ,
        orientation: int = 1,
        active: tuple[int, int, int, int] | None = None,
        make: str = "Canon",
        repeat: tuple[int, int] = (2, 2),
    ) -> Path:
        tags = [
            (271, 2, None, make, True),
            (272, 2, None, "Test", True),
            (274, 3, 1, orientation, True),
            (50706, 1, 4, bytes((1, 4, 0, 0)), True),
            (50708, 2, None, f"{make} Test", True),
            (50717, 4, 1, white, True),
            (50778, 3, 1, 21, True),
        ]
        if len(black) == 4:
            tags += [(50713, 3, 2, (2, 2), True)]
        tags += [(50714, 4, len(black), black if len(black) > 1 else black[0], True)]
        if pattern:
            tags += [
                (33421, 3, 2, repeat, True),
                (33422, 1, len(pattern), bytes("RGB".index(c) for c in pattern), True),
            ]
        if matrix is not None:
            tags += [(50721, 10, 9, _rational(matrix), True)]
        if neutral is not None:
            tags += [(50728, 5, 3, _rational(np.array(neutral)), True)]
        if active is not None:
            tags += [(50829, 4, 4, active, True)]
        tags.sort(key=lambda tag: tag[0])
        photometric = 32803 if pattern else 34892
        tifffile.imwrite(path, stored.astype(np.uint16), photometric=photometric, extratags=tags, metadata=None)
        return path

    return write
