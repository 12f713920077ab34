"""Measures through pyiqa, with which the paper measured: LPIPS, DISTS, NIQE, MUSIQ, MANIQA, TOPIQ and CLIP-IQA.

pyiqa is an extra, never needed otherwise: its licence (PolyForm Noncommercial) forbids commercial use, and so do those
of some of the weights that it fetches when a measure is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
from jaxtyping import Float

from ..errors import DefocusError, MissingExtraError

# Our name, and pyiqa's name of the version that the paper takes.
PYIQA = {
    "dists": "dists",
    "musiq": "musiq",
    "maniqa": "maniqa",
    "topiq": "topiq_nr",
    "clipiqa": "clipiqa",
    "lpips-pyiqa": "lpips",
    "niqe-pyiqa": "niqe",
    "ssim-pyiqa": "ssim",
    "psnr-pyiqa": "psnr",
}


class PyiqaMeasure:
    """One of pyiqa's measures, ready to be called with pictures as arrays."""

    def __init__(self, name: str, device: str | None = None) -> None:
        if name not in PYIQA:
            raise DefocusError(f"measure {name!r}; through pyiqa are known {', '.join(PYIQA)}")
        self.name = name
        try:
            self._torch, pyiqa = import_module("torch"), import_module("pyiqa")
        except ModuleNotFoundError as error:
            if error.name not in ("torch", "pyiqa"):  # something that pyiqa itself needs
                raise DefocusError(f"pyiqa cannot be used: {error}; install it anew with its dependencies") from error
            raise MissingExtraError(f"{name} (through pyiqa, for non-commercial use)", "iqa") from error
        self.device = device or ("cuda" if self._torch.cuda.is_available() else "cpu")
        try:
            self._metric: Any = pyiqa.create_metric(PYIQA[name], device=self._torch.device(self.device))
        except Exception as error:  # most often weights that could not be fetched, with errors of many kinds
            raise DefocusError(
                f"pyiqa cannot make {PYIQA[name]}: {type(error).__name__}: {_first_line(error)}; it fetches weights "
                "when a measure is first used, so let it do so once where there is a network"
            ) from error

    @property
    def higher_is_better(self) -> bool:
        """As pyiqa says."""
        return not self._metric.lower_better

    @property
    def needs_truth(self) -> bool:
        """As pyiqa says."""
        return bool(self._metric.metric_mode == "FR")

    def __call__(
        self, image: Float[np.ndarray, "rows cols 3"], truth: Float[np.ndarray, "rows cols 3"] | None = None
    ) -> float:
        """The score of display values 0..1."""
        if self.needs_truth and truth is None:
            raise DefocusError(f"{self.name} compares with a truth, and none was given")
        pictures = [self._tensor(image)] + ([self._tensor(truth)] if self.needs_truth and truth is not None else [])
        try:
            with self._torch.no_grad():
                value = float(self._metric(*pictures))
        except (RuntimeError, AssertionError, ValueError, IndexError) as error:
            size = f"{image.shape[1]}×{image.shape[0]}"
            raise DefocusError(f"{self.name} of a picture of {size} pixels: {_first_line(error)}") from error
        if not np.isfinite(value):
            raise DefocusError(f"{self.name} gives {value}, no finite number")
        return value

    def _tensor(self, image: Float[np.ndarray, "rows cols 3"]) -> Any:
        values = np.ascontiguousarray(np.clip(image, 0.0, 1.0).transpose(2, 0, 1)[None], np.float32)
        return self._torch.from_numpy(values).to(self.device)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
