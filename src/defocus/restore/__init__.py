"""Networks and their data. Everything here needs PyTorch: the extra [train]."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .models import Network


def build_model(name: str, size: str = "paper", **overrides: Any) -> Network:
    """One of the paper's networks with random weights; see `defocus.restore.models`."""
    from .models import build_model as build

    return build(name, size, **overrides)
