"""The image pipeline: round trips, the four phases, a numpy reference, batches, gradients, responses, saturation."""

from __future__ import annotations

from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.ndimage import convolve

from defocus.errors import PhotoError
from defocus.photo import (
    LINEAR,
    METHODS,
    SRGB,
    Response,
    SensorColour,
    decode,
    demosaic,
    draw_saturation,
    encode,
    forward_isp,
    inverse_isp,
    parse_response,
    partial_isp,
    saturation_mask,
    stack_colours,
    synthesise_saturation,
)
from defocus.photo.demosaic import PATTERNS, _compress, _expand, sample_mosaic, turned, turned_pattern

MATRIX = np.array([[1.82, -0.96, 0.14], [-0.23, 1.77, -0.54], [-0.02, -0.47, 1.49]])
CAMERAS = [
    SensorColour.make(pattern, gains, MATRIX)
    for pattern, gains in zip(
        PATTERNS, ((2.0, 1.0, 1.6), (1.4, 1.0, 2.2), (1.0, 1.2, 1.9), (2.5, 1.0, 1.0)), strict=True
    )
]
INNER = np.s_[8:-8, 8:-8]


def _psnr(a: np.ndarray, b: np.ndarray) -> float:
    return float(-10.0 * np.log10(np.mean((np.asarray(a, float) - np.asarray(b, float)) ** 2)))


def _planes(shape: tuple[int, int], pattern: str) -> list[np.ndarray]:
    tiled = np.tile(np.array([*pattern]).reshape(2, 2), (shape[0] // 2, shape[1] // 2))
    return [tiled == c for c in "RGB"]


def _malvar_reference(mosaic: np.ndarray, pattern: str) -> np.ndarray:
    """Malvar's filters as printed in the paper of 2004, by convolution in float64."""
    g = np.array([[0, 0, -1, 0, 0], [0, 0, 2, 0, 0], [-1, 2, 4, 2, -1], [0, 0, 2, 0, 0], [0, 0, -1, 0, 0]]) / 8
    row = np.array([[0, 0, 0.5, 0, 0], [0, -1, 0, -1, 0], [-1, 4, 5, 4, -1], [0, -1, 0, -1, 0], [0, 0, 0.5, 0, 0]]) / 8
    other = (
        np.array([[0, 0, -1.5, 0, 0], [0, 2, 0, 2, 0], [-1.5, 0, 6, 0, -1.5], [0, 2, 0, 2, 0], [0, 0, -1.5, 0, 0]]) / 8
    )
    at = {name: convolve(mosaic, k, mode="mirror") for name, k in (("g", g), ("r", row), ("c", row.T), ("o", other))}
    red, green, blue = _planes(mosaic.shape, pattern)
    beside_red = np.zeros_like(green)
    beside_red[:] = (red.any(axis=1))[:, None]
    r = np.select([red, blue, beside_red], [mosaic, at["o"], at["r"]], at["c"])
    b = np.select([blue, red, beside_red], [mosaic, at["o"], at["c"]], at["r"])
    return np.stack([r, np.where(green, mosaic, at["g"]), b], axis=-1)


def _directional_reference(mosaic: np.ndarray, pattern: str) -> np.ndarray:
    """The directional method pixel by pixel, in float64, on the root of the mirrored mosaic, which is positive."""
    m = np.sqrt(np.pad(np.asarray(mosaic, float), 12, mode="reflect") + 0.01)
    h, w = m.shape
    tile = np.array([*pattern]).reshape(2, 2)
    colour = np.array([[tile[i % 2, j % 2] for j in range(w)] for i in range(h)])
    sign = np.where(colour == "G", 1.0, -1.0)
    d = {}
    for axis in (0, 1):
        sh = lambda a, k, axis=axis: np.roll(a, -k, axis)  # noqa: E731
        d[axis] = sign * (m - ((sh(m, 1) + sh(m, -1)) / 2 + (2 * m - sh(m, 2) - sh(m, -2)) / 4))
    change = {a: np.abs(np.roll(d[a], -1, a) - np.roll(d[a], 1, a)) for a in (0, 1)}
    diff = np.zeros_like(m)
    for i in range(7, h - 7):
        for j in range(7, w - 7):
            if colour[i, j] == "G":
                continue
            windows = {
                "n": (d[0][i - 4 : i + 1, j], change[0][i - 4 : i + 1, j - 2 : j + 3]),
                "s": (d[0][i : i + 5, j], change[0][i : i + 5, j - 2 : j + 3]),
                "w": (d[1][i, j - 4 : j + 1], change[1][i - 2 : i + 3, j - 4 : j + 1]),
                "e": (d[1][i, j : j + 5], change[1][i - 2 : i + 3, j : j + 5]),
            }
            weights = {k: 1.0 / (c.sum() ** 2 + 1e-10) for k, (_, c) in windows.items()}
            diff[i, j] = sum(weights[k] * v.mean() for k, (v, _) in windows.items()) / sum(weights.values())
    green = np.where(colour == "G", m, m + diff)
    out = np.stack([m, green, m], axis=-1)
    far = [(a, b) for a in (-3, 3) for b in (-1, 1)]
    for channel, name in ((0, "R"), (2, "B")):
        known = np.where(colour == name, diff, 0.0)
        for i in range(10, h - 10):
            for j in range(10, w - 10):
                if colour[i, j] not in (name, "G"):
                    near = sum(diff[i + a, j + b] for a in (-1, 1) for b in (-1, 1))
                    known[i, j] = (10 * near - sum(diff[i + a, j + b] + diff[i + b, j + a] for a, b in far)) / 32
        for i in range(11, h - 11):
            for j in range(11, w - 11):
                if colour[i, j] == "G":
                    mean = (known[i - 1, j] + known[i + 1, j] + known[i, j - 1] + known[i, j + 1]) / 4
                    out[i, j, channel] = green[i, j] - mean
                elif colour[i, j] != name:
                    out[i, j, channel] = green[i, j] - known[i, j]
    return out[12:-12, 12:-12] ** 2 - 0.01


@pytest.mark.parametrize("pattern", PATTERNS)
def test_malvar_is_that_of_the_paper_of_2004(detailed: np.ndarray, pattern: str) -> None:
    mosaic = np.asarray(sample_mosaic(jnp.asarray(detailed), jnp.int32(PATTERNS.index(pattern))))
    ours = demosaic(mosaic, PATTERNS.index(pattern), "malvar")
    assert ours.dtype == jnp.float32
    np.testing.assert_allclose(ours, _malvar_reference(mosaic, pattern), atol=2e-6)


def test_directional_is_its_definition(detailed: np.ndarray) -> None:
    mosaic = np.asarray(sample_mosaic(jnp.asarray(detailed), jnp.int32(1)))
    ours = np.asarray(demosaic(mosaic, 1, "directional"))
    np.testing.assert_allclose(ours, _directional_reference(mosaic, "GRBG"), atol=2e-4)


def test_the_root_and_its_inverse() -> None:
    light = np.concatenate([np.linspace(-0.1, 0.019, 500), np.linspace(0.02, 2.0, 500)]).astype(np.float32)
    value = np.asarray(_compress(jnp.asarray(light)), float)
    np.testing.assert_allclose(value[light >= 0.0], np.sqrt(light[light >= 0.0] + 0.01), rtol=1e-6)
    assert np.all(np.diff(value) > 0.0)
    np.testing.assert_allclose(_expand(jnp.asarray(value, jnp.float32)), light, atol=1e-6)
    slope = np.asarray(jax.vmap(jax.grad(_compress))(jnp.asarray(light)))
    assert np.all(np.isfinite(slope))
    assert slope.max() < 7.1  # 1 / (2·√(c/2)): noise about black is never amplified more


def test_directional_is_better_than_malvar(detailed: np.ndarray) -> None:
    mosaic = sample_mosaic(jnp.asarray(detailed), jnp.int32(0))
    quality = {m: _psnr(demosaic(mosaic, 0, m)[INNER], detailed[INNER]) for m in METHODS}
    assert quality["directional"] > quality["malvar"] + 2.0, quality
    assert quality["malvar"] > 24.0, quality


@pytest.mark.parametrize("method", METHODS)
def test_linear_to_mosaic_to_linear(smooth: np.ndarray, method: str) -> None:
    for camera in CAMERAS:
        mosaic = inverse_isp(smooth, camera)
        assert 0.0 < float(mosaic.min()) < float(mosaic.max()) < 1.0  # nothing was cut
        back = partial_isp(mosaic, camera, method)
        assert back.dtype == jnp.float32
        assert np.abs(np.asarray(back) - smooth)[INNER].max() < 1e-3
        assert np.abs(np.asarray(back) - smooth).max() < 1e-2  # mirrored borders cost a little


@pytest.mark.parametrize("method", METHODS)
def test_the_four_phases_agree(detailed: np.ndarray, method: str) -> None:
    """A mosaic moved by a pixel, with its phase moved too, gives the same picture moved by a pixel."""
    mosaic = np.asarray(sample_mosaic(jnp.asarray(detailed), jnp.int32(0)))
    rgb = np.asarray(demosaic(mosaic, 0, method))
    for phase in (1, 2, 3):
        down, right = phase // 2, phase % 2
        moved = np.asarray(demosaic(np.roll(mosaic, (down, right), (0, 1)), phase, method))
        inner = np.s_[16:-16, 16:-16]
        np.testing.assert_allclose(np.roll(moved, (-down, -right), (0, 1))[inner], rgb[inner], atol=1e-6)


def test_a_turned_mosaic_gives_the_turned_picture(detailed: np.ndarray) -> None:
    mosaic = np.asarray(sample_mosaic(jnp.asarray(detailed), jnp.int32(1)))
    rgb = np.asarray(demosaic(mosaic, 1))
    for orientation in (3, 6, 8):
        phase = PATTERNS.index(turned_pattern("GRBG", mosaic.shape, orientation))
        ours = np.asarray(demosaic(turned(mosaic, orientation), phase))
        np.testing.assert_allclose(ours, turned(rgb, orientation), atol=2e-5)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("shape", [(6, 8), (5, 8), (6, 7), (5, 7)])
def test_patterns_turn_with_their_mosaics(orientation: int, shape: tuple[int, int]) -> None:
    for pattern in PATTERNS:
        tiled = np.tile(np.array([*pattern]).reshape(2, 2), (4, 4))[: shape[0], : shape[1]]
        upright = turned(tiled, orientation)
        assert turned_pattern(pattern, shape, orientation) == "".join(upright[:2, :2].ravel())


def test_orientations_are_those_of_exif() -> None:
    stored = np.array([[1, 2, 3], [4, 5, 6]])
    wanted = {
        2: [[3, 2, 1], [6, 5, 4]],
        3: [[6, 5, 4], [3, 2, 1]],
        4: [[4, 5, 6], [1, 2, 3]],
        5: [[1, 4], [2, 5], [3, 6]],
        6: [[4, 1], [5, 2], [6, 3]],  # the camera's right side was up: turn clockwise
        7: [[6, 3], [5, 2], [4, 1]],
        8: [[3, 6], [2, 5], [1, 4]],
    }
    for orientation, upright in wanted.items():
        np.testing.assert_array_equal(turned(stored, orientation), upright)
    with pytest.raises(PhotoError, match="orientation 9"):
        turned(stored, 9)


def test_pipeline_against_numpy(detailed: np.ndarray) -> None:
    camera = CAMERAS[2]
    gains = np.asarray(camera.white_balance, float)
    assert gains.min() == 1.0
    matrix = np.asarray(camera.camera_to_srgb, float)
    np.testing.assert_allclose(matrix.sum(axis=1), 1.0, atol=1e-6)
    light = detailed.astype(float)
    planes = _planes(detailed.shape[:2], "GBRG")
    raw = light @ np.linalg.inv(matrix).T / gains
    wanted = np.clip(np.select(planes, [raw[..., i] for i in range(3)]), 0.0, 1.0)
    mosaic = np.asarray(inverse_isp(detailed, camera))
    np.testing.assert_allclose(mosaic, wanted, atol=1e-6)
    balanced = np.minimum(wanted * np.select(planes, gains.tolist()), 1.0)
    linear = _malvar_reference(balanced, "GBRG") @ matrix.T
    np.testing.assert_allclose(partial_isp(mosaic, camera, "malvar"), linear, atol=1e-5)
    x = np.clip(linear * 1.5, 0.0, 1.0)
    display = np.where(x <= 0.0031308, 12.92 * x, 1.055 * x ** (1 / 2.4) - 0.055)
    np.testing.assert_allclose(forward_isp(mosaic, camera, SRGB, 1.5, "malvar"), display, atol=5e-5)


def test_a_batch_of_cameras(smooth: np.ndarray, detailed: np.ndarray) -> None:
    images = np.stack([smooth, detailed, smooth[::-1], detailed[:, ::-1]])
    colours = stack_colours(CAMERAS)
    mosaics = jax.vmap(inverse_isp)(images, colours)
    linear = jax.vmap(partial_isp)(mosaics, colours)
    for i, camera in enumerate(CAMERAS):
        np.testing.assert_allclose(mosaics[i], inverse_isp(images[i], camera), atol=1e-6)
        np.testing.assert_allclose(linear[i], partial_isp(mosaics[i], camera), atol=2e-5)


def test_burnt_out_highlights_are_white(smooth: np.ndarray) -> None:
    for camera in CAMERAS:
        linear = partial_isp(np.ones(smooth.shape[:2], np.float32), camera)
        np.testing.assert_allclose(linear, 1.0, atol=1e-5)
        np.testing.assert_allclose(inverse_isp(5.0 * np.ones_like(smooth), camera), 1.0)
    uncut = inverse_isp(5.0 * np.ones_like(smooth), CAMERAS[0], saturate=False)
    assert float(uncut.max()) == pytest.approx(5.0, rel=1e-5)


def test_gradient_through_the_whole_pipeline(detailed: np.ndarray) -> None:
    camera = CAMERAS[0]
    target = np.asarray(encode(detailed[::-1]))

    def loss(scale: jax.Array) -> jax.Array:
        display = forward_isp(inverse_isp(detailed * scale, camera, saturate=False), camera, method="malvar")
        return jnp.mean((display - target) ** 2)

    # float32 loses a difference of losses in its rounding; a step of 1 % stays well above it
    scale, step = jnp.float32(0.8), 0.01
    slope = float(jax.grad(loss)(scale))
    numeric = float(loss(scale + step) - loss(scale - step)) / (2 * step)
    assert abs(numeric) > 1e-3
    assert slope == pytest.approx(numeric, rel=0.02)


@pytest.mark.parametrize("response", [SRGB, LINEAR, Response.contrast(1.4), Response.power(2.2), "table"])
def test_responses_and_their_inverses(response: Response | str) -> None:
    x = np.linspace(0.0, 1.0, 2001, dtype=np.float32)
    if response == "table":
        response = Response.table(np.linspace(0, 1, 33), np.linspace(0, 1, 33) ** 0.5)
        np.testing.assert_allclose(encode(x, response)[200:], x[200:] ** 0.5, atol=2e-3)
    display = encode(x, response)
    assert display.dtype == jnp.float32
    assert float(display[0]) == 0.0
    assert float(display[-1]) == pytest.approx(1.0, abs=1e-6)
    assert np.all(np.diff(display) > -1e-7)
    np.testing.assert_allclose(decode(display, response), x, atol=3e-5)
    np.testing.assert_array_equal(encode(np.array([-1.0, 2.0], np.float32), response), display[jnp.array([0, -1])])
    assert np.all(np.isfinite(jax.vmap(jax.grad(lambda v: encode(v, response)))(x)))


def test_contrast_keeps_the_middle_and_bends_the_rest() -> None:
    middle = decode(np.array([0.25, 0.5, 0.75], np.float32))
    bent = np.asarray(encode(middle, Response.contrast(1.5)))
    assert bent[1] == pytest.approx(0.5, abs=1e-5)
    assert bent[0] < 0.2
    assert bent[2] > 0.8


def test_responses_by_name(tmp_path: Path) -> None:
    assert parse_response("srgb") is SRGB
    assert float(parse_response("gamma:2.2").x[0]) == pytest.approx(2.2)
    table = tmp_path / "curve.csv"
    table.write_text("# linear, display\n0,0\n0.2,0.5\n1,1\n")
    assert float(encode(np.float32(0.2), parse_response(str(table)))) == pytest.approx(0.5)
    for text, words in (
        ("gamma:x", "not a number"),
        ("gamma:90", "0.2 to 5"),
        ("nothing", "expected srgb"),
        ("contrast:0", "contrast"),
    ):
        with pytest.raises(PhotoError, match=words):
            parse_response(text)
    table.write_text("0,0\n0.5,0.4\n0.4,0.8\n1,1\n")
    with pytest.raises(PhotoError, match=r"curve\.csv: .*rise strictly"):
        parse_response(str(table))
    table.write_text("0 0 0\n1 1 1\n")
    with pytest.raises(PhotoError, match="3 columns"):
        parse_response(str(table))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("RGBG",), "Bayer pattern 'RGBG'"),
        (("RGGB", (1.0, -1.0, 1.0)), "three positive gains"),
        (("RGGB", (1.0, float("nan"), 1.0)), "three positive gains"),
        (("RGGB", (1.0, 1.0, 1.0), np.zeros((3, 3))), "cannot be inverted"),
        (("RGGB", (1.0, 1.0, 1.0), np.ones((3, 3))), "cannot be inverted"),
    ],
)
def test_cameras_that_cannot_be(arguments: tuple, words: str) -> None:
    with pytest.raises(PhotoError, match=words):
        SensorColour.make(*arguments)


def test_a_mosaic_of_one_row_is_refused() -> None:
    with pytest.raises(PhotoError, match="64×1 pixels"):
        demosaic(np.zeros((1, 64), np.float32), 0)


def test_the_smallest_mosaic() -> None:
    rgb = demosaic(np.array([[0.3, 0.6], [0.6, 0.9]], np.float32), 0)
    assert rgb.shape == (2, 2, 3)
    np.testing.assert_allclose((rgb[0, 0, 0], rgb[0, 1, 1], rgb[1, 1, 2]), (0.3, 0.6, 0.9), atol=1e-6)
    assert np.all(np.isfinite(rgb))


def test_saturation_is_the_papers() -> None:
    rng = np.random.default_rng(0)
    linear = rng.uniform(0.85, 1.05, (96, 128, 3)).astype(np.float32)
    mask = np.clip(20.0 * np.min(linear.astype(float) - 0.95, axis=-1), 0.0, 1.0)
    assert 0.0 < np.mean(mask > 0.0) < 0.5
    assert np.any(mask == 1.0)
    np.testing.assert_allclose(saturation_mask(linear), mask, atol=3e-6)
    wanted = linear + 2.5 * mask[..., None]
    ours = synthesise_saturation(linear, 2.5)
    assert ours.dtype == jnp.float32
    np.testing.assert_allclose(ours, wanted, atol=1e-5)
    np.testing.assert_array_equal(synthesise_saturation(linear * 0.9, 4.0), linear * np.float32(0.9))
    powers = np.asarray(jax.vmap(draw_saturation)(jax.random.split(jax.random.key(0), 2000)))
    assert powers.min() >= 0.0
    assert powers.max() <= 4.0
    assert powers.mean() == pytest.approx(2.0, abs=5 * 4.0 / np.sqrt(12 * 2000))
