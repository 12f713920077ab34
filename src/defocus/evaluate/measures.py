"""The measures that a table may name: how each is computed, which way is better, and how it is written."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from ..errors import DefocusError
from .iqa import PyiqaMeasure
from .metrics import Channels, psnr, ssim
from .niqe import find_parameters, load_pristine, niqe

Picture = Float[np.ndarray, "rows cols 3"]
Compute = Callable[[Picture, Picture | None], float]


@dataclass(frozen=True, slots=True)
class Kind:
    """What is known of a measure before it is made."""

    name: str
    label: str
    higher_is_better: bool
    needs_truth: bool
    decimals: int

    @property
    def arrow(self) -> str:
        return "↑" if self.higher_is_better else "↓"


def _kinds(*rows: tuple[str, str, bool, bool, int]) -> dict[str, Kind]:
    return {row[0]: Kind(*row) for row in rows}


# Name, label, more is better, compares with a truth, decimals.
KINDS = _kinds(
    ("psnr", "PSNR", True, True, 2),
    ("ssim", "SSIM", True, True, 3),
    ("ssim-rgb", "SSIM (RGB)", True, True, 3),
    ("lpips", "LPIPS", False, True, 3),
    ("dists", "DISTS", False, True, 3),
    ("niqe", "NIQE", False, False, 3),
    ("musiq", "MUSIQ", True, False, 3),
    ("maniqa", "MANIQA", True, False, 3),
    ("topiq", "TOPIQ", True, False, 3),
    ("clipiqa", "CLIP-IQA", True, False, 3),
    ("psnr-pyiqa", "PSNR (pyiqa)", True, True, 2),
    ("ssim-pyiqa", "SSIM (pyiqa)", True, True, 3),
    ("lpips-pyiqa", "LPIPS (pyiqa)", False, True, 3),
    ("niqe-pyiqa", "NIQE (pyiqa)", False, False, 3),
)


@dataclass(frozen=True, slots=True)
class Measure:
    """A measure ready for use; `version` names everything that decides its values, weights included."""

    kind: Kind
    compute: Compute
    version: str


def make_measure(name: str, *, files: Mapping[str, Path] | None = None, device: str | None = None) -> Measure:
    """Make one by its name. `files`: weights of "lpips", parameters of "niqe"; else they are looked for."""
    if name not in KINDS:
        raise DefocusError(f"measure {name!r}; known are {', '.join(KINDS)}")
    kind, files = KINDS[name], files or {}
    if name == "psnr":
        return Measure(kind, _with_truth(psnr), "psnr 1")
    if name in ("ssim", "ssim-rgb"):
        channels: Channels = "grey" if name == "ssim" else "rgb"
        return Measure(kind, _with_truth(lambda a, b: ssim(a, b, channels=channels)), f"{name} 1")
    if name == "niqe":
        file = files.get("niqe") or find_parameters()
        pristine = load_pristine(file)
        return Measure(kind, lambda image, _: niqe(image, pristine), f"niqe 1 {digest(file)}")
    if name == "lpips":
        return _lpips(kind, files.get("lpips"), device)
    made = PyiqaMeasure(name, device)
    for what in ("higher_is_better", "needs_truth"):
        if getattr(made, what) != getattr(kind, what):
            raise DefocusError(f"{name}: this version of pyiqa has another {what.replace('_', ' ')} than we know of")
    return Measure(kind, made, f"{name} {_pyiqa_version()}")


def digest(file: str | Path) -> str:
    """The first letters of a file's SHA-256."""
    return hashlib.sha256(Path(file).read_bytes()).hexdigest()[:16]


def _with_truth(measure: Callable[[Picture, Picture], float]) -> Compute:
    def compute(image: Picture, truth: Picture | None) -> float:
        if truth is None:
            raise DefocusError("this measure compares with a truth, and none was given")
        return measure(image, truth)

    return compute


def _lpips(kind: Kind, file: Path | None, device: str | None) -> Measure:
    from ..restore.deblur import choose_device  # says so if torch is missing
    from ..restore.perceptual import Lpips

    place = choose_device(device or "auto")
    network = Lpips.load(file)
    import torch

    network.to(place)

    def tensor(image: Picture) -> Any:
        return torch.from_numpy(np.ascontiguousarray(image.transpose(2, 0, 1)[None], np.float32)).to(place)

    def distance(image: Picture, truth: Picture) -> float:
        with torch.inference_mode():
            return float(network(tensor(image), tensor(truth)))

    weights = hashlib.sha256(b"".join(w.cpu().numpy().tobytes() for w in network.state_dict().values())).hexdigest()
    return Measure(kind, _with_truth(distance), f"lpips 1 {weights[:16]}")


@lru_cache(maxsize=1)
def _pyiqa_version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return f"pyiqa {version('pyiqa')}"
    except PackageNotFoundError:
        return "pyiqa of unknown version"
