"""Files of visitors: one private folder, removed at the end and, file by file, after a while; limits of what is
read.
"""

from __future__ import annotations

import atexit
import shutil
import tempfile
import threading
import time
from pathlib import Path

from ..errors import DefocusError, LensFileError, PhotoError
from ..files.pictures import PICTURES
from ..lens.formats import LENS_SUFFIXES

MEGABYTE = 2**20
MOST_LENS_BYTES = 2 * MEGABYTE
MOST_PIXELS = 64_000_000  # of a photograph
KEPT_S = 3600.0


class PrivateFolder:
    """A folder that only this user reads, with a place for each visitor."""

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="defocus-explore-"))  # mode 700
        atexit.register(self.remove)
        threading.Thread(target=self._sweep_now_and_then, name="defocus sweeper", daemon=True).start()

    def place(self, visitor: str, name: str) -> Path:
        """Where a file of a visitor is written."""
        folder = self.path / "made" / "".join(c for c in visitor if c.isalnum())[:40]
        folder.mkdir(parents=True, exist_ok=True)
        return folder / name

    def remove(self) -> None:
        """Remove everything."""
        shutil.rmtree(self.path, ignore_errors=True)

    def sweep(self, older_than_s: float = KEPT_S) -> None:
        """Remove files that are older."""
        before = time.time() - older_than_s
        for file in self.path.rglob("*"):
            try:
                if file.is_file() and file.stat().st_mtime < before:
                    file.unlink()
            except FileNotFoundError:
                continue

    def _sweep_now_and_then(self) -> None:
        while self.path.exists():
            time.sleep(60.0)
            self.sweep()


def check_lens_upload(path: Path) -> Path:
    """The path, if it can be a lens file."""
    if path.suffix.lower() not in LENS_SUFFIXES:
        raise LensFileError(f"a lens is a file that ends in {', '.join(LENS_SUFFIXES)}", file=path.name)
    size = path.stat().st_size
    if size > MOST_LENS_BYTES:
        raise LensFileError(f"{size / MEGABYTE:.1f} MB are more than a lens file has", file=path.name)
    return path


def check_photo_upload(path: Path) -> Path:
    """The path, if it is a picture or RAW file of a size that is read; only its head is looked at."""
    size = _pixels(path)
    if size > MOST_PIXELS:
        raise PhotoError(
            f"{size / 1e6:.0f} megapixels are more than the {MOST_PIXELS / 1e6:.0f} that this page reads: make it "
            "smaller, or use `defocus blur`",
            file=path.name,
        )
    return path


def _pixels(path: Path) -> int:
    if path.suffix.lower() in PICTURES:
        from ..files.pictures import upright_size

        width, height = upright_size(path)
        return width * height
    import rawpy

    try:
        with rawpy.imread(str(path)) as raw:
            return int(raw.sizes.raw_width) * int(raw.sizes.raw_height)
    except rawpy.LibRawError:
        message = "neither a PNG, JPEG or TIFF nor a RAW file, or one that is damaged or cut short"
        raise PhotoError(message, file=path.name) from None


def short_message(error: Exception) -> str:
    """The line that a visitor is shown: what the command line says, without the folders of this machine."""
    message = str(error) if isinstance(error, DefocusError) else f"{type(error).__name__}: {error}"
    for word in message.split():
        stem = word.strip("'\",:;()")
        if stem.startswith("/") and len(Path(stem).parts) > 2:
            message = message.replace(stem, Path(stem).name)
    return " ".join(message.split())
