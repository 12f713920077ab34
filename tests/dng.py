"""RAW files made by the tests themselves: a DNG holds whatever numbers, under whatever name."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import tifffile

CAMERA_OF_XYZ = np.array([[0.6461, -0.1164, -0.0857], [-0.3825, 1.1597, 0.2534], [-0.0416, 0.1540, 0.6039]])


def _rational(values: np.ndarray) -> tuple[int, ...]:
    return tuple(int(part) for v in np.ravel(values) for part in (round(float(v) * 10000), 10000))


def write_dng(
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
    """Write a DNG: `stored` are the sensor's numbers, `pattern` that of the active area."""
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
