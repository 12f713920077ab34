"""What the tab of deblurring does: a visitor's blurred photograph through the network that is shipped, if one is."""

from __future__ import annotations

from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from ..errors import DefocusError
from ..restore.shipped import has_weights, shipped_weights
from .job_line import Report

LONGEST = 1920  # pixels on the long side; larger photographs are made smaller


def missing_network() -> str:
    """Why nothing can be deblurred here, in one line; empty where it can."""
    if find_spec("torch") is None:
        return "Deblurring needs PyTorch: install defocus[train], and start the page again."
    if not has_weights():
        return "This installation has no weights of its own: `defocus deblur` takes those that you trained."
    return ""


@lru_cache(1)
def _network() -> Any:
    from ..restore.models.checkpoints import load_model

    return load_model(shipped_weights())


def deblurred(photo: Path, report: Report) -> tuple[Float[np.ndarray, "rows cols 3"], Float[np.ndarray, "rows cols 3"]]:
    """The photograph as it is and deblurred, display values 0..1."""
    why_not = missing_network()
    if why_not:
        raise DefocusError(why_not)
    from ..restore.deblurring import read_for_restoring
    from ..restore.tiles import deblur

    report("reading", 0.0)
    image = read_for_restoring(photo)[0]
    longest = max(image.shape[:2])
    if longest > LONGEST:
        from ..photo import reduced

        image = reduced(image, (image.shape[1] * LONGEST // longest, image.shape[0] * LONGEST // longest))
    restored = deblur(_network(), image, progress=lambda done, of: report("deblurring", done / max(of, 1)))
    return image, np.clip(restored, 0.0, 1.0)
