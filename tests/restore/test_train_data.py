"""The pairs of each step: a function of seed and step alone, the same from files, from caches and by loader workers."""

from __future__ import annotations

import json
import os
import pickle
import shutil
from collections import Counter
from importlib import resources
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from defocus.errors import ConfigError, DatasetError
from defocus.files.pair_folders import JSON_LINES, LEDGER
from defocus.restore.config import TrainConfig
from defocus.restore.data import OnTheFlyDataset, PairDataset
from defocus.restore.loader import Batches, BlurCurriculum, PairRequest, TrainLoader
from defocus.restore.validation import ValidationPairs
from defocus.synth.plan import make_plan

from ..synth.fake_folder import fake_folder
from .small_training import settings, write_pairs

CPU = torch.device("cpu")
SIZES = ((24, 28), (30, 20))


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_pairs(tmp_path_factory.mktemp("data") / "pairs", (7, 5), SIZES)


def batches_of(config: TrainConfig, first: int = 0) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return list(TrainLoader(config, CPU).batches(first))


def same(a: list[tuple[torch.Tensor, torch.Tensor]], b: list[tuple[torch.Tensor, torch.Tensor]]) -> bool:
    return len(a) == len(b) and all(
        torch.equal(x, y) for p, q in zip(a, b, strict=True) for x, y in zip(p, q, strict=True)
    )


def test_all_pairs_are_pairs_before_any_is_seen_again() -> None:
    progressive = [{"start": 0.0, "crop": 16, "batch": 6}, {"start": 0.5, "crop": 8, "batch": 3, "accumulate": 3}]
    config = settings(seed=4, steps=20, progressive=progressive)
    batches = Batches(config, [9])
    requests = [ask for step in range(20) for ask in batches.of_step(step)]
    assert len(requests) == 10 * 6 + 10 * 3 == config.pairs_before(20)
    for lap in range(10):
        assert [ask.epoch for ask in requests[9 * lap : 9 * lap + 9]] == [lap] * 9
        assert sorted(ask.number for ask in requests[9 * lap : 9 * lap + 9]) == list(range(9))
    assert len({tuple(ask.number for ask in requests[9 * lap : 9 * lap + 9]) for lap in range(10)}) == 10, "one order"
    # Asked for in any order, by a copy, by any number of processes and in parts: the same pairs.
    copy = pickle.loads(pickle.dumps(Batches(config, [9])))
    assert [copy.of_step(step) for step in (17, 3)] == [batches.of_step(step) for step in (17, 3)]
    shares = [batches.share(12, part, process, 1) for process in range(1) for part in range(3)]
    assert list(chain(*shares)) == batches.of_step(12)
    shares = [batches.share(3, 0, process, 3) for process in range(3)]
    assert [len(share) for share in shares] == [2, 2, 2]
    assert list(chain(*shares)) == batches.of_step(3)
    assert Batches(config.changed({"seed": 5}), [9]).of_step(0) != batches.of_step(0)


def test_folders_by_weight() -> None:
    even = settings(seed=1, steps=50, batch=6)
    weighted = even.changed({"data": {"folders": ["a", "b"], "weights": [1.0, 4.0]}})
    plain = Counter(ask.source for step in range(50) for ask in Batches(even, [8, 2]).of_step(step))
    assert plain == {0: 240, 1: 60}
    requests = [ask for step in range(50) for ask in Batches(weighted, [8, 2]).of_step(step)]
    assert Counter(ask.source for ask in requests) == {0: 60, 1: 240}
    for source, size in ((0, 8), (1, 2)):
        mine = [ask for ask in requests if ask.source == source]
        for first in range(0, len(mine) - size + 1, size):
            lap = mine[first : first + size]
            assert sorted(ask.number for ask in lap) == list(range(size))
            assert {ask.epoch for ask in lap} == {first // size}


def test_files_and_caches_give_the_same_batches(tmp_path: Path) -> None:
    folders = [str(write_pairs(tmp_path / name, (5, 2), SIZES, seed=seed)) for name, seed in (("a", 1), ("b", 2))]
    progressive = [{"start": 0.0, "crop": 16, "batch": 4}, {"start": 0.5, "crop": 20, "batch": 2, "accumulate": 2}]

    def config(cache: str) -> TrainConfig:
        data = {"folders": folders, "weights": [1.0, 2.0], "cache": cache}
        return settings(steps=8, progressive=progressive, data=data)

    read = batches_of(config("no"))
    assert [tuple(x.shape) for x, _ in read] == [(4, 3, 16, 16)] * 4 + [(1, 3, 20, 20)] * 8
    for cache in ("memory", "device"):
        assert same(batches_of(config(cache)), read), cache
        assert same(batches_of(config(cache), 5), read[6:]), "from the sixth step on"
    # They are what the files hold, somewhere, in one of eight ways.
    turns = [_placed(x, y, [PairDataset(folder) for folder in folders]) for x, y in read[:4]]
    assert [len(ways) for ways in turns] == [4, 4, 4, 4]
    assert len(set(chain(*turns))) >= 4


def _placed(x: torch.Tensor, y: torch.Tensor, sources: list[PairDataset]) -> list[tuple[bool, int]]:
    """How the crops of the sources' pictures that these are were turned: input and target alike."""
    turns = []
    items = [source[n] for source in sources for n in range(len(source))]
    windows = [[item[k].unfold(1, 16, 1).unfold(2, 16, 1) for k in ("input", "target")] for item in items]
    for one, other in zip(x, y, strict=True):
        for turned in (False, True):
            for quarters in range(4):
                a, b = (torch.rot90(z, quarters, (1, 2)) for z in (one, other))
                a, b = (a.transpose(1, 2), b.transpose(1, 2)) if turned else (a, b)
                for blurred, sharp in windows:
                    for top, left in (blurred == a[:, None, None]).all(4).all(3).all(0).nonzero().tolist():
                        assert torch.equal(sharp[:, top, left], b)
                        turns.append((turned, quarters))
    return turns


def test_pictures_of_16_bits(tmp_path: Path) -> None:
    """Beside a folder of 8, and beside some of 8 in one folder; the display values are those of the pictures."""
    shallow = write_pairs(tmp_path / "shallow", (3, 1), SIZES)
    deep = write_pairs(tmp_path / "deep", (3, 1), SIZES, bits=16, seed=6)
    for side in ("input", "target"):
        shutil.copy(shallow / "train" / side / "001.png", deep / "train" / side)
    folders = [str(shallow), str(deep)]
    plain, memory, device = (
        batches_of(settings(steps=3, data={"folders": folders, "cache": cache})) for cache in ("no", "memory", "device")
    )
    assert same(plain, memory)
    assert same(plain, device)
    sources = [PairDataset(folder) for folder in folders]
    assert all(_placed(x, y, sources) for batch in plain for x, y in [batch])
    assert any(len(torch.unique(x * 255 % 1)) > 100 for x, _ in plain), "16 bits became 8"


# torch warns of more workers than cores: slower than need be, not wrong.
@pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")
def test_loader_workers_change_nothing(pairs: Path) -> None:
    """None and two; from files, and from memory that they share."""
    plain = batches_of(settings(pairs, steps=5, accumulate=2))
    for workers, cache in ((0, "memory"), (2, "memory")):
        config = settings(pairs, steps=5, accumulate=2, data={"workers": workers, "cache": cache})
        assert same(batches_of(config, 1), plain[2:]), workers


def test_flips_only_or_nothing(pairs: Path) -> None:
    data = TrainLoader(settings(pairs, augment="flips"), CPU)
    views = {data.view(PairRequest(0, n, lap), (16, 16), 16)[4:] for n in range(7) for lap in range(6)}
    assert views == {(a, b, False) for a in (False, True) for b in (False, True)}
    data = TrainLoader(settings(pairs, augment="no"), CPU)
    assert {data.view(PairRequest(0, n, 0), (16, 16), 16)[4:] for n in range(7)} == {(False, False, False)}
    data = TrainLoader(settings(pairs), CPU)
    assert len({data.view(PairRequest(0, n, lap), (16, 16), 16)[4:] for n in range(7) for lap in range(9)}) == 8


def test_pair_dataset_turns(pairs: Path, tmp_path: Path) -> None:
    data, whole = PairDataset(pairs, augment=True, turn=True, crop=16), PairDataset(pairs)
    shapes = set()
    for epoch in range(16):
        data.set_epoch(epoch)
        item = data[2]
        ways = _placed(item["input"][None], item["target"][None], [whole])
        assert len(ways) == 1
        shapes |= set(ways)
    assert len(shapes) > 4
    eye = tmp_path / "dual" / "train"
    write_pairs(tmp_path / "dual", (1, 1))
    for side in ("left", "right"):
        (eye / side).mkdir()
        (eye / side / "000.png").write_bytes((eye / "input" / "000.png").read_bytes())
    with pytest.raises(DatasetError, match="cannot be turned by a quarter"):
        PairDataset(tmp_path / "dual", turn=True)


def test_what_is_wrong_with_data(pairs: Path, tmp_path: Path) -> None:
    for cache in ("no", "device"):
        with pytest.raises(DatasetError, match=r"/train/input/001\.png: 20×30 pixels do not hold a crop of 25: lower"):
            TrainLoader(settings(pairs, crop=25, data={"cache": cache}), CPU)
    with pytest.raises(ConfigError, match="--data FOLDER"):
        batches_of(settings())
    with pytest.raises(ConfigError, match=r"data\.plan"):
        batches_of(settings(data={"kind": "synthesis"}))
    with pytest.raises(ConfigError, match="batch of 4 pairs cannot be shared by 3 processes"):
        TrainLoader(settings(pairs), CPU, 0, 3)
    broken = write_pairs(tmp_path / "broken", (2, 1))
    (broken / "train" / "target" / "001.png").write_bytes(b"no picture")
    for cache in ("no", "memory"):
        with pytest.raises(DatasetError, match=r"train/target/001\.png: cannot be decoded"):
            TrainLoader(settings(broken, data={"cache": cache}), CPU)


def test_validation_pairs(pairs: Path) -> None:
    everything = ValidationPairs(settings(pairs))
    assert [request.number for request in everything.requests] == [0, 1, 2, 3, 4]
    some = ValidationPairs(settings(pairs, validation={"pairs": 2}, data={"cache": "memory"}))
    assert [request.number for request in some.requests] == [0, 2]
    assert some.pair(1) is some.pair(1), "kept"
    with pytest.raises(DatasetError, match=r"those to learn from: give validation\.folders"):
        ValidationPairs(settings(pairs / "train"))
    assert len(ValidationPairs(settings(pairs / "train", validation={"folders": [str(pairs)]}))) == 5
    assert len(ValidationPairs(settings(pairs, validation={"split": "train"}))) == 7
    with pytest.raises(DatasetError, match=r"no pairs of the split 'test'.*validation\.every = 0 does without"):
        ValidationPairs(settings(pairs, validation={"split": "test"}))
    whole = PairDataset(pairs, "validation").pictures(2)
    assert np.array_equal(some.pair(1)[0], whole["blurred"])
    assert np.array_equal(some.pair(1)[1], whole["sharp"])


def test_pairs_of_two_epochs_in_one_batch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Made on the way, a batch across the end of an epoch is made of both, each in one go."""
    calls: list[tuple[list[int], int]] = []

    class Fake:
        def __init__(self, plan: Any, split: str, length: int, **_: Any) -> None:
            self.length = length

        def name(self, number: int, epoch: int) -> str:
            return f"{number} of {epoch}"

        def identity(self) -> str:
            return "fake"

        def __len__(self) -> int:
            return self.length

        def batch(self, numbers: list[int], epoch: int) -> list[tuple[np.ndarray, np.ndarray]]:
            calls.append((numbers, epoch))
            pictures = [np.full((20, 20, 3), 10 * epoch + n, np.uint8) for n in numbers]
            return [(picture, picture + np.uint8(100)) for picture in pictures]

    monkeypatch.setattr("defocus.restore.loader.OnTheFlyDataset", Fake)
    plan = tmp_path / "plan.toml"
    plan.write_text("# every default\n")
    data = TrainLoader(settings(steps=5, batch=3, data={"kind": "synthesis", "length": 5, "plan": str(plan)}), CPU)
    values = []
    for step in range(5):
        blurred, sharp = data[step, 0]  # type: ignore[misc]
        assert torch.equal(sharp, blurred + 100)
        values += blurred[:, 0, 0, 0].tolist()
    assert [sorted(values[first : first + 5]) for first in (0, 5, 10)] == [
        [10 * e + n for n in range(5)] for e in range(3)
    ]
    assert [epoch for _, epoch in calls] == [0, 0, 1, 1, 1, 2, 2]
    assert data.names(1)[2] == f"{values[5] - 10} of 1"


def test_curriculum() -> None:
    lessons = [{"start": 0.0, "blur_px": [0, 2]}, {"start": 0.5, "blur_px": [2, 8]}, {"start": 0.8, "blur_px": [0, 32]}]
    config = settings(steps=100, batch=4, data={"kind": "synthesis", "length": 30}, curriculum=lessons)
    blur = BlurCurriculum.of(config)
    assert isinstance(blur, BlurCurriculum)
    # 400 pairs are 14 epochs; pair 200 is in the seventh, so the eighth is the first of the second lesson.
    assert blur.first_epochs == (0, 7, 11)
    blur = pickle.loads(pickle.dumps(blur))
    assert [blur(epoch).levels_px for epoch in (0, 6, 7, 10, 11, 50)] == [(2,), (2,), (2, 8), (2, 8), (32,), (32,)]
    assert [blur(epoch).weights for epoch in (0, 7)] == [(1,), (0, 1)]
    assert BlurCurriculum.of(settings()) is None
    with pytest.raises(ConfigError, match=r"starts at 0\.8 has no epoch of its own.*400 pairs; lower data\.length"):
        BlurCurriculum.of(
            settings(steps=100, batch=4, data={"kind": "synthesis", "length": 400}, curriculum=[lessons[0], lessons[2]])
        )


def test_all_pictures_are_looked_at_before_the_first_step(tmp_path: Path) -> None:
    """The head of each file, whatever the kind, and no more of it; in shards, too."""
    folder, reports = write_pairs(tmp_path / "pairs", (3, 2)), []
    TrainLoader(settings(folder), CPU, 0, 1, lambda *stage: reports.append(stage))
    assert reports == [("checking pictures", 3, 3)]
    target = folder / "train" / "target"
    whole = (target / "002.png").read_bytes()
    (target / "002.png").write_bytes(whole[:40])  # its head is right
    TrainLoader(settings(folder), CPU)
    (target / "002.png").write_bytes(whole[:20])
    with pytest.raises(DatasetError, match=r"/train/target/002\.png: cannot be decoded"):
        TrainLoader(settings(folder), CPU)
    (target / "002.png").unlink()
    picture = Image.fromarray(np.zeros((24, 30, 3), np.uint8))
    picture.save(target / "002.jpg", icc_profile=b"\0" * 100_000)  # its size stands behind the first 64 KiB
    with pytest.raises(DatasetError, match=r"target/002\.jpg: the blurred and the sharp.*28×24 and 30×24 pixels"):
        TrainLoader(settings(folder), CPU)
    for side in ("input", "target"):
        Image.new("RGB", (28, 10)).save(folder / "validation" / side / "001.png")
    with pytest.raises(DatasetError, match=r"/validation/input/001\.png: 28×10 .*the 11 pixels that SSIM needs"):
        ValidationPairs(settings(folder))
    assert len(ValidationPairs(settings(folder, validation={"pairs": 1}))) == 1, "that one is not asked for"

    shards = fake_folder(tmp_path / "shards", "webdataset")
    with pytest.raises(DatasetError, match=r"\.tar \(.*48×48 pixels .*crop of 49.*so it is with 6 of 6 pairs"):
        TrainLoader(settings(shards, crop=49), CPU)
    TrainLoader(settings(shards, crop=48), CPU)
    (tmp_path / "plan.toml").write_text("[patch]\nsize = 64\n")
    with pytest.raises(ConfigError, match=r"plan\.toml: pairs of 64×64 pixels do not hold a crop of 65"):
        TrainLoader(settings(crop=65, data={"kind": "synthesis", "plan": str(tmp_path / "plan.toml")}), CPU)


def test_other_pictures_under_the_same_names_are_other_pairs(tmp_path: Path) -> None:
    def identity(folder: Path) -> str:
        return TrainLoader(settings(folder), CPU).identity

    folder = write_pairs(tmp_path / "pairs", (3, 1))
    before = identity(folder)
    copy = shutil.copytree(folder, tmp_path / "copy", copy_function=shutil.copyfile)
    os.utime(copy / "train" / "input" / "000.png", (1.0, 1.0))
    assert identity(copy) == before, "wherever it is, whenever it was written"
    write_pairs(folder, (3, 1), seed=6)
    assert identity(folder) != before
    # Our own folders tell the sums of their pictures: sizes need not differ.
    for layout in ("dpdd", "webdataset"):
        ours = fake_folder(tmp_path / layout, layout)
        identity_of_ledger = identity(ours)
        (ours / LEDGER).unlink()
        assert identity(ours) == identity_of_ledger, "from the lines of JSON, too"
        lines = [json.loads(line) for line in (ours / JSON_LINES).read_text().splitlines()]
        lines[1]["files"]["sharp"]["sha256"] = "0" * 64
        (ours / JSON_LINES).write_text("".join(json.dumps(line) + "\n" for line in lines))
        assert identity(ours) != identity_of_ledger
        lines[0]["files"]["sharp"]["path"] = "../elsewhere.tar"
        (ours / JSON_LINES).write_text("".join(json.dumps(line) + "\n" for line in lines))
        with pytest.raises(DatasetError, match="not a path within"):
            PairDataset(ours)[0]


def test_other_photographs_or_lenses_of_a_plan_are_other_pairs(tmp_path: Path) -> None:
    """Folders of the same last name, and what is changed in place; where they lie does not count."""
    lens = (resources.files("defocus.lens") / "data" / "cooke-142-f8.json").read_text()
    photos, lenses = tmp_path / "here" / "photos", tmp_path / "here" / "lenses"
    for folder in (photos, lenses):
        folder.mkdir(parents=True)
    Image.fromarray(np.full((48, 72, 3), 90, np.uint8)).save(photos / "a.png")
    np.savez(photos / "a.npz", depth=np.full((48, 72), 2.0, np.float32))
    (lenses / "one.json").write_text(lens)
    alone = {"train": {"pairs": 4}, "validation": {"pairs": 0}, "test": {"pairs": 0}}

    def identity(place: Path) -> str:
        tables = {
            "sources": [{"kind": "rgb", "folder": place / "photos"}],
            "lenses": {"builtin": False, "folders": [place / "lenses"], "survey": False},
        }
        return OnTheFlyDataset(make_plan(tables | alone), "train", 5).identity()

    before = identity(tmp_path / "here")
    there = shutil.copytree(tmp_path / "here", tmp_path / "there", copy_function=shutil.copyfile)
    os.utime(there / "photos" / "a.png", (1.0, 1.0))
    assert identity(there) == before, "wherever it is, whenever it was written"
    photo = (there / "photos" / "a.png").read_bytes()
    Image.fromarray(np.tile(np.arange(72, dtype=np.uint8)[None, :, None], (48, 1, 3))).save(there / "photos" / "a.png")
    assert identity(there) != before
    (there / "photos" / "a.png").write_bytes(photo)
    assert identity(there) == before
    np.savez_compressed(there / "photos" / "a.npz", depth=np.full((48, 72), 3.0, np.float32))
    assert identity(there) != before
    shutil.copyfile(photos / "a.npz", there / "photos" / "a.npz")
    # A number of the lens; its file is as long as before.
    (there / "lenses" / "one.json").write_text(lens.replace("21.6", "21.7"))
    assert identity(there) != before
    # Trainings begun with scenes and built-in lenses go on as they were.
    plan = make_plan({"lenses": {"only": ["cooke-142-f8"], "survey": False}} | alone)
    assert OnTheFlyDataset(plan, "train", 5).identity() == f"{plan.fingerprint} 5"


def test_names_and_kinds_of_files(tmp_path: Path) -> None:
    folder = write_pairs(tmp_path / "pairs", (3, 1))
    for side in ("input", "target"):
        Image.new("RGB", (28, 24)).save(folder / "train" / side / "002.jpg")
        with pytest.raises(DatasetError, match=r"train/(input|target): 002\.jpg and 002\.png have the same name"):
            PairDataset(folder)
    others = tmp_path / "others"
    for side in ("input", "target"):
        (others / "train" / side).mkdir(parents=True)
        Image.new("RGB", (28, 24)).save(others / "train" / side / "a.tif")
    message = r"no pairs of the split 'train' here.*read end in \.png, \.jpg, \.jpeg \(here are 2 \.tif: convert"
    with pytest.raises(DatasetError, match=message):
        PairDataset(others)
