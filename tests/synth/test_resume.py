"""Killed at any moment, a run goes on and ends with the same bytes, whatever the number of workers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from defocus.files.pair_folders import LEDGER
from defocus.synth.ledger import Ledger
from defocus.synth.verify import verify_folder

from .conftest import TINY, contents, write_plan

PATIENCE_S = 240.0
PAIRS = sum(TINY[split]["pairs"] for split in ("train", "validation", "test"))


@pytest.fixture
def plan_file(tiny_plan: dict[str, Any], tmp_path: Path) -> Path:
    return write_plan(tmp_path / "plan.toml", tiny_plan)


def start(plan: Path, out: Path, workers: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "defocus", "synth", "run", str(plan), "--out", str(out), "--workers", str(workers)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True)


def pictures(out: Path) -> set[tuple[Path, int]]:
    """The pictures that are there, and when each was written."""
    found = set()
    for path in out.rglob("*.png"):
        with suppress(FileNotFoundError):  # removed meanwhile
            found.add((path, path.stat().st_mtime_ns))
    return found


def wait_for_pictures(out: Path, process: subprocess.Popen[bytes]) -> None:
    """Until a picture is written, when most of the work is still to be done, or the run has ended well."""
    end, before = time.monotonic() + PATIENCE_S, pictures(out)
    while pictures(out) <= before and process.poll() != 0:
        assert process.poll() is None, process.stderr and process.stderr.read().decode()
        assert time.monotonic() < end, "no picture appeared"
        time.sleep(0.02)


def children(pid: int) -> list[int]:
    pids = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == pid and b"spawn_main" in (entry / "cmdline").read_bytes():
                pids.append(int(entry.name))
    return pids


def kill_children(pid: int) -> int:
    """Kill the workers of a run; how many were there."""
    killed = 0
    for worker in children(pid):
        with suppress(ProcessLookupError):
            os.kill(worker, signal.SIGKILL)
            killed += 1
    return killed


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="finds worker processes in /proc")
def test_kills_change_no_byte(plan_file: Path, reference_folder: Path, tmp_path: Path) -> None:
    """The leader of a run with two workers is killed; then all workers of the next. The reference was made by one."""
    for attempt in range(5):  # a quick machine may be done before anything is killed
        out = tmp_path / f"pairs-{attempt}"
        first = start(plan_file, out, 2)
        wait_for_pictures(out, first)
        first.kill()
        first.communicate(timeout=60.0)  # ends when the last of its workers has noticed and closed its output
        with Ledger(out / LEDGER, read_only=True) as ledger:
            stopped = ledger.counts().get("done", 0) < PAIRS
        second = start(plan_file, out, 2)
        wait_for_pictures(out, second)
        killed = kill_children(second.pid)
        _, errors = second.communicate(timeout=PATIENCE_S)
        assert second.returncode == 0, errors.decode()
        assert contents(out) == contents(reference_folder)
        assert verify_folder(out).sound
        if stopped and killed:
            return
    pytest.fail("no run was killed before its end")
