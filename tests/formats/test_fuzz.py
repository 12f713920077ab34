"""Damaged files: a lens or a LensFileError, nothing else, and soon."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from defocus.errors import LensError, LensFileError
from defocus.glass import constant_index
from defocus.lens.formats import LENS_SUFFIXES, parse_lens
from defocus.lens.formats.json_format import json_text
from defocus.lens.formats.zemax_write import zemax_text
from defocus.lens.prescription import Lens

SAMPLES = {p.name: p.read_bytes() for p in sorted((Path(__file__).parent / "samples").iterdir())}
NASTY = [
    "NaN", "inf", "-Infinity", "1e400", "-1e308", "1e-400", "0", "-0.0", "1e10", "1e17", "9" * 400, "1" * 5000,
    "", "é", "\u2028", "\ud7ff", "٣", "1_000", "1D5", '"', "'", "{", "[[", "null", "true", "&", ";", "!", "\x00",
    "SURF", "SURF 0", "MNUM", "MNUM 3", "FLOA", "MIRROR", "___BLANK", "XASPHERE", "ODDASPHE", "STOP",
    "SO", "S", "SI", "S1", "ZOO", "ZOO 3", "REFL", "PRV", "END", "AS", "Bf", "d8", "[lens data]", "Infinity",
]  # fmt: skip


def check(data: bytes, name: str) -> Lens | None:
    """The lens, or None for a refusal that names its file."""
    try:
        lens = parse_lens(data, name, fallback_glass=constant_index(1.5))
    except LensFileError as error:
        message = str(error)
    else:
        assert isinstance(lens, Lens)
        return lens
    assert name in message
    assert len(message) < 2000
    return None


@st.composite
def damaged(draw, name: str) -> bytes:
    """A sample with a few bytes, words or lines changed."""
    data = SAMPLES[name]
    for _ in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(["byte", "cut", "delete", "double", "move", "word", "word", "word"]))
        if kind == "byte" and data:
            i = draw(st.integers(0, len(data) - 1))
            data = data[:i] + bytes([draw(st.integers(0, 255))]) + data[i + 1 :]
        elif kind == "cut":
            data = data[: draw(st.integers(0, len(data)))]
        else:
            data = _line(draw, data.decode("latin-1"), kind).encode("utf-8", "surrogatepass")
    return data


def _line(draw, text: str, kind: str) -> str:
    lines = text.split("\n")
    i = draw(st.integers(0, len(lines) - 1))
    if kind == "delete":
        del lines[i]
    elif kind == "double":
        lines[i:i] = [lines[i]] * draw(st.sampled_from([1, 2, 300]))
    elif kind == "move":
        lines.insert(draw(st.integers(0, len(lines) - 1)), lines.pop(i))
    else:
        separator = "\t" if "\t" in lines[i] else ":" if ":" in lines[i] else " "
        words = lines[i].split(separator)
        j = draw(st.integers(0, len(words) - 1))
        words[j] = draw(st.sampled_from(NASTY) | st.text(max_size=8))
        lines[i] = separator.join(words)
    return "\n".join(lines)


@pytest.mark.parametrize("name", SAMPLES)
@given(data=st.data())
@settings(max_examples=100, deadline=3000, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
def test_damaged_samples(name: str, data: st.DataObject) -> None:
    lens = check(data.draw(damaged(name)), name)
    if lens is not None:  # what was read can be written and read again
        assert check(json_text(lens).encode(), "again.json") == lens
        with contextlib.suppress(LensError):  # states that a .zmx file cannot hold
            assert check(zemax_text(lens).encode(), "again.zmx") is not None


@given(data=st.binary(max_size=2000), suffix=st.sampled_from(LENS_SUFFIXES))
@settings(max_examples=300, deadline=3000)
def test_any_bytes(data: bytes, suffix: str) -> None:
    check(data, f"lens{suffix}")


@given(text=st.text(alphabet=st.sampled_from("SURFCV DIZ0123456789.eE+-\n\t;&!'\"[]{}:,\u2028é"), max_size=500))
@settings(max_examples=300, deadline=3000)
def test_any_text(text: str) -> None:
    for suffix in LENS_SUFFIXES:
        check(text.encode(), f"lens{suffix}")


HURT = {
    "a command that is an empty quotation.seq": b"SO 0 0\nS 1 1 F2\n'' 1\n",
    "an exponent that only Decimal minds.zmx": SAMPLES["triplet.zmx"].replace(
        b"WAVM 2 5.875618E-1", b"WAVM 2 0e99999999999999999999"
    ),
    "a curvature below the smallest float.zmx": SAMPLES["triplet.zmx"].replace(
        b"CURV 4.273504273504273504E-002", b"CURV 1e-99999999999999999999"
    ),
    "a normalisation radius of zero.zmx": SAMPLES["phone.zmx"].replace(b"XDAT 2 2.0", b"XDAT 2 0.0"),
    "a normalisation radius that overflows.zmx": SAMPLES["phone.zmx"].replace(b"XDAT 2 2.0", b"XDAT 2 1e-300"),
    "an endless polynomial.zmx": SAMPLES["phone.zmx"].replace(b"XDAT 1 3", b"XDAT 1 1e9"),
    "an integer beyond float.json": SAMPLES["doublet.json"].replace(b"58.3", b"1" + b"0" * 400),
    "an integer beyond Python's digits.json": SAMPLES["doublet.json"].replace(b"58.3", b"1" * 5000),
    "half a surrogate.json": SAMPLES["doublet.json"].replace(b"Sample", b"\\ud800"),
    "a table of one wavelength twice.json": SAMPLES["everything.json"].replace(b"[486.1,", b"[587.6,"),
    "a state far out of range.json": SAMPLES["everything.json"].replace(b'"6": 151.43', b'"6": 1e300'),
    "a negative count.zmx": SAMPLES["triplet.zmx"].replace(b"FTYP 0 0 3 3", b"FTYP 0 0 -3 -3"),
    "a configuration of a surface that is not there.zmx": SAMPLES["zoom.zmx"].replace(b"THIC   7", b"THIC 99"),
    "an image-space aperture beyond 1.seq": SAMPLES["triplet.seq"].replace(b"EPD   12.0", b"NA 1.2"),
    "an object at the first surface.seq": SAMPLES["private.seq"].replace(b"so 0 8.0", b"so 0 0"),
    "a zoom without positions.seq": SAMPLES["zoom.seq"].replace(b"ZOO 3\n", b""),
    "zoom of nothing.seq": SAMPLES["zoom.seq"].replace(b"ZOO THI S2 2.0 8.0 14.0", b"ZOO"),
    "five hundred states of one name.json": json.dumps(
        (whole := json.loads(SAMPLES["everything.json"])) | {"states": whole["states"][:1] * 500}
    ).encode(),
    "no columns.txt": b"[variable distances]\nd1\n[lens data]\n1\tAS\td1\n",
}


@pytest.mark.parametrize("name", HURT)
def test_cases_that_hurt(name: str) -> None:
    check(HURT[name], name)
