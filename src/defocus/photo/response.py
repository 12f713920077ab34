"""The camera's response: linear light 0..1 to display values 0..1, and back.

`SRGB` is the sRGB transfer curve (IEC 61966-2-1), the default. Cameras add contrast to it: `Response.contrast(a)`
bends the display value v to vᵃ / (vᵃ + (1 − v)ᵃ), an S that leaves black, middle and white where they are and has a
closed inverse (a = 1 is sRGB). `Response.power(γ)` is v = x^(1/γ). `Response.table(x, y)` interpolates a measured
curve. `LINEAR` changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Shaped

from ..errors import PhotoError
from ..srgb import check_floats, from_srgb, to_srgb


class Response(eqx.Module):
    """A response curve. Curves of one kind and length share a program."""

    kind: Literal["srgb", "power", "table"] = eqx.field(static=True)
    x: Float[Array | np.ndarray, "samples"]  # of a table: linear light; else the one parameter
    y: Float[Array | np.ndarray, "samples"]  # of a table: display values

    @classmethod
    def contrast(cls, amount: float) -> Response:
        """The sRGB curve with an S of this exponent; 1 is none, cameras have 1.2 to 1.6."""
        if not 0.2 <= amount <= 5.0:
            raise PhotoError(f"contrast {amount}; expected 0.2 to 5, where 1 is the sRGB curve")
        return cls("srgb", np.array([amount], np.float32), np.zeros(1, np.float32))

    @classmethod
    def power(cls, gamma: float) -> Response:
        """v = x^(1/γ)."""
        if not 0.2 <= gamma <= 5.0:
            raise PhotoError(f"gamma {gamma}; expected 0.2 to 5")
        return cls("power", np.array([gamma], np.float32), np.zeros(1, np.float32))

    @classmethod
    def table(cls, x: Sequence[float] | np.ndarray, y: Sequence[float] | np.ndarray) -> Response:
        """A measured curve from (0, 0) to (1, 1), both rising strictly."""
        try:
            xs, ys = np.asarray(x, np.float64), np.asarray(y, np.float64)
        except (TypeError, ValueError):
            raise PhotoError("response table: two lists of numbers are expected") from None
        if xs.ndim != 1 or xs.shape != ys.shape or xs.size < 2:
            raise PhotoError(f"response table of shapes {xs.shape} and {ys.shape}; expected two lists of equal length")
        for name, values in (("linear", xs), ("display", ys)):
            if not (np.all(np.diff(values) > 0.0) and abs(values[0]) < 1e-6 and abs(values[-1] - 1.0) < 1e-6):
                raise PhotoError(f"response table: its {name} values must rise strictly from 0 to 1")
        return cls("table", xs.astype(np.float32), ys.astype(np.float32))


POLYNOMIAL_POINTS = 257
SRGB = Response.contrast(1.0)
LINEAR = Response.power(1.0)


@jax.jit
def encode(linear: Shaped[Array, "*shape"], response: Response = SRGB) -> Float[Array, "*shape"]:
    """Display values of linear light (floats), which is cut to 0..1 first."""
    check_floats(linear, "linear light")
    x, parameter = jnp.clip(linear, 0.0, 1.0), jnp.asarray(response.x[0])
    if response.kind == "table":
        return jnp.interp(x, response.x, response.y).astype(x.dtype)
    if response.kind == "power":
        return _power(x, 1.0 / parameter)
    return _bend(to_srgb(x, jnp), parameter)


@jax.jit
def decode(display: Shaped[Array, "*shape"], response: Response = SRGB) -> Float[Array, "*shape"]:
    """Linear light of display values (floats): the inverse of `encode`."""
    check_floats(display, "display values")
    v, parameter = jnp.clip(display, 0.0, 1.0), jnp.asarray(response.x[0])
    if response.kind == "table":
        return jnp.interp(v, response.y, response.x).astype(v.dtype)
    if response.kind == "power":
        return _power(v, parameter)
    return from_srgb(_bend(v, 1.0 / parameter), jnp)


def _power(x: Float[Array, "*shape"], exponent: Float[Array, ""] | float) -> Float[Array, "*shape"]:
    positive = jnp.maximum(x, 1e-12)  # the slope at 0 may be infinite: keep it out of gradients
    return jnp.where(x > 0.0, positive**exponent, 0.0).astype(x.dtype)


def _bend(v: Float[Array, "*shape"], exponent: Float[Array, ""]) -> Float[Array, "*shape"]:
    up, down = _power(v, exponent), _power(1.0 - v, exponent)
    return up / (up + down)


def parse_response(text: str) -> Response:
    """`srgb`, `linear`, `gamma:2.2`, `contrast:1.3`, or the name of a table's file."""
    name, _, number = text.partition(":")
    if name in ("srgb", "linear") and not number:
        return SRGB if name == "srgb" else LINEAR
    if name in ("gamma", "contrast") and number:
        try:
            value = float(number)
        except ValueError as error:
            raise PhotoError(f"response {text!r}: {number!r} is not a number") from error
        return Response.power(value) if name == "gamma" else Response.contrast(value)
    path = Path(text)
    if path.is_file():
        return read_response(path)
    raise PhotoError(f"response {text!r}; expected srgb, linear, gamma:NUMBER, contrast:NUMBER or a table's file")


def read_response(path: str | Path) -> Response:
    """A table from a text file: two columns, linear light and display value, # begins a remark.

    Or RSBlur's `a7r3_polynomial_alpha.mat`: the coefficients α₀ … α₇ of a polynomial in the light, cut to 0..1.
    """
    if Path(path).suffix.lower() == ".mat":
        return _polynomial(Path(path))
    try:
        text = Path(path).read_text()
        if not text.strip():
            raise ValueError("the file is empty")
        table = np.loadtxt(path, delimiter="," if "," in text else None, ndmin=2)
    except ValueError as error:
        raise PhotoError(f"not a table of two columns of numbers: {error}", file=path) from error
    if table.shape[1] != 2:
        raise PhotoError(f"{table.shape[1]} columns; expected linear light and display value", file=path)
    try:
        return Response.table(table[:, 0], table[:, 1])
    except PhotoError as error:
        raise PhotoError(error.message, file=path) from error


def _polynomial(path: Path) -> Response:
    """The curve of a polynomial's coefficients, the constant first, as a table from black to white."""
    from scipy.io import loadmat  # slow to import

    try:
        coefficients = np.asarray(loadmat(path)["alpha"], np.float64).ravel()
    except Exception as error:  # a reader that did not expect what a damaged file holds
        raise PhotoError(f"no MATLAB file with the coefficients alpha: {type(error).__name__}", file=path) from error
    x = np.linspace(0.0, 1.0, POLYNOMIAL_POINTS)
    y = np.clip(np.polynomial.polynomial.polyval(x, coefficients), 0.0, 1.0)
    y[[0, -1]] = 0.0, 1.0
    # Where it is cut, or dips, it goes on by a hair, so that every display value has its light.
    rising = np.maximum.accumulate(y) + 2e-4 * x
    try:
        return Response.table(x, rising / rising[-1])
    except PhotoError as error:
        raise PhotoError(error.message, file=path) from error
