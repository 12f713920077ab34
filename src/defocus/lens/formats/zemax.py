"""Zemax .zmx text, parsed into its parts; `zemax_lens` makes the lens.

A file is a header (UNIT, aperture, fields, wavelengths), one block per surface that opens with `SURF n` (0 is
the object, the last one the image), then merit function, tolerances and, behind `MNUM`, the
multi-configuration rows `NAME integer configuration value ...`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from ...errors import LensFileError
from ..prescription import MAX_SURFACES
from .text import LensText, to_float, to_int

# What a surface block may hold; a line of the file's end is told from it by not being one of these.
_ONCE = frozenset({"TYPE", "CURV", "DISZ", "GLAS", "CONI", "DIAM", "CLAP", "FLAP", "COMM", "STOP"})
_NUMBERED = frozenset({"PARM", "XDAT"})
APERTURE_SHAPES = frozenset({"OBSC", "SQAP", "SQOB", "ELAP", "ELOB", "SPID", "UDAD", "UDAO", "OBDC"})
_IGNORED = frozenset(
    {"FIMP", "HIDE", "MIRR", "SLAB", "POPS", "MEMA", "COAT", "SSID", "PPAR", "PZUP", "MAZH", "VDSZ", "VPAR"}
    | {"VCON", "OEMA", "STUD", "SCBD"}
)
_SURFACE_WORDS = _ONCE | _NUMBERED | APERTURE_SHAPES | _IGNORED
APERTURES = ("ENPD", "FNUM", "FLOA", "OBNA")
_MAX_CONFIGURATIONS = 200
_MAX_OPERANDS = 10_000
_MAX_WORDS = 1000  # on a line


@dataclass
class ZemaxLine:
    """The words behind a keyword."""

    words: list[str]
    number: int  # in the file, from 1
    text: str = ""  # the same, unsplit


@dataclass
class ZemaxSurface:
    """A SURF block."""

    number: int
    line: int
    once: dict[str, ZemaxLine] = field(default_factory=dict)
    numbered: dict[tuple[str, int], ZemaxLine] = field(default_factory=dict)
    shapes: dict[str, ZemaxLine] = field(default_factory=dict)

    @property
    def type(self) -> str:
        line = self.once.get("TYPE")
        return line.words[0].upper() if line and line.words else "STANDARD"


@dataclass
class Operand:
    """A multi-configuration row: the value of one quantity in each configuration."""

    name: str
    target: int  # a surface, a field or a wavelength, as the operand has it
    values: dict[int, str] = field(default_factory=dict)  # configuration from 1 → value
    line: int = 0


@dataclass
class ZemaxFile(LensText):
    """The parts of a .zmx file that matter to us."""

    header: dict[str, ZemaxLine] = field(default_factory=dict)
    wavelengths: dict[int, str] = field(default_factory=dict)  # µm
    remarks: list[ZemaxLine] = field(default_factory=list)  # NOTE
    surfaces: list[ZemaxSurface] = field(default_factory=list)
    configurations: int = 1
    operands: dict[tuple[str, int, str], Operand] = field(default_factory=dict)

    @property
    def aperture_keyword(self) -> str:
        """Which of APERTURES the file uses."""
        keyword = next((a for a in APERTURES if a in self.header), None)
        if keyword is None:
            raise self.error(f"no aperture; expected one of {', '.join(APERTURES)}")
        return keyword

    def number(self, line: ZemaxLine, position: int, keyword: str, surface: int | None = None) -> float:
        """The finite number at a position of a line."""
        word = line.words[position] if position < len(line.words) else ""
        value = to_float(word)
        if value is None:
            raise self.error(f"{keyword}: {word[:40]!r} is not a number", line=line.number, surface=surface)
        return value


def parse(text: str, file: str | Path) -> ZemaxFile:
    """Split the text of a .zmx file into its parts."""
    result = ZemaxFile(file)
    surface: ZemaxSurface | None = None
    for number, raw in enumerate(text.split("\n"), start=1):
        keyword, rest = (*raw.split(None, 1), "", "")[:2]
        if not keyword:
            continue
        line = ZemaxLine(rest.split(maxsplit=_MAX_WORDS), number, rest.strip())
        if keyword == "SURF":
            surface = _open_surface(result, line)
        elif not result.surfaces:
            _header(result, keyword, line)
        elif surface is not None and keyword in _SURFACE_WORDS:
            _surface(result, surface, keyword, line)
        elif not raw[0].isspace():
            surface = None  # merit function, tolerances and configurations stand at the end
            _trailer(result, keyword, line)
    if not result.surfaces:
        raise LensFileError("no SURF block: not a Zemax lens file, or one cut short", file=file)
    if len(result.surfaces) < 3:
        count = len(result.surfaces)
        raise result.error(f"{count} surfaces; expected object, lens and image. Is the file cut short?")
    return result


def _open_surface(result: ZemaxFile, line: ZemaxLine) -> ZemaxSurface:
    expected = len(result.surfaces)
    if not line.words or to_int(line.words[0]) != expected:
        raise result.error(f"SURF {line.text[:40]} where SURF {expected} should stand", line=line.number)
    if expected > MAX_SURFACES + 2:
        raise result.error(f"more than {MAX_SURFACES} surfaces", line=line.number)
    surface = ZemaxSurface(expected, line.number)
    result.surfaces.append(surface)
    return surface


def _header(result: ZemaxFile, keyword: str, line: ZemaxLine) -> None:
    if keyword == "NOTE":
        result.remarks.append(line)
    elif keyword == "WAVM":
        index = to_int(line.words[0]) if line.words else None
        if index is None or len(line.words) < 2:
            raise result.error("WAVM: expected a number and a wavelength", line=line.number)
        result.wavelengths[index] = line.words[1]
    elif keyword in ("WAVL", "WAVN"):
        result.wavelengths |= dict(enumerate(line.words, start=1))
    elif keyword in APERTURES and any(a in result.header for a in APERTURES):
        raise result.error(f"{keyword}: a second aperture", line=line.number)
    elif keyword.isalnum() and len(keyword) <= 8:
        result.header.setdefault(keyword, line)


def _surface(result: ZemaxFile, surface: ZemaxSurface, keyword: str, line: ZemaxLine) -> None:
    if keyword in _ONCE:
        if keyword in surface.once and surface.once[keyword].words != line.words:
            raise result.error(f"a second {keyword}", line=line.number, surface=surface.number)
        surface.once[keyword] = line
    elif keyword in APERTURE_SHAPES:
        surface.shapes[keyword] = line
    elif keyword in _NUMBERED:
        index = to_int(line.words[0]) if line.words else None
        if index is None or not 0 <= index <= 1000:
            raise result.error(
                f"{keyword} {line.text[:40]}: expected a number", line=line.number, surface=surface.number
            )
        surface.numbered[keyword, index] = line


def _trailer(result: ZemaxFile, keyword: str, line: ZemaxLine) -> None:
    if keyword == "MNUM":
        count = to_int(line.words[0]) if line.words else None
        if count is None or not 1 <= count <= _MAX_CONFIGURATIONS:
            raise result.error(f"MNUM {line.text[:40]}: expected 1 to {_MAX_CONFIGURATIONS}", line=line.number)
        result.configurations = count
        result.header["MNUM"] = line
    elif "MNUM" in result.header and len(line.words) >= 3 and len(keyword) == 4:
        target, configuration = to_int(line.words[0]), to_int(line.words[1])
        if target is None or configuration is None:
            return
        if not 1 <= configuration <= result.configurations:
            raise result.error(f"{keyword}: configuration {configuration} of {result.configurations}", line=line.number)
        # PRAM and XDAT tell their parameter by a later integer.
        detail = " ".join(line.words[4:6]) if keyword in ("PRAM", "EDVA", "XDAT", "PAR1", "NPAR") else ""
        operand = result.operands.setdefault((keyword, target, detail), Operand(keyword, target, line=line.number))
        operand.values[configuration] = line.words[2]
        if len(result.operands) > _MAX_OPERANDS:
            raise result.error(f"more than {_MAX_OPERANDS} multi-configuration operands", line=line.number)
