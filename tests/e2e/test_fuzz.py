"""A short run of the fuzzer: whatever is damaged is refused by our own errors, or accepted."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))
from fuzz import outcome  # noqa: E402
from fuzz_commands import LINES, check_spoilt, commands, folder_sum, prepare_commands, sweep  # noqa: E402
from fuzz_kinds import KINDS  # noqa: E402


@pytest.mark.parametrize("name", [name for name in KINDS if KINDS[name].quick])
@pytest.mark.filterwarnings("ignore")
def test_damaged_input_is_refused_or_accepted(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kind = KINDS[name]
    monkeypatch.chdir(tmp_path)
    kind.prepare(tmp_path)
    words = {}
    for number in range(kind.quick):
        word, _, report = outcome(kind, number, 0, tmp_path)
        words.setdefault(word, []).append(number)
        assert word in ("refused", "accepted"), f"input {number}: {word}\n{report[-3000:]}"
    assert "refused" in words


@pytest.mark.filterwarnings("ignore")
def test_what_cannot_be_read_or_written_is_named_in_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A part of the lines that benchmarks/fuzz.py tries: each command, with a path of it missing, empty, or no file."""
    pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    prepare_commands(tmp_path)
    before = folder_sum(tmp_path)
    for words, bad in list(sweep())[::5]:
        check_spoilt(words, bad)
    for number in range(30):
        word, _, report = outcome(KINDS["cli"], number, 0, tmp_path)
        assert word in ("refused", "accepted"), f"input {number}: {word}\n{report[-3000:]}"
    assert folder_sum(tmp_path) == before
    without_files = {"lens list", "explore"}
    assert {name for name in commands() if any(line.startswith(f"{name} ") for line in LINES)} == (
        {*commands()} - without_files
    )
