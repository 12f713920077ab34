"""From a file's bytes to lines of text, and from words to numbers.

Lens files come as UTF-16 (with or without a byte-order mark), UTF-8 or Latin-1.
"""

from __future__ import annotations

import codecs
import math
import stat
from collections.abc import Sequence
from decimal import Decimal, localcontext
from pathlib import Path

from ...errors import LensFileError

MAX_BYTES = 8_000_000  # the largest lens files with merit functions and tolerances stay far below
MAX_LINES = 100_000
MAX_NUMBER_LENGTH = 64  # characters
INFINITY_MM = 1e10  # lens programs write "at infinity" as this distance or a longer one

_CONTROL = bytes(set(range(32)) - set(b"\t\n\v\f\r\x1a")) + b"\x7f"
_MAX_CONTROL_SHARE = 0.001
_MIN_NUL_SHARE = 0.3  # of one of the two byte positions; ASCII text in UTF-16 has nearly 1


def read_bytes(path: str | Path) -> bytes:
    """The content of a regular file of at most MAX_BYTES."""
    try:
        if not stat.S_ISREG(Path(path).stat().st_mode):  # opening a pipe would wait for its other end
            raise LensFileError("not a regular file", file=path)
        with open(path, "rb") as file:
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = getattr(error, "strerror", None) or str(error)
        raise LensFileError(f"cannot be opened: {reason}", file=path) from error
    if len(data) > MAX_BYTES:
        raise LensFileError(f"larger than {MAX_BYTES // 1_000_000} MB, the limit for a lens file", file=path)
    return data


def decode(data: bytes, file: str | Path) -> str:
    """The text of a lens file; line ends become \\n."""
    if not data.strip(b"\x00\t\n\v\f\r \x1a"):
        raise LensFileError("the file is empty", file=file)
    encoding = _encoding(data)
    if encoding.startswith("utf-16") and len(data) % 2:
        data = data[:-1]  # cut in the middle of a character; what is missing shows when the lens is put together
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError:
        if encoding.startswith("utf-16"):
            raise LensFileError("broken UTF-16 text; is the file damaged, or binary?", file=file) from None
        text = data.decode("latin-1")
    raw = text.encode("latin-1", "replace")
    if len(raw) - len(raw.translate(None, _CONTROL)) > _MAX_CONTROL_SHARE * len(raw):
        raise LensFileError("a binary file, not a text prescription", file=file)
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    if text.count("\n") > MAX_LINES:
        raise LensFileError(f"more than {MAX_LINES} lines, the limit for a lens file", file=file)
    return text


def _encoding(data: bytes) -> str:
    if data.startswith(codecs.BOM_UTF8):
        return "utf-8-sig"
    if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    head = data[:4096]
    even, odd = head[0::2], head[1::2]
    if odd.count(0) > _MIN_NUL_SHARE * len(odd) and even.count(0) <= 0.01 * len(even):
        return "utf-16-le"
    if even.count(0) > _MIN_NUL_SHARE * len(even) and odd.count(0) <= 0.01 * len(odd):
        return "utf-16-be"
    return "utf-8"


def clean(text: str, limit: int = 300) -> str:
    """One line of printable text, for names and remarks."""
    words = "".join(c if c.isprintable() else " " for c in text[: 4 * limit]).split()
    return " ".join(words)[:limit].rstrip()


def to_float(word: str) -> float | None:
    """A finite number, or None. Fortran's D exponents count as E."""
    if len(word) > MAX_NUMBER_LENGTH or "_" in word or not word.isascii():
        return None
    try:
        value = float(_with_e(word))
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _with_e(word: str) -> str:
    return word.upper().replace("D", "E").strip()


def to_floats(words: Sequence[str]) -> list[float] | None:
    """Finite numbers, or None where a word is none."""
    values = [value for word in words if (value := to_float(word)) is not None]
    return values if len(values) == len(words) else None


def to_int(word: str) -> int | None:
    """A whole number below 1e9 in size, or None; "3.0" counts."""
    value = to_float(word)
    return int(value) if value is not None and value.is_integer() and abs(value) < 1e9 else None


def reciprocal(word: str, unit: float = 1.0) -> float | None:
    """unit / word, rounded once: the radius in mm of a curvature in 1/unit, inf for 0; None if not a number.

    A radius that `curvature_text` wrote comes back to the last bit.
    """
    value = to_float(word)
    if value is None:
        return None
    if value == 0.0:
        return math.inf
    with localcontext() as context:
        context.prec = 40
        return float(Decimal(repr(unit)) / Decimal(_with_e(word)))


def curvature_text(radius: float) -> str:
    """1/radius with enough digits for `reciprocal` to give the radius back exactly."""
    if math.isinf(radius):
        return "0.0"
    with localcontext() as context:
        context.prec = 25
        return f"{1 / Decimal(float(radius)):E}"


def scaled(word: str, power_of_ten: int) -> float | None:
    """word × 10^power_of_ten, rounded once: 0.5875618 µm is 587.5618 nm exactly; None if not a number."""
    value = to_float(word)
    if not value:
        return value
    return float(Decimal(_with_e(word)).scaleb(power_of_ten))


def scaled_text(value: float, power_of_ten: int) -> str:
    """value × 10^power_of_ten, exactly."""
    return f"{Decimal(repr(float(value))).scaleb(power_of_ten):E}"
