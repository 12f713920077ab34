"""The measures that a table may name: how each is computed, which way is better, and how it is written.

PSNR, SSIM, LPIPS and NIQE are ours, free for any use. The others come through pyiqa, with which the paper measured. It
is an extra, never needed otherwise: its licence (PolyForm Noncommercial) forbids commercial use, and so do those of
some of the weights that it fetches when a measure is first used.
"""

from __future__ import annotations

import hashlib
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Shaped

from ..errors import DefocusError, MissingExtraError, first_line
from ..files.settings import nearest_name
from ..restore.similarity import Mask, display_values, psnr, ssim
from .niqe import find_parameters, load_pristine, niqe

Display = Float[np.ndarray, "rows cols 3"]  # display values 0..1
AnyPicture = Shaped[np.ndarray, "rows cols 3"]  # also whole numbers of 8 or 16 bits
Compute = Callable[..., float]  # of a picture, its truth or None, and with a mask where the kind says so


@dataclass(frozen=True, slots=True)
class MeasureKind:
    """What a table needs to know of a measure before it is loaded."""

    name: str
    label: str
    higher_is_better: bool
    needs_truth: bool
    decimals: int = 3
    pyiqa: str = ""  # pyiqa's name of the version that the paper takes
    takes_mask: bool = False  # whether it can be taken over a part of the picture

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
        MeasureKind("psnr", "PSNR", higher_is_better=True, needs_truth=True, decimals=2, takes_mask=True),
        MeasureKind("ssim", "SSIM", higher_is_better=True, needs_truth=True, takes_mask=True),
        MeasureKind("ssim-rgb", "SSIM (RGB)", higher_is_better=True, needs_truth=True, takes_mask=True),
        MeasureKind("lpips", "LPIPS", higher_is_better=False, needs_truth=True, takes_mask=True),
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

    def __call__(self, image: AnyPicture, truth: AnyPicture | None = None, mask: Mask | None = None) -> float:
        """The value of a picture, over the pixels of a mask if one is given; whole numbers of 8 or 16 bits count by
        their white.

        Raises `DefocusError` where a truth is needed and missing, for a mask that it cannot take, or for no number.
        """
        if self.kind.needs_truth and truth is None:
            raise DefocusError(f"{self.kind.label} compares with a truth, and none was given")
        if mask is not None and not self.kind.takes_mask:
            raise DefocusError(f"{self.kind.label} is of whole pictures, and has no value within a mask")
        truth = _display(truth) if truth is not None and self.kind.needs_truth else None
        value = float(self.compute(_display(image), truth, **({} if mask is None else {"mask": mask})))
        if np.isnan(value):
            raise DefocusError(f"{self.kind.label} is not a number")
        return value


def _display(picture: AnyPicture) -> Display:
    return picture if picture.dtype.kind == "f" else display_values(picture, np.float64)


def make_measure(name: str, *, files: Mapping[str, Path] | None = None, device: str | None = None) -> Measure:
    """The measure of a name. `files`: weights of "lpips", parameters of "niqe"; otherwise they are looked for."""
    if name not in KINDS:
        raise DefocusError(f"measure {name!r}; {nearest_name(name, KINDS)}")
    kind, files = KINDS[name], files or {}
    if kind.pyiqa:
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


def batch_of_one(display: Display, torch: Any, device: Any) -> Any:
    """A picture as a tensor [1, 3, rows, cols] on a device."""
    return torch.from_numpy(np.ascontiguousarray(display.transpose(2, 0, 1)[None], np.float32)).to(device)


def _lpips(file: Path | None, device: str | None) -> tuple[Compute, str]:
    from ..restore.deblurring import choose_device  # says so if torch is missing
    from ..restore.perceptual import Lpips

    place = choose_device(device or "auto")
    import torch

    network = Lpips.load(file).to(place)

    def distance(image: Display, truth: Display | None, mask: Mask | None = None) -> float:
        assert truth is not None
        pair = [batch_of_one(one, torch, place) for one in (image, truth)]
        with torch.inference_mode():
            if mask is None:
                return float(network(*pair))
            return float(network.within(*pair, torch.from_numpy(mask).to(place)))

    weights = hashlib.sha256(b"".join(w.cpu().numpy().tobytes() for w in network.state_dict().values())).hexdigest()
    return distance, f"lpips 1 {weights[:16]}"


def pyiqa_measure(kind: MeasureKind, device: str | None = None) -> tuple[Compute, str]:
    """The function of a measure, and its version."""
    name = kind.name
    try:
        torch, pyiqa = import_module("torch"), import_module("pyiqa")
    except Exception as error:  # what pyiqa needs may be missing, or be made for another torch, with any error
        if isinstance(error, ModuleNotFoundError) and error.name in ("torch", "pyiqa"):
            raise MissingExtraError(f"{name} (through pyiqa, for non-commercial use)", "iqa") from error
        raise DefocusError(
            f"{name}: pyiqa cannot be used: {type(error).__name__}: {first_line(error)}; install it anew with its "
            "dependencies, torchvision of the same kind (CPU or CUDA) and release as torch"
        ) from error
    from ..restore.deblurring import choose_device

    place = torch.device(choose_device(device or "auto"))
    try:
        with redirect_stdout(sys.stderr):  # pyiqa prints there what it fetches and reads
            metric: Any = pyiqa.create_metric(kind.pyiqa, device=place)
    except Exception as error:  # most often weights that could not be fetched, with errors of many kinds
        raise DefocusError(
            f"{name}: pyiqa cannot make {kind.pyiqa}: {type(error).__name__}: {first_line(error)}{_advice(error)}"
        ) from error
    if kind.higher_is_better == metric.lower_better or kind.needs_truth != (metric.metric_mode == "FR"):
        raise DefocusError(f"{name}: this version of pyiqa has another direction or another mode than we know of")

    def compute(image: Display, truth: Display | None) -> float:
        pictures = [np.clip(one, 0.0, 1.0) for one in (image, truth) if one is not None]
        try:
            with torch.no_grad():
                value = float(metric(*(batch_of_one(one, torch, place) for one in pictures)))
        except (RuntimeError, AssertionError, ValueError, IndexError) as error:
            size = f"{image.shape[1]}×{image.shape[0]}"
            raise DefocusError(f"{name} of a picture of {size} pixels: {first_line(error)}") from error
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
