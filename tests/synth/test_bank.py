"""Banks of PSFs: pairs of a training that are a pure function of the bank and a seed."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from PIL import Image
from scipy.ndimage import gaussian_filter

from defocus.errors import DatasetError
from defocus.synth.bank import (
    RUNGS,
    SHARES,
    SURFACES,
    Bank,
    SettingPsfs,
    _scene,
    _surfaces,
    bank_batch,
    find_setting_psfs,
    make_bank,
)
from defocus.synth.lens_pool import find_lenses
from defocus.synth.plan import Blur, make_plan

CROP, KERNEL, ROOM = 16, 8, 64


def small_bank(psf: np.ndarray, settings: int = 2) -> Bank:
    """Smooth photographs, outlines of half a plane, no lamps, and one PSF for all settings and depths."""
    random = np.random.default_rng(3)
    grey = gaussian_filter(random.random((2 * ROOM, ROOM)), 3.0)  # colours that differ show demosaicing's own pattern
    values = np.repeat(40 + 170 * (grey - grey.min()) / np.ptp(grey), 3).reshape(2 * ROOM, ROOM, 3)
    places = np.array([[0, ROOM, ROOM], [ROOM * ROOM, ROOM, ROOM]], np.int32)
    outlines = np.zeros((2, ROOM, ROOM), np.uint8)
    outlines[:, :, : ROOM // 2] = 255
    psfs = np.broadcast_to(psf, (settings, RUNGS, 3, *psf.shape)).astype(np.float16)
    coc = np.broadcast_to(np.linspace(2.0, -2.0, RUNGS), (settings, RUNGS)).astype(np.float32)
    pixels, lamps = values.round().astype(np.uint8).reshape(-1, 3), np.zeros((1, ROOM, ROOM, 3), np.float16)
    return Bank(psfs, coc, pixels, places, outlines, lamps)


def point(row: int = KERNEL // 2, column: int = KERNEL // 2) -> np.ndarray:
    psf = np.zeros((KERNEL, KERNEL))
    psf[row, column] = 1.0
    return psf


@pytest.fixture(scope="module")
def sharp_bank() -> Bank:
    return small_bank(point())


def _batch(bank: Bank, seed: int) -> tuple[np.ndarray, np.ndarray]:
    blurred, sharp = bank_batch(bank, seed, count=4, crop=CROP)
    assert blurred.shape == sharp.shape == (4, CROP, CROP, 3)
    return np.asarray(blurred, float), np.asarray(sharp, float)


def test_equal_seeds_are_equal_pairs(sharp_bank: Bank) -> None:
    first, again, other = (_batch(sharp_bank, seed) for seed in (7, 7, 8))
    assert np.array_equal(first, again)
    assert np.abs(first[1] - other[1]).mean() > 1.0
    assert len({pair.tobytes() for pair in first[1]}) == 4


def test_a_point_leaves_a_scene_where_it_is(sharp_bank: Bank) -> None:
    """But for noise and demosaicing; a shift by half a pixel would be more."""
    blurred, sharp = _batch(sharp_bank, 1)
    error = np.sqrt(np.mean((blurred - sharp) ** 2))
    half = np.sqrt(np.mean((0.5 * (sharp[:, 1:] + sharp[:, :-1]) - sharp[:, 1:]) ** 2))
    assert error < 0.5 * half


def test_batches_have_the_shares_of_scenes() -> None:
    """In order, and each number as often as it should be: in a batch to one scene, over batches on average."""
    batches = np.array([_surfaces(seed, 6) for seed in range(200)])
    assert (np.diff(batches, axis=1) >= 0).all()
    counts = np.array([(batches == number).sum(axis=1) for number in (1, 2, 3)]).T
    assert np.abs(counts - 6 * np.array(SHARES)).max() < 1.0
    assert counts.mean(axis=0) / 6 == pytest.approx(SHARES, abs=0.02)


@pytest.mark.parametrize("strongest", [0, 4, RUNGS - 1])
def test_a_scene_is_blurred_as_much_as_its_setting(sharp_bank: Bank, strongest: int) -> None:
    """One of its surfaces stands where the blur is largest, wherever that is; none is in front of a nearer one."""
    keys = jax.random.split(jax.random.key(4), 60)
    surfaces = jnp.arange(60) % SURFACES + 1
    draw = jax.vmap(partial(_scene, jax.tree.map(jnp.asarray, sharp_bank), CROP), (0, 0, None))
    stack, _, rungs = draw(keys, surfaces, jnp.int32(strongest))
    first = np.asarray(rungs).reshape(60, SURFACES, -1)[:, :, 0]
    there = np.arange(SURFACES) < np.asarray(surfaces)[:, None]
    assert ((first == strongest) & there).any(axis=1).all()
    assert (np.diff(first, axis=1) >= 0).all()
    assert set(first[there]) == set(range(RUNGS))
    assert not np.asarray(stack.opacity)[~there].any()


def test_blur_is_the_psf_s() -> None:
    """Three pixels aside: the pair of the same seed, moved within its frame in one of the eight views."""
    away, middle = (_batch(small_bank(point(*place)), 5) for place in ((4, 7), (4, 4)))
    assert np.array_equal(away[1], middle[1])
    views = []
    for moved, own in zip(away[0], middle[0], strict=True):
        shifts = [(3, 0), (-3, 0), (0, 3), (0, -3)]
        inner = (slice(4, -4), slice(4, -4))
        errors = [np.abs(np.roll(own, shift, (0, 1)) - moved)[inner].mean() for shift in shifts]
        views.append(int(np.argmin(errors)))
        assert min(errors) < 0.35 * sorted(errors)[1]
    assert len(set(views)) > 1


def test_a_bank_is_written_and_read(sharp_bank: Bank, tmp_path: Path) -> None:
    sharp_bank.save(tmp_path, {"of": "a test"})
    again = Bank.load(tmp_path)
    assert np.array_equal(_batch(again, 2), _batch(sharp_bank, 2))
    for content in (b"no array", b""):
        (tmp_path / "psfs.npy").write_bytes(content)
        with pytest.raises(DatasetError, match=r"no bank of PSFs"):
            Bank.load(tmp_path)
    with pytest.raises(DatasetError, match="hold 32 at most"):
        bank_batch(sharp_bank, 0, count=1, crop=48)


def test_settings_have_the_radii_of_their_depths(tmp_path: Path) -> None:
    """Discs of a plan: their light is where the paraxial blur radius says, and in the middle where they are sharp."""
    plan = make_plan(
        {
            "sources": [{"count": 2}],
            "lenses": {"survey": False, "only": ["leica-summicron-50-f2", "zeiss-tessar-50-f3.5", "canon-rf-85-f1.2"]},
            "train": {"pairs": 2},
            "psf": {"kind": "disk"},
            "patch": {"kernel": 64},
            "blur": {"levels_px": [4, 12], "weights": [1, 1]},
        }
    )
    pool = find_lenses(plan)
    settings = find_setting_psfs(plan, "train", range(6), pixels_across=(1600, 3200), pool=pool)
    assert len(settings.psfs) == 6
    psfs = settings.psfs.astype(float)
    np.testing.assert_allclose(psfs.sum((-2, -1)), 1.0, atol=2e-3)
    at = np.arange(64) - 32
    middle = [(psfs * place).sum((-2, -1)) for place in (at, at[:, None])]
    assert np.abs(middle).max() < 0.2
    spread = np.sqrt(2.0 * (psfs * (at**2 + at[:, None] ** 2)).sum((-2, -1)))
    radius = np.abs(settings.coc_px)
    wide = np.repeat(radius[..., None], 3, -1) > 3.0
    assert wide.any()
    np.testing.assert_allclose(spread[wide], np.repeat(radius[..., None], 3, -1)[wide], rtol=0.1)
    settings.save(tmp_path / "0.npz")
    settings.save(tmp_path / "1.npz")
    assert len(SettingPsfs.load([tmp_path / "0.npz", tmp_path / "1.npz"]).psfs) == 12
    for content in (b"PK no archive", b""):
        (tmp_path / "1.npz").write_bytes(content)
        with pytest.raises(DatasetError, match=r"1\.npz.*no PSFs"):
            SettingPsfs.load([tmp_path / "1.npz"])
    with pytest.raises(DatasetError, match="no files with PSFs"):
        SettingPsfs.load([])
    for name in ("soft", "sharp"):
        (tmp_path / name).mkdir()
        for number in range(4):
            Image.new("RGB", (16, 16)).save(tmp_path / name / f"{number}.png")
    with pytest.raises(DatasetError, match=r"no settings with PSFs, or no composed scenes of the split 'train'"):
        make_bank({"sources": [{"count": 8}], "lenses": {"survey": False}}, "train", settings)
    composed = [
        {"kind": "composed", "folder": str(tmp_path / name), "prefilter_px": sigma}
        for name, sigma in (("soft", 0.0), ("sharp", 0.4))
    ]
    with pytest.raises(DatasetError, match=r"sources with prefilter_px 0 and 0\.4: a bank has one"):
        make_bank({"sources": composed, "lenses": {"survey": False}}, "train", settings)
    with pytest.raises(DatasetError, match=r"of 2 photographs none has 288 pixels a side"):
        make_bank({"sources": composed[:1], "lenses": {"survey": False}}, "train", settings)
    aimless = plan.model_copy(update={"blur": Blur()})
    with pytest.raises(DatasetError, match=r"no blur\.levels_px"):
        find_setting_psfs(aimless, "train", range(1), pixels_across=(1600,), pool=pool)
