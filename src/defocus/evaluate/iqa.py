"""Measures through pyiqa, with which the paper measured: DISTS, MUSIQ, MANIQA, TOPIQ and CLIP-IQA.

pyiqa is an extra, never needed otherwise: its licence (PolyForm Noncommercial) forbids commercial use, and so do those
of some of the weights that it fetches when a measure is first used.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any

import numpy as np

from ..errors import DefocusError, MissingExtraError

if TYPE_CHECKING:
    from .measures import Compute, Display, MeasureKind


def pyiqa_measure(kind: MeasureKind, device: str | None = None) -> tuple[Compute, str]:
    """The function of a measure, and its version."""
    name = kind.name
    try:
        torch, pyiqa = import_module("torch"), import_module("pyiqa")
    except Exception as error:  # what pyiqa needs may be missing, or be made for another torch, with any error
        if isinstance(error, ModuleNotFoundError) and error.name in ("torch", "pyiqa"):
            raise MissingExtraError(f"{name} (through pyiqa, for non-commercial use)", "iqa") from error
        raise DefocusError(
            f"{name}: pyiqa cannot be used: {type(error).__name__}: {_first_line(error)}; install it anew with its "
            "dependencies, torchvision of the same kind (CPU or CUDA) and release as torch"
        ) from error
    from ..restore.deblurring import choose_device

    place = torch.device(choose_device(device or "auto"))
    try:
        with redirect_stdout(sys.stderr):  # pyiqa prints there what it fetches and reads
            metric: Any = pyiqa.create_metric(kind.pyiqa, device=place)
    except Exception as error:  # most often weights that could not be fetched, with errors of many kinds
        raise DefocusError(
            f"{name}: pyiqa cannot make {kind.pyiqa}: {type(error).__name__}: {_first_line(error)}{_advice(error)}"
        ) from error
    if kind.higher_is_better == metric.lower_better or kind.needs_truth != (metric.metric_mode == "FR"):
        raise DefocusError(f"{name}: this version of pyiqa has another direction or another mode than we know of")

    def compute(image: Display, truth: Display | None) -> float:
        pictures = [np.clip(one, 0.0, 1.0).transpose(2, 0, 1)[None] for one in (image, truth) if one is not None]
        try:
            with torch.no_grad():
                tensors = [torch.from_numpy(np.ascontiguousarray(one, np.float32)).to(place) for one in pictures]
                value = float(metric(*tensors))
        except (RuntimeError, AssertionError, ValueError, IndexError) as error:
            size = f"{image.shape[1]}×{image.shape[0]}"
            raise DefocusError(f"{name} of a picture of {size} pixels: {_first_line(error)}") from error
        if not np.isfinite(value):
            raise DefocusError(f"{name} gives {value}, no finite number")
        return value

    try:
        release = version("pyiqa")
    except PackageNotFoundError:
        release = "of unknown version"
    return compute, f"{name} pyiqa {release}"


def _advice(error: Exception) -> str:
    """Which file was missing, and where: the functions that fetch and read know it, their errors do not say."""
    for local in _variables(error):
        place = local("cached_file") or local("download_target") or local("dst")
        if place and (url := local("url", "http")):
            return (
                f"; it wants {url} as {place}: let it fetch that once where there is a network, or put the file there"
            )
        if (repository := local("repo_id")) and (file := local("filename")):
            return (
                f"; it wants {file} of {repository} in {local('cache_dir') or 'the cache of Hugging Face'}: let it "
                f"fetch that where there is a network, or put it there by `hf download {repository}`"
            )
        if file := local("model_path"):
            return f"; it reads {file}: if that is broken, remove it to have it fetched again"
    return ""


def _variables(error: BaseException | None) -> Iterator[Callable[..., str]]:
    """Look-ups of the text variables, by name and beginning, of the functions that an error came through, innermost
    first."""
    while error is not None:
        for frame, _ in reversed(list(traceback.walk_tb(error.__traceback__))):

            def text(name: str, start: str = "", variables: dict[str, Any] = frame.f_locals) -> str:
                value = variables.get(name)
                return value if isinstance(value, str) and value.startswith(start) else ""

            yield text
        error = error.__cause__ or error.__context__


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
