"""Compiled programs: kept between processes, and on a CPU made with settings that take half of the time.

The first PSF compiles for up to half a minute; where the programs are kept, the next process starts in seconds. Every
package that compiles calls `keep_programs`, so Python and the command line share one folder. A kept program is code
that runs as the user, so the folder and every file in it must be the user's own, and no links. JAX makes room by
removing whatever ends in `-cache`: where other files lie in the folder, it gets one of its own in there.
"""

from __future__ import annotations

import functools
import importlib.util
import mmap
import os
import re
import stat
import sys
import warnings
from contextlib import suppress
from pathlib import Path

LARGEST = 2 * 2**30  # bytes
SHORTEST_S = 0.5  # what compiles faster is not worth a file
# The older code generator of XLA for CPUs, and fewer of LLVM's optimizations: one PSF compiles in 14 CPU s instead of
# 25, a photograph in 6 instead of 13; they run as fast (benchmarks/results/compilation.md).
FLAGS = {"xla_cpu_use_fusion_emitters": "false", "xla_backend_optimization_level": "1"}
PROGRAM = re.compile(r"jit_.*-[0-9a-f]{64}-cache")  # as JAX names its files
BESIDE = re.compile(r"jit_.*-[0-9a-f]{64}-atime|\.lockfile|xla_gpu_.*")  # and what it keeps beside them
OWN_FOLDER = "defocus-programs"


def keep_programs(folder: Path | None = None) -> None:
    """Let JAX keep its programs in `folder`, and choose the code generator; before or after JAX is imported.

    By default `~/.cache/defocus`, or what DEFOCUS_CACHE names; an empty DEFOCUS_CACHE keeps nothing. Settings of JAX's
    own cache and of XLA_FLAGS go first. In a folder with other files in it, `defocus-programs` is used. A folder that
    others may write to, or with a file or link of theirs, is not used: a warning says why.
    """
    _choose_generator()
    named = os.environ.get("DEFOCUS_CACHE")
    if named == "" or "JAX_COMPILATION_CACHE_DIR" in os.environ or _configured():
        return
    try:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "defocus"
        folder = folder or Path(named or base)
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
        problem = _distrust(folder)
        if not problem and not all(PROGRAM.fullmatch(name) or BESIDE.fullmatch(name) for name in os.listdir(folder)):
            folder = folder / OWN_FOLDER
            folder.mkdir(mode=0o700, exist_ok=True)
            problem = _distrust(folder)
        status = folder.stat()
        problem = problem or next(filter(None, (_distrust(file, status) for file in folder.iterdir())), "")
    except (OSError, RuntimeError):
        return  # no home, or one that cannot be written to: everything works, only slower
    if problem:
        text = f"{problem}; compiled programs are code, so none are kept in {folder}. Mend it, or name another "
        warnings.warn(f"{text}folder in DEFOCUS_CACHE (empty: keep none)", stacklevel=2)
        os.environ["DEFOCUS_CACHE"] = ""  # said once, to processes that start from here, too
        return
    _set("JAX_COMPILATION_CACHE_DIR", str(folder), str(folder))
    # With a largest size JAX also takes a lock, so that two processes do not read each other's half-written files.
    _set("JAX_COMPILATION_CACHE_MAX_SIZE", str(LARGEST), LARGEST)
    _set("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", str(SHORTEST_S), SHORTEST_S)
    _sweep(folder)


def _set(name: str, text: str, value: object) -> None:
    """Set what JAX reads from the environment, for processes that start from here and for this one."""
    if name in os.environ:
        return
    os.environ[name] = text
    if "jax" in sys.modules:  # it has read the environment already
        sys.modules["jax"].config.update(name.lower(), value)


def _configured() -> bool:
    """Whether the program that imported JAX has named a folder of its own."""
    jax = sys.modules.get("jax")
    return jax is not None and jax.config.jax_compilation_cache_dir is not None


def _distrust(path: Path, folder: os.stat_result | None = None) -> str:
    """Why a folder, or a file in it (then with the folder's status), cannot be trusted with programs; empty if it can.

    A file that its group may write to is as good as a folder lets the group in: many users' files are like that.
    """
    status = path.lstat()
    if stat.S_ISLNK(status.st_mode):
        return f"{path} is a link"
    if not hasattr(os, "getuid"):
        return ""
    if status.st_uid != os.getuid():
        return f"{path} belongs to the user {status.st_uid}, not to you"
    by_others = stat.S_IWOTH | (stat.S_IWGRP if folder is None or folder.st_mode & stat.S_IXGRP else 0)
    if status.st_mode & by_others:
        return f"others may write to {path} (mode {stat.S_IMODE(status.st_mode):o}; chmod go-w ends that)"
    return ""


def _sweep(folder: Path) -> None:
    """Remove programs without the time that JAX writes beside each, after it; no other file is touched.

    A process that was killed left them, maybe cut short. JAX stumbles over one such: it warns, and keeps no program
    from then on.
    """
    try:
        names = set(os.listdir(folder))
    except OSError:
        return
    times = {name: f"{name.removesuffix('-cache')}-atime" for name in names if PROGRAM.fullmatch(name)}
    lone = [name for name, time in times.items() if time not in names]
    if not lone:
        return
    from filelock import FileLock, Timeout

    with suppress(Timeout, OSError), FileLock(folder / ".lockfile", timeout=0):  # JAX's own: else one is being written
        for name in lone:
            file = folder / name
            if not (folder / times[name]).exists() and stat.S_ISREG(file.lstat().st_mode):
                file.unlink(missing_ok=True)


def _choose_generator() -> None:
    """Add our choices to XLA_FLAGS, unless the user made his; read by XLA when it first compiles.

    XLA ends the process over a flag that it does not know, and reads them once more in the plugin of an accelerator:
    there we add none, and here only those that the library knows.
    """
    plugins = any(importlib.util.find_spec(name) for name in ("jax_plugins", "libtpu"))
    if plugins and os.environ.get("JAX_PLATFORMS") != "cpu":
        return
    for flag, setting in FLAGS.items():
        flags = os.environ.get("XLA_FLAGS", "")
        if flag not in flags and _is_known(flag):
            os.environ["XLA_FLAGS"] = f"{flags} --{flag}={setting}".strip()


@functools.cache
def _is_known(flag: str) -> bool:
    """Whether the installed XLA has a flag: its name, as a string of its own, in the library; found in milliseconds."""
    package = importlib.util.find_spec("jaxlib")
    for folder in (package and package.submodule_search_locations) or ():
        for library in Path(folder).glob("*jax_common.*"):
            with (
                suppress(OSError, ValueError),
                library.open("rb") as file,
                mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as text,
            ):
                if text.find(f"\0{flag}\0".encode()) >= 0:
                    return True
    return False
