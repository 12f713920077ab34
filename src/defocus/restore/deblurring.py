"""Photographs through a restoration network: which files, where the results go, and one after the other.

A result is written whole or not at all, so a name that is there is done: the same command goes on where it was stopped.
A photograph that cannot be restored is told, and the others go on.

A hidden journal in the folder of results, `.defocus.jsonl`, has for each one a sum of the weights and the settings that
decide its pixels, and size, time and sum of the photograph and of the result itself. What was made by other weights or
settings, or of another photograph, is refused, and so is a file that is not what we made; only what is still as we made
it is replaced, and only when asked. A line is written before its result takes its place, and keeps what was said of an
older one: after a kill between the two, the sum of the file tells which of them is there. A file of the same size and
time is taken for the same; its bytes are read only where the time differs, so that a thousand results are skipped
without reading them or their photographs.
"""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from ..errors import DefocusError, PhotoError, first_line
from ..files.exif import Metadata, metadata_of, read_metadata
from ..files.journal import Journal
from ..files.ownership import check_no_folder_of_ours, file_sum
from ..files.pictures import (
    FORMATS,
    KINDS,
    PICTURES,
    RAW_SUFFIXES,
    Format,
    encoded,
    quantise,
    read_picture,
    stored_bits,
)
from ..files.settings import settings_difference
from ..files.stores import SUFFIX, open_store, writing_file
from ._torch import nn, torch
from .blur_maps import estimate_blur, write_blur_map
from .tiles import deblur

LINES = ".defocus.jsonl"
ADVICE = "--overwrite makes it anew, or take another folder"
SUM_LENGTH = 32  # of a sum in the journal
TEMPORARY = re.compile(rf"\.(.+)\.[0-9a-f]{{12}}{re.escape(SUFFIX)}")  # what a killed write of a file leaves


@dataclass(frozen=True)
class DeblurJob:
    """One photograph and the file to make of it; `bits` None: as many as the photograph has."""

    photo: Path
    out: Path
    bits: int | None = None


@dataclass(frozen=True)
class TileSettings:
    """How a network runs over a photograph: the options of `tiles.deblur`."""

    tile_px: int = 512
    overlap_px: int = 64
    batch: int = 1
    device: str = "cpu"
    precision: str = "float32"


@dataclass(frozen=True)
class DeblurWishes:
    """What becomes of the restored picture: `strength` 0 leaves the photograph, 1 takes it whole; and where the map of
    the estimated blur goes."""

    strength: float = 1.0
    blur_map: Path | None = None

    def __post_init__(self) -> None:
        if not 0.0 <= self.strength <= 1.0:
            raise DefocusError(f"a strength of {self.strength:g}; expected a number from 0 to 1")


WHOLE = DeblurWishes()


@dataclass
class DeblurSummary:
    """Results, and photographs without one."""

    done: list[Path] = field(default_factory=list)  # results
    skipped: list[Path] = field(default_factory=list)  # results that were there
    failed: list[tuple[Path, str]] = field(default_factory=list)  # photographs, and why
    notes: list[tuple[Path, str]] = field(default_factory=list)
    seconds: float = 0.0


class DeblurFolder:
    """A folder of results, and `by` what this run makes them. Raises `DatasetError` if nothing can be written there."""

    def __init__(self, folder: str | Path, by: Mapping[str, Any]) -> None:
        self.folder = Path(folder).absolute()
        check_no_folder_of_ours(self.folder)
        open_store(self.folder).check_writable()
        self.by = json.loads(json.dumps(dict(by), default=str))
        self._journal = Journal(self.folder / LINES, "result")

    def sweep(self, jobs: Iterable[DeblurJob]) -> None:
        """Remove what killed writes of these results left."""
        results = {job.out for job in jobs}
        for folder in {result.parent for result in results}:
            for path in folder.glob(f".*{SUFFIX}"):
                temporary = TEMPORARY.fullmatch(path.name)
                if temporary and folder / temporary[1] in results:
                    path.unlink(missing_ok=True)

    def check(self, jobs: Iterable[DeblurJob], *, overwrite: bool) -> None:
        """Raise `PhotoError` for a result that is there and may not be: not skipped, or with `overwrite` not replaced.

        That is one that we did not make or that was changed since; and one made in another way, or of another
        photograph.
        """
        for job in jobs:
            if not os.path.lexists(job.out):
                continue
            entry = self._entry(job.out, replace=overwrite)
            if overwrite:
                continue
            if entry["by"] != self.by:
                others = settings_difference(entry["by"], self.by)
                way = "other weights" if entry["by"].get("weights") != self.by.get("weights") else "; ".join(others)
                raise PhotoError(f"was made with {way}: {ADVICE}", file=job.out)
            if isinstance(entry.get("of"), dict):  # older versions did not tell
                self._check_photo(job, entry)

    def write(self, job: DeblurJob, data: bytes, of: Mapping[str, Any]) -> None:
        """Write a result, in place of an older one of ours; `of`: the photograph's state, as `photo_state` says it."""
        line: dict[str, Any] = {"by": self.by, "of": of, "sum": sha256(data).hexdigest()[:SUM_LENGTH]}
        if os.path.lexists(job.out):
            older = self._entry(job.out, replace=True)
            line["before"] = {key: older.get(key) for key in ("by", "of", "sum")}
        with writing_file(job.out) as file:
            file.write(data)
            file.flush()
            self._journal.write(self._name(job.out), **line, file=_size_and_time(Path(file.name)))

    def _entry(self, result: Path, *, replace: bool) -> dict[str, Any]:
        """What the journal says of the result that is there. Raises `PhotoError` for a file that is not what we made.

        To `replace` it, its bytes are compared whatever its size and time are.
        """
        entry = self._journal.get(self._name(result)) or {}
        if not isinstance(entry.get("by"), dict):
            raise PhotoError("is there already, and nothing tells what made it: move it away", file=result)
        if "sum" not in entry and not replace:  # older versions did not tell
            return entry
        if result.is_file() and not result.is_symlink():
            if not replace and entry.get("file") == _size_and_time(result):
                return entry
            own_sum = file_sum(result)[:SUM_LENGTH]
            for line in (entry, entry.get("before")):
                if isinstance(line, dict) and isinstance(line.get("by"), dict) and line.get("sum") == own_sum:
                    return line
        raise PhotoError("is not what was made here, and is left as it is: move it away", file=result)

    def _check_photo(self, job: DeblurJob, entry: Mapping[str, Any]) -> None:
        before, now = entry["of"], _size_and_time(job.photo)
        if now.items() <= before.items():
            return
        if now["bytes"] != before.get("bytes") or file_sum(job.photo)[:SUM_LENGTH] != before.get("sum"):
            raise PhotoError(
                f"was made of another photograph than {job.photo} is now: remove this result to make it alone anew; "
                "--overwrite makes all anew, or take another folder",
                file=job.out,
            )
        # Copied or touched: its bytes need not be read again.
        about = {key: value for key, value in entry.items() if key not in ("result", "of")}
        self._journal.write(self._name(job.out), of={**before, **now}, **about)

    def _name(self, result: Path) -> str:
        return result.absolute().relative_to(self.folder).as_posix()


def photo_state(photo: Path) -> dict[str, Any]:
    """A photograph's file as it is: bytes, mtime_ns and the sum of its bytes. Raises `FileError` if unreadable."""
    return {**_size_and_time(photo), "sum": file_sum(photo)[:SUM_LENGTH]}


def _size_and_time(photo: Path) -> dict[str, int]:
    try:
        status = photo.stat()
    except OSError as error:
        raise PhotoError(f"cannot be read: {error.strerror}", file=photo) from error
    return {"bytes": status.st_size, "mtime_ns": status.st_mtime_ns}


def choose_device(name: str) -> str:
    """`auto` is a GPU where there is one. Raises `DefocusError` for a device that is not here."""
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError) as error:
        raise DefocusError(
            f"device {name!r} cannot be used ({first_line(error)}); expected auto, cpu, cuda or cuda:1"
        ) from error
    return name


def find_photos(source: Path, *, recursive: bool = False, without: Path | None = None) -> list[Path]:
    """A photograph, or those of a folder, in order; not hidden ones, nor any below `without`."""
    if source.is_file():
        return [source]
    if not source.exists():
        raise PhotoError("no such file or folder", file=source)
    suffixes = (*PICTURES, *RAW_SUFFIXES)
    photos = sorted(
        path
        for path in (source.rglob("*") if recursive else source.iterdir())
        if path.suffix.lower() in suffixes
        and not any(part.startswith(".") for part in path.relative_to(source).parts)
        and (without is None or without.resolve() not in path.resolve().parents)
        and path.is_file()
    )
    if not photos:
        hint = "" if recursive else "; with --recursive the folders in it are searched too"
        raise PhotoError(f"no photographs here ({', '.join(suffixes)}){hint}", file=source)
    return photos


def plan_jobs(
    source: str | Path, out: str | Path, *, recursive: bool = False, kind: Format | None = None, bits: int | None = None
) -> list[DeblurJob]:
    """The files to make in the folder `out`, by the names and folders of the photographs.

    They are of the photographs' kind, or of `kind`; PNG of RAW files, and of JPEGs where 16 bits are wanted.
    """
    source, out = Path(source), Path(out)
    if kind is not None and kind not in FORMATS:
        raise DefocusError(f"format {kind!r}; known are {', '.join(FORMATS)}")
    if bits not in (None, 8, 16):
        raise DefocusError(f"{bits} bits; a picture has 8 or 16")
    if kind == "jpg" and bits == 16:
        raise DefocusError("a JPEG has 8 bits; write png or tif for 16")
    if out.is_file():
        raise PhotoError("is a file; results go to a folder", file=out)
    inside = source.is_dir() and source.resolve() in out.resolve().parents
    photos = find_photos(source, recursive=recursive, without=out if inside else None)
    originals = {photo.resolve() for photo in photos}
    jobs: dict[Path, DeblurJob] = {}
    for photo in photos:
        own = KINDS.get(photo.suffix.lower())
        target_kind = kind or ("png" if own is None or (own == "jpg" and bits == 16) else own)
        name = photo.relative_to(source) if source.is_dir() else Path(photo.name)
        target = out / (name if target_kind == own else name.with_suffix(f".{target_kind}"))
        if target.resolve() in originals:
            raise PhotoError("a result would take this photograph's place; choose another folder", file=target)
        if target in jobs:
            raise PhotoError(f"and {jobs[target].photo.name} would both become {target.name}", file=photo)
        jobs[target] = DeblurJob(photo, target, 8 if target_kind == "jpg" else bits)
    return list(jobs.values())


def read_for_restoring(photo: Path) -> tuple[Float[np.ndarray, "h w 3"], Metadata, int, list[str]]:
    """Display values 0..1, upright, in the colours of the file; what to carry over; bits of the file; notes."""
    if not photo.exists():
        raise PhotoError("no such file", file=photo)
    if photo.suffix.lower() in PICTURES:
        image, _, notes = read_picture(photo, to_srgb=False)
        metadata = read_metadata(photo, (image.shape[1], image.shape[0]))
        return image, metadata, stored_bits(photo), [*notes, *metadata.notes]
    from ..photo import SRGB, encode, read_photo

    read = read_photo(photo)
    image = np.array(encode(read.linear(), SRGB), np.float32)
    return image, metadata_of(read.exif), 16, list(read.notes)


def deblur_photo(
    model: nn.Module,
    job: DeblurJob,
    settings: TileSettings,
    results: DeblurFolder,
    progress: Callable[[int, int], Any] | None = None,
    wishes: DeblurWishes = WHOLE,
) -> list[str]:
    """Restore one photograph and write the result; notes on what was changed or left out."""
    of = photo_state(job.photo)  # before it is read: one that changes meanwhile is noticed
    image, metadata, bits, notes = read_for_restoring(job.photo)
    try:
        restored = deblur(model, image, **asdict(settings), progress=progress)
    except torch.OutOfMemoryError as error:
        raise PhotoError(
            f"not enough memory on {settings.device} for {settings.batch} tiles of {settings.tile_px} pixels; take "
            "smaller ones (--tile)",
            file=job.photo,
        ) from error
    if wishes.blur_map is not None:
        write_blur_map(wishes.blur_map, estimate_blur(image, restored))
    if wishes.strength < 1.0:
        restored -= image
        restored *= np.float32(wishes.strength)
        restored += image
    del image
    try:
        values = quantise(restored, bits if job.bits is None else job.bits)
    except DefocusError as error:
        raise PhotoError(f"of what the network made, {error}; nothing was written", file=job.photo) from error
    del restored
    data, more = encoded(values, KINDS[job.out.suffix.lower()], metadata)
    results.write(job, data, of)
    return notes + more


def deblur_files(
    model: nn.Module,
    jobs: Sequence[DeblurJob],
    settings: TileSettings,
    results: DeblurFolder,
    *,
    overwrite: bool = False,
    progress: Callable[[str, float], Any] | None = None,
    wishes: DeblurWishes = WHOLE,
) -> DeblurSummary:
    """Restore photographs, one after the other, into a folder of `results`.

    `progress` is called with a name and the part of all that is done. Files in the place of results that are not ours,
    or were made by something else, raise `PhotoError` before any work.
    """
    results.check(jobs, overwrite=overwrite)
    results.sweep(jobs)
    summary = DeblurSummary()
    start = time.perf_counter()
    model = model.to(settings.device).eval()
    for number, job in enumerate(jobs):
        if job.out.exists() and not overwrite:
            summary.skipped.append(job.out)
            continue

        def report(done: int, total: int, number: int = number, name: str = job.photo.name) -> None:
            if progress is not None:
                progress(f"{name} ({number + 1} of {len(jobs)})", (number + done / total) / len(jobs))

        report(0, 1)
        try:
            notes = deblur_photo(model, job, settings, results, report, wishes)
        except (DefocusError, OSError) as error:
            summary.failed.append((job.photo, str(error)))
        except Exception as error:  # a fault of ours in one photograph shall not cost the others
            summary.failed.append((job.photo, f"{job.photo}: unexpected {type(error).__name__}: {error}"))
        else:
            summary.done.append(job.out)
            summary.notes += [(job.photo, note) for note in notes]
    summary.seconds = time.perf_counter() - start
    return summary
