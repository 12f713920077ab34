"""Compiled programs are kept for Python and for the command line, in a folder of the user's own."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from filelock import FileLock

from defocus.programs import FLAGS, OWN_FOLDER, PROGRAM, keep_programs

HASH = "0123456789abcdef" * 4
USE = """
import json, os
import defocus.photo, jax
jax.jit(lambda x: x * 2.0 + 1.0)(jax.numpy.ones(3)).block_until_ready()
print(json.dumps([jax.config.jax_compilation_cache_dir, os.environ.get("XLA_FLAGS", "")]))
"""


@pytest.fixture(autouse=True)
def _plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without what the run of the tests itself has set."""
    for name in ("JAX_COMPILATION_CACHE_DIR", "JAX_COMPILATION_CACHE_MAX_SIZE", "DEFOCUS_CACHE", "XLA_FLAGS"):
        monkeypatch.setenv(name, "")  # restored at the end, whatever happens to it
        monkeypatch.delenv(name)
    monkeypatch.delitem(sys.modules, "jax", raising=False)  # its settings stay those of the run


def used(code: str, **environment: str) -> tuple[str | None, str]:
    """The folder and the flags of a fresh process that has compiled a program."""
    settings = os.environ | {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0"} | environment
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, env=settings)
    folder, flags = json.loads(done.stdout)
    return folder, flags


def test_python_keeps_its_programs_in_a_private_folder(tmp_path: Path) -> None:
    folder = tmp_path / "cache" / "defocus"
    kept, flags = used(USE, XDG_CACHE_HOME=str(folder.parent))
    assert kept == str(folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert any(PROGRAM.fullmatch(path.name) for path in folder.iterdir())
    assert all(flags.count(flag) <= 1 for flag in FLAGS)


def test_also_where_jax_has_been_used_before(tmp_path: Path) -> None:
    early = "import jax; jax.jit(lambda x: x - 1.0)(jax.numpy.ones(3))\n"
    assert used(early + USE, DEFOCUS_CACHE=str(tmp_path / "programs"))[0] == str(tmp_path / "programs")
    assert any(PROGRAM.fullmatch(path.name) for path in (tmp_path / "programs").iterdir())


def test_settings_of_the_user_go_first(tmp_path: Path) -> None:
    ours = f"import jax; jax.config.update('jax_compilation_cache_dir', {str(tmp_path / 'mine')!r})\n"
    setting = "--xla_cpu_use_fusion_emitters=true --xla_backend_optimization_level=3"
    assert used(ours + USE, DEFOCUS_CACHE=str(tmp_path / "no"), XLA_FLAGS=setting) == (str(tmp_path / "mine"), setting)
    assert not (tmp_path / "no").exists()


def test_an_empty_name_keeps_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEFOCUS_CACHE", "")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    keep_programs()
    assert "JAX_COMPILATION_CACHE_DIR" not in os.environ
    assert not list(tmp_path.iterdir())


def test_other_flags_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XLA_FLAGS", "--xla_dump_hlo_as_text")
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    with monkeypatch.context() as patch:
        patch.setattr("defocus.programs.FLAGS", {"xla_no_such_flag": "1"})  # XLA would end the process over it
        keep_programs(tmp_path)
    assert os.environ["XLA_FLAGS"] == "--xla_dump_hlo_as_text"
    keep_programs(tmp_path)
    ours = " ".join(f"--{flag}={setting}" for flag, setting in FLAGS.items())
    assert os.environ["XLA_FLAGS"] in ("--xla_dump_hlo_as_text", f"--xla_dump_hlo_as_text {ours}")


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="files have no owner here")
def test_a_folder_that_others_may_write_to_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "open"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.warns(UserWarning, match="others may write"):
        keep_programs(folder)
    keep_programs(folder)  # said once
    assert "JAX_COMPILATION_CACHE_DIR" not in os.environ
    monkeypatch.delenv("DEFOCUS_CACHE")
    folder.chmod(0o700)
    monkeypatch.setattr(os, "getuid", lambda: folder.stat().st_uid + 1)
    with pytest.warns(UserWarning, match="belongs to"):
        keep_programs(folder)
    assert "JAX_COMPILATION_CACHE_DIR" not in os.environ


@pytest.mark.skipif(not hasattr(os, "getuid"), reason="files have no owner here")
@pytest.mark.parametrize("plant", ["link", "writable", "linked folder"])
def test_a_folder_with_a_program_of_somebody_else_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plant: str
) -> None:
    folder, program = tmp_path / "programs", tmp_path / "programs" / f"jit_a-{HASH}-cache"
    folder.mkdir(mode=0o755)
    (tmp_path / "elsewhere").write_bytes(b"code")
    if plant == "link":
        program.symlink_to(tmp_path / "elsewhere")
    elif plant == "writable":
        program.write_bytes(b"code")
        program.chmod(0o664)
    else:
        (tmp_path / "link").symlink_to(folder)
        folder = tmp_path / "link"
    with pytest.warns(UserWarning, match="is a link" if "link" in plant else "others may write"):
        keep_programs(folder)
    assert "JAX_COMPILATION_CACHE_DIR" not in os.environ
    if plant == "writable":  # nobody else gets into the folder: a file as the user's own settings make it
        monkeypatch.delenv("DEFOCUS_CACHE")
        folder.chmod(0o700)
        keep_programs(folder)
        assert os.environ["JAX_COMPILATION_CACHE_DIR"] == str(folder)


def test_other_files_are_kept_apart_from_programs(tmp_path: Path) -> None:
    """JAX makes room by removing whatever ends in -cache."""
    foreign = ("mine-cache", "mine-atime", f"notes-{HASH}-cache")
    for name in foreign:
        (tmp_path / name).write_bytes(b"\0" * 8)
    own = tmp_path / OWN_FOLDER
    many = "import defocus.photo, jax\nfor n in range(12): jax.jit(lambda x: x + n)(1.0)\n"
    folder, _ = used(many + USE, DEFOCUS_CACHE=str(tmp_path), JAX_COMPILATION_CACHE_MAX_SIZE="12000")
    assert folder == str(own)
    assert stat.S_IMODE(own.stat().st_mode) == 0o700
    assert 0 < sum(PROGRAM.fullmatch(path.name) is not None for path in own.iterdir()) < 12  # room was made
    assert {path.name for path in tmp_path.iterdir()} == {OWN_FOLDER, *foreign}


def test_programs_that_were_cut_short_are_removed_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, cut = f"jit_a-{HASH}", f"jit_b-{HASH}"
    foreign = ("other", "my-cache", "jit_c-12-cache", f"notes-{HASH}-cache", f"jit_d-{HASH}-cache.txt")
    own = tmp_path / OWN_FOLDER
    own.mkdir(mode=0o700)
    for folder in (tmp_path, own):
        for name in (f"{whole}-cache", f"{whole}-atime", f"{cut}-cache", *foreign):
            (folder / name).touch()
    before = {path.name for path in tmp_path.iterdir()}
    with FileLock(own / ".lockfile"):  # somebody writes
        keep_programs(tmp_path)
    assert (own / f"{cut}-cache").exists()
    monkeypatch.delenv("JAX_COMPILATION_CACHE_DIR")
    keep_programs(tmp_path)
    assert os.environ["JAX_COMPILATION_CACHE_DIR"] == str(own)
    assert {path.name for path in own.iterdir()} - {".lockfile"} == {f"{whole}-cache", f"{whole}-atime", *foreign}
    assert {path.name for path in tmp_path.iterdir()} == before


def test_a_stored_program_is_not_traced_again(tmp_path: Path) -> None:
    import jax
    import numpy as np

    import defocus.optics  # in double precision  # noqa: F401
    from defocus.stored_program import StoredProgram

    traces = []

    def square(values: dict[str, jax.Array]) -> dict[str, jax.Array]:
        traces.append(values["x"].shape)
        return {"y": values["x"] ** 2, "z": values["x"].sum()}

    def value(size: int) -> float:
        return float(StoredProgram(square)({"x": np.arange(float(size))})["z"])

    folder = jax.config.jax_compilation_cache_dir
    jax.config.update("jax_compilation_cache_dir", str(tmp_path))
    try:
        assert [value(3), value(3)] == [3.0, 3.0]
        assert traces == [(3,)]
        (file,) = tmp_path.glob("jit_stored_square-*-cache")
        assert PROGRAM.fullmatch(file.name)
        assert Path(__file__).name.encode() not in file.read_bytes()  # where operations come from is left out
        file.write_bytes(file.read_bytes()[:-9])  # cut short
        assert [value(3), value(3), value(4)] == [3.0, 3.0, 6.0]
        assert traces == [(3,), (3,), (4,)]
        slope = jax.grad(lambda x: StoredProgram(square)({"x": x})["y"].sum())(np.arange(3.0))
        assert slope.tolist() == [0.0, 2.0, 4.0]
    finally:
        jax.config.update("jax_compilation_cache_dir", folder)


def test_a_stored_program_finds_lapack(tmp_path: Path) -> None:
    """In a process that has lowered no call of LAPACK; without its functions such a program ends the process."""
    code = """
import numpy as np
import defocus.optics
from defocus.stored_program import StoredProgram
import jax.numpy as jnp
def solve(a, b):
    return jnp.linalg.solve(a, b)
print(StoredProgram(solve)(np.diag([2.0, 4.0]), np.array([2.0, 8.0])).tolist())
"""
    environment = {**os.environ, "JAX_COMPILATION_CACHE_DIR": str(tmp_path), "JAX_PLATFORMS": "cpu"}
    for _ in range(2):
        run = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
        assert (run.returncode, run.stdout) == (0, "[1.0, 2.0]\n"), run.stderr[-500:]
        assert len(list(tmp_path.glob("jit_stored_solve-*-cache"))) == 1
