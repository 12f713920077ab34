"""Training: killed and resumed it gives the same bits; parts, averages and scores are what they say."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from accelerate import PartialState
from PIL import Image
from scipy.ndimage import gaussian_filter
from skimage.metrics import peak_signal_noise_ratio, structural_similarity

from defocus.cli import run
from defocus.errors import ConfigError, DatasetError, DefocusError, OwnershipError, TrainingError, WeightsError
from defocus.restore import training as train_module
from defocus.restore.build import Average, lost_processes
from defocus.restore.config import TrainConfig
from defocus.restore.loader import TrainLoader
from defocus.restore.models import build_model
from defocus.restore.models.checkpoints import load_model
from defocus.restore.run_folder import read_state
from defocus.restore.similarity import batch_grey, batch_psnr, batch_ssim, ssim
from defocus.restore.training import TrainProgress, train
from defocus.restore.validation import ValidationPairs
from defocus.synth.bank import RUNGS, Bank

from .small_training import BASE, TINY, equal, rows, settings, weights, write_pairs


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_pairs(tmp_path_factory.mktemp("data") / "pairs", (7, 3))


KILLED = """
recipe = "nafnet-small"
steps = 40
batch = 4
accumulate = 2
crop = 16
[model]
overrides = { width = 4, encoder_blocks = [1], decoder_blocks = [1] }
[data]
folders = ["pairs"]
cache = "memory"
workers = 0
[validation]
every = 14
[save]
every = 10
[logs]
every = 4
"""


def test_a_killed_training_goes_on_to_the_bit(pairs: Path, tmp_path: Path) -> None:
    config = tmp_path / "config.toml"
    config.write_text(KILLED)
    shutil.copytree(pairs, tmp_path / "pairs")
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    assert run(["train", str(config), "--out", str(whole)]) == 0
    command = ["train", str(config), "--out", str(cut)]
    process = subprocess.Popen(
        [sys.executable, "-m", "defocus", *command], env=os.environ | {"OMP_NUM_THREADS": "1"}, stderr=subprocess.PIPE
    )
    # Until there are rows after a state, which must not be doubled.
    deadline = time.monotonic() + 120
    log = cut / "loss.csv"
    while time.monotonic() < deadline and process.poll() is None:
        if log.exists() and any(line.startswith(("24,", "28,")) for line in log.read_text().splitlines()):
            break
        time.sleep(0.002)
    process.kill()
    message = process.communicate()[1].decode()
    assert process.returncode == -9, message
    states = sorted(path.name for path in (cut / "states").iterdir())
    latest = read_state(cut / "states" / states[-1])["step"]
    assert 20 <= latest < 40
    assert int(rows(log)[-1]["step"]) > latest
    # What a kill while writing leaves, too.
    (cut / "states" / ".step-00000099.pt.0123456789ab.part").write_bytes(b"half a state")
    with log.open("a") as file:
        file.write("33,-1")
    (cut / "last.pt").unlink()

    assert run(command) == 0
    for name in ("loss.csv", "validation.csv"):
        assert (cut / name).read_bytes() == (whole / name).read_bytes(), name
    assert [row["step"] for row in rows(log)] == [str(n) for n in range(4, 41, 4)]
    for name in ("last.pt", "best.pt", "states/step-00000040.pt"):
        assert (cut / name).read_bytes() == (whole / name).read_bytes(), name
    state = read_state(cut / "states" / "step-00000040.pt")
    assert not equal(state["model"], state["average"])
    events = [json.loads(line) for line in (cut / "run.jsonl").read_text().splitlines()]
    assert [(e["event"], e["step"]) for e in events] == [("began", 0), ("resumed", latest), ("ended", 40)]
    # And what it learnt is of use: the average is kept, the file says what it is of.
    network = load_model(cut / "best.pt")
    assert network.name == "nafnet"
    assert equal(network.state_dict(), weights(cut / "best.pt"))
    assert not list((cut / "states").glob(".*"))


def test_a_training_from_a_bank_goes_on_to_the_bit(tmp_path: Path) -> None:
    """From the second step on as at once; another seed is not. What a bank cannot be used for is one line."""
    random = np.random.default_rng(2)
    room, kernel = 52, np.zeros((8, 8), np.float16)
    kernel[3:6, 3:6] = 1.0 / 9.0
    pixels = gaussian_filter(random.integers(0, 256, (room, room, 3)), (2, 2, 0)).astype(np.uint8)
    outlines, lamps = np.full((1, room, room), 255, np.uint8), np.zeros((1, room, room, 3), np.float16)
    psfs, coc = np.tile(kernel, (1, RUNGS, 3, 1, 1)), np.linspace(1.0, -1.0, RUNGS, dtype=np.float32)[None]
    places = np.array([[0, room, room]], np.int32)
    Bank(psfs, coc, pixels.reshape(-1, 3), places, outlines, lamps).save(tmp_path / "bank", {})
    words: dict[str, Any] = {"data": {"kind": "bank"}, "batch": 2, "steps": 4, "save": {"every": 2}}
    folders = (tmp_path / "bank",)
    train(settings(**words), tmp_path / "whole", folders=folders)
    shutil.copytree(tmp_path / "whole", tmp_path / "cut")
    for name in ("states/step-00000004.pt", "last.pt"):
        (tmp_path / "cut" / name).unlink()
    train(settings(**words), tmp_path / "cut", folders=folders)
    train(settings(**words, seed=5), tmp_path / "other", folders=folders)
    whole, cut, other = (weights(tmp_path / name / "last.pt") for name in ("whole", "cut", "other"))
    assert equal(whole, cut)
    assert not equal(whole, other)
    with pytest.raises(ConfigError, match=r"\"bank\" is for one process, not for 2: launch one"):
        TrainLoader(settings(*folders, **words), torch.device("cpu"), 1, 2)
    with pytest.raises(ConfigError, match=r"needs the folder of a bank"):
        train(settings(**words), tmp_path / "none")
    with pytest.raises(DatasetError, match="no bank of PSFs"):
        train(settings(**words), tmp_path / "empty", folders=(tmp_path,))
    settings(data={"kind": "bank", "cache": "device"})  # as small recipes have it
    for wrong in ({"cache": "memory"}, {"folders": ["a", "b"]}):
        with pytest.raises(ConfigError, match=r'one folder, and is on the device: expected cache = "no" or "device"'):
            settings(data={"kind": "bank", **wrong})


def test_changes_are_refused_until_they_are_accepted(pairs: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    first = train(settings(pairs, save={"every": 5}), out)
    with pytest.raises(
        WeightsError, match=rf"step-00000012\.pt: is a training's state.*take best\.pt or last\.pt of {out}"
    ):
        load_model(out / "states" / "step-00000012.pt")
    again = train(settings(pairs, save={"every": 3}, data={"cache": "memory"}), out)
    assert equal(weights(first.last), weights(again.last))
    with pytest.raises(
        TrainingError, match=r"begun otherwise: steps: 12 -> 15; optimizer.rate: 0.003 -> 0.001.*--anew"
    ):
        train(settings(pairs, steps=15, optimizer={"rate": 1e-3}), out)
    train(settings(pairs, steps=15), out, accept_changes=True)
    assert [row["step"] for row in rows(out / "loss.csv")] == [str(n) for n in range(1, 16)]
    config_before = (out / "config.json").read_bytes()
    with pytest.raises(
        TrainingError, match=r"has 15 steps already; .* ask for 12: raise steps to 15 or more, use --anew"
    ):
        train(settings(pairs), out, accept_changes=True)
    with pytest.raises(TrainingError, match=r"is another network than the settings ask for; --anew"):
        train(settings(pairs, steps=15, model={"overrides": {"width": 6}}), out, accept_changes=True)
    assert (out / "config.json").read_bytes() == config_before, "what was refused left no trace"
    more = shutil.copytree(pairs, tmp_path / "more")
    for side in ("input", "target"):
        shutil.copy(more / "train" / side / "000.png", more / "train" / side / "007.png")
    with pytest.raises(TrainingError, match=r"data.folders.*the pairs of the data are others"):
        train(settings(steps=15), out, folders=(more,))
    train(settings(steps=15), out, folders=(pairs / "train" / "..",))
    (out / "notes.txt").write_text("mine")
    anew = train(settings(pairs), out, anew=True)
    assert equal(weights(anew.last), weights(train(settings(pairs), tmp_path / "other").last))
    assert sorted(path.name for path in (out / "states").iterdir()) == ["step-00000012.pt"]
    assert (out / "notes.txt").read_text() == "mine"
    (out / "states" / "step-00000012.pt").write_bytes(b"PK no state")
    with pytest.raises(OwnershipError, match=r"step-00000012\.pt: was not made by this program, or was changed since"):
        train(settings(pairs), out)


def test_what_cannot_begin_anew_removes_nothing(pairs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "run"
    train(settings(pairs, steps=2), out)
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    monkeypatch.setitem(sys.modules, "tensorboardX", None)  # as if it were not installed
    for wrong in (
        settings(tmp_path / "nowhere"),
        settings(pairs, crop=64),
        settings(pairs, model={"name": "nafnett"}),
        settings(pairs, loss={"options": {"epsilom": 1}}),
        settings(pairs, logs={"kinds": ["tensorboard"]}),
        settings(pairs, validation={"every": 1, "split": "test"}),
    ):
        with pytest.raises(DefocusError):
            train(wrong, out, anew=True)
        assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before


def test_other_pairs_to_validate_with_begin_the_best_anew(pairs: Path, tmp_path: Path) -> None:
    out, easy = tmp_path / "run", tmp_path / "easy"
    slow = {"rate": 1e-7}
    for side in ("input", "target"):  # pairs that need no restoration: scores that the others do not reach
        shutil.copytree(pairs / "validation" / "target", easy / "validation" / side)
    here = {"every": 1, "images": 0, "folders": [str(easy)]}
    first = train(settings(pairs, optimizer=slow, steps=2, validation=here), out)
    changed = {"every": 1, "images": 0, "folders": [str(pairs)]}
    with pytest.raises(TrainingError, match=r"validation\.folders.*the pairs to validate with are others"):
        train(settings(pairs, optimizer=slow, steps=4, validation=changed), out)
    again = train(settings(pairs, optimizer=slow, steps=4, validation=changed), out, accept_changes=True)
    assert [row["step"] for row in again.history] == [3, 4]
    assert max(row["psnr"] for row in again.history) < min(row["psnr"] for row in first.history)
    best = max(again.history, key=lambda row: row["psnr"])
    assert equal(weights(again.best), read_state(out / "states" / f"step-{best['step']:08.0f}.pt")["model"])
    # The same pairs under another name, and a pause of validation, leave the best where it is.
    pause = {"every": 0, "folders": []}
    train(settings(pairs, optimizer=slow, steps=5, validation=pause), out, accept_changes=True)
    copy = shutil.copytree(pairs, tmp_path / "copy")
    same = train(
        settings(pairs, optimizer=slow, steps=5, validation=changed | {"folders": [str(copy)]}),
        out,
        accept_changes=True,
    )
    assert same.history == again.history


def test_folders_that_are_no_place_for_a_training(pairs: Path, tmp_path: Path) -> None:
    with pytest.raises(OwnershipError, match="holds train, validation and was not made for a training"):
        train(settings(pairs), pairs)
    from filelock import FileLock

    (tmp_path / "busy").mkdir()
    with FileLock(tmp_path / "busy" / ".lock"), pytest.raises(OwnershipError, match="another process is at work"):
        train(settings(pairs), tmp_path / "busy")
    (tmp_path / "file").write_text("")
    with pytest.raises(DefocusError, match="file: "):
        train(settings(pairs), tmp_path / "file")


def tree(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != ".lock"}


def test_nobody_s_files_are_replaced_or_removed(
    pairs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A folder that only looks like one of a training; in one of ours, files in the way of ours, and beside them."""
    foreign, out = tmp_path / "foreign", tmp_path / "run"
    (foreign / "pictures").mkdir(parents=True)
    for name in ("config.json", "best.pt", "loss.csv", "pictures/wedding.jpg"):
        (foreign / name).write_text(f"{{}} {name} of the user")
    before = tree(foreign)
    for anew in (False, True):
        with pytest.raises(
            OwnershipError, match=r"holds best\.pt, config\.json, loss\.csv and 1 more and was not made for"
        ):
            train(settings(pairs, steps=2), foreign, anew=anew)
        assert tree(foreign) == before
    config = settings(pairs, steps=2, validation={"every": 2, "images": 1})
    train(config, out)
    (out / "pictures" / "wedding.jpg").write_text("mine")
    for name in ("config.json", "best.pt", "last.pt", "loss.csv", "run.jsonl", "pictures/step-00000002.png"):
        own = (out / name).read_bytes()
        (out / name).write_bytes(b"the user's" + own)
        before = tree(out)
        for anew in (False, True):
            with pytest.raises(OwnershipError, match=f"{name}: was not made by this program, or was changed since"):
                train(config, out, anew=anew)
            assert tree(out) == before, name
        (out / name).write_bytes(own)
    with (out / "run.jsonl").open("a") as file:
        file.write('{"event": "cut by a ki')
    train(config, out)
    assert [json.loads(line)["event"] for line in (out / "run.jsonl").read_text().splitlines()[:2]] == [
        "began",
        "ended",
    ]
    (tmp_path / "config.json").write_text(json.dumps(config.as_json()))
    (tmp_path / "same.toml").write_text('recipe = "nafnet-small"\nsteps = 1')
    assert run(["train", str(tmp_path / "same.toml"), "--out", str(out), "--anew", "--data", str(tmp_path)]) == 2
    message = capsys.readouterr().err
    assert "--anew removes 8 files that a training made" in message
    assert "it leaves pictures/wedding.jpg" in message
    before = tree(out)
    train(config, out, anew=True)
    assert tree(out).keys() == before.keys()
    assert (out / "pictures" / "wedding.jpg").read_text() == "mine"


def test_no_finite_numbers(pairs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = settings(pairs, save={"every": 4}, logs={"every": 50}, batch=2)
    build = train_module.build_loss

    def breaking(name: str, **options: Any) -> Any:
        inner, calls = build(name, **options), []

        def loss(model: Any, image: torch.Tensor, target: torch.Tensor) -> Any:
            calls.append(1)
            return inner(model, image * (float("nan") if len(calls) == 6 else 1.0), target)

        return loss

    monkeypatch.setattr(train_module, "build_loss", breaking)
    out = tmp_path / "run"
    with pytest.raises(
        TrainingError,
        match=r"step 6 gave no finite numbers \(loss nan.*pairs were train/input/00\d, train/input/00\d\.",
    ):
        train(config, out)
    assert [path.name for path in (out / "states").iterdir()] == ["step-00000004.pt"]
    assert all(bool(x.isfinite().all()) for x in weights(out / "last.pt").values())
    monkeypatch.setattr(train_module, "build_loss", build)
    mended = train(config, out)
    assert equal(weights(mended.last), weights(train(config, tmp_path / "other").last))

    # Weights that broke in the very step that is saved.
    monkeypatch.setattr(
        torch.optim.AdamW, "step", lambda self, *_: self.param_groups[0]["params"][0].data.fill_(float("inf"))
    )
    with pytest.raises(TrainingError, match="step 1 gave no finite numbers"):
        train(settings(pairs, save={"every": 1}), tmp_path / "third")
    assert not (tmp_path / "third" / "last.pt").exists()


def test_no_memory(pairs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(train_module, "build_loss", lambda *_, **__: full)
    with pytest.raises(TrainingError, match=r"step 1, with 2 crops of 16 pixels at once: raise accumulate from 2 to 4"):
        train(settings(pairs, accumulate=2), tmp_path / "run")


def test_parts_of_a_batch_add_up(pairs: Path, tmp_path: Path) -> None:
    plain = {
        "steps": 4,
        "model": {"name": "nafnet"},
        "loss": {"name": "mse"},
        "optimizer": {"kind": "adam", "rate": 1e-3},
    }
    whole = train(settings(pairs, **plain), tmp_path / "whole")
    parts = train(settings(pairs, accumulate=4, **plain), tmp_path / "parts")
    for one, other in zip(weights(whole.last).values(), weights(parts.last).values(), strict=True):
        torch.testing.assert_close(one, other, atol=2e-6, rtol=2e-5)
    losses = [[float(row["loss"]) for row in rows(tmp_path / name / "loss.csv")] for name in ("whole", "parts")]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    clipped = train(settings(pairs, clip_norm=1e-9, **plain), tmp_path / "clipped")
    norms = [float(row["gradient_norm"]) for row in rows(tmp_path / "whole" / "loss.csv")]
    assert min(norms) > 1e-4, "before it is clipped"
    torch.manual_seed(0)
    start = build_model("nafnet", **settings().model.overrides).state_dict()
    distances = [sum(float((weights(r.last)[key] - start[key]).abs().sum()) for key in start) for r in (whole, clipped)]
    assert 0.0 < distances[1] < 0.2 * distances[0], "gradients below Adam's epsilon"


def test_a_process_that_is_lost_is_one_line() -> None:
    """What the others see of it: gloo's text, and torch's own kind of error; all else stays what it is."""
    gone = RuntimeError("[gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:15531")
    for error in (gone, torch.distributed.DistBackendError("NCCL error")):
        with pytest.raises(TrainingError, match="another process of this training ended"), lost_processes(2):
            raise error
    for count, other in ((1, gone), (2, RuntimeError("shapes cannot be multiplied"))):
        with pytest.raises(RuntimeError) as caught, lost_processes(count):
            raise other
        assert caught.value is other


def test_processes_that_do_not_know_of_each_other(pairs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    PartialState()  # is settled once in a process, here before there are many
    monkeypatch.setenv("WORLD_SIZE", "3")
    with pytest.raises(TrainingError, match=r"3 processes were started .* knows of 1"):
        train(settings(pairs), tmp_path / "run")


def test_two_processes_are_as_one(pairs: Path, tmp_path: Path) -> None:
    """As `accelerate launch` and torchrun start them, without GPUs: the same batches, and their mean gradient."""
    table = BASE | {"steps": 3, "loss": {"name": "mse"}, "validation": {"every": 3, "images": 1}, "accumulate": 1}
    config = settings(pairs, **table)
    alone = train(config, tmp_path / "alone")
    script = f"""
import json, torch
from defocus.restore.config import TrainConfig
from defocus.restore.training import train
torch.set_num_threads(1)
train(TrainConfig.model_validate(json.loads({json.dumps(config.as_json())!r})), {str(tmp_path / "both")!r})
"""
    import socket

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    common = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "CUDA_VISIBLE_DEVICES": ""}
    started = [
        subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", script],
            env=os.environ | common | {"RANK": str(rank), "LOCAL_RANK": str(rank), "OMP_NUM_THREADS": "1"},
            stderr=subprocess.PIPE,
        )
        for rank in range(2)
    ]
    for process in started:
        assert process.wait(120) == 0, process.communicate()[1].decode()
        process.communicate()
    for one, other in zip(weights(alone.last).values(), weights(tmp_path / "both" / "last.pt").values(), strict=True):
        torch.testing.assert_close(one, other, atol=2e-6, rtol=2e-5)
    for name in ("loss.csv", "validation.csv"):
        for one, other in zip(rows(tmp_path / "alone" / name), rows(tmp_path / "both" / name), strict=True):
            assert {k: float(v) for k, v in one.items()} == pytest.approx(
                {k: float(v) for k, v in other.items()}, rel=1e-3
            )


def test_progressive_crops_in_all_precisions(pairs: Path, tmp_path: Path) -> None:
    stages = [{"start": 0.0, "crop": 8, "batch": 6}, {"start": 0.5, "crop": 16, "batch": 2}]
    for number, compute in enumerate(({"precision": "bf16"}, {"channels_last": True})):
        train(settings(pairs, steps=4, progressive=stages, compute=compute), tmp_path / f"run{number}")
        sizes = [(row["batch"], row["crop"]) for row in rows(tmp_path / f"run{number}" / "loss.csv")]
        assert sizes == [("6", "8"), ("6", "8"), ("2", "16"), ("2", "16")]
    with pytest.raises(ConfigError, match=r"fp16.*needs a GPU"):
        train(settings(pairs, compute={"precision": "fp16"}), tmp_path / "half")


@pytest.mark.parametrize(("name", "precision"), [("nrknet", "bf16"), ("iniknet", "bf16"), ("restormer", "no")])
def test_the_other_networks_with_their_own_losses(name: str, precision: str, pairs: Path, tmp_path: Path) -> None:
    """Whose losses ask the network for more than a picture; two runs in one folder are one."""
    config = settings(
        pairs, steps=3, batch=2, ema=0.9, validation={"every": 3}, compute={"precision": precision}, save={"every": 2}
    )
    table = config.as_json() | {"model": {"name": name, "overrides": TINY[name]}}
    if name == "iniknet":
        table["loss"] = {"options": {"perceptual": 0.0}}
    config = TrainConfig.model_validate(table)
    result = train(config, tmp_path / "run")
    losses = [row["loss"] for row in rows(tmp_path / "run" / "loss.csv")]
    (tmp_path / "run" / "states" / "step-00000003.pt").unlink()
    again = train(config, tmp_path / "run")
    assert [row["loss"] for row in rows(tmp_path / "run" / "loss.csv")] == losses
    assert again.history == result.history
    assert len(losses) == 3


def test_the_average_of_the_weights() -> None:
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Conv2d(3, 2, 1), torch.nn.BatchNorm2d(2))
    average = Average(network, 0.9)
    expected = network[0].weight.detach().clone()
    for step in range(200):
        with torch.no_grad():
            network[0].weight.add_(0.01)
            network[1].running_mean.add_(1.0)
        average.update(step)
        decay = min(0.9, (1 + step) / (10 + step))
        expected = decay * expected + (1 - decay) * network[0].weight.detach()
    torch.testing.assert_close(average.network[0].weight, expected)
    # Of a steady climb by 0.01 the average lags by 0.01·d/(1 − d).
    torch.testing.assert_close(
        network[0].weight - average.network[0].weight, torch.full((2, 3, 1, 1), 0.09), atol=1e-5, rtol=0
    )
    assert torch.equal(average.refreshed(network)[1].running_mean, network[1].running_mean)
    plain = Average(network, 0.0)
    with torch.no_grad():
        network[0].weight.mul_(2.0)
    plain.update(0)
    assert torch.equal(plain.refreshed(network)[0].weight, network[0].weight)


def test_scores_are_scikit_image_s() -> None:
    rng = np.random.default_rng(2)
    sharp = rng.random((2, 40, 31, 3)).astype(np.float32) * np.array([1.0, 0.1])[:, None, None, None]
    other = np.clip(sharp + 0.1 * rng.standard_normal(sharp.shape), 0, 1).astype(np.float32)
    a, b = (torch.from_numpy(x.astype(np.float32)).permute(0, 3, 1, 2) for x in (sharp, other))
    for n in range(2):
        assert batch_psnr(a, b)[n].item() == pytest.approx(
            peak_signal_noise_ratio(sharp[n], other[n], data_range=1), abs=1e-4
        )
        reference = structural_similarity(
            sharp[n],
            other[n],
            data_range=1,
            channel_axis=2,
            gaussian_weights=True,
            sigma=1.5,
            use_sample_covariance=False,
        )
        assert batch_ssim(a, b)[n].item() == pytest.approx(reference, abs=1e-5)
    assert batch_ssim(a, a).tolist() == pytest.approx([1.0, 1.0])
    for n in range(2):  # as `defocus evaluate` has it
        whole = [np.round(x[n].permute(1, 2, 0).double().numpy() * 255.0) / 255.0 for x in (a, b)]
        own = [torch.from_numpy(x.transpose(2, 0, 1)[None].astype(np.float32)) for x in whole]
        assert batch_ssim(*(batch_grey(x) for x in own)).item() == pytest.approx(ssim(*whole), abs=1e-5)
    assert batch_psnr(a, a).tolist() == [100.0, 100.0]
    with pytest.raises(DefocusError, match="11 pixels or more"):
        batch_ssim(a[..., :10], a[..., :10])


def test_validation_pictures_logs_and_progress(pairs: Path, tmp_path: Path) -> None:
    out, reports = tmp_path / "run", []

    def watch(progress: TrainProgress) -> None:
        reports.append((progress.stage, progress.step, progress.done, progress.seconds_left))

    config = settings(
        pairs, validation={"every": 6, "batch": 2, "images": 2}, data={"cache": "device"},
        logs={"kinds": ["csv", "tensorboard"], "every": 5},
    )  # fmt: skip
    result = train(config, out, progress=watch)
    assert [row["step"] for row in result.history] == [6, 12]
    assert [float(row["psnr"]) for row in rows(out / "validation.csv")] == pytest.approx(
        [r["psnr"] for r in result.history]
    )
    assert [row["step"] for row in rows(out / "loss.csv")] == ["5", "10", "12"]
    # The scores are those of the weights that were saved, on pictures of 8 bits.
    network = load_model(result.last)
    data, psnrs, input_psnrs = ValidationPairs(config), [], []
    for n in range(len(data)):
        blurred, sharp = data.pair(n)
        with torch.no_grad():
            restored = network(torch.from_numpy(blurred / np.float32(255)).permute(2, 0, 1)[None])[0]
        written = (restored.clamp(0, 1) * 255).round().byte().permute(1, 2, 0).numpy()
        psnrs.append(peak_signal_noise_ratio(sharp, written))
        input_psnrs.append(peak_signal_noise_ratio(sharp, blurred))
    assert result.history[-1]["psnr"] == pytest.approx(np.mean(psnrs), abs=1e-3)
    assert result.history[-1]["input_psnr"] == pytest.approx(np.mean(input_psnrs), abs=1e-3)
    # Two pairs, each as input, output, target.
    sheet = np.asarray(Image.open(out / "pictures" / "step-00000012.png"))
    assert sheet.shape == (2 * 24 + 2, 3 * 28 + 4, 3)
    assert np.array_equal(sheet[:24, :28], data.pair(0)[0])
    assert np.array_equal(sheet[26:, 60:], data.pair(1)[1])
    assert (sheet[24:26] == 255).all()
    assert len(list((out / "tensorboard").glob("events*"))) == 1
    assert ("decoding pairs", 0, 7, None) in reports
    steps = [step for stage, step, *_ in reports if stage == "training"]
    assert steps == sorted(steps)
    assert steps[-1] == 12
    assert {stage for stage, *_ in reports} == {"checking pictures", "decoding pairs", "training", "validating"}
    assert reports[-1][3] == 0.0
