"""A short run of the fuzzer: whatever is damaged is refused by our own errors, or accepted."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))
from fuzz import outcome  # noqa: E402
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
