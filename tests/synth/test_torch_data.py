"""Pairs for PyTorch: the same items whoever loads them, from every layout, and made on the way."""

from __future__ import annotations

import json
import pickle
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import ConcatDataset, DataLoader

from defocus.errors import DatasetError, DefocusError, PhotoError
from defocus.files.randomness import seed_for
from defocus.restore.data import OnTheFlyDataset, PairDataset
from defocus.synth.on_demand import OnDemandPairs
from defocus.synth.plan import Blur, Plan, make_plan
from defocus.synth.sources import Sharp, SourceName, read_source

from .fake_folder import fake_folder

LAYOUTS = ("dpdd", "pairs", "webdataset")


def same(a: dict[str, Any], b: dict[str, Any]) -> bool:
    """Equal to the bit."""
    return a.keys() == b.keys() and all(
        torch.equal(a[key], b[key]) if isinstance(a[key], torch.Tensor) else a[key] == b[key] for key in a
    )


def decoded(path: Path) -> torch.Tensor:
    return torch.from_numpy(np.array(Image.open(path)).transpose(2, 0, 1).astype(np.float32) / np.float32(255))


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    base = tmp_path_factory.mktemp("layouts")
    return {layout: fake_folder(base / layout, layout) for layout in LAYOUTS}


@pytest.fixture(scope="module")
def on_the_fly() -> OnTheFlyDataset:
    """Of a plan with fewer candidates than pairs that are asked for."""
    from .conftest import TINY

    return OnTheFlyDataset(make_plan(TINY), "train", 12)


def test_layouts_hold_the_same_pairs(folders: dict[str, Path]) -> None:
    read = {layout: PairDataset(folder) for layout, folder in folders.items()}
    assert [len(data) for data in read.values()] == [6, 6, 6]
    for index in range(6):
        first = read["dpdd"][index]
        assert first["id"] == f"train-{3 * index:06d}"
        assert first["input"].shape == first["target"].shape == (3, 48, 48)
        assert first["input"].dtype == torch.float32
        assert torch.equal(first["input"], decoded(folders["dpdd"] / f"train_c/source/{3 * index:06d}.png"))
        assert torch.equal(first["target"], decoded(folders["dpdd"] / f"train_c/target/{3 * index:06d}.png"))
        assert all(same(first, read[layout][index]) for layout in LAYOUTS)
    assert len(PairDataset(folders["webdataset"], "validation")) == 2


# torch warns of more workers than cores: slower than need be, not wrong.
@pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")
def test_workers_and_order_change_nothing(folders: dict[str, Path], on_the_fly: OnTheFlyDataset) -> None:
    from_files = [PairDataset(folder, crop=32, augment=True, seed=5) for folder in folders.values()]
    parts = [*from_files, on_the_fly]
    data: ConcatDataset[dict[str, Any]] = ConcatDataset(parts)
    # 18 and 29 are made on the way, by the first of two workers: what that takes is loaded in one process.
    numbers = [18, 5, 29, 0, 12, 17, 6, 11]
    expected = {}
    for epoch in (0, 1):
        for part in parts:
            part.set_epoch(epoch)
        expected[epoch] = {n: data[n] for n in numbers}
    assert not any(same(expected[0][n], expected[1][n]) for n in numbers)
    assert same(expected[0][0], expected[0][6]), "crops depend on more than seed, epoch and number"
    for workers in (0, 2):
        options = {"multiprocessing_context": "spawn", "persistent_workers": True} if workers else {}
        loader = DataLoader(data, batch_size=None, sampler=numbers, num_workers=workers, **options)
        for epoch in (0, 1):
            for part in parts:
                part.set_epoch(epoch)  # which workers that are running must see
            for number, item in zip(numbers, loader, strict=True):
                assert same(item, expected[epoch][number]), (workers, epoch, number)
        del loader
    on_the_fly.set_epoch(0)


def test_made_on_the_way_as_in_a_folder(on_the_fly: OnTheFlyDataset, reference_folder: Path) -> None:
    on_the_fly.set_epoch(0)
    folder = PairDataset(reference_folder)
    records = [json.loads(line) for line in (reference_folder / "pairs.jsonl").read_text().splitlines()]
    for number in (0, 3, 5):
        assert records[number]["id"] == folder[number]["id"]
        assert same(on_the_fly[records[number]["index"]], folder[number])
    # A batch in one go, a number twice in it, and numbers beyond the candidates (9 of them).
    several = on_the_fly.__getitems__([2, 11, 2, 0])
    assert [item["id"] for item in several] == ["train-000002", "train-000011", "train-000002", "train-000000"]
    assert same(several[0], several[2])
    assert all(same(on_the_fly[index], item) for index, item in zip((2, 11), several, strict=False))
    assert not same(several[0] | {"id": ""}, several[1] | {"id": ""})
    with pytest.raises(IndexError):
        on_the_fly[12]


def test_plans_of_all_kinds(tiny_plan: dict[str, Any], on_the_fly: OnTheFlyDataset, tmp_path: Path) -> None:
    """A plan, its settings and its file are the same pairs; anything else is an error of ours."""
    file, tables = tmp_path / "plan.toml", {"": {"name": "tiny", "seed": 3}, "[sources]": tiny_plan["sources"][0]}
    tables |= {key: value for key, value in tiny_plan.items() if isinstance(value, dict)}
    file.write_text(
        "\n".join(
            "\n".join([f"[{name}]" if name else "", *(f"{key} = {json.dumps(v)}" for key, v in table.items())])
            for name, table in tables.items()
        )
    )
    for plan in (tiny_plan, file, str(file)):
        data = OnTheFlyDataset(plan, "train", 12)
        assert data.identity() == on_the_fly.identity()
        assert repr(data) == repr(on_the_fly)
    for wrong in (None, 3, tmp_path / "nowhere.toml", {"trian": {}}):
        with pytest.raises(DefocusError):
            OnTheFlyDataset(wrong, "train", 12)  # type: ignore[arg-type]
    assert "'train': 12 pairs" in repr(on_the_fly)


def test_seed_and_blur_of_pairs_made_on_the_way(tiny_plan: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    plan = make_plan(tiny_plan)
    usual, other = OnDemandPairs(plan, "train"), OnDemandPairs(plan, "train", seed=99)
    assert usual.sources == other.sources
    assert usual.lenses.keys() == other.lenses.keys()
    assert usual.pair(1).recipe.centre != other.pair(1).recipe.centre

    # A curriculum: the second epoch is blurred more than the first.
    levels = (Blur(levels_px=(0.5,), weights=(1.0,)), Blur(levels_px=(3.0, 9.0), weights=(0.0, 1.0)))
    curriculum = OnDemandPairs(plan, "train", blur=lambda epoch: levels[epoch])
    largest = [
        np.median([max(abs(v) for v in curriculum.pair(index, epoch).recipe.coc_px) for index in range(4)])
        for epoch in (0, 1)
    ]
    assert largest[0] < 0.5
    assert largest[1] > 2.0
    assert OnDemandPairs(plan, "train", blur=levels[0]).pair(2).recipe == curriculum.pair(2).recipe

    # A photograph that cannot be read is told once, and others take its place.
    holed = OnDemandPairs(plan, "train")
    lost = usual.pair(1).recipe.source

    def read(source: SourceName, plan: Plan) -> Sharp:
        if source.name == lost:
            raise PhotoError("cannot be read", file=lost)
        return read_source(source, plan)

    monkeypatch.setattr("defocus.synth.sources.read_source", read)
    with pytest.warns(UserWarning, match="left out: .*cannot be read"):
        substitute = holed.pair(1)
    assert substitute.recipe.source != lost
    assert holed.pair(1).recipe == substitute.recipe  # and told no more: warnings are errors here
    monkeypatch.undo()

    # Of a copy, too, and with a rejection on the way: lenses with almost no room for blur.
    strict = make_plan(tiny_plan | {"limits": {"coc_px": 0.4, "samples": 1e6}})
    maker = OnDemandPairs(strict, "train")
    copy = pickle.loads(pickle.dumps(maker))
    pairs = copy.pairs([*range(9)])
    rejected = [n for n, pair in enumerate(pairs) if pair.recipe.seed != seed_for(strict.seed, "train", n, "noise")]
    substitute, again = maker.pair(rejected[0]), pairs[rejected[0]]
    assert substitute.recipe == again.recipe
    assert np.array_equal(substitute.pictures["blurred"], again.pictures["blurred"])
    with pytest.raises(DatasetError, match="64 attempts failed, the last one: none of"):
        OnDemandPairs(make_plan(tiny_plan | {"limits": {"coc_px": 1e-6}}), "train").pair(0)
    with pytest.raises(DatasetError, match="no pairs of the split 'test'"):
        OnDemandPairs(make_plan(tiny_plan | {"test": {"pairs": 0}}), "test")


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_forked_worker_is_refused(on_the_fly: OnTheFlyDataset) -> None:
    loader = DataLoader(on_the_fly, num_workers=1, multiprocessing_context="fork")
    with pytest.raises(DefocusError, match='multiprocessing_context="spawn"'):
        next(iter(loader))


def test_crops_and_flips(folders: dict[str, Path]) -> None:
    whole = PairDataset(folders["dpdd"])
    cut = PairDataset(folders["dpdd"], crop=40, augment=True, seed=1)
    views = set()
    for epoch in range(12):
        cut.set_epoch(epoch)
        assert same(cut[2], cut[2])
        item, full = cut[2], whole[2]
        places = [
            (top, left, flips)
            for top in range(9)
            for left in range(9)
            for flips in ([], [2], [1], [1, 2])
            if torch.equal(item["input"], full["input"][:, top : top + 40, left : left + 40].flip(flips))
        ]
        ((top, left, flips),) = places
        assert torch.equal(item["target"], full["target"][:, top : top + 40, left : left + 40].flip(flips))
        views.add((top, left, tuple(flips)))
    assert len({place[:2] for place in views}) > 6
    assert len({place[2] for place in views}) == 4
    with pytest.raises(DatasetError, match="48×48 pixels do not hold a crop of 49"):
        PairDataset(folders["dpdd"], crop=49)[0]


@pytest.mark.parametrize("layout", ["dpdd", "webdataset"])
def test_views_of_the_half_pixels_change_places_in_a_mirror(layout: str, tmp_path: Path) -> None:
    folder = fake_folder(tmp_path / "pairs", layout, 16, (1, 1, 1), roles=("blurred", "sharp", "left", "right"))
    data = PairDataset(folder)
    item = data[0]
    assert item.keys() == {"input", "target", "left", "right", "id"}
    assert len(torch.unique(item["input"] * 255 % 1)) > 100, "16 bits became 8"
    ramp = np.broadcast_to(np.arange(4, dtype=np.uint8)[None, :, None], (4, 4, 3))
    for side, values in (("input", ramp), ("target", ramp), ("left", ramp * 0 + 1), ("right", ramp * 0 + 2)):
        (tmp_path / "foreign" / "train" / side).mkdir(parents=True)
        Image.fromarray(np.ascontiguousarray(values)).save(tmp_path / "foreign" / "train" / side / "0.png")
    mirroring = PairDataset(tmp_path / "foreign", augment=True)
    views = set()
    for epoch in range(12):
        mirroring.set_epoch(epoch)
        pictures = {key: (255 * mirroring[0][key]).round().int() for key in ("input", "left", "right")}
        mirrored = bool(pictures["input"][0, 0, 0] > pictures["input"][0, 0, 3])
        views.add((mirrored, int(pictures["left"][0, 0, 0]), int(pictures["right"][0, 0, 0])))
    assert views == {(False, 1, 2), (True, 2, 1)}


def test_foreign_folders(folders: dict[str, Path], tmp_path: Path) -> None:
    whole = PairDataset(folders["dpdd"])
    for layout in ("dpdd", "pairs"):
        foreign = tmp_path / layout
        shutil.copytree(folders[layout], foreign, ignore=shutil.ignore_patterns("*.sqlite*", "*.json*", "*.parquet"))
        for split in ("train", "validation", "test"):
            assert len(PairDataset(foreign, split)) == len(PairDataset(folders[layout], split))
        assert all(same(PairDataset(foreign)[n] | {"id": ""}, whole[n] | {"id": ""}) for n in range(6))
    # One split alone; DPDD's own names, which agree in their order only.
    alone = tmp_path / "dpdd" / "train_c"
    assert len(PairDataset(alone)) == 6
    for path in sorted((alone / "target").iterdir()):
        path.rename(path.with_name(f"P{path.name}"))
    assert same(PairDataset(alone)[4] | {"id": ""}, whole[4] | {"id": ""})
    (alone / "target" / "P000000.png").unlink()
    with pytest.raises(DatasetError, match=r"6 pictures, but 5"):
        PairDataset(alone)
    (tmp_path / "empty").mkdir()
    with pytest.raises(DatasetError, match="no pairs of the split 'train' here"):
        PairDataset(tmp_path / "empty")
    with pytest.raises(DatasetError, match="no such folder"):
        PairDataset(tmp_path / "nowhere")


def test_damage_is_named(folders: dict[str, Path], tmp_path: Path) -> None:
    shards = shutil.copytree(folders["webdataset"], tmp_path / "shards")
    data = PairDataset(shards)
    assert data[0]["id"] == "train-000000"
    shard = shards / "train" / "shard-000000.tar"
    shard.write_bytes(shard.read_bytes()[:2000])
    with pytest.raises(DatasetError, match=r"shard-000000\.tar.*ends within 000000\.blurred\.png"):
        data[0]
    with pytest.raises(DatasetError, match=r"shard-000000\.tar"):
        PairDataset(shards)[3]
    pairs = shutil.copytree(folders["pairs"], tmp_path / "pairs")
    Image.new("RGB", (20, 20)).save(pairs / "train" / "target" / "000003.png")
    with pytest.raises(DatasetError, match=r"target/000003\.png: .*48×48 and 20×20 pixels"):
        PairDataset(pairs)[1]


def test_without_torch_and_without_jax() -> None:
    """Without the one it says what to install; loader workers that read folders alone do without the other."""
    script = """
import sys
from defocus.errors import MissingExtraError

class NoTorch:
    def find_spec(self, name, *_):
        if name == "torch":
            raise ModuleNotFoundError("no torch here")

sys.meta_path.insert(0, NoTorch())
try:
    import defocus.restore.data
except MissingExtraError as error:
    print(error)
del sys.meta_path[0]
import defocus.restore.data
print("jax" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    expected = "PyTorch, for networks and their data, needs the extra [train]: pip install 'defocus[train]'"
    assert done.stdout.splitlines() == [expected, "False"]
