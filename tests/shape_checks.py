"""The check that tests put on every function of the package: arrays have the shapes and types that signatures say.

Other annotations are left to mypy: tests pass wrong values on purpose, to see what a user is told.
"""

from __future__ import annotations

import inspect
from typing import Any, get_args

from beartype import beartype
from jaxtyping import AbstractArray


def check(function: Any) -> Any:
    """`function` with its annotated arrays checked; as it is, if it has none."""
    hints = {name: hint for name, hint in inspect.get_annotations(function).items() if _is_array(hint)}
    if not hints:
        return function
    function.__annotations__ = hints
    return beartype(function)


def _is_array(hint: object) -> bool:
    """Whether an annotation speaks of an array, alone or within another."""
    if isinstance(hint, type) and issubclass(hint, AbstractArray):
        return True
    return any(_is_array(part) for part in get_args(hint))
