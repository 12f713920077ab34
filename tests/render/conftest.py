"""Small scenes and kernels of one size, so that few programs are compiled."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest

from defocus.psf.simple import disk

ROWS, COLS = 72, 96
SIZE = 32  # of the kernels
LAYERS = 16


def disks(coc_px: np.ndarray, size: int = SIZE) -> jnp.ndarray:
    """A disc for each blur radius: [layers, 1, size, size]."""
    return jnp.asarray(np.stack([disk(float(r), size) for r in np.asarray(coc_px)])[:, None], jnp.float32)


def smooth_noise(seed: int, rows: int = ROWS, cols: int = COLS, mean: float = 0.4) -> np.ndarray:
    """Coloured noise with a spectrum like that of photographs, positive."""
    rng = np.random.default_rng(seed)
    f = np.hypot(np.fft.fftfreq(rows)[:, None], np.fft.fftfreq(cols)[None, :])
    f[0, 0] = np.inf
    spectrum = np.fft.fft2(rng.standard_normal((3, rows, cols))) / f**1.2 * np.exp(-((f / 0.3) ** 4))
    noise = np.moveaxis(np.fft.ifft2(spectrum).real, 0, -1)
    return np.clip(mean + 0.12 * noise / noise.std(), 0.02, 1.5).astype(np.float32)


@pytest.fixture(scope="session")
def texture() -> np.ndarray:
    return smooth_noise(1)
