"""Settings of a training: the paper's recipes, what is refused and how it is said, the rate of each step."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from defocus.cli import run
from defocus.errors import ConfigError, DefocusError
from defocus.restore.build import network_overrides
from defocus.restore.config import TrainConfig, recipe_names
from defocus.restore.models import model_options

from .small_training import settings


def rate(config: TrainConfig, step: int) -> float:
    return config.rate_at(step)


def test_the_paper_s_recipes() -> None:
    paper = {name: TrainConfig.from_toml(name) for name in ("nrknet", "iniknet", "nafnet", "restormer")}
    assert {name: config.steps for name, config in paper.items()} == {
        "nrknet": 350_000, "iniknet": 400_000, "nafnet": 400_000, "restormer": 300_000,
    }  # fmt: skip
    assert [paper[n].optimizer.kind for n in paper] == ["adam", "adam", "adamw", "adamw"]
    assert [(paper[n].batch, paper[n].crop) for n in ("nrknet", "iniknet", "nafnet")] == [(4, 256), (4, 256), (64, 256)]
    assert all(config.model.size == "paper" for config in paper.values())

    nrknet = paper["nrknet"]
    assert [rate(nrknet, s) for s in (0, 139_999, 140_000, 210_000, 280_000, 349_999)] == pytest.approx(
        [1e-4, 1e-4, 5e-5, 2.5e-5, 1e-5, 1e-5]
    )
    assert nrknet.schedule.reload_best
    assert nrknet.milestone_steps == [140_000, 210_000, 280_000]
    iniknet = paper["iniknet"]
    assert [rate(iniknet, s) for s in (99_999, 100_000, 200_000, 300_000)] == pytest.approx([2e-4, 1e-4, 5e-5, 2.5e-5])
    nafnet = paper["nafnet"]
    assert (nafnet.optimizer.weight_decay, nafnet.optimizer.betas) == (1e-3, (0.9, 0.9))
    assert [rate(nafnet, s) for s in (0, 200_000, 400_000)] == pytest.approx([1e-3, (1e-3 + 1e-7) / 2, 1e-7])
    restormer = paper["restormer"]
    assert [rate(restormer, s) for s in (0, 92_000, 196_000, 300_000)] == pytest.approx(
        [3e-4, 3e-4, (3e-4 + 1e-6) / 2, 1e-6]
    )
    assert restormer.stage_starts == [0, 92_000, 156_000, 204_000, 240_000, 276_000]
    assert [(s.crop, s.batch) for s in restormer.stages] == [
        (128, 32),
        (160, 20),
        (192, 16),
        (256, 8),
        (320, 4),
        (384, 4),
    ]
    assert restormer.stage_at(91_999).crop == 128
    assert restormer.stage_at(92_000).crop == 160
    assert restormer.pairs_before(92_001) == 92_000 * 32 + 20
    assert {f"{name}-small" for name in paper} <= set(recipe_names())


def test_warm_up() -> None:
    config = settings(steps=100, optimizer={"rate": 1.0}, schedule={"kind": "constant", "warmup": 0.1})
    assert [rate(config, s) for s in (0, 4, 9, 10, 99)] == pytest.approx([0.1, 0.5, 1.0, 1.0, 1.0])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"stepps": 3}, ["unknown key 'stepps'", "'steps'"]),
        ({"optimizer": {"lr": 1}}, ["unknown key 'optimizer.lr'", "known are kind, rate"]),
        ({"validation": {"evry": 1}}, ["validation.evry", "'every'"]),
        ({"progressive": [{"start": 0.0, "crops": 8, "batch": 1}]}, ["progressive.0.crops", "'crop'"]),
        ({"workers": 3}, ["unknown key 'workers'", "data.workers"]),
        ({"steps": 0}, ["steps", "(it is 0)"]),
        ({"compute": {"precision": "fp8"}}, ["compute.precision", "'bf16'", "'fp8'"]),
        ({"schedule": {"kind": "steps"}}, ["schedule", "0 milestones"]),
        ({"schedule": {"kind": "steps", "milestones": [0.6, 0.4], "factors": [1, 2]}}, ["ascending"]),
        ({"schedule": {"milestones": [0.6], "factors": []}}, ["1 milestones and 0 factors"]),
        ({"progressive": [{"start": 0.5, "crop": 8, "batch": 1}]}, ["progressive", "expected 0 first"]),
        ({"batch": 5, "accumulate": 2}, ["batch of 5", "2 equal parts"]),
        ({"curriculum": [{"start": 0.0, "blur_px": [0, 2]}]}, ["curriculum", "synthesis"]),
        ({"data": {"folders": ["a"], "weights": [1, 2]}}, ["data", "2 weights for 1 folders"]),
        ({"data": {"kind": "synthesis", "cache": "memory"}}, ["data", 'cache = "no"']),
        ({"optimizer": {"betas": [0.9, 1.0]}}, ["optimizer", "betas"]),
        (
            {"schedule": {"kind": "steps", "milestones": [0.5], "factors": [1], "reload_best": True}},
            ["reload_best needs validation.every"],
        ),
    ],
)
def test_what_is_refused_names_the_key(changes: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        settings(**changes)
    assert all(word in str(caught.value) for word in words), str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_builds_on_a_recipe(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(
        'recipe = "nafnet-small"\nsteps = 77\n[data]\nfolders = ["pairs", "s3://b/p"]\n[optimizer]\nrate = 0.5\n'
    )
    config = TrainConfig.from_toml(file, ["optimizer.betas=[0.5, 0.6]", "name=a = b", "model.overrides.width=8"])
    assert (config.steps, config.optimizer.rate, config.optimizer.betas) == (77, 0.5, (0.5, 0.6))
    assert (config.name, config.model.overrides, config.model.size) == ("a = b", {"width": 8}, "small")
    assert config.optimizer.weight_decay == 1e-3, "the recipe's"
    assert config.data.folders == (str(tmp_path / "pairs"), "s3://b/p")
    with pytest.raises(ConfigError, match="'steps 5': expected KEY=VALUE"):
        TrainConfig.from_toml("nafnet", ["steps 5"])
    with pytest.raises(ConfigError, match=r"nowhere\.toml: cannot be read"):
        TrainConfig.from_toml(str(tmp_path / "nowhere.toml"))
    file.write_text("steps = ")
    with pytest.raises(ConfigError, match=r"mine\.toml: no TOML"):
        TrainConfig.from_toml(file)


def test_what_does_not_decide_the_weights_may_change() -> None:
    one = settings().decisive()
    assert settings(data={"workers": 3, "cache": "memory"}, save={"every": 7}, name="other").decisive() == one
    assert settings(seed=1).decisive() != one


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["train", "--list"]) == 0
    output = capsys.readouterr().out
    assert all(name in output for name in ("nrknet ", "nafnet-small", "300,000 steps"))
    file = tmp_path / "mine.toml"
    assert run(["train", "restormer", "--write", str(file)]) == 0
    assert TrainConfig.from_toml(file) == TrainConfig.from_toml("restormer")
    assert run(["train", "restormer", "--write", str(file)]) == 2
    assert "mine.toml: is there already" in capsys.readouterr().err
    assert run(["train", str(file), "--write", str(tmp_path / "other.toml")]) == 2
    assert "is a file, no recipe, and --write copies recipes" in capsys.readouterr().err
    assert run(["train", "restormer", "--write", str(tmp_path / "nowhere" / "other.toml")]) == 2
    assert "other.toml: cannot be written: there is no folder" in capsys.readouterr().err
    assert run(["train", str(file), "--check", "--set", "seed=9"]) == 0
    assert json.loads(capsys.readouterr().out)["seed"] == 9
    assert run(["train", "restormr", "--out", str(tmp_path)]) == 2
    assert "did you mean 'restormer'?" in capsys.readouterr().err
    assert run(["train", "nafnet"]) == 2
    assert "--out" in capsys.readouterr().err
    assert run(["train"]) == 2
    assert "--list" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (["model.name=nafnett"], "model 'nafnett': did you mean 'nafnet'?"),
        (["model.size=smal"], "size 'smal' of nafnet: did you mean 'small'?"),
        (["model.overrides.widht=8"], "unknown key 'widht': did you mean 'width'?"),
        (["loss.name=nrknet"], "the loss 'nrknet' is of nrknet alone"),
        (["loss.name=psrn"], "loss 'psrn': did you mean 'psnr'?"),
        (["loss.options.epsilom=1"], "unknown key 'epsilom': did you mean 'epsilon'?"),
        (["model.name=iniknet", "loss.name=iniknet", "loss.options.lpips=/nowhere/lpips.pt"], "/nowhere/lpips.pt"),
        (["model.name=iniknet", "loss.name=iniknet", "loss.options.lpips=5"], "lpips: Input is not a valid path"),
        (["data.kind=synthesis", "data.cache=no"], 'data: kind = "synthesis" takes a plan, no folders (nor --data)'),
    ],
)
def test_a_check_looks_at_network_loss_and_folders(
    changes: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [word for change in changes for word in ("--set", change)]
    assert run(["train", "nafnet-small", "--check", "--data", "pairs", *arguments]) == 2
    captured = capsys.readouterr()
    assert words in captured.err
    assert not captured.out


def test_a_check_without_weights_of_lpips(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """They may be on the machine that is to train: told, not refused."""

    def missing(*_: Any) -> Any:
        raise DefocusError("no LPIPS weights here")

    monkeypatch.setattr("defocus.restore.perceptual.Lpips.load", missing)
    assert run(["train", "iniknet", "--check"]) == 0
    captured = capsys.readouterr()
    assert "note: a training would stop here: the loss iniknet needs LPIPS: no LPIPS weights here" in captured.err
    assert json.loads(captured.out)["model"]["name"] == "iniknet"


def test_folders_in_place_of_those_of_the_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    two = settings(data={"folders": ["a", "b"], "weights": [1, 2]})
    with pytest.raises(ConfigError, match="data: 2 weights for 1 folders"):
        two.with_folders(["c"])
    assert two.with_folders([]) == two
    monkeypatch.chdir(tmp_path)
    (tmp_path / "inner").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "pairs")
    for name in ("pairs", "inner/../pairs", "./pairs", "link", tmp_path / "pairs"):
        assert settings().with_folders([name]).data.folders == (str(tmp_path / "pairs"),), name
    assert settings().with_folders(["s3://b/../p"]).data.folders == ("s3://b/../p",)
    changed = two.changed({"seed": 4, "validation": {"folders": ["inner/../v"]}})
    assert (changed.seed, changed.validation.folders) == (4, (str(tmp_path / "v"),))
    with pytest.raises(ConfigError, match="unknown key 'sed'"):
        two.changed({"sed": 4})


def test_the_window_of_means_is_the_largest_crop() -> None:
    """Unless another is asked for; 0 asks for none."""
    assert network_overrides(TrainConfig.from_toml("nafnet"))["local_pool_px"] == 384
    assert network_overrides(TrainConfig.from_toml("nafnet-small", ["crop=64"]))["local_pool_px"] == 96
    stages = [{"start": 0.0, "crop": 48, "batch": 4}, {"start": 0.5, "crop": 96, "batch": 2}]
    assert network_overrides(settings(progressive=stages))["local_pool_px"] == 144
    assert network_overrides(settings(crop=8))["local_pool_px"] == 16
    config = settings(crop=64, model={"overrides": {"local_pool_px": 32}})
    assert network_overrides(config)["local_pool_px"] == 32
    none = network_overrides(settings(model={"overrides": {"local_pool_px": 0}}))
    assert model_options("nafnet", **none).model_dump()["local_pool_px"] is None
    assert network_overrides(TrainConfig.from_toml("restormer")) == {}
