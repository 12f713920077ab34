"""CODE V .seq text, parsed into its parts; `codev_lens` makes the lens.

A sequence file is a list of commands: a keyword of which three letters count, then words. `;` or the end
of the line closes a command, `&` at the end of a line continues it, `!` starts a comment, quotes hold
text together. `SO`, `S` and `SI` open the object, a surface and the image; the commands behind one of
them belong to it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from ..prescription import MAX_SURFACES
from .assemble import LensSource
from .text import to_float, to_floats, to_int

# Letters of the terms r^4, r^6, ... of an ASP surface; there is no I.
ASPHERIC = {letter: 4 + 2 * i for i, letter in enumerate("ABCDEFGHJ")}
_NUMBERS = frozenset({"K", *ASPHERIC})
_FIELDS = frozenset({"XAN", "YAN", "XIM", "YIM", "XRI", "YRI", "XOB", "YOB"})
_SYSTEM = _FIELDS | {"RDM", "DIM", "EPD", "FNO", "NA", "NAO", "WL", "REF", "TIT"}
# Decentres and tilts: harmless when zero.
_TILTS = frozenset({"XDE", "YDE", "ZDE", "ADE", "BDE", "CDE", "ADX", "ADY"})
# What no rotationally symmetric refracting lens has.
_REFUSED = frozenset(
    {"DAR", "REV", "BEN", "RET", "GLB"}  # tilts
    | {"DIF", "DOE", "HOE", "HCO", "HOR", "GRT", "GRO", "GRS", "GRX", "GRY"}  # gratings and holograms
    | {"XTO", "YTO", "CYL", "AAS", "ANA", "SPS", "UDS", "XYP", "FRE"}  # other shapes
    | {"REX", "REY", "ELX", "ELY"}  # other apertures
    | {"INR", "BIR", "NSS", "ARR", "MOD"}  # gradients, crystals, non-sequential parts, arrays, modules
)
# Couplings, solves, weights, vignetting factors, remarks: without a meaning for the lens as it stands.
_IGNORED = frozenset(
    {"CCY", "THC", "GLC", "KC", "AC", "BC", "CC", "DC", "EC", "FC", "GC", "HC", "JC", "CUF", "CUM", "THM"}
    | {"PIM", "PIK", "HMY", "UMY", "SOL", "DER", "SET", "CA", "POL"}
    | {"WTW", "WTF", "VUX", "VLX", "VUY", "VLY", "TEM", "PRE", "CLS", "INI", "SLB", "VER"}
    | {"LEN", "GO", "END", "ASP", "CON", "SPH"}
)
_MAX_COMMANDS = 100_000
_MAX_LINE = 10_000  # characters of a line, or words of a command


class Word(NamedTuple):
    """A word of a command; quoted words are names."""

    text: str
    quoted: bool


class Command(NamedTuple):
    """A keyword (in capitals) and its words."""

    keyword: str
    words: list[Word]
    line: int


@dataclass
class CodeVSurface:
    """SO, S or SI and the commands behind it."""

    number: int
    line: int
    radius: str = "0"  # a radius or a curvature, as RDM says
    is_radius: bool | None = None  # from RDY or CUY
    thickness: str = "0"
    glass: Word | None = None
    terms: dict[str, float] = field(default_factory=dict)  # K and the letters of ASPHERIC
    stop: bool = False
    clear: float | None = None
    edge: float | None = None
    label: str = ""


@dataclass
class PrivateGlass:
    """An entry of a PRV table: indices at the wavelengths of the last PWL."""

    wavelengths_nm: list[float]
    words: list[Word]
    line: int


@dataclass
class CodeVFile(LensSource):
    """The parts of a .seq file that matter to us."""

    system: dict[str, Command] = field(default_factory=dict)
    surfaces: list[CodeVSurface] = field(default_factory=list)
    image: CodeVSurface | None = None
    glasses: dict[str, PrivateGlass] = field(default_factory=dict)
    zooms: int = 1
    zoomed: list[Command] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)

    def numbers(self, command: Command) -> list[float]:
        """The numbers of a command, at least one."""
        values = to_floats([w.text for w in command.words])
        if not values:
            raise self.error(f"{command.keyword}: expected numbers", line=command.line)
        return values


_TOKEN = re.compile(r"""'([^']*)'?|"([^"]*)"?|([^\s;!,='"]+)|([;!])""")


def _words(line: str) -> tuple[list[list[Word]], bool]:
    """The commands of a line, and whether the last one goes on in the next line."""
    commands: list[list[Word]] = [[]]
    for match in _TOKEN.finditer(line):
        single, double, bare, mark = match.groups()
        if mark == "!":
            break
        if mark == ";":
            commands.append([])
        else:
            text = next(t for t in (bare, single, double) if t is not None)
            commands[-1].append(Word(text, bare is None))
    last = commands[-1]
    if not last or last[-1].quoted or not last[-1].text.endswith("&"):
        return commands, False
    rest = last.pop().text[:-1]
    last += [Word(rest, False)] if rest else []
    return commands, True


def _commands(text: str, result: CodeVFile) -> Iterator[Command]:
    pending: list[Word] = []
    start = 1
    for number, line in enumerate(text.split("\n"), start=1):
        if not line or line.isspace():
            continue
        if len(line) > _MAX_LINE or len(pending) > _MAX_LINE:
            raise result.error("a command of extreme length", line=number)
        commands, goes_on = _words(line)
        if not pending:
            start = number
        pending.extend(commands[0])  # in place: a command may go on over very many lines
        commands[0] = pending
        pending = commands.pop() if goes_on else []
        for words in commands:
            if words:
                yield Command(words[0].text.upper(), words[1:], start)
                start = number
    if pending:
        yield Command(pending[0].text.upper(), pending[1:], start)


def parse(text: str, result: CodeVFile) -> None:
    """Split the text of a .seq file into its parts."""
    table: list[float] | None = None  # the wavelengths of a PRV block
    for count, command in enumerate(_commands(text, result)):
        if count > _MAX_COMMANDS:
            raise result.error(f"more than {_MAX_COMMANDS} commands", line=command.line)
        if table is not None:
            if command.keyword == "END":
                table = None
            elif command.keyword == "PWL":
                table = result.numbers(command)
            else:
                result.glasses[command.keyword] = PrivateGlass(table, command.words, command.line)
        elif command.keyword == "PRV":
            table = []
        elif command.keyword in ("S", "SO", "SI") or (command.keyword[:1] == "S" and command.keyword[1:].isdigit()):
            _open_surface(result, command)
        else:
            _command(result, command)
    if not result.surfaces:
        raise result.error("no surface (SO, S, SI): not a CODE V lens, or one cut short")


def _command(result: CodeVFile, command: Command) -> None:
    words = command.words
    short = command.keyword if command.keyword in _NUMBERS else command.keyword[:3]
    if short in _SYSTEM:
        result.system[short] = command
    elif short == "ZOO":
        count = to_int(words[0].text) if len(words) == 1 else None
        if count is None:
            result.zoomed.append(command)
        elif 1 <= count <= 100:
            result.zooms = count
        else:
            raise result.error(f"ZOO {count}: expected 1 to 100 positions", line=command.line)
    elif short == "SLB" and result.surfaces and words:
        (result.image or result.surfaces[-1]).label = words[0].text
    elif short not in _IGNORED:
        _surface_command(result, short, command)


def _open_surface(result: CodeVFile, command: Command) -> None:
    keyword = "SO" if command.keyword == "S0" else command.keyword
    number, words = len(result.surfaces), command.words
    if keyword == "SO" and result.surfaces:
        raise result.error("a second object surface SO", line=command.line)
    if keyword != "SO" and not result.surfaces:
        raise result.error(f"{keyword} before the object surface SO", line=command.line)
    if result.image is not None:
        raise result.error(f"{keyword} behind the image surface SI", line=command.line)
    if keyword[1:].isdigit() and to_int(keyword[1:]) != number:
        raise result.error(f"{keyword[:20]} where S{number} should stand", line=command.line)
    if number > MAX_SURFACES + 1:
        raise result.error(f"more than {MAX_SURFACES} surfaces", line=command.line)
    surface = CodeVSurface(number, command.line)
    if words:
        surface.radius = words[0].text
    if len(words) > 1:
        surface.thickness = words[1].text
    if len(words) > 2:
        surface.glass = words[2]
        _refuse_mirror(result, surface, words[2].text)
    if keyword == "SI":
        result.image = surface
    else:
        result.surfaces.append(surface)


def _refuse_mirror(result: CodeVFile, surface: CodeVSurface, word: str) -> None:
    if word.upper() in ("REFL", "TIR"):
        text = f"{word.upper()}: reflecting surfaces are not supported"
        raise result.unsupported(text, surface=surface.number, line=surface.line)


def _target(result: CodeVFile, command: Command) -> tuple[CodeVSurface | None, list[Word]]:
    """The surface that a command names (S3, SI) or else the one opened last, and the remaining words."""
    words = command.words
    name = words[0].text.upper() if words and not words[0].quoted else ""
    if name == "SI":
        return result.image, words[1:]
    if name[:1] == "S" and name[1:].isdigit():
        number = to_int(name[1:])
        if number is None or number >= len(result.surfaces):
            raise result.error(f"{command.keyword[:20]} {name[:20]}: there is no such surface", line=command.line)
        return result.surfaces[number], words[1:]
    return result.image or (result.surfaces[-1] if result.surfaces else None), words


def _surface_command(result: CodeVFile, keyword: str, command: Command) -> None:
    surface, words = _target(result, command)
    word = words[0].text if words else ""
    value = to_float(word)
    if surface is None:
        result.unknown.append(keyword[:20])
    elif keyword in _REFUSED or (keyword in _TILTS and value != 0.0):
        text = f"{keyword}: only centred, rotationally symmetric refracting surfaces are supported"
        raise result.unsupported(text, surface=surface.number, line=command.line)
    elif keyword == "STO":
        surface.stop = True
    elif keyword == "CIR":
        _aperture(result, surface, words, command.line)
    elif keyword in ("GLA", "RMD") and words:
        _refuse_mirror(result, surface, word)
        surface.glass = words[0] if keyword == "GLA" else surface.glass
    elif keyword == "THI" and word:
        if word.upper() not in ("HMY", "HMX", "PIM"):  # a solve; its value stands on the surface's own line
            surface.thickness = word
    elif keyword in _NUMBERS or keyword in ("RDY", "CUY", "THI"):
        if value is None:
            raise result.error(f"{keyword}: expected a number", line=surface.line, surface=surface.number)
        if keyword in _NUMBERS:
            surface.terms[keyword] = value
        else:
            surface.radius, surface.is_radius = word, keyword == "RDY"
    elif keyword not in _TILTS:
        result.unknown.append(keyword[:20])


def _aperture(result: CodeVFile, surface: CodeVSurface, words: list[Word], line: int) -> None:
    kinds = {w.text.upper() for w in words if to_float(w.text) is None and not w.quoted}
    size = next((v for w in words if (v := to_float(w.text)) is not None), None)
    if kinds & {"OBS", "HOL"}:
        raise result.unsupported("CIR OBS: central obscurations are not supported", surface=surface.number, line=line)
    if size is None:
        raise result.error("CIR: expected a radius", line=line, surface=surface.number)
    if "EDG" in kinds:
        surface.edge = abs(size)
    else:
        surface.clear = abs(size)
