"""Measures through pyiqa, with which the paper measured: LPIPS, DISTS, NIQE, MUSIQ, MANIQA, TOPIQ and CLIP-IQA.

pyiqa is an extra, never needed otherwise: its licence (PolyForm Noncommercial) forbids commercial use, and so do those
of some of the weights that it fetches when a measure is first used.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
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
        except Exception as error:  # what pyiqa needs may be missing, or be made for another torch, with any error
            if isinstance(error, ModuleNotFoundError) and error.name in ("torch", "pyiqa"):
                raise MissingExtraError(f"{name} (through pyiqa, for non-commercial use)", "iqa") from error
            raise DefocusError(
                f"{name}: pyiqa cannot be used: {type(error).__name__}: {_first_line(error)}; install it anew with its "
                "dependencies, torchvision of the same kind (CPU or CUDA) and release as torch"
            ) from error
        from ..restore.deblur import choose_device

        self.device = choose_device(device or "auto")
        try:
            with redirect_stdout(sys.stderr):  # pyiqa tells there what it fetches and reads
                self._metric: Any = pyiqa.create_metric(PYIQA[name], device=self._torch.device(self.device))
        except Exception as error:  # most often weights that could not be fetched, with errors of many kinds
            raise DefocusError(
                f"{name}: pyiqa cannot make {PYIQA[name]}: {type(error).__name__}: {_first_line(error)}{_advice(error)}"
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


def _advice(error: Exception) -> str:
    """Which file was wanted, and where: the functions that fetch and read know it, their errors do not tell."""
    for values in _variables(error):
        place = values("cached_file") or values("download_target") or values("dst")
        if place and (url := values("url", "http")):
            return (
                f"; it wants {url} as {place}: let it fetch that once where there is a network, or put the file there"
            )
        if (repository := values("repo_id")) and (file := values("filename")):
            return (
                f"; it wants {file} of {repository} in {values('cache_dir') or 'the cache of Hugging Face'}: let it "
                f"fetch that where there is a network, or put it there by `hf download {repository}`"
            )
        if file := values("model_path"):
            return f"; it reads {file}: if that is broken, remove it to have it fetched again"
    return ""


def _variables(error: BaseException | None) -> Iterator[Callable[..., str]]:
    """Of the functions that an error came through, from within: each asks for a text by its name and beginning."""
    while error is not None:
        for frame, _ in reversed(list(traceback.walk_tb(error.__traceback__))):
            known = frame.f_locals

            def text(name: str, start: str = "", known: dict[str, Any] = known) -> str:
                value = known.get(name)
                return value if isinstance(value, str) and value.startswith(start) else ""

            yield text
        error = error.__cause__ or error.__context__


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
