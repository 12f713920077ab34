"""A function of arrays whose derivatives are stored programs, too: the next process neither traces nor lowers them.

`jax.grad` outside of `jax.jit` linearizes a function, compiles what is known and what is linear, and finds both in its
cache the next time, but only after it has traced, differentiated and transposed all of it again: for a PSF ten seconds.
Here the value comes from a program that also returns what the way back needs, and the way back is a program of its
own (`StoredProgram`). What is linear in between is a primitive of ours, so that both modes of differentiation go on
working, of any order and inside of other transformations; those that JAX traces compile as they always do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
from jax.core import ShapedArray
from jax.custom_derivatives import SymbolicZero
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from ..stored_program import StoredProgram

MANY = 200  # calls after which a program that compiles slowly and runs twice as fast has paid for itself


class StoredGradient:
    """A function at the top of a module, of pytrees of arrays, with derivatives in its numbers.

    `facts` are its keyword arguments: each of their values makes a program of its own. Unless it is `quick`, which is
    for what takes longer to compile than to run, its programs are the fast ones from the first call on.
    """

    def __init__(self, function: Callable[..., Any], *, quick: bool = True, **facts: Any) -> None:
        self._function, self._quick, self._facts = function, quick, facts
        self._name = f"{function.__module__}.{function.__qualname__}({facts})"

    def __call__(self, *arguments: Any) -> Any:
        """The function's value; its derivatives where JAX asks for them."""
        leaves, tree = jax.tree.flatten(arguments)

        @jax.custom_jvp
        def value(*leaves: Any) -> Any:
            return self._function(*jax.tree.unflatten(tree, leaves), **self._facts)

        def differential(primals: Sequence[Any], tangents: Sequence[Any]) -> tuple[Any, Any]:
            moved = tuple(k for k, tangent in enumerate(tangents) if not isinstance(tangent, SymbolicZero))
            programs = self._derivatives(tree, moved)
            value, residuals = programs.forward(*primals)
            flat, structure = jax.tree.flatten(value)
            if not moved:
                return value, jax.tree.map(jnp.zeros_like, value)
            change = [tangents[k] for k in moved]
            parts = (len(residuals), len(primals), len(change))
            out = _tangents.bind(*residuals, *primals, *change, programs=programs, parts=parts, shapes=_shapes(flat))
            return value, jax.tree.unflatten(structure, out)

        value.defjvp(differential, symbolic_zeros=True)
        return value(*leaves)

    @lru_cache  # noqa: B019 — as many as there are kinds of parameters that somebody differentiates by
    def _derivatives(self, tree: Any, moved: tuple[int, ...]) -> _Derivatives:
        def function(*leaves: Any) -> Any:
            return self._function(*jax.tree.unflatten(tree, leaves), **self._facts)

        return _Derivatives(function, f"{self._name} {tree}", moved, quick=self._quick)


class _Derivatives:
    """The programs of a function (of flat numbers) and of its derivatives in some of them, `moved`."""

    def __init__(self, function: Callable[..., Any], name: str, moved: tuple[int, ...], *, quick: bool) -> None:
        self.function, self.name, self.moved, self._quick = function, name, moved, quick
        # The structures of what the way back needs and of the value, with its shapes, by those of the numbers.
        self._pullbacks: dict[Any, tuple[Any, Any, Any]] = {}

        def forward(*leaves: Any) -> tuple[Any, list[Any]]:
            value, pullback = jax.vjp(self._of_moved(leaves), *(leaves[k] for k in moved))
            residuals, way = jax.tree.flatten(pullback)
            flat, structure = jax.tree.flatten(value)
            self._pullbacks[_shapes(leaves)] = way, structure, _shapes(flat)
            return value, residuals

        def push(leaves: Sequence[Any], change: Sequence[Any]) -> list[Any]:
            return jax.tree.leaves(self.tangents(leaves, change))

        self.forward, self.push = self._stored(forward), self._stored(push)

    def tangents(self, leaves: Sequence[Any], change: Sequence[Any]) -> Any:
        """How the value changes with the moved numbers."""
        return jax.jvp(self._of_moved(leaves), tuple(leaves[k] for k in self.moved), tuple(change))[1]

    @lru_cache  # noqa: B019
    def backward(self, nonzero: tuple[bool, ...]) -> Callable[..., Any]:
        """The way back, from the cotangents that are `nonzero` to those of the moved numbers."""

        def backward(residuals: Sequence[Any], leaves: Sequence[Any], cotangents: Sequence[Any]) -> list[Any]:
            if _shapes(leaves) not in self._pullbacks:  # the forward program was found on the disk, this one was not
                jax.eval_shape(self.forward, *leaves)
            way, structure, shapes = self._pullbacks[_shapes(leaves)]
            some = iter(cotangents)
            every = [next(some) if is_there else jnp.zeros(*s) for is_there, s in zip(nonzero, shapes, strict=True)]
            return list(jax.tree.unflatten(way, residuals)(jax.tree.unflatten(structure, every)))

        return self._stored(backward, nonzero)

    def _of_moved(self, leaves: Sequence[Any]) -> Callable[..., Any]:
        def function(*moved: Any) -> Any:
            every = list(leaves)
            for k, leaf in zip(self.moved, moved, strict=True):
                every[k] = leaf
            return self.function(*every)

        return function

    def _stored(self, function: Callable[..., Any], *facts: Any) -> Callable[..., Any]:
        function.__qualname__ = f"{function.__name__}({self.name} {self.moved} {facts})"
        return _TwoPrograms(function) if self._quick else StoredProgram(function)


class _TwoPrograms:
    """A stored program that is soon ready and, for who calls it more than MANY times, as one optimizes a lens, a fast
    one."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._quick, self._fast = StoredProgram(function, quick=True), StoredProgram(function)
        self._calls = 0

    def __call__(self, *arguments: Any) -> Any:
        self._calls += 1
        return (self._quick if self._calls <= MANY else self._fast)(*arguments)


Shapes = tuple[tuple[tuple[int, ...], Any], ...]
Parts = tuple[int, int, int]  # how many residuals, numbers and changes a list of arguments has


def _shapes(leaves: Sequence[Any]) -> Shapes:
    return tuple((leaf.shape, leaf.dtype) for leaf in leaves)


# Residuals, numbers, and changes of the moved ones → changes of the value, linear in the last.
_tangents: Any = Primitive("stored_tangents")
_tangents.multiple_results = True


def _split(arguments: Sequence[Any], parts: Parts) -> tuple[list[Any], list[Any], list[Any]]:
    first, second = parts[0], parts[0] + parts[1]
    return list(arguments[:first]), list(arguments[first:second]), list(arguments[second:])


def _push(*arguments: Any, programs: _Derivatives, parts: Parts, shapes: Shapes) -> list[Any]:
    _, leaves, change = _split(arguments, parts)
    return programs.push(leaves, change)


def _pull(cotangents: Any, *arguments: Any, programs: _Derivatives, parts: Parts, shapes: Shapes) -> list[Any]:
    residuals, leaves, _ = _split(arguments, parts)
    nonzero = tuple(not isinstance(cotangent, ad.Zero) for cotangent in cotangents)
    some = [cotangent for cotangent, is_there in zip(cotangents, nonzero, strict=True) if is_there]
    return [None] * (parts[0] + parts[1]) + programs.backward(nonzero)(residuals, leaves, some)


def _push_derivative(primals: Any, tangents: Any, **options: Any) -> tuple[list[Any], list[Any]]:
    """Second derivatives: the numbers move, too. Residuals follow from them."""
    first = options["parts"][0]
    moved = [k for k, t in enumerate(tangents) if k >= first and not isinstance(t, ad.Zero)]

    def push(*values: Any) -> list[Any]:
        every = list(primals)
        for k, value in zip(moved, values, strict=True):
            every[k] = value
        return _push(*every, **options)

    return jax.jvp(push, tuple(primals[k] for k in moved), tuple(tangents[k] for k in moved))


def _push_batch(arguments: Any, axes: Any, **options: Any) -> tuple[list[Any], list[int]]:
    out = jax.vmap(lambda *a: _push(*a, **options), in_axes=tuple(axes))(*arguments)
    return out, [0] * len(out)


_tangents.def_impl(_push)
_tangents.def_abstract_eval(lambda *_, shapes, **__: [ShapedArray(*shape) for shape in shapes])
ad.primitive_transposes[_tangents] = _pull
ad.primitive_jvps[_tangents] = _push_derivative
batching.primitive_batchers[_tangents] = _push_batch
mlir.register_lowering(_tangents, mlir.lower_fun(_push, multiple_results=True))
