"""The measures that a table may name: how each is computed, which way is better, and how it is written.

PSNR, SSIM, LPIPS and NIQE are ours, free for any use; the others come through pyiqa, whose licence is not.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from ..errors import DefocusError
from ..restore.similarity import psnr, ssim
from .niqe import find_parameters, load_pristine, niqe

Display = Float[np.ndarray, "rows cols 3"]  # display values 0..1
Compute = Callable[[Display, Display | None], float]


@dataclass(frozen=True, slots=True)
class MeasureKind:
    """What a table needs to know of a measure before it is loaded."""

    name: str
    label: str
    higher_is_better: bool
    needs_truth: bool
    decimals: int = 3
    pyiqa: str = ""  # pyiqa's name of the version that the paper takes

    @property
    def arrow(self) -> str:
        return "↑" if self.higher_is_better else "↓"

    @property
    def heading(self) -> str:
        """Label and direction, as the head of a column."""
        return f"{self.label} {self.arrow}"


KINDS = {
    kind.name: kind
    for kind in (
        MeasureKind("psnr", "PSNR", higher_is_better=True, needs_truth=True, decimals=2),
        MeasureKind("ssim", "SSIM", higher_is_better=True, needs_truth=True),
        MeasureKind("ssim-rgb", "SSIM (RGB)", higher_is_better=True, needs_truth=True),
        MeasureKind("lpips", "LPIPS", higher_is_better=False, needs_truth=True),
        MeasureKind("niqe", "NIQE", higher_is_better=False, needs_truth=False),
        MeasureKind("dists", "DISTS", higher_is_better=False, needs_truth=True, pyiqa="dists"),
        MeasureKind("musiq", "MUSIQ", higher_is_better=True, needs_truth=False, pyiqa="musiq"),
        MeasureKind("maniqa", "MANIQA", higher_is_better=True, needs_truth=False, pyiqa="maniqa"),
        MeasureKind("topiq", "TOPIQ", higher_is_better=True, needs_truth=False, pyiqa="topiq_nr"),
        MeasureKind("clipiqa", "CLIP-IQA", higher_is_better=True, needs_truth=False, pyiqa="clipiqa"),
    )
}


@dataclass(frozen=True, slots=True)
class Measure:
    """A measure ready for use; `version` names everything that decides its values, weights included."""

    kind: MeasureKind
    compute: Compute
    version: str

    def __call__(self, image: Display, truth: Display | None = None) -> float:
        """The value of a picture. Raises `DefocusError` where a truth is needed and missing, or for no number."""
        if self.kind.needs_truth and truth is None:
            raise DefocusError(f"{self.kind.label} compares with a truth, and none was given")
        value = float(self.compute(image, truth if self.kind.needs_truth else None))
        if np.isnan(value):
            raise DefocusError(f"{self.kind.label} is not a number")
        return value


def make_measure(name: str, *, files: Mapping[str, Path] | None = None, device: str | None = None) -> Measure:
    """The measure of a name. `files`: weights of "lpips", parameters of "niqe"; otherwise they are looked for."""
    if name not in KINDS:
        raise DefocusError(f"measure {name!r}; known are {', '.join(KINDS)}")
    kind, files = KINDS[name], files or {}
    if kind.pyiqa:
        from .iqa import pyiqa_measure

        return Measure(kind, *pyiqa_measure(kind, device))
    if name == "lpips":
        return Measure(kind, *_lpips(files.get("lpips"), device))
    if name == "niqe":
        file = files.get("niqe") or find_parameters()
        pristine = load_pristine(file)
        digest = hashlib.sha256(Path(file).read_bytes()).hexdigest()
        return Measure(kind, lambda image, _: niqe(image, pristine), f"niqe 1 {digest[:16]}")
    functions: dict[str, Any] = {"psnr": psnr, "ssim": ssim, "ssim-rgb": partial(ssim, channels="rgb")}
    return Measure(kind, functions[name], f"{name} 1")


def _lpips(file: Path | None, device: str | None) -> tuple[Compute, str]:
    from ..restore.deblurring import choose_device  # says so if torch is missing
    from ..restore.perceptual import Lpips

    place = choose_device(device or "auto")
    import torch

    network = Lpips.load(file).to(place)

    def distance(image: Display, truth: Display | None) -> float:
        assert truth is not None
        pair = (np.ascontiguousarray(one.transpose(2, 0, 1)[None], np.float32) for one in (image, truth))
        with torch.inference_mode():
            return float(network(*(torch.from_numpy(one).to(place) for one in pair)))

    weights = hashlib.sha256(b"".join(w.cpu().numpy().tobytes() for w in network.state_dict().values())).hexdigest()
    return distance, f"lpips 1 {weights[:16]}"
