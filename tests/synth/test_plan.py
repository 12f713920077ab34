"""Plans: the paper's settings by default, what is refused, and how it is said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.io import savemat

from defocus.cli import run
from defocus.errors import DatasetError, PlanError
from defocus.files.settings import settings_difference
from defocus.files.stores import open_store
from defocus.photo import encode
from defocus.synth.ledger import Ledger
from defocus.synth.lens_pool import LensPool
from defocus.synth.metadata import PairStatistics, card_text
from defocus.synth.pairs import plan_response
from defocus.synth.places import (
    absolute_places,
    apart_from_places,
    ledger_places,
    placeless,
    published_places,
    same_places,
    without_places,
)
from defocus.synth.plan import load_plan, make_plan
from defocus.synth.resume import Resumption
from defocus.synth.sources import find_sources


def message_of(settings: dict[str, Any]) -> str:
    with pytest.raises(PlanError) as caught:
        make_plan(settings)
    return str(caught.value)


def test_the_defaults_are_the_paper_s() -> None:
    plan = make_plan({})
    assert [plan.split(s).pairs for s in plan.splits] == [40_000, 1_000, 1_000]
    assert [plan.split(s).lens_fraction for s in plan.splits] == [0.6, 0.2, 0.2]
    assert [plan.split(s).augment for s in plan.splits] == [True, False, False]
    assert plan.candidates("train") == 60_000  # half as many again, of which two thirds are kept
    assert (plan.patch.size, plan.patch.kernel, plan.patch.photograph) == (384, 128, (1680, 1120))
    assert (plan.coc_limit_px, plan.limits.samples) == (32.0, 1536)
    assert (plan.depth.nearest_m, plan.depth.farthest_m) == (0.1, 250.0)
    assert (plan.focus.nearest_m, plan.focus.farthest_m, plan.focus.ends, plan.focus.cluster) == (0.2, 250.0, 0.6, 0.01)
    assert (plan.augment.rotation_deg, plan.augment.scale, plan.augment.exposure) == (180.0, (0.7, 1.4), (0.7, 1.4))
    assert (plan.psf.kind, plan.psf.bands, plan.psf.field_radius) == ("lens", "d", 0.7)
    assert (plan.sensor.noise, plan.sensor.saturation) == (1e-5, 4.0)
    assert (plan.lenses.max_na, plan.lenses.max_phase_range_waves, plan.lenses.max_axial_rms) == (0.6, 10.0, 0.01)


@pytest.mark.parametrize(
    ("settings", "key", "offer"),
    [
        ({"sead": 3}, "sead", "'seed'"),
        ({"trian": {"pairs": 3}}, "trian", "'train'"),
        ({"train": {"pair": 3}}, "train.pair", "'pairs'"),
        ({"patch": {"kernal": 64}}, "patch.kernal", "'kernel'"),
        ({"sources": [{}, {"foldr": "x"}]}, "sources.1.foldr", "'folder'"),
        ({"lenses": {"buildin": True}}, "lenses.buildin", "'builtin'"),
        ({"focus": {"nearest": 0.3}}, "focus.nearest", "'nearest_m'"),
        ({"kernel": 64}, "kernel", "patch.kernel"),  # right, but in another part
        ({"patch": {"bands": "d"}}, "patch.bands", "psf.bands"),
        ({"output": {"zzzz": 1}}, "output.zzzz", "known are layout, bits"),
        ({"labels": {"depht": True}}, "labels.depht", "'depth'"),
    ],
)
def test_a_typo_names_the_key_and_the_right_one(settings: dict[str, Any], key: str, offer: str) -> None:
    message = message_of(settings)
    assert f"unknown key '{key}'" in message
    assert offer in message
    assert "\n" not in message


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"seed": "three"}, ["seed", "integer", "'three'"]),
        ({"seed": -1}, ["seed", "-1"]),
        ({"train": {"pairs": 2.5}}, ["train.pairs", "2.5"]),
        ({"train": 7}, ["train", "7"]),
        ({"patch": {"kernel": 100}}, ["patch.kernel", "multiple of 32", "100"]),
        ({"patch": {"photograph": [640]}}, ["patch.photograph"]),
        ({"patch": {"photograph": [0, 0]}}, ["patch", "photograph = [0, 0]"]),
        ({"depth": {"nearest_m": 9, "farthest_m": 3}}, ["depth", "nearest_m = 9", "farthest_m = 3"]),
        ({"focus": {"farthest_m": float("inf")}}, ["focus.farthest_m", "finite"]),
        ({"sources": [{"kind": "raw", "folder": "x", "depth": "{name}.npz"}]}, ["sources.0", "{name}.npz", "{stem}"]),
        ({"sources": [{"kind": "raw", "folder": "x", "depth": "{stem:>9999999999}"}]}, ["sources.0", "{stem} and"]),
        ({"sources": [{"kind": "raw", "folder": "x", "depth": "{stem!r}{"}]}, ["sources.0", "{stem} and"]),
        ({"psf": {"kind": "disc"}}, ["psf.kind", "'disk'", "'disc'"]),
        ({"psf": {"kind": "paper", "exact": False}}, ["psf", "exact = false", "own samples"]),
        ({"output": {"bits": 12}}, ["output.bits", "12"]),
        ({"output": {"layout": "zip"}}, ["output.layout", "webdataset"]),
        ({"augment": {"scale": [1.4, 0.7]}}, ["augment", "scale = [1.4, 0.7]", "smaller first"]),
        ({"focus": {"nearest_m": 9, "farthest_m": 3}}, ["focus", "nearest_m = 9", "farthest_m = 3"]),
        ({"focus": {"cluster": 0.001}}, ["focus.cluster", "0.01"]),
        ({"blur": {"levels_px": [2, 8], "weights": [1]}}, ["blur", "2 levels_px and 1 weights"]),
        ({"blur": {"levels_px": [8, 2], "weights": [1, 1]}}, ["blur", "ascending"]),
        ({"sources": [{"kind": "raw"}]}, ["sources.0", 'kind = "raw" needs a folder']),
        ({"sources": [{"folder": "x"}]}, ["sources.0", "takes no folder"]),
        ({"labels": {"all_in_focus": True}}, ["labels", "every pair has it, as its target"]),
        ({"labels": {"focal_stack": 1}}, ["labels", "expected 2 or more"]),
        ({"labels": {"focal_stack": 2, "focal_stack_m": [1, 2]}}, ["labels", "give one of them"]),
        ({"labels": {"focal_stack_m": [2, 1]}}, ["labels", "ascending distances"]),
        ({"labels": {"focal_stack_m": [0.1, 1]}}, ["labels.focal_stack_m: 0.1 m", "focus.nearest_m = 0.2"]),
        ({"train": {"lens_fraction": 0.8}}, ["lens_fractions", "sum to 1.2"]),
        ({s: {"pairs": 0} for s in ("train", "validation", "test")}, ["no split has any pairs"]),
        ({"sensor": {"noise": "low"}, "seed": -4}, ["sensor.noise", "seed", "; "]),  # all that is wrong, at once
    ],
)
def test_wrong_values_are_named(settings: dict[str, Any], words: list[str]) -> None:
    message = message_of(settings)
    for word in words:
        assert word in message, message
    assert "\n" not in message
    assert "http" not in message  # no advertisement of the validator


def test_a_plan_without_labels_is_the_plan_that_it_was() -> None:
    """Its JSON, fingerprint and card say nothing of them, so that data sets of before are gone on with."""
    plain = make_plan({"labels": {"depth": False}})
    assert "labels" not in plain.as_json()
    assert plain.fingerprint == make_plan({}).fingerprint
    assert "Labels" not in card_text(plain, PairStatistics([]))
    labelled = make_plan({"labels": {"blur_radius": True, "focal_stack_m": [1, 2]}})
    assert labelled.fingerprint != plain.fingerprint
    assert make_plan(labelled.as_json()) == labelled
    assert "distortion" not in labelled.as_json()["labels"]  # nor of labels that came later
    assert make_plan({"labels": {"distortion": True}}).labels.roles == ("shift_x", "shift_y")
    assert settings_difference(plain.as_json(), labelled.as_json())[0].startswith("labels: null ->")
    card = card_text(labelled, PairStatistics([]))
    assert "positive beyond the focus" in card
    assert "`stack_00` to `stack_01`" in card
    assert "`depth` (TIFF" not in card


def test_a_split_keeps_its_other_defaults() -> None:
    plan = make_plan({"train": {"pairs": 5}, "test": {"pairs": 0}})
    assert (plan.train.augment, plan.train.lens_fraction) == (True, 0.6)
    assert plan.splits == ("train", "validation")


def test_equal_plans_have_equal_fingerprints() -> None:
    assert make_plan({}).fingerprint == make_plan({"seed": 0, "train": {"pairs": 40_000}}).fingerprint
    assert make_plan({}).fingerprint != make_plan({"seed": 1}).fingerprint
    old, new = make_plan({}).as_json(), make_plan({"seed": 1, "psf": {"bands": "rgb"}}).as_json()
    assert settings_difference(old, new) == ["seed: 0 -> 1", 'psf.bands: "d" -> "rgb"']


def test_folders_are_relative_to_the_plan(tmp_path: Path) -> None:
    file = tmp_path / "plan.toml"
    file.write_text('[[sources]]\nkind = "rgb"\nfolder = "photos"\n[lenses]\nfolders = ["more", "/abs"]\n')
    plan = load_plan(file)
    assert plan.sources[0].folder == tmp_path / "photos"
    assert plan.lenses.folders == (tmp_path / "more", Path("/abs"))


def test_files_that_are_no_plans(tmp_path: Path) -> None:
    for name, content, words in (
        ("a.toml", b"seed = ", "no TOML"),
        ("b.toml", b"seed = 3\nseed = 4\n", "no TOML"),
        ("c.toml", b"\xff\xfe\x00", "cannot be read"),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(PlanError, match=words) as caught:
            load_plan(tmp_path / name)
        assert str(caught.value).startswith(str(tmp_path / name))
    with pytest.raises(PlanError, match="No such file"):
        load_plan(tmp_path / "none.toml")


def test_init_writes_a_plan_that_is_one(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    file = tmp_path / "plan.toml"
    assert run(["synth", "init", str(file)]) == 0
    plan = load_plan(file)
    assert plan.sources[0].kind == "scenes"
    assert file.read_text().count("#") > 20  # commented
    before = file.read_bytes()
    assert run(["synth", "init", str(file)]) == 2
    assert "is there already" in capsys.readouterr().err
    assert file.read_bytes() == before
    assert run(["synth", "init", str(file), "--force"]) == 0


def dpdd_files(folder: Path, *names: str) -> None:
    for name in names:
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
        if file.suffix == ".CR2":
            file.with_suffix(".npz").touch()


def test_the_papers_plan_takes_dpdds_own_split(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """RAW files as they are downloaded, sharp and blurred ones together; names of the pictures tell the rest."""
    dpdd, file = tmp_path / "dpdd", tmp_path / "plan.toml"
    dpdd_files(dpdd, *(f"indoor/1P0A{number:04d}.CR2" for number in range(890, 902)))
    command = ["synth", "init", str(file), "--paper", "--dpdd", str(dpdd)]
    assert run(command) == 2
    assert "put the pictures (dd_dp_dataset_png) beside them" in capsys.readouterr().err
    sharp = {"train_c": (890, 893, 896, 899), "val_c": (891,), "test_c": (897,)}
    for part, numbers in sharp.items():
        dpdd_files(dpdd / "png" / part, *(f"target/1P0A{n:04d}.png" for n in numbers))
        dpdd_files(dpdd / "png" / part, *(f"source/1P0A{n + 1:04d}.png" for n in numbers))
    assert run(command) == 0
    plan = load_plan(file)
    assert (plan.psf.kind, plan.psf.bands, plan.patch.size, plan.patch.kernel) == ("paper", "d", 384, 128)
    assert [plan.split(s).pairs for s in plan.splits] == [40_000, 1_000, 1_000]
    assert plan.sources[0].split_folder == dpdd / "png"
    splits = dict(zip(plan.splits, sharp.values(), strict=True))
    for seed in (0, 1):
        found = find_sources(plan.model_copy(update={"seed": seed}))
        for split, numbers in splits.items():
            assert [source.name for source in found[split]] == [f"indoor/1P0A{n:04d}.CR2" for n in numbers]
    # Without the names of the pictures nothing keeps test scenes out of training: refused.
    source = {"kind": "raw", "folder": str(dpdd)}
    with pytest.raises(PlanError, match=r"indoor/1P0A0890\.CR2 is named as DPDD's RAW files are.*split_folder"):
        find_sources(make_plan({"sources": [source]}))
    # Sorted into folders they need no list; what else a plan has is divided by fractions.
    own = tmp_path / "sorted"
    dpdd_files(own, "train_c_target/1P0A0890.CR2", "val_c/target/1P0A0891.CR2", "val_c/source/1P0A0892.CR2")
    dpdd_files(own, "test_c_target/1P0A0897.CR2", *(f"mine/{k}.CR2" for k in range(10)))
    found = find_sources(make_plan({"sources": [source | {"folder": str(own)}]}))
    assert [len(found[split]) for split in ("train", "validation", "test")] == [1 + 7, 1 + 1, 1 + 2]
    for split, name in zip(found, ("train_c_target/", "val_c/target/", "test_c_target/"), strict=True):
        (own_name,) = (s.name for s in found[split] if "_c" in s.name)
        assert own_name.startswith(name)


def test_a_response_is_part_of_the_plan(tmp_path: Path) -> None:
    """RSBlur's file beside the plan: eight coefficients of a polynomial. The plan keeps the curve, not the file."""
    alpha = np.array([0.01, 4.0, -12.0, 24.0, -30.0, 22.0, -8.0, 1.01])
    savemat(tmp_path / "curve.mat", {"alpha": alpha[:, None]})
    (tmp_path / "plan.toml").write_text('[sensor]\nresponse = "curve.mat"\n')
    plan = load_plan(tmp_path / "plan.toml")
    (tmp_path / "curve.mat").unlink()
    light = np.linspace(0.02, 1.0, 200, dtype=np.float32)
    expected = np.clip(np.polynomial.polynomial.polyval(light, alpha), 0.0, 1.0)
    for same in (plan, make_plan(plan.as_json())):
        np.testing.assert_allclose(encode(light, plan_response(same)), np.maximum.accumulate(expected), atol=2e-3)
    assert plan.fingerprint != make_plan({}).fingerprint
    with pytest.raises(PlanError, match=r"sensor\.response.*curve\.mat"):
        load_plan(tmp_path / "plan.toml")


def test_a_folder_of_an_earlier_version_goes_on(tmp_path: Path) -> None:
    """What its plan could not say yet has its default; anything else is another plan, as ever."""
    plan, other = make_plan({"seed": 3}), make_plan({"seed": 3, "blur": {"counts": "patch"}})
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        older = plan.as_json()
        del older["blur"]["counts"], older["sensor"]
        ledger.put("plan", json.dumps(older))
        nothing = LensPool({}, (), {})
        Resumption(plan, open_store(tmp_path), ledger, False, print).begin({}, nothing)
        with pytest.raises(DatasetError, match=r'another plan \(blur\.counts: "rendered" -> "patch"\)'):
            Resumption(other, open_store(tmp_path), ledger, False, print).begin({}, nothing)


def test_places_of_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = tmp_path / "home" / "ann"
    monkeypatch.setenv("HOME", str(home))

    def plan(photos: Path, lenses: Path, depth: str = "{stem}.npz") -> dict[str, Any]:
        source = {"kind": "rgb", "folder": str(photos), "depth": depth}
        return make_plan({"sources": [source], "lenses": {"folders": [str(lenses)]}}).as_json()

    def places(settings: dict[str, Any]) -> tuple[str, str, str]:
        return settings["sources"][0]["folder"], settings["lenses"]["folders"][0], settings["sources"][0]["depth"]

    # In the user's home, and in that of another: only what lies below a folder of theirs is told, or nothing.
    out, theirs = home / "sets" / "out", tmp_path / "home" / "bob" / "lenses"
    settings = plan(home / "photos", theirs, str(home / "depth" / "{stem}.png"))
    assert places(published_places(settings, out)) == ("../../photos", "lenses", "{stem}.png")
    assert places(ledger_places(settings, out)) == ("../../photos", str(theirs), str(home / "depth" / "{stem}.png"))
    assert places(without_places(settings)) == ("photos", "lenses", "{stem}.png")
    assert places(published_places(settings, None)) == ("photos", "lenses", "{stem}.png")  # an address, no folder
    assert places(published_places(plan(Path("/photos"), out / "lenses"), out)) == ("photos", "lenses", "{stem}.npz")
    # What is kept is found again; after a move, beside the moved folder. Older versions kept whole paths.
    assert absolute_places(ledger_places(settings, out), out) == settings
    assert absolute_places(settings, out) == settings
    moved = absolute_places(ledger_places(settings, out), tmp_path / "disk" / "sets" / "out")
    assert moved["sources"][0]["folder"] == str(tmp_path / "disk" / "photos")
    assert same_places(settings, absolute_places(ledger_places(settings, out), out))
    assert not same_places(settings, moved)
    # Plans that differ in places alone are the same, whatever the folders are called; others are not.
    other = plan(tmp_path / "pictures", tmp_path / "glass", str(tmp_path / "maps" / "{stem}.png"))
    assert apart_from_places(settings) == apart_from_places(other)
    assert apart_from_places(settings) != apart_from_places(plan(home / "photos", theirs))
    one = make_plan(settings).fingerprint
    assert one == make_plan(moved).fingerprint
    assert one != make_plan(other).fingerprint
    names = f"{home}/photos/a/b.png: no picture, {home}/depth/b.png: no depth, {theirs}/x.json: no lens, /photos: none"
    assert placeless(names, settings) == "a/b.png: no picture, b.png: no depth, x.json: no lens, /photos: none"
    assert placeless("/x.png: no depth", plan(Path("photos"), theirs, "/{stem}.png")) == "/x.png: no depth"
    text = card_text(make_plan(settings), PairStatistics([]), sample=False)
    assert "`photos`" in text
    assert str(tmp_path) not in text


def test_public_names_and_what_a_plan_says_of_itself() -> None:
    import defocus.synth

    for name in defocus.synth.__all__:
        assert getattr(defocus.synth, name).__name__ == name
    assert (
        repr(make_plan({"name": "a", "test": {"pairs": 0}})) == "Plan('a', seed 0: 40000 train, 1000 validation pairs)"
    )
