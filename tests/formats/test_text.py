"""Bytes to text, words to numbers."""

from __future__ import annotations

import codecs
import math
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from defocus.errors import LensFileError
from defocus.lens.formats.text import (
    MAX_BYTES,
    clean,
    curvature_text,
    decode,
    read_bytes,
    reciprocal,
    scaled,
    scaled_text,
    to_float,
    to_int,
)

TEXT = "NAME Ø 30 mm\r\nSURF 0\r\n"


@pytest.mark.parametrize(
    "data",
    [
        TEXT.encode("utf-8"),
        TEXT.encode("utf-8-sig"),
        TEXT.encode("latin-1"),
        codecs.BOM_UTF16_LE + TEXT.encode("utf-16-le"),
        codecs.BOM_UTF16_BE + TEXT.encode("utf-16-be"),
        TEXT.encode("utf-16-le"),
        TEXT.encode("utf-16-be"),
        codecs.BOM_UTF16_LE + TEXT.encode("utf-16-le") + b"\x20",  # cut inside a character
    ],
)
def test_encodings(data: bytes) -> None:
    assert decode(data, "lens.zmx").rstrip() == "NAME Ø 30 mm\nSURF 0"


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "empty"),
        (b"\x00" * 100, "empty"),
        (b"\r\n \t\x1a", "empty"),
        (bytes(range(256)) * 20, "binary"),
        (b"\x89PNG\r\n\x1a\n" + bytes(range(200)), "binary"),
        (b"\xff\xfe" + b"\x00\xd8" * 50, "UTF-16"),
    ],
)
def test_not_text(data: bytes, message: str) -> None:
    with pytest.raises(LensFileError, match=message) as caught:
        decode(data, "lens.zmx")
    assert caught.value.file == "lens.zmx"


def test_line_ends_keep_the_line_numbers() -> None:
    assert decode(b"a\r\nb\rc\nd\x85e", "x").split("\n") == ["a", "b", "c", "d\x85e"]


def test_unreadable_paths(tmp_path) -> None:
    with pytest.raises(LensFileError, match="cannot be opened"):
        read_bytes(tmp_path / "absent.zmx")
    with pytest.raises(LensFileError):
        read_bytes(tmp_path)
    with pytest.raises(LensFileError):
        read_bytes("a\x00b")
    big = tmp_path / "big.zmx"
    with big.open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    with pytest.raises(LensFileError, match="larger than"):
        read_bytes(big)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes on this system")
def test_a_pipe_does_not_hang(tmp_path) -> None:
    os.mkfifo(tmp_path / "pipe.zmx")
    with pytest.raises(LensFileError, match="regular file"):
        read_bytes(tmp_path / "pipe.zmx")


@pytest.mark.parametrize("word", ["nan", "inf", "-Infinity", "1e400", "", "x", "1_000", "٣", "9" * 100, "0x10"])
def test_not_a_number(word: str) -> None:
    assert to_float(word) is None
    assert to_int(word) is None
    assert reciprocal(word) is None
    assert scaled(word, 3) is None


def test_numbers() -> None:
    assert to_float("-.5E+1") == -5.0
    assert to_float("1.5D-3") == 1.5e-3
    assert to_int("3.0") == 3
    assert to_int("3.5") is None
    assert to_int("1e300") is None
    assert reciprocal("-0.0") == math.inf
    assert reciprocal("1e-400") == math.inf
    assert reciprocal("2", 25.4) == 12.7
    assert scaled("0e99999999999999999999", 3) == 0.0


@given(st.floats(min_value=1e-3, max_value=1e300) | st.floats(min_value=-1e300, max_value=-1e-3))
def test_radius_survives_its_curvature(radius: float) -> None:
    assert reciprocal(curvature_text(radius)) == radius


@given(st.floats(min_value=100.0, max_value=20000.0))
def test_wavelength_survives_micrometres(nm: float) -> None:
    assert scaled(scaled_text(nm, -3), 3) == nm


def test_clean() -> None:
    assert clean("  a\t\x00b\n\u2028c ") == "a b c"
    assert len(clean("x" * 10**6)) == 300
