"""The errors that defocus raises on purpose.

Each message names the file, the surface or field, the number that was wrong, and what to do about it. Anything
else that escapes is a bug.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, ClassVar, TypeVar

T = TypeVar("T")


class DefocusError(Exception):
    """Base of every error that defocus raises on purpose."""


def one_line(message: str, most: int = 2000) -> str:
    """The message in one line of at most so many characters: what libraries say of damaged files may be any length."""
    line = " ".join(message.split("\n"))
    return line if len(line) <= most else f"{line[: most // 2]} … {line[-most // 4 :]}"


def first_line(error: BaseException) -> str:
    """First line of an error's message, or its type where it says nothing."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


def checked_options(kind: type[T], options: Mapping[str, Any], what: str) -> T:
    """The dataclass `kind` with these options; a name that it does not have is told with the nearest one it has."""
    names = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    for name in options:
        if name not in names:
            near = difflib.get_close_matches(name, names, 1)
            advice = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(names)}"
            raise DefocusError(f"{what} has no option {name!r}: {advice}")
    return kind(**options)


class LensFileError(DefocusError):
    """A lens file that cannot be read.

    `surface` is the surface's number as the file itself counts it; `line` counts from 1.
    """

    def __init__(
        self,
        message: str,
        *,
        file: str | Path | None = None,
        surface: int | None = None,
        line: int | None = None,
    ) -> None:
        self.message, self.file, self.surface, self.line = one_line(message), file, surface, line
        where = [str(file)] if file is not None else []
        if line is not None:
            where.append(f"line {line}")
        if surface is not None:
            where.append(f"surface {surface}")
        super().__init__(f"{', '.join(where)}: {self.message}" if where else self.message)


class UnsupportedLensError(LensFileError):
    """A well-formed lens file that holds something we do not simulate (mirrors, tilts, gratings, free forms)."""


class UnknownGlassError(LensFileError):
    """A glass that no catalogue holds."""


class LensError(DefocusError):
    """A prescription that cannot be a lens: numbers out of range, no stop, an unknown state.

    `surface` is the surface's number, counted from 0; None where the lens as a whole is meant.
    """

    def __init__(self, message: str, *, lens: str | None = None, surface: int | None = None) -> None:
        self.message, self.surface = message, surface
        where = [lens] if lens is not None else []
        if surface is not None:
            where.append(f"surface {surface}")
        super().__init__(f"{', '.join(where)}: {message}" if where else message)


class UnknownLensError(LensError):
    """A name that is neither a built-in lens nor a file."""


class TraceError(DefocusError):
    """A lens that cannot image the point it was asked for."""


class WavelengthError(DefocusError):
    """A wavelength outside the range over which a medium's dispersion is known."""


class FileError(DefocusError):
    """A file of a photograph or of a scene that cannot be used; the message begins with its name."""

    def __init__(self, message: str, *, file: str | Path | None = None) -> None:
        self.message, self.file = one_line(message), file
        super().__init__(f"{file}: {self.message}" if file is not None else self.message)


class PhotoError(FileError):
    """A photograph that cannot be read or developed: missing, empty, truncated, or with numbers out of range."""


class UnsupportedPhotoError(PhotoError):
    """An intact photograph of a kind that we do not develop (X-Trans, four colours, monochrome)."""


class DepthError(FileError):
    """A depth map that cannot be used: unreadable, of another size than its photograph, or without valid depths."""


class _MissingPartError(DefocusError):
    """Something that a feature needs and that is not installed here."""

    advice: ClassVar[str]

    def __init__(self, feature: str, part: str) -> None:
        self._parts = feature, part
        super().__init__(f"{feature} needs {self.advice.format(part)}")

    def __reduce__(self) -> tuple[type, tuple[str, str]]:
        """A worker's errors come to the leader by pickle, which would call the class with the message."""
        return type(self), self._parts


class MissingPackageError(_MissingPartError):
    """A package that defocus depends on and that is not installed here."""

    advice = "the package {0}: pip install {0}"


class MissingExtraError(_MissingPartError):
    """An optional part of defocus that is not installed."""

    advice = "the extra [{0}]: pip install 'defocus[{0}]'"


class PlanError(FileError):
    """A plan of a data set that cannot be carried out; the message names the key."""


class DatasetError(FileError):
    """A folder of pairs that cannot be written, continued or read."""


class OwnershipError(FileError):
    """A file or folder that is not ours to write to, replace or remove; it was left as it is."""


class ConfigError(FileError):
    """Settings of a training that cannot be carried out; the message names the key."""


class TrainingError(DefocusError):
    """A training that cannot go on: numbers that are none, no memory left, a run folder of other settings."""


class WeightsError(FileError):
    """A file of a network's weights that cannot be read, or that does not fit the network.

    Where single keys do not fit, they are listed: `misshapen` holds key, shape in the file and shape wanted.
    """

    def __init__(
        self,
        message: str,
        *,
        file: str | Path | None = None,
        missing: tuple[str, ...] = (),
        unexpected: tuple[str, ...] = (),
        misshapen: tuple[tuple[str, tuple[int, ...], tuple[int, ...]], ...] = (),
    ) -> None:
        self.missing, self.unexpected, self.misshapen = missing, unexpected, misshapen
        super().__init__(message, file=file)
