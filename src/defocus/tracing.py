"""Numbers that JAX may be tracing: plain ones where they are known, tracers where they are not."""

from __future__ import annotations

import math
from typing import Any

import jax
import numpy as np

from .errors import DefocusError


def is_traced(tree: Any) -> bool:
    """Whether any number in `tree` is a tracer of JAX."""
    return any(isinstance(leaf, jax.core.Tracer) for leaf in jax.tree.leaves(tree))


def concrete(tree: Any) -> Any:
    """The numbers themselves where JAX knows them (also while it differentiates), None within jit and vmap."""
    if not is_traced(tree):
        return tree
    stopped = jax.lax.stop_gradient(tree)
    return None if is_traced(stopped) else jax.tree.map(np.asarray, stopped)


def as_array(value: Any) -> Any:
    """Numbers as an array of numpy; arrays of JAX as they are."""
    return value if isinstance(value, jax.Array) else np.asarray(value, float)


def plain_number(value: Any) -> Any:
    """A number of numpy as Python's; arrays and what JAX traces as they are."""
    return float(value) if not isinstance(value, jax.core.Tracer) and np.ndim(value) == 0 else value


def check_number(
    name: str, value: Any, unit: str, expected: str, below: float | None = None, above: float = 0.0
) -> float | None:
    """The number where JAX knows it, None while it traces. Raises `DefocusError` for what is no number in its range.

    The range is open: from `above` up to `below`; without one, inf is allowed.
    """
    number = concrete(value)
    if number is None and value is not None:
        return None
    try:
        plain = math.nan if isinstance(number, str | bytes) else float(number)
    except (TypeError, ValueError, OverflowError):
        plain = math.nan
    if not (plain > above and (below is None or plain < below)):
        raise DefocusError(f"{name} {value!r} {unit}".rstrip() + f"; expected {expected}")
    return plain
