"""Killed at any moment, a run goes on and ends with the same bytes, whatever the number of workers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from defocus.files.pair_folders import LEDGER
from defocus.synth.ledger import Ledger
from defocus.synth.verify import verify_folder

from .conftest import contents, write_plan

PATIENCE_S = 240.0


@pytest.fixture
def plan_file(tiny_plan: dict[str, Any], tmp_path: Path) -> Path:
    return write_plan(tmp_path / "plan.toml", tiny_plan)


def start(plan: Path, out: Path, workers: int) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "defocus", "synth", "run", str(plan), "--out", str(out), "--workers", str(workers)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True)


def wait_for_pictures(out: Path, process: subprocess.Popen[bytes]) -> None:
    """Until the first picture is there: then most of the work is still to be done."""
    end = time.monotonic() + PATIENCE_S
    while not any(out.rglob("*.png")):
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


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="finds worker processes in /proc")
def test_kills_change_no_byte(plan_file: Path, reference_folder: Path, tmp_path: Path) -> None:
    """The leader of a run with two workers is killed; then all workers of the next. The reference was made by one."""
    out = tmp_path / "pairs"
    first = start(plan_file, out, 2)
    wait_for_pictures(out, first)
    os.kill(first.pid, signal.SIGKILL)
    first.communicate(timeout=60.0)  # ends when the last of its workers has noticed and closed its output
    with Ledger(out / LEDGER, read_only=True) as ledger:
        assert ledger.counts().get("done", 0) < 10  # it was killed before the end
    second = start(plan_file, out, 2)
    end = time.monotonic() + PATIENCE_S
    while not (workers := children(second.pid)):
        assert second.poll() is None
        assert time.monotonic() < end, "no worker appeared"
        time.sleep(0.05)
    time.sleep(2.0)  # they have their tasks by then
    for worker in workers:
        os.kill(worker, signal.SIGKILL)
    _, errors = second.communicate(timeout=PATIENCE_S)
    assert second.returncode == 0, errors.decode()
    assert contents(out) == contents(reference_folder)
    assert verify_folder(out).sound
