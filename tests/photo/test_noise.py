"""Sensor noise: mean and variance in every pixel, independence, Poisson's distribution, the estimate."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import norm
from scipy.stats import poisson as exact

from defocus.errors import PhotoError
from defocus.photo import Noise, SensorColour, add_noise, draw_noise, encode, estimate_noise, forward_isp
from defocus.photo.isp import expose
from defocus.photo.noise import poisson

SHAPE = (96, 128)


@pytest.fixture(scope="module")
def signal() -> np.ndarray:
    """From black to white, every pixel another signal."""
    return np.linspace(0.0, 1.0, SHAPE[0] * SHAPE[1], dtype=np.float32).reshape(SHAPE)


@pytest.fixture(scope="module")
def shots(signal: np.ndarray) -> tuple[Noise, np.ndarray]:
    """256 photographs of one signal with the same strong noise."""
    noise = Noise.make(3e-3, 2e-4**0.5)
    keys = jax.random.split(jax.random.key(5), 256)
    many = jax.jit(jax.vmap(lambda key: add_noise(key, signal, noise)))(keys)
    assert many.dtype == jnp.float32
    return noise, np.asarray(many, float)


def test_mean_and_variance_of_every_pixel(signal: np.ndarray, shots: tuple[Noise, np.ndarray]) -> None:
    _, many = shots
    count = len(many)
    variance = 3e-3 * signal.astype(float) + 2e-4
    score = (many.mean(axis=0) - signal) / np.sqrt(variance / count)
    # If each pixel's mean is right, these are standard normal numbers.
    assert abs(score.mean()) < 4.5 / np.sqrt(score.size)
    assert score.std() == pytest.approx(1.0, abs=0.03)
    assert np.abs(score).max() < norm.isf(1e-4 / score.size)
    ratio = many.var(axis=0, ddof=1) / variance
    # The fourth moment of Poisson numbers makes the scatter a little wider than √(2/255).
    assert ratio.mean() == pytest.approx(1.0, abs=4.5 * np.sqrt(2.1 / count / ratio.size))
    assert ratio.std() == pytest.approx(np.sqrt(2.0 / count), rel=0.1)
    for part in np.array_split(ratio.ravel(), 8):  # and it follows the signal
        assert part.mean() == pytest.approx(1.0, abs=4.5 * np.sqrt(2.5 / count / part.size))


def test_pixels_are_independent(signal: np.ndarray, shots: tuple[Noise, np.ndarray]) -> None:
    _, many = shots
    z = (many - signal) / np.sqrt(3e-3 * signal.astype(float) + 2e-4)
    for down, right in ((0, 1), (1, 0), (1, 1), (0, 2), (2, 0), (7, 3)):
        together = z[:, : SHAPE[0] - down, : SHAPE[1] - right] * z[:, down:, right:]
        assert abs(together.mean()) < 4.5 / np.sqrt(together.size)
    frames = (z[:-1] * z[1:]).mean()
    assert abs(frames) < 4.5 / np.sqrt(z.size)
    # A scalar added to a whole photograph would show in the scatter of the photographs' means.
    assert z.mean(axis=(1, 2)).std() == pytest.approx(1.0 / np.sqrt(SHAPE[0] * SHAPE[1]), rel=0.2)


@pytest.mark.parametrize("mean", [0.0, 0.03, 0.7, 3.0, 7.99, 8.01, 15.0, 60.0, 1000.0, 3e4])
def test_poisson_numbers_have_poissons_distribution(mean: float) -> None:
    """At every quantile: the normal number w becomes k if F(k − 1) < Φ(w) <= F(k)."""
    w = np.linspace(-5.0, 5.0, 400_001)
    k = np.asarray(jax.jit(poisson)(jnp.asarray(w, jnp.float32), jnp.full(w.shape, mean, jnp.float32)))
    assert np.all(k == np.floor(k))
    weight = norm.pdf(w) * (w[1] - w[0])
    values, where = np.unique(k, return_inverse=True)
    ours = np.bincount(where, weight)
    assert np.abs(np.cumsum(ours) - exact.cdf(values, mean)).max() < 2e-4
    if mean <= 60.0:  # each number's own probability; at larger means the grid of w is too coarse to tell
        assert 0.5 * np.abs(ours - exact.pmf(values, mean)).sum() < 1e-3


def test_no_light_no_shot_noise() -> None:
    dark = np.full(SHAPE, -0.01, np.float32)
    key = jax.random.key(1)
    np.testing.assert_array_equal(add_noise(key, dark, Noise.make(1e-3, 0.0)), 0.0)
    bright = np.full(SHAPE, 0.3, np.float32)
    np.testing.assert_array_equal(add_noise(key, bright, Noise.make(0.0, 0.0)), bright)
    only_read = np.asarray(add_noise(key, bright, Noise.make(0.0, 0.02)), float) - 0.3
    assert only_read.std() == pytest.approx(0.02, rel=0.03)


def test_the_same_key_gives_the_same_photograph(signal: np.ndarray) -> None:
    noise = Noise.make(1e-5, 1e-5)
    one, again, other = (np.asarray(add_noise(jax.random.key(s), signal, noise)) for s in (3, 3, 4))
    np.testing.assert_array_equal(one, again)
    assert np.mean(one == other) < 0.01


def test_noise_is_drawn_for_each_photograph() -> None:
    drawn = jax.vmap(draw_noise)(jax.random.split(jax.random.key(0), 4000))
    for values in (np.asarray(drawn.shot, float), np.asarray(drawn.read_deviation, float)):
        assert values.min() >= 0.5e-5 * (1 - 1e-6)
        assert values.max() <= 1.5e-5 * (1 + 1e-6)
        assert values.mean() == pytest.approx(1e-5, rel=0.03)
        assert values.std() == pytest.approx(1e-5 / np.sqrt(12), rel=0.05)
    assert abs(np.corrcoef(drawn.shot, drawn.read_deviation)[0, 1]) < 0.08


@pytest.mark.parametrize("level", [0.005, 0.02, 0.2])
def test_dark_patches_are_as_noisy_as_rsblurs_model(level: float) -> None:
    """β₁·Poisson(I / β₁) + β₂·Normal(0, 1), by numpy, through the same development; both betas at their reference."""
    noise = Noise.make(1e-5, 1e-5)
    colour = SensorColour.make("GBRG", (2.0, 1.0, 1.6))
    grey = jnp.full((256, 256, 3), level, jnp.float32)
    mosaic, developed = map(np.asarray, expose(grey, colour, noise=noise, key=jax.random.key(2)))
    clean, smooth = map(np.asarray, expose(grey, colour))
    rng = np.random.default_rng(7)
    model = 1e-5 * rng.poisson(clean / 1e-5) + 1e-5 * rng.standard_normal(clean.shape)
    of_model = forward_isp(jnp.asarray(model, jnp.float32), colour)
    np.testing.assert_allclose(smooth, encode(grey), atol=1e-5)
    assert np.std(mosaic - clean) == pytest.approx(np.std(model - clean), rel=0.02)
    ours, theirs = (np.std(picture - smooth, axis=(0, 1)) for picture in (developed, of_model))
    np.testing.assert_allclose(ours, theirs, rtol=0.05)
    assert np.all(255.0 * ours < 1.0)  # as a variance, β₂ made 9 levels of 255 at 0.005


@pytest.mark.parametrize("numbers", [(-1e-5, 0.0), (0.0, float("nan")), (2.0, 0.0)])
def test_impossible_noise_is_refused(numbers: tuple[float, float]) -> None:
    with pytest.raises(PhotoError, match="expected 0 to 1"):
        Noise.make(*numbers)


@pytest.mark.parametrize(("shot", "read"), [(1e-4, 1e-3), (1e-3, 1e-2), (2e-5, 3e-3)])
def test_noise_found_in_a_photograph(shot: float, read: float) -> None:
    """A picture half flat and half full of detail, over all signals."""
    rng = np.random.default_rng(1)
    y, x = np.mgrid[:768, :1024]
    clean = 0.02 + 0.75 * (x / 1024.0) * (0.4 + 0.6 * y / 768.0)
    clean = np.where(y % 256 < 128, clean, clean * (1.0 + 0.2 * np.sin(x * 0.9) * np.sin(y * 1.1)))
    noisy = shot * rng.poisson(clean / shot) + read * rng.standard_normal(clean.shape)
    found = estimate_noise(noisy.astype(np.float32))
    for signal in (0.05, 0.2, 0.6):  # what counts is the variance over the range of signals
        variance = float(found.shot) * signal + float(found.read_deviation) ** 2
        assert variance == pytest.approx(shot * signal + read**2, rel=0.12)


def test_noise_of_a_white_photograph_is_unknown() -> None:
    with pytest.raises(PhotoError, match="cannot be estimated: 0 blocks"):
        estimate_noise(np.ones((256, 256), np.float32))
