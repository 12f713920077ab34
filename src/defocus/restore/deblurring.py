"""Photographs through a restoration network: which files, where the results go, and one after the other.

A result is written whole or not at all, so a name that is there is done: the same command goes on where it was stopped.
What was made by other weights or settings, or of another photograph, is refused (`made_by.py`). A photograph that
cannot be restored is told, and the others go on.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from ..errors import DefocusError, MissingExtraError, PhotoError
from ..files.exif import Metadata, metadata_of, read_metadata
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
from ..files.stores import write_file
from .made_by import MadeBy, photo_state
from .tiles import deblur

try:
    import torch
except ModuleNotFoundError as error:
    raise MissingExtraError("deblurring photographs", "train") from error


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


@dataclass
class DeblurSummary:
    """Results, and photographs without one."""

    done: list[Path] = field(default_factory=list)  # results
    skipped: list[Path] = field(default_factory=list)  # results that were there
    failed: list[tuple[Path, str]] = field(default_factory=list)  # photographs, and why
    notes: list[tuple[Path, str]] = field(default_factory=list)
    seconds: float = 0.0


def choose_device(name: str) -> str:
    """`auto` is a GPU where there is one. Raises `DefocusError` for a device that is not here."""
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).splitlines()[0]
        raise DefocusError(f"device {name!r} cannot be used ({reason}); expected auto, cpu, cuda or cuda:1") from error
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
    jobs: dict[Path, DeblurJob] = {}
    for photo in find_photos(source, recursive=recursive, without=out if inside else None):
        own = KINDS.get(photo.suffix.lower())
        target_kind = kind or ("png" if own is None or (own == "jpg" and bits == 16) else own)
        name = photo.relative_to(source) if source.is_dir() else Path(photo.name)
        target = out / (name if target_kind == own else name.with_suffix(f".{target_kind}"))
        if target.resolve() == photo.resolve():
            raise PhotoError("the result would take the photograph's place; choose another folder", file=photo)
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
    model: torch.nn.Module,
    job: DeblurJob,
    settings: TileSettings,
    progress: Callable[[int, int], Any] | None = None,
    made_by: MadeBy | None = None,
) -> list[str]:
    """Restore one photograph and write the result; notes on what was changed or left out."""
    # Before it is read: one that changes meanwhile is noticed.
    of = photo_state(job.photo) if made_by is not None else None
    image, metadata, bits, notes = read_for_restoring(job.photo)
    try:
        restored = deblur(model, image, **asdict(settings), progress=progress)
    except torch.OutOfMemoryError as error:
        raise PhotoError(
            f"not enough memory on {settings.device} for {settings.batch} tiles of {settings.tile_px} pixels; take "
            "smaller ones (--tile)",
            file=job.photo,
        ) from error
    del image
    try:
        values = quantise(restored, bits if job.bits is None else job.bits)
    except DefocusError as error:
        raise PhotoError(f"of what the network made, {error}; nothing was written", file=job.photo) from error
    del restored
    data, more = encoded(values, KINDS[job.out.suffix.lower()], metadata)
    if made_by is not None and of is not None:
        made_by.note(job.out, of)
    write_file(job.out, data)
    return notes + more


def deblur_files(
    model: torch.nn.Module,
    jobs: Sequence[DeblurJob],
    settings: TileSettings,
    *,
    overwrite: bool = False,
    made_by: MadeBy | None = None,
    progress: Callable[[str, float], Any] | None = None,
) -> DeblurSummary:
    """Restore photographs, one after the other. `progress` is called with a name and the part of all that is done.

    With `made_by`, results that are there and were made by something else raise `PhotoError` before any work.
    """
    if made_by is not None and not overwrite:
        made_by.check((job.out, job.photo) for job in jobs)
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
            notes = deblur_photo(model, job, settings, report, made_by)
        except (DefocusError, OSError) as error:
            summary.failed.append((job.photo, str(error)))
        except Exception as error:  # a fault of ours in one photograph shall not cost the others
            summary.failed.append((job.photo, f"{job.photo}: unexpected {type(error).__name__}: {error}"))
        else:
            summary.done.append(job.out)
            summary.notes += [(job.photo, note) for note in notes]
    summary.seconds = time.perf_counter() - start
    return summary
