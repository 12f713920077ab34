"""PyTorch, or the error that names the extra which brings it: the one place that looks."""

from __future__ import annotations

from ..errors import MissingExtraError

try:
    import torch
    import torch.nn.functional as F
    from torch import Tensor, nn
    from torch.utils.data import DataLoader, Dataset
except ModuleNotFoundError as error:
    raise MissingExtraError("PyTorch, for networks and their data,", "train") from error

__all__ = ["DataLoader", "Dataset", "F", "Tensor", "nn", "torch"]
