"""Calls that cannot be: PSFs and photographs of wrong arguments."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

Attempt = tuple[str, bytes, Callable[[], Any]]  # a name, the input, and what reads it


class Absurd(Exception):
    """A result that cannot be: not finite, negative, without light, …"""


NUMBERS = (0.0, -1.0, 1e-12, 1e-3, 0.5, 1.0, 2.0, 3.0, 50.0, 1e4, 1e12, 1e300, -1e300, math.inf, -math.inf, math.nan)


def _spoilt(rng: random.Random, usual: dict[str, Any], odd: Mapping[str, tuple[Any, ...]]) -> dict[str, Any]:
    """Usual arguments, one to three of which are exchanged for odd ones."""
    names = rng.sample(list(odd), rng.choice((1, 1, 2, 3)))
    return usual | {name: rng.choice(odd[name]) for name in names}


def psf_attempt(rng: random.Random, folder: Path) -> Attempt:
    """A PSF of a camera and a point that cannot be, or only just."""
    from defocus import Camera, load_lens

    fields = tuple((x, y) for x in (0.0, 0.3, *NUMBERS[::3]) for y in (0.0, *NUMBERS[1::3]))
    # The wave method compiles a program for each size: one is enough, beside those that are refused.
    odd: dict[str, tuple[Any, ...]] = {
        "focus_m": (*NUMBERS, "a", None), "pixel_um": (*NUMBERS, "a"), "f_number": (*NUMBERS, 8.0, "a"),
        "sensor_shift_mm": (*NUMBERS, 0.05), "depth_m": (*NUMBERS, "a", None, 2.0 + 1e-9),
        "field": (*fields, 0.5, None, (0.1,), "ab"), "size": (0, -1, 1, 10**9, 2.5, "a", math.nan),
        "bands": ("nonsense", "", (), [], (math.nan,), (-5.0,), 550.0, (1e9,), None, {}, {"a": 1}, [[550.0]]),
        "supersample": (0, 1, -1, 10**6, "a", math.nan), "samples": (0, -1, 10**9, 2.5, "a"), "exact": ("a", None, 3),
        "double": ("a", None), "supersmaple": (3,), "blades": (0, -3, 10**6, "a", 7), "state": ("wide", -1, 10**9),
    }  # fmt: skip
    usual = {"focus_m": 2.0, "pixel_um": 6.0, "depth_m": 3.0, "field": (0.0, 0.3), "size": 32, "bands": "d"}
    usual["method"] = rng.choice(("gaussian", "gaussian", "disk", "disk", "fraunhofer", "wave", "nonsense"))
    words = _spoilt(rng, usual, odd)

    def call() -> Any:
        of_camera = ("focus_m", "pixel_um", "f_number", "sensor_shift_mm", "blades", "state")
        camera = Camera(load_lens("zeiss-tessar-50-f3.5"), **{k: v for k, v in words.items() if k in of_camera})
        psf = np.asarray(camera.psf(**{k: v for k, v in words.items() if k not in of_camera}).array)
        if not np.isfinite(psf).all():
            raise Absurd("a PSF that is not finite")
        if psf.min() < -1e-6 or not np.allclose(psf.sum((-1, -2)), 1.0, atol=1e-3):
            raise Absurd("a PSF that is negative or does not sum to 1")
        if np.ptp(psf) < 1e-9 * psf.max() and psf.shape[-1] > 1:
            raise Absurd("a PSF that is flat")
        return True

    return str(words["method"]), repr(words).encode(), call


def photograph_attempt(rng: random.Random, folder: Path) -> Attempt:
    """A photograph of pictures, depths and options that cannot be, or only just."""
    from defocus import Camera, load_lens

    light, depth = np.full((24, 32, 3), 0.5, np.float32), np.full((24, 32), 3.0)
    kinds = (np.float64, np.uint8, np.uint16, np.int64, np.complex64, object, bool, "<U3")
    levels = (0.0, 1.0, 7.0, -1.0, math.nan, math.inf, 1e30)
    odd: dict[str, tuple[Any, ...]] = {
        "picture": (
            *(light.astype(kind) for kind in kinds), *(light * 0.0 + level for level in levels), light[..., :2],
            light[..., 0], light[:0], light[None], light.tolist(), None, "a.png", 3, light.T,
        ),
        "depth": (
            *(np.full(depth.shape, n) for n in NUMBERS), depth[:4], depth[..., None], depth.astype(int),
            depth.astype(object), None, 3.0, "a", math.nan, depth.tolist(),
        ),
        "saturation": (math.nan, -3.0, 1e300, "a"), "nodes": ((0, 0), "a", (1,), 3, (-1, 4)), "parts": (0, -1, "a"),
        "most_layers": (0, -1, 1, "a"), "step_px": (-1.0, math.nan, 0.0, "a"), "tile_px": (3, -8, "a"),
        "patch": ((9.0, 9.0), (math.nan, 0.0), "a"), "noise": ("a", 3), "seed": (-1, 2**70, "a"), "colour": ("a",),
        "response": ("a", None), "bands": ("nonsense", (), (math.nan,)), "side": ("up", 3), "nonsense": (1,),
        "most_kernel_px": (0, -1, "a"), "exact": ("a",), "sensor": ("a",), "relative_illumination": ("a",),
    }  # fmt: skip
    usual: dict[str, Any] = {"picture": light, "depth": depth, "sensor": False, "bands": "d", "nodes": (1, 1)}
    words = _spoilt(rng, usual, odd)

    def call() -> Any:
        camera = Camera(load_lens("zeiss-tessar-50-f3.5"), focus_m=3.0, pixels=(32, 24))
        options = {k: v for k, v in words.items() if k not in ("picture", "depth")}
        taken = camera.photograph(words["picture"], words["depth"], **options)
        result = np.asarray(taken.blurred.linear)
        if not np.isfinite(result).all() or result.min() < -1e-3:
            raise Absurd("light that is not finite, or negative")
        return True

    return "photograph", repr(words)[:4000].encode(), call
