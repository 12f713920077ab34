"""Compiled programs are kept between commands: the first PSF compiles for up to a minute, later ones start at once."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

LARGEST = 2 * 2**30  # bytes


def keep_programs(folder: Path | None = None) -> None:
    """Let JAX keep its programs in `folder`; must be called before JAX is imported.

    By default `~/.cache/defocus`, or what DEFOCUS_CACHE names; an empty DEFOCUS_CACHE keeps nothing. Settings of JAX's
    own cache in the environment go first.
    """
    named = os.environ.get("DEFOCUS_CACHE")
    if named == "" or "JAX_COMPILATION_CACHE_DIR" in os.environ:
        return
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "defocus"
    folder = folder or Path(named or base)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return  # a home that cannot be written to: everything works, only slower
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(folder)
    # With a largest size JAX also takes a lock, so that two commands do not read each other's half-written files.
    os.environ.setdefault("JAX_COMPILATION_CACHE_MAX_SIZE", str(LARGEST))
    os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0.5")
    _sweep(folder)


def _sweep(folder: Path) -> None:
    """Remove programs without the time that JAX writes beside each, after it.

    A process that was killed left them, maybe cut short. JAX stumbles over one such: it warns, and keeps no program
    from then on.
    """
    try:
        names = set(os.listdir(folder))
    except OSError:
        return
    lone = [name for name in names if name.endswith("-cache") and f"{name.removesuffix('-cache')}-atime" not in names]
    if not lone:
        return
    from filelock import FileLock, Timeout

    with suppress(Timeout, OSError), FileLock(folder / ".lockfile", timeout=0):  # JAX's own: else one is being written
        for name in lone:
            if not (folder / f"{name.removesuffix('-cache')}-atime").exists():
                (folder / name).unlink(missing_ok=True)
