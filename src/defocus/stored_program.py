"""A compiled function that is stored whole, so that the next process neither traces nor lowers it.

JAX keeps what its compiler makes (`programs.py`), but traces and lowers a function again in every process, which takes
longer than anything else once programs are kept: for the measurement of a lens 1.2 of 1.5 s. A stored program is found
by a checksum of everything that decides it: the package's own source, the versions, the processor or accelerator, the
shapes. It lies in JAX's folder under a name like those of JAX, which makes room by removing the oldest.
"""

from __future__ import annotations

import functools
import hashlib
import os
import pickle
import platform
import secrets
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
import numpy as np
from jax.core import Tracer
from jaxlib.mlir.passmanager import PassManager

FORMAT = "1"  # of the files
QUICK = {"xla_backend_optimization_level": 0}  # compiles twice as fast, and runs half as fast
# A GPU's compiler tries dozens of kernels for each matrix product, one program after the other. Without that, and side
# by side, ten thousand PSFs compile and run in 38 s instead of 85 (benchmarks/results/psf_stages_gpu.md).
GPU_OPTIONS: dict[str, Any] = {"xla_gpu_autotune_level": 0, "xla_gpu_enable_triton_gemm": False}
_CONFIG: Any = jax.config
LONGEST_WAIT_S = 10.0  # for another process that reads or writes
_TRACING = threading.RLock()  # one after the other: Python runs one, and the first is to be compiled soon


class StoredProgram:
    """A function of arrays, compiled by JAX for each shape and stored where JAX keeps its programs.

    Positional arguments are pytrees of arrays. `quick` is for what takes longer to compile than to run. Inside of a
    transformation of JAX, and on another device than the default one, this is `jax.jit` alone.
    """

    def __init__(self, function: Callable[..., Any], *, quick: bool = False) -> None:
        functools.update_wrapper(self, function)
        self._function = function
        self._name = function.__name__
        self._quick = quick
        self._programs: dict[Any, Callable[..., Any]] = {}
        self._locks: dict[Any, threading.Lock] = {}

    @property
    def shapes(self) -> int:
        """For how many shapes of its arguments there is a program."""
        return len(self._programs)

    @functools.cached_property
    def _options(self) -> dict[str, Any]:
        if jax.default_backend() == "cpu":
            return {"compiler_options": QUICK} if self._quick else {}
        return {"compiler_options": _known_options()}

    @functools.cached_property
    def _jit(self) -> Callable[..., Any]:
        return jax.jit(self._function, **self._options)

    @functools.cached_property
    def _inner(self) -> Callable[..., Any]:
        """As a part of other programs, which choose the compiler's options, and for other devices than the default."""
        return jax.jit(self._function)

    def __call__(self, *arguments: Any) -> Any:
        """The function's value."""
        leaves, tree = jax.tree.flatten(arguments)
        is_plain = all(hasattr(leaf, "dtype") for leaf in leaves)
        if any(isinstance(leaf, Tracer) for leaf in leaves) or _CONFIG.jax_default_device is not None:
            return self._inner(*arguments)
        if not is_plain or not _CONFIG.jax_enable_x64 or _CONFIG.jax_disable_jit:
            return self._jit(*arguments)
        return self._program(leaves, tree)(*arguments)  # the package's own are in float64

    def compile(self, *arguments: Any) -> None:
        """Have the program for arguments of these shapes, of arrays or of `shape_of`, before it is called.

        Several programs may compile side by side, in threads; whoever calls one meanwhile waits for it.
        """
        self._program(*jax.tree.flatten(arguments))

    def _program(self, leaves: list[Any], tree: Any) -> Callable[..., Any]:
        shapes = tuple((leaf.shape, str(leaf.dtype), getattr(leaf, "weak_type", False)) for leaf in leaves)
        key = tree, shapes
        if key not in self._programs:
            with self._locks.setdefault(key, threading.Lock()):
                if key not in self._programs:
                    self._programs[key] = self._find(leaves, tree, f"{tree} {shapes}") or self._jit
        return self._programs[key]

    def _find(self, leaves: list[Any], tree: Any, shapes: str) -> Callable[..., Any] | None:
        """The program, loaded or compiled and stored; None where nothing is stored, and a processor compiles."""
        folder = _CONFIG.jax_compilation_cache_dir
        is_kept = folder is not None and "://" not in folder
        if not is_kept and jax.default_backend() == "cpu":
            return None
        file = Path(folder) / self._file_name(shapes) if is_kept else None
        program = None if file is None else _load(file)
        if program is None:
            out: list[Any] = []

            def flat(*leaves: Any) -> list[Any]:
                value, structure = jax.tree.flatten(self._function(*jax.tree.unflatten(tree, leaves)))
                out.append(structure)
                return value

            # A name that JAX's own cache cannot know: XLA cannot serialise what it has itself read from there.
            flat.__name__ = f"stored_{self._name}_{secrets.token_hex(8)}"
            with _TRACING:
                lowered = jax.jit(flat, **self._options).lower(*leaves)
                _forget_places(lowered)
            with _NO_OTHER_COPY:
                program = lowered.compile(), out[0]
            if file is not None:
                _store(*program, file)
        run, structure = program
        return lambda *arguments: jax.tree.unflatten(structure, run(*jax.tree.leaves(arguments)))

    def _file_name(self, shapes: str) -> str:
        settings = {k: v for k, v in _CONFIG.values.items() if isinstance(v, str | int) and "cache" not in k}
        function = f"{self._function.__module__}.{self._function.__qualname__}"
        parts = (FORMAT, function, str(self._options), shapes, str(sorted(settings.items())), _surroundings())
        return f"jit_stored_{self._name}-{hashlib.sha256(chr(10).join(parts).encode()).hexdigest()}-cache"


def shape_of(*shape: int, kind: type = float) -> Any:
    """What stands for an array where there is none yet: its shape and kind of numbers, in double precision."""
    return jax.ShapeDtypeStruct(shape, np.dtype(kind))  # type: ignore[no-untyped-call]


def stored_program(
    function: Callable[..., Any], *parts: Callable[..., Any], quick: bool = False, **facts: Any
) -> Callable[..., Any]:
    """A `StoredProgram` of a function that is made of other functions and of facts, which make its name.

    Compiled alone where one of them is not at the top of a module of the package: a stored program is found by its name
    and by the package's own source.
    """
    names = [f"{part.__module__}.{getattr(part, '__qualname__', '<nameless>')}" for part in parts]
    if any("<" in name or not name.startswith("defocus.") for name in names):
        return jax.jit(function)
    details = [f"{name}={value}" for name, value in facts.items()]
    function.__qualname__ = f"{function.__name__}({', '.join(names + details)})"
    return StoredProgram(function, quick=quick)


def _load(file: Path) -> tuple[Any, Any] | None:
    """The program of a file and the structure of what it returns; None where there is none that can be read."""
    from filelock import Timeout
    from jax.experimental.serialize_executable import deserialize_and_load

    try:
        with _alone(file.parent):
            content = file.read_bytes()
            _mark_use(file)
    except (OSError, Timeout):
        return None
    try:
        (program, inward, outward), example = pickle.loads(content)
        if b"lapack" in content:  # which imports SciPy
            _initialise_lapack()
        loaded = deserialize_and_load(program, inward, outward, execution_devices=jax.devices()[:1])
        return loaded, jax.tree.structure(example)
    except Exception:  # cut short, and pickle and XLA say so by errors of any kind: it is compiled and stored anew
        return None


@functools.cache
def _initialise_lapack() -> None:
    """Have JAX find LAPACK's functions, as it does when it lowers a call of one: stored programs rely on them."""
    from jaxlib import lapack

    initialise = getattr(getattr(lapack, "_lapack", None), "initialize", None)
    if initialise is not None:
        initialise()
    else:
        jax.jit(jax.numpy.linalg.cholesky).lower(np.eye(1))  # which takes ten times as long


def _store(program: Any, structure: Any, file: Path) -> None:
    """Write a program, if it can be written: everything works without, only slower."""
    from filelock import Timeout
    from jax.experimental.serialize_executable import serialize

    try:
        # An example says what the structure is: structures of equinox's values do not come back from a pickle.
        example = jax.tree.unflatten(structure, range(structure.num_leaves))
        content = pickle.dumps((serialize(program), example))
        with _alone(file.parent):
            file.write_bytes(content)
            _mark_use(file)  # after the program: one without this mark was cut short, and is swept away
    except (OSError, Timeout, ValueError, NotImplementedError, jax.errors.JaxRuntimeError):
        return  # the last three: of JAX, for what it cannot serialise


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Hold the lock that JAX takes for its own programs."""
    from filelock import FileLock

    folder.mkdir(mode=0o700, exist_ok=True)
    with FileLock(folder / ".lockfile", timeout=LONGEST_WAIT_S):
        yield


class _NoOtherCopy:
    """While it is entered, by any thread, JAX writes no program to its own cache: nobody would ask for ours there."""

    SETTING = "jax_persistent_cache_min_compile_time_secs"

    def __init__(self) -> None:
        self._lock, self._inside, self._shortest_s = threading.Lock(), 0, 0.0

    def __enter__(self) -> None:
        with self._lock:
            if self._inside == 0:
                self._shortest_s = _CONFIG.values[self.SETTING]
                _CONFIG.update(self.SETTING, float("inf"))
            self._inside += 1

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                _CONFIG.update(self.SETTING, self._shortest_s)


_NO_OTHER_COPY = _NoOtherCopy()


def _mark_use(file: Path) -> None:
    """Write when the program was last used, as JAX does for its own."""
    mark = file.with_name(f"{file.name.removesuffix('-cache')}-atime")
    mark.write_bytes(time.time_ns().to_bytes(8, "little"))


def _forget_places(lowered: Any) -> None:
    """Drop where in Python each operation comes from: two thirds of a program's text, read whenever it is loaded."""
    module = lowered.compiler_ir()
    with module.context:
        PassManager.parse("builtin.module(strip-debuginfo)").run(module.operation)


@functools.cache
def _known_options() -> dict[str, Any]:
    """Those of GPU_OPTIONS that the compiler knows: it refuses a program over one that it does not."""

    def is_known(name: str, value: Any) -> bool:
        try:
            jax.jit(lambda x: x + 1, compiler_options={name: value}).lower(np.zeros(())).compile()
        except jax.errors.JaxRuntimeError:
            return False
        return True

    return {name: value for name, value in GPU_OPTIONS.items() if is_known(name, value)}


@functools.cache
def _surroundings() -> str:
    """What decides a program besides its function, its shapes and JAX's settings."""
    source = hashlib.sha256()
    for path in sorted(Path(__file__).parent.rglob("*.py")):
        source.update(path.read_bytes())
    info = Path("/proc/cpuinfo")
    processor = info.read_text().partition("\n\n")[0] if info.exists() else platform.processor()
    lines = (line for line in processor.splitlines() if line.startswith(("model", "flags", "Features", "CPU")))
    versions = (jax.__version__, metadata.version("jaxlib"), platform.python_version(), platform.machine())
    device = jax.devices()[0]
    accelerator = () if device.platform == "cpu" else (device.device_kind, device.client.platform_version)
    return "\n".join((source.hexdigest(), *versions, *lines, *accelerator, os.environ.get("XLA_FLAGS", "")))
