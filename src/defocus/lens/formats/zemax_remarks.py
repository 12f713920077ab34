"""What a .zmx file has no keyword for, kept in its NOTE lines.

`zemax_write` adds lines `NOTE 0 defocus:KEY VALUE`, which Zemax shows as remarks:

    defocus:version 1                   every surface is part of the lens, the first one too
    defocus:patent TEXT
    defocus:format TEXT
    defocus:image_radius MM
    defocus:field none                  the fields were added for Zemax's sake
    defocus:stop_semi_diameter none     DIAM of the stop is the aperture only
    defocus:state K NAME                K counts the configurations from 1
    defocus:state_image_radius K MM
    defocus:glass N CATALOGUE NAME      the medium behind surface N, where GLAS cannot say it
    defocus:table N NM INDEX ...        its indices; several lines add up
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from ...errors import LensFileError
from ...glass import Medium
from .assemble import Media
from .text import clean, to_float, to_floats, to_int
from .zemax import ZemaxFile, ZemaxLine

PREFIX = "defocus:"
VERSION = 1
_PLAIN = frozenset({"version", "patent", "format", "image_radius", "field", "stop_semi_diameter"})
_NUMBERED = frozenset({"state", "state_image_radius", "glass", "table"})
_MAX_NUMBER = 1000


@dataclass
class Remarks:
    """The contents of our NOTE lines; empty for files of others."""

    parts: ZemaxFile
    plain: dict[str, ZemaxLine] = field(default_factory=dict)
    numbered: dict[tuple[str, int], list[ZemaxLine]] = field(default_factory=dict)

    @classmethod
    def read(cls, parts: ZemaxFile) -> Remarks:
        """Collect our lines among the remarks of a file."""
        result = cls(parts)
        for remark in parts.remarks:
            words = remark.text.split(None, 2)
            if len(words) > 1 and words[1].startswith(PREFIX):
                result._add(words[1].removeprefix(PREFIX), words[2] if len(words) > 2 else "", remark.number)
        version = result.plain.get("version")
        if version is None:
            return cls(parts)
        if to_int(version.text) != VERSION:
            raise parts.error(
                f"written in version {clean(version.text, 20)} of our remarks; this is {VERSION}",
                line=version.number,
            )
        return result

    def _add(self, key: str, value: str, number: int) -> None:
        if key in _PLAIN:
            self.plain[key] = ZemaxLine(value.split(), number, value.strip())
            return
        words = value.split(None, 1)
        index = to_int(words[0]) if words else None
        if key not in _NUMBERED or index is None or not 0 <= index <= _MAX_NUMBER:
            raise self.parts.error(f"NOTE {PREFIX}{clean(key, 30)} {clean(value, 40)}: not understood", line=number)
        rest = words[1].strip() if len(words) > 1 else ""
        self.numbered.setdefault((key, index), []).append(ZemaxLine(rest.split(), number, rest))

    @property
    def ours(self) -> bool:
        """Whether the file comes from `zemax_write`."""
        return "version" in self.plain

    def text(self, key: str) -> str:
        """A plain remark, "" if there is none."""
        return clean(self.plain[key].text) if key in self.plain else ""

    def has(self, key: str) -> bool:
        return key in self.plain

    @property
    def image_radius(self) -> float | None:
        """mm."""
        return self._length(self.plain["image_radius"]) if "image_radius" in self.plain else None

    def state_image_radius(self, k: int) -> float | None:
        """mm, of a configuration."""
        lines = self.numbered.get(("state_image_radius", k))
        return self._length(lines[-1]) if lines else None

    @property
    def state_names(self) -> dict[int, str]:
        """Configuration → name."""
        return {k: clean(lines[-1].text) for (key, k), lines in self.numbered.items() if key == "state"}

    def _length(self, line: ZemaxLine) -> float:
        value = to_float(line.text)
        if value is None or not value > 0.0:
            raise self._fail(line)
        return value

    def _fail(self, line: ZemaxLine) -> LensFileError:
        return self.parts.error(f"NOTE {PREFIX}: cannot read {clean(line.text, 40)!r}", line=line.number)

    def medium(self, number: int, media: Media) -> Medium | None:
        """The medium behind a surface, if a remark gives it."""
        lines = self.numbered.get(("glass", number))
        if not lines:
            return None
        line = lines[-1]
        catalogue, name = (*line.text.split(None, 1), "", "")[:2]
        name = clean(name)
        if catalogue == "table":
            rows = self.numbered.get(("table", number), [])
            numbers = to_floats([word for row in rows for word in row.words])
            if numbers is None:
                raise self._fail(line)
            return media.table(name, numbers[0::2], numbers[1::2], number, line=line.number)
        if catalogue == "constant":
            glass = self.parts.surfaces[number].once.get("GLAS") if number < len(self.parts.surfaces) else None
            nd = self.parts.number(glass, 3, "GLAS", number) if glass else math.nan
            return media.constant(nd, name, number, line=line.number)
        return media.named(name, number, catalogue=catalogue, line=line.number)
