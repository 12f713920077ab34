"""The check that tests put on every function of the package: arrays have the shapes and types that signatures say.

Other annotations are left to mypy: tests pass wrong values on purpose, to see what a user is told. A function without
arrays stays as it is: jaxtyping would bind the arguments of every call, and check nothing.
"""

from __future__ import annotations

import functools
import inspect
from typing import Any, get_args

import jaxtyping
from beartype import beartype
from jaxtyping import AbstractArray

_wrap = jaxtyping.jaxtyped
_with_arrays: list[bool] = []  # of the signatures that jaxtyping is about to wrap


def check(function: Any) -> Any:
    """`function` with its annotated arrays checked; as it is, if it has none."""
    hints = {name: hint for name, hint in inspect.get_annotations(function).items() if _is_array(hint)}
    _with_arrays.append(bool(hints))
    if not hints:
        return function
    function.__annotations__ = hints
    return beartype(function)


def _wrap_arrays(thing: Any, *, typechecker: Any) -> Any:
    """What jaxtyping's import hook puts around classes and functions: nothing around a function without arrays."""
    _with_arrays.clear()
    wrapped = _wrap(thing, typechecker=typechecker)
    is_plain = inspect.isfunction(thing) and _with_arrays == [False, False]  # its arguments; these and what it returns
    return thing if is_plain else wrapped


jaxtyping.jaxtyped = lambda *, typechecker: functools.partial(_wrap_arrays, typechecker=typechecker)


def _is_array(hint: object) -> bool:
    """Whether an annotation speaks of an array, alone or within another."""
    if isinstance(hint, type) and issubclass(hint, AbstractArray):
        return True
    return any(_is_array(part) for part in get_args(hint))
