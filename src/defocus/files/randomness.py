"""Random numbers with names: each draw is a pure function of the plan's seed and of what it is for.

A counter-based generator (Philox) is keyed by a hash of the names, so that no draw depends on how many were made before
it, on the order of the work, or on the worker.
"""

from __future__ import annotations

import hashlib

import numpy as np


def generator(seed: int, *names: str | int) -> np.random.Generator:
    """Generator for one purpose, such as `generator(seed, "train", 17, "focus")`."""
    digest = hashlib.sha256("\0".join(str(part) for part in (seed, *names)).encode()).digest()
    return np.random.Generator(np.random.Philox(key=np.frombuffer(digest[:16], np.uint64)))


def seed_for(seed: int, *names: str | int) -> int:
    """Number below 2³¹ for one purpose, to be kept in a recipe."""
    return int(generator(seed, *names).integers(2**31))
