"""Which reader a file gets, and files that are no lenses."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from defocus.errors import LensFileError
from defocus.lens.formats import LENS_SUFFIXES, parse_lens, read_lens
from defocus.lens.formats.text import MAX_BYTES, MAX_LINES

SAMPLES = sorted((Path(__file__).parent / "samples").iterdir())


@pytest.mark.parametrize("path", SAMPLES, ids=lambda p: p.name)
@pytest.mark.parametrize("suffix", [*LENS_SUFFIXES, ".dat", ""])
def test_content_decides(path: Path, suffix: str, tmp_path: Path) -> None:
    mislabelled = tmp_path / f"lens{suffix}"
    mislabelled.write_bytes(path.read_bytes())
    lens = read_lens(mislabelled)
    assert lens == read_lens(path)
    assert any("named" in note for note in lens.notes) == (suffix in LENS_SUFFIXES and suffix != path.suffix)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-8-sig"])
@pytest.mark.parametrize("path", SAMPLES, ids=lambda p: p.name)
def test_every_format_in_every_encoding(path: Path, encoding: str) -> None:
    data = path.read_text().replace("\n", "\r\n").encode(encoding)
    assert parse_lens(data, path.name) == read_lens(path)


N, L = MAX_BYTES - 1000, MAX_LINES - 1000
GARBAGE: dict[str, Callable[[], bytes]] = {
    "words.zmx": lambda: b"lorem ipsum 3.14 \t\n" * L,
    "words.seq": lambda: b"lorem ipsum 3.14 \t\n" * L,
    "words.txt": lambda: b"lorem ipsum 3.14 \t\n" * L,
    "words.json": lambda: b"lorem ipsum 3.14 \t\n" * L,
    "one_line.zmx": lambda: b"x" * N,
    "one_line.seq": lambda: b"x" * N,
    "blank_lines.zmx": lambda: b"a" + b"\n" * N,
    "blank_lines.seq": lambda: b"a" + b"\n" * N,
    "spaces.zmx": lambda: b"SURF" + b" " * N,
    "same_surface.zmx": lambda: b"MODE SEQ\n" + b"SURF 0\n" * L,
    "many_surfaces.zmx": lambda: b"MODE SEQ\n" + b"".join(b"SURF %d\n" % i for i in range(L)),
    "curvatures.zmx": lambda: b"MODE SEQ\nSURF 0\n" + b"CURV 0\n" * L,
    "rows.zmx": lambda: b"SURF 0\nCURV 0\nMNUM 3\n" + b"".join(b"THIC %d 1 0\n" % i for i in range(L)),
    "remarks.zmx": lambda: b"NOTE 0 defocus:version 1\n" + b"NOTE 0 defocus:table 1 1 1\n" * L + b"SURF 0\n",
    "wavelengths.zmx": lambda: b"".join(b"WAVM %d 0.5 1\n" % i for i in range(L)) + b"SURF 0\nCURV 0\n",
    "open_command.seq": lambda: b"SO 0 0\nS 0 0\n" + b"A &\n" * L,
    "separators.seq": lambda: b"SO 0 0\nS 0 0\n" + b"A;" * (N // 3),
    "quotes.seq": lambda: b"SO 0 0\nS 0 0\n" + b"'" * (N // 2),
    "commands.seq": lambda: b"SO 0 0\nS 0 0\n" + b"AAA 1\n" * L,
    "surfaces.seq": lambda: b"SO 0 0\n" + b"S 1 1\n" * L,
    "braces.json": lambda: b"{" * N,
    "brackets.json": lambda: b'{"surfaces":' + b"[" * (N - 20),
    "surfaces.json": lambda: b'{"stop_surface":0,"surfaces":[' + b"{}," * 2_000_000 + b"{}]}",
    "number.json": lambda: b'{"stop_surface":' + b"9" * (N - 100) + b"}",
    "string.json": lambda: b'{"name":"' + b"x" * (N - 100) + b'"}',
    "tabs.txt": lambda: b"[lens data]\n" + b"\t" * (N - 20),
    "rows.txt": lambda: b"[lens data]\n" + b"1\t2\t3\n" * L,
    "columns.txt": lambda: b"[variable distances]\nd1" + b"\t1" * (N // 3) + b"\n[lens data]\n1\t2\t3",
    "zeros.zmx": lambda: bytes(N),
    "bytes.zmx": lambda: bytes(range(256)) * (N // 256),
    "too_large.zmx": lambda: b"x" * 10_000_000,
}


@pytest.mark.parametrize("name", GARBAGE)
def test_garbage_is_refused_quickly(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(GARBAGE[name]())
    start = time.perf_counter()
    with pytest.raises(LensFileError) as caught:
        read_lens(path)
    assert time.perf_counter() - start < 10.0  # typically far below a second
    assert str(path) in str(caught.value)
    assert len(caught.value.message) < 500


def test_unknown_content_names_the_formats(tmp_path: Path) -> None:
    path = tmp_path / "letter.doc"
    path.write_text("Dear Sir or Madam,")
    with pytest.raises(LensFileError, match=r"Zemax.*CODE V.*Optical Bench.*JSON"):
        read_lens(path)
