"""How a function of one lens is applied to many."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int


@jax.custom_batching.custom_vmap
def any_lens(flag: Bool[Array, ""]) -> Bool[Array, ""]:
    """Whether a condition holds for any lens of the batch that it is mapped over.

    A branch on it is taken or left by the whole batch, where one on the flag itself would be computed for all lenses
    and selected from afterwards.
    """
    return flag


@any_lens.def_vmap
def _any_lens_of_batch(_size: int, batched: list[bool], flags: Bool[Array, "*batch"]) -> tuple[Array, bool]:
    return any_lens(jnp.any(flags, axis=0) if batched[0] else flags), False


def computed_once(always: Bool[Array, ""], function: Callable[..., Any], *arguments: Any) -> Any:
    """`function` of the arguments, which a processor computes once, however often its value is used.

    XLA puts small operations into all the loops that use them, and a program may become several times as large. It
    does not look into a branch: this is one, on a condition that is `always` true, which the compiler does not know.
    """
    if jax.default_backend() != "cpu":
        return function(*arguments)
    shapes = jax.eval_shape(function, *arguments)

    def nothing(*_: Any) -> Any:
        return jax.tree.map(lambda shape: jnp.zeros(shape.shape, shape.dtype), shapes)

    return jax.lax.cond(always, function, nothing, *arguments)


def on_host(function: Callable[..., Any], *arguments: Any) -> Any:
    """The function's value as arrays of numpy, computed by the processor also where there is an accelerator.

    That is for one lens: an accelerator waits for every one of its surfaces, for tens of milliseconds in all.
    """
    if jax.default_backend() == "cpu":
        return jax.tree.map(np.asarray, function(*arguments))
    try:
        (processor, *_) = jax.local_devices(backend="cpu")
    except RuntimeError:  # JAX was told to know none
        return jax.device_get(function(*arguments))
    with jax.default_device(processor):
        return jax.tree.map(np.asarray, function(*arguments))


def over_lenses(
    function: Callable[..., Any],
    *arguments: Any,
    count: Int[Array, ""] | int | None = None,
    at_once: int | None = None,
) -> Any:
    """`function` over the leading axis of every argument.

    An accelerator takes all lenses in one step, or `at_once` of them, a divisor of their number, in a loop. A processor
    takes one after the other inside the compiled program: the rays of one lens stay in its cache, and what a lens does
    not have (padding surfaces, aspheric terms) costs nothing, because its branches are then taken and not merely
    selected. In loops, `count` says how many of the rows are computed; the others come out as zeros. It is a number,
    not a shape: one program serves every size of batch.
    """
    if jax.default_backend() != "cpu":
        size = jax.tree.leaves(arguments)[0].shape[0]
        if at_once is None:
            return jax.vmap(function)(*arguments)
        steps = -(-(size if count is None else count) // at_once)
        parts = jax.tree.map(lambda leaf: leaf.reshape(-1, at_once, *leaf.shape[1:]), arguments)
        values = _in_a_loop(jax.vmap(function), parts, steps)
        return jax.tree.map(lambda leaf: leaf.reshape(size, *leaf.shape[2:]), values)
    if count is None:
        return jax.lax.map(lambda row: function(*row), arguments)
    return _in_a_loop(function, arguments, count)


def _in_a_loop(function: Callable[..., Any], arguments: tuple[Any, ...], count: Int[Array, ""] | int) -> Any:
    """`function` over the first `count` rows, one after the other; the others are zeros."""

    def row(i: Int[Array, ""]) -> Any:
        return function(*jax.tree.map(lambda leaf: leaf[i], arguments))

    # Traced once, for its shapes and for the loop: a lens takes seconds to trace, and such loops are nested.
    first = jnp.zeros((), int)
    traced: Any = eqx.filter_closure_convert(row, first)

    # All numbers of a kind in one array: writing dozens of them into each row would be dozens of kernels to compile.
    shapes, structure = jax.tree.flatten(traced.out_struct)
    kinds = {shape.dtype: [k for k, other in enumerate(shapes) if other.dtype == shape.dtype] for shape in shapes}

    def fill(i: Int[Array, ""], rows: list[Array]) -> list[Array]:
        values = [jnp.ravel(value) for value in jax.tree.leaves(traced(i))]
        own = [jnp.concatenate([values[k] for k in members]) for members in kinds.values()]
        return [array.at[i].set(row) for array, row in zip(rows, own, strict=True)]

    size = jax.tree.leaves(arguments)[0].shape[0]
    empty = [jnp.zeros((size, sum(shapes[k].size for k in own)), kind) for kind, own in kinds.items()]
    rows = jax.lax.fori_loop(first, jnp.asarray(count, int), fill, empty)
    leaves: dict[int, Array] = {}
    for array, members in zip(rows, kinds.values(), strict=True):
        ends = np.cumsum([shapes[k].size for k in members])[:-1]
        parts = jnp.split(array, ends, axis=1)
        leaves |= {k: part.reshape(size, *shapes[k].shape) for k, part in zip(members, parts, strict=True)}
    return jax.tree.unflatten(structure, [leaves[k] for k in range(len(shapes))])
