"""Random numbers with names: each draw is a pure function of the plan's seed and of what it is for.

A counter-based generator (Philox) is keyed by a hash of the names, so that no draw depends on how many were made before
it, on the order of the work, or on the worker.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.random.bit_generator import ISeedSequence


class _Key(ISeedSequence):
    """The key of a generator. Given as one, numpy asks the operating system for entropy all the same, which it then
    does not use: four fifths of the time."""

    def __init__(self, words: np.ndarray) -> None:
        self.words = words

    def generate_state(self, n_words: int, dtype: Any = np.uint32) -> np.ndarray:
        return self.words


def generator(seed: int, *names: str | int) -> np.random.Generator:
    """Generator for one purpose, such as `generator(seed, "train", 17, "focus")`."""
    digest = hashlib.sha256("\0".join(str(part) for part in (seed, *names)).encode()).digest()
    key = _Key(np.frombuffer(digest[:16], np.uint64))
    return np.random.Generator(np.random.Philox(key))  # type: ignore[arg-type]  # its types know one kind of seed only


def seed_for(seed: int, *names: str | int) -> int:
    """Number below 2³¹ for one purpose, to be kept in a recipe."""
    return int(generator(seed, *names).integers(2**31))
