"""Networks that undo defocus, and what they learn from. Everything here needs PyTorch: the extra [train]."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .._lazy import lazy_names

if TYPE_CHECKING:
    from .config import TrainConfig
    from .data import OnTheFlyDataset, PairDataset
    from .deblurring import deblur_files
    from .lens_defocus import LensDefocus
    from .models import Network, build_model
    from .models.checkpoints import load_model, save_weights
    from .tiles import deblur
    from .training import TrainProgress, TrainResult, train

__all__ = [
    "LensDefocus",
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

__getattr__, __dir__ = lazy_names(__name__)
