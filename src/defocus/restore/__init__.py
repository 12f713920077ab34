"""Networks that undo defocus, and what they learn from. Everything here needs PyTorch: the extra [train]."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

# Public names and where they live, imported on first use.
_EXPORTS = {
    "PairDataset": "data",
    "OnTheFlyDataset": "data",
    "TrainConfig": "config",
    "TrainProgress": "training",
    "TrainResult": "training",
    "train": "training",
    "Network": "models",
    "build_model": "models",
    "load_model": "models.checkpoints",
    "save_weights": "models.checkpoints",
    "deblur": "tiles",
    "deblur_files": "deblurring",
}

__all__ = [
    "Network",
    "OnTheFlyDataset",
    "PairDataset",
    "TrainConfig",
    "TrainProgress",
    "TrainResult",
    "build_model",
    "deblur",
    "deblur_files",
    "load_model",
    "save_weights",
    "train",
]

if TYPE_CHECKING:
    from .config import TrainConfig
    from .data import OnTheFlyDataset, PairDataset
    from .deblurring import deblur_files
    from .models import Network, build_model
    from .models.checkpoints import load_model, save_weights
    from .tiles import deblur
    from .training import TrainProgress, TrainResult, train


def __getattr__(name: str) -> object:
    if name in _EXPORTS:
        return getattr(importlib.import_module(f".{_EXPORTS[name]}", __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
