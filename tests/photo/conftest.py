"""Images with known truth."""

from __future__ import annotations

import numpy as np
import pytest

SHAPE = (96, 128)  # one size for most tests: each new size compiles the programs again


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
