"""How a function of one lens is applied to many."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax


def over_lenses(function: Callable[..., Any], *arguments: Any) -> Any:
    """`function` over the leading axis of every argument.

    An accelerator takes all lenses in one step. A processor takes one after the other inside the compiled program:
    the rays of one lens stay in its cache, and what a lens does not have (padding surfaces, aspheric terms) costs
    nothing, because its branches are then taken and not merely selected.
    """
    if jax.default_backend() == "cpu":
        return jax.lax.map(lambda given: function(*given), arguments)
    return jax.vmap(function)(*arguments)
