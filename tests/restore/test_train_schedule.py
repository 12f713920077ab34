"""Trainings of so many minutes, and weights that are taken up again where the rate falls."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from defocus.errors import ConfigError
from defocus.restore import training as train_module
from defocus.restore.run_folder import read_state
from defocus.restore.training import TrainProgress, train

from .small_training import equal, rows, settings, weights, write_pairs


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_pairs(tmp_path_factory.mktemp("data") / "pairs", (7, 3))


def test_a_training_of_some_minutes_ends_its_schedule_with_them(
    pairs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At a pretended speed of 2 steps/s, 6 s hold 4 steps and at most 11 more; the rate falls to its floor by then."""
    monkeypatch.setattr(train_module, "TIMED_STEPS", 4)
    monkeypatch.setattr(TrainProgress, "steps_per_s", property(lambda _: 2.0))
    config = settings(pairs, steps=100_000, schedule={"floor": 1e-5})
    train(config, tmp_path / "run", minutes=0.1)
    table = rows(tmp_path / "run" / "loss.csv")
    assert 5 <= len(table) <= 15
    assert float(table[-1]["rate"]) < 0.2 * float(table[0]["rate"])
    events = [json.loads(line) for line in (tmp_path / "run" / "run.jsonl").read_text().splitlines()]
    assert [event["steps"] for event in events if event["event"] == "timed"] == [len(table)]
    # The settings that are kept have the steps that were done: it is complete.
    assert json.loads((tmp_path / "run" / "config.json").read_text())["steps"] == len(table)


@pytest.mark.parametrize(
    "changes",
    [
        {"progressive": [{"start": 0.0, "crop": 8, "batch": 6}, {"start": 0.5, "crop": 16, "batch": 2}]},
        {"data": {"kind": "synthesis"}, "curriculum": [{"start": 0.0, "blur_px": [0, 2]}]},
    ],
)
def test_minutes_are_refused_where_sizes_follow_from_the_number_of_steps(
    changes: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match="minutes are for trainings without progressive and curriculum"):
        train(settings(**changes), tmp_path / "run", minutes=0.1)
    assert not (tmp_path / "run").exists()


def test_minutes_move_the_steps_that_reload_the_best_weights(
    pairs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At a pretended speed of 2 steps/s the milestone at half of 100,000 steps comes with half of 12 or so."""
    monkeypatch.setattr(train_module, "TIMED_STEPS", 2)
    monkeypatch.setattr(TrainProgress, "steps_per_s", property(lambda _: 2.0))
    reads: list[str] = []
    monkeypatch.setattr(train_module, "read_state", lambda file: reads.append(file.name) or read_state(file))
    schedule = {"kind": "steps", "milestones": [0.5], "factors": [0.1], "reload_best": True}
    config = settings(pairs, steps=100_000, schedule=schedule, validation={"every": 1, "images": 0})
    train(config, tmp_path / "run", minutes=0.1)
    assert len(reads) == 1


def test_the_best_weights_are_taken_up_again_where_the_rate_falls(
    pairs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Validation claims that step 2 was the best; the third step after the milestone begins with its weights."""
    real, scores = train_module.judge, iter([10.0, 30.0, 20.0, 25.0])

    def scripted_judge(*arguments: Any, **options: Any) -> Any:
        from dataclasses import replace

        return replace(real(*arguments, **options), psnr=next(scores))

    monkeypatch.setattr(train_module, "judge", scripted_judge)
    reads: list[str] = []
    monkeypatch.setattr(train_module, "read_state", lambda file: reads.append(file.name) or read_state(file))
    schedule = {"kind": "steps", "milestones": [0.75], "factors": [0.1], "reload_best": True}
    config = settings(
        pairs, steps=8, schedule=schedule, validation={"every": 2, "images": 0}, save={"every": 1, "keep": 1}
    )
    result = train(config, tmp_path / "run")
    assert reads == ["step-00000004.pt"]
    assert sorted(path.name for path in (tmp_path / "run" / "states").iterdir()) == [
        "step-00000004.pt",
        "step-00000008.pt",
    ]
    assert [row["psnr"] for row in result.history] == [10.0, 30.0, 20.0, 25.0]
    assert equal(weights(result.best), read_state(tmp_path / "run" / "states" / "step-00000004.pt")["model"])
    rates = [float(row["rate"]) for row in rows(tmp_path / "run" / "loss.csv")]
    assert rates == pytest.approx([3e-3] * 6 + [3e-4] * 2)
