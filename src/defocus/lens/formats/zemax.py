"""Zemax .zmx text, parsed into its parts; `zemax_lens` makes the lens.

A file is a header (UNIT, aperture, fields, wavelengths), one block per surface that opens with `SURF n` (0 is
the object, the last one the image), then merit function, tolerances and, behind `MNUM`, the
multi-configuration rows `NAME integer configuration value ...`.

What a .zmx file has no keyword for, `zemax_write` keeps in lines `NOTE 0 defocus:KEY VALUE`, which Zemax shows as
remarks:

    defocus:version 1                   every surface is part of the lens, the first one too
    defocus:patent TEXT
    defocus:format TEXT
    defocus:image_radius MM
    defocus:field none                  the fields were added for Zemax's sake
    defocus:stop_semi_diameter none     DIAM of the stop is the aperture only
    defocus:stop_radius MM              what gives the aperture; ENPD follows from it, and counts where it does not
    defocus:state K NAME                K counts the configurations from 1
    defocus:state_image_radius K MM
    defocus:state_stop_radius K MM
    defocus:glass N CATALOGUE NAME      the medium behind surface N, where GLAS cannot say it
    defocus:table N NM INDEX ...        its indices; several lines add up
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..prescription import MAX_SURFACES
from .assemble import LensSource
from .text import clean, to_float, to_int

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

REMARK = "defocus:"
REMARK_VERSION = 1
_PLAIN_REMARKS = frozenset(
    {"version", "patent", "format", "image_radius", "field", "stop_radius", "stop_semi_diameter"}
)
_NUMBERED_REMARKS = frozenset({"state", "state_image_radius", "state_stop_radius", "glass", "table"})


@dataclass
class ZemaxLine:
    """The words behind a keyword."""

    words: list[str]
    number: int  # in the file, from 1
    text: str = ""  # the same, unsplit

    def whole(self, position: int = 0) -> int | None:
        """The whole number at a position, if there is one."""
        return to_int(self.words[position]) if position < len(self.words) else None


@dataclass
class ZemaxSurface:
    """A SURF block."""

    number: int
    line: int
    lines: dict[str, ZemaxLine] = field(default_factory=dict)  # by keyword; PARM and XDAT with their number behind it

    @property
    def type(self) -> str:
        line = self.lines.get("TYPE")
        return line.words[0].upper() if line and line.words else "STANDARD"


@dataclass
class Operand:
    """A multi-configuration row: the value of one quantity in each configuration."""

    name: str
    target: int  # a surface, a field or a wavelength, as the operand has it
    values: dict[int, str] = field(default_factory=dict)  # configuration from 1 → value
    line: int = 0


@dataclass
class ZemaxFile(LensSource):
    """The parts of a .zmx file that matter to us."""

    header: dict[str, ZemaxLine] = field(default_factory=dict)
    wavelengths: dict[int, str] = field(default_factory=dict)  # µm
    comments: list[ZemaxLine] = field(default_factory=list)  # NOTE
    remarks: dict[tuple[str, int], list[ZemaxLine]] = field(default_factory=dict)  # ours; 0: without a number
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

    @property
    def is_ours(self) -> bool:
        """Whether the file comes from `zemax_write`."""
        return self.has_remark("version")

    def has_remark(self, key: str) -> bool:
        return (key, 0) in self.remarks

    def remark(self, key: str, number: int = 0) -> str:
        """The text of a remark of ours, "" if there is none."""
        return clean(self.remarks[key, number][-1].text) if (key, number) in self.remarks else ""

    def remark_length(self, key: str, number: int = 0) -> float | None:
        """The length (mm) that a remark of ours gives, if there is one."""
        if (key, number) not in self.remarks:
            return None
        line = self.remarks[key, number][-1]
        value = to_float(line.text)
        if value is None or not value > 0.0:
            raise self.bad_remark(line)
        return value

    def bad_remark(self, line: ZemaxLine) -> Exception:
        return self.error(f"NOTE {REMARK}: cannot read {clean(line.text, 40)!r}", line=line.number)

    def value(self, line: ZemaxLine, position: int, keyword: str, surface: int | None = None) -> float:
        """The finite number at a position of a line."""
        word = line.words[position] if position < len(line.words) else ""
        return self.number(word, keyword, line=line.number, surface=surface)


def parse(text: str, result: ZemaxFile) -> None:
    """Split the text of a .zmx file into its parts."""
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
        raise result.error("no SURF block: not a Zemax lens file, or one cut short")
    if len(result.surfaces) < 3:
        count = len(result.surfaces)
        raise result.error(f"{count} surfaces; expected object, lens and image. Is the file cut short?")
    _remarks(result)


def _open_surface(result: ZemaxFile, line: ZemaxLine) -> ZemaxSurface:
    expected = len(result.surfaces)
    if line.whole() != expected:
        raise result.error(f"SURF {line.text[:40]} where SURF {expected} should stand", line=line.number)
    if expected > MAX_SURFACES + 2:
        raise result.error(f"more than {MAX_SURFACES} surfaces", line=line.number)
    surface = ZemaxSurface(expected, line.number)
    result.surfaces.append(surface)
    return surface


def _header(result: ZemaxFile, keyword: str, line: ZemaxLine) -> None:
    if keyword == "NOTE":
        result.comments.append(line)
    elif keyword == "WAVM":
        index = line.whole()
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
    if keyword in _NUMBERED:
        index = line.whole()
        if index is None or not 0 <= index <= 1000:
            text = f"{keyword} {line.text[:40]}: expected a number"
            raise result.error(text, line=line.number, surface=surface.number)
        keyword = f"{keyword} {index}"
    elif keyword in _ONCE and keyword in surface.lines and surface.lines[keyword].words != line.words:
        raise result.error(f"a second {keyword}", line=line.number, surface=surface.number)
    surface.lines[keyword] = line


def _trailer(result: ZemaxFile, keyword: str, line: ZemaxLine) -> None:
    if keyword == "MNUM":
        count = line.whole()
        if count is None or not 1 <= count <= _MAX_CONFIGURATIONS:
            raise result.error(f"MNUM {line.text[:40]}: expected 1 to {_MAX_CONFIGURATIONS}", line=line.number)
        result.configurations = count
        result.header["MNUM"] = line
    elif "MNUM" in result.header and len(line.words) >= 3 and len(keyword) == 4:
        target, configuration = line.whole(), line.whole(1)
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


def _remarks(result: ZemaxFile) -> None:
    """Collect our own lines among the comments; files of others have none."""
    for comment in result.comments:
        _, name, value = (*comment.text.split(None, 2), "", "", "")[:3]
        if not name.startswith(REMARK):
            continue
        key, number, rest = name.removeprefix(REMARK), 0, value.strip()
        if key not in _PLAIN_REMARKS:
            word, rest = (*rest.split(None, 1), "", "")[:2]
            index = to_int(word)
            if key not in _NUMBERED_REMARKS or index is None or not 0 <= index <= 1000:
                text = f"NOTE {REMARK}{clean(key, 30)} {clean(value, 40)}: not understood"
                raise result.error(text, line=comment.number)
            number = index
        result.remarks.setdefault((key, number), []).append(ZemaxLine(rest.split(), comment.number, rest.strip()))
    if not result.is_ours:
        result.remarks = {}
    elif to_int(result.remark("version")) != REMARK_VERSION:
        text = f"written in version {clean(result.remark('version'), 20)} of our remarks; this is {REMARK_VERSION}"
        raise result.error(text, line=result.remarks["version", 0][-1].number)
