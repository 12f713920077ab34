"""Numbers that JAX may be tracing: plain ones where they are known, tracers where they are not."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np


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
