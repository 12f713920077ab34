"""Which reader a file gets, and files that are no lenses."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from defocus.errors import DefocusError, LensFileError
from defocus.lens.formats import LENS_SUFFIXES, parse_lens, read_lens
from defocus.lens.formats.text import MAX_BYTES

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


def _garbage() -> dict[str, bytes]:
    n = MAX_BYTES - 100
    return {
        "random words": (b"lorem ipsum 3.14 \t\n" * (n // 19)),
        "one line": b"x" * n,
        "blank lines": b"a" + b"\n" * n,
        "spaces": b"SURF" + b" " * n,
        "SURF lines": b"MODE SEQ\n" + b"SURF 0\n" * (n // 7),
        "numbered SURF lines": b"MODE SEQ\n" + b"".join(b"SURF %d\n" % i for i in range(400_000)),
        "curvatures": b"MODE SEQ\nSURF 0\n" + b"CURV 0\n" * (n // 7),
        "configurations": b"SURF 0\nCURV 0\nSURF 1\nMNUM 3\n" + b"".join(b"THIC %d 1 0\n" % i for i in range(300_000)),
        "our remarks": b"NOTE 0 defocus:version 1\n" + b"NOTE 0 defocus:table 1 1 1\n" * 200_000 + b"SURF 0\nCURV 0\n",
        "open commands": b"SO 0 0\nS 0 0\n" + b"A &\n" * (n // 5),
        "separators": b"SO 0 0\nS 0 0\n" + b"A;" * (n // 3),
        "quotes": b"SO 0 0\nS 0 0\n" + b"'" * (n // 2),
        "surfaces": b"SO 0 0\n" + b"S 1 1\n" * (n // 7),
        "open braces": b"{" * n,
        "open brackets": b'{"surfaces":' + b"[" * (n - 20),
        "many surfaces": b'{"stop_surface":0,"surfaces":[' + b"{}," * 2_000_000 + b"{}]}",
        "long number": b'{"stop_surface":' + b"9" * (n - 100) + b"}",
        "long string": b'{"name":"' + b"x" * (n - 100) + b'"}',
        "tabs": b"[lens data]\n" + b"\t" * (n - 20),
        "rows": b"[lens data]\n" + b"1\t2\t3\n" * (n // 7),
        "columns": b"[variable distances]\nd1" + b"\t1" * (n // 3) + b"\n[lens data]\n1\t2\t3",
        "zeros": b"\x00" * n,
        "bytes": bytes(range(256)) * (n // 256),
        "too large": b"x" * (10_000_000),
    }


@pytest.mark.parametrize("name", _garbage().keys())
@pytest.mark.parametrize("suffix", [".zmx", ".seq", ".txt", ".json"])
def test_garbage_is_refused_quickly(name: str, suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"lens{suffix}"
    path.write_bytes(_garbage()[name])
    start = time.perf_counter()
    with pytest.raises(LensFileError) as caught:
        read_lens(path)
    assert time.perf_counter() - start < 20.0
    assert isinstance(caught.value, DefocusError)
    assert str(path) in str(caught.value)
    assert len(caught.value.message) < 500


def test_unknown_content_names_the_formats(tmp_path: Path) -> None:
    path = tmp_path / "letter.doc"
    path.write_text("Dear Sir or Madam,")
    with pytest.raises(LensFileError, match=r"Zemax.*CODE V.*Optical Bench.*JSON"):
        read_lens(path)
