"""The four variants of a plan: the same patches, blurred in other ways, learnt from and judged alike."""

from __future__ import annotations

from collections import Counter
from copy import deepcopy
from pathlib import Path

import pytest
from PIL import Image

from defocus.cli import run
from defocus.cli.progress import ProgressBar, show_synthesis, show_training
from defocus.errors import ConfigError, DatasetError
from defocus.evaluate.ablation import (
    CURVES,
    DATA,
    VARIANTS,
    Ablation,
    AblationStudy,
    run_ablation,
    variant_plan,
    variants_of,
)
from defocus.evaluate.figures import draw_levels
from defocus.evaluate.results import PictureRecord, Results
from defocus.evaluate.table_file import Test
from defocus.files.ownership import OwnedFolder
from defocus.files.settings import settings_difference
from defocus.restore.data import PairDataset
from defocus.restore.training import TrainProgress
from defocus.synth import sources
from defocus.synth.engines.local import LocalEngine
from defocus.synth.plan import Plan, make_plan
from defocus.synth.run import Progress

from ..restore.small_training import settings
from ..synth.conftest import TINY


def small_plan() -> Plan:
    """Disks stand for lenses: nothing of optics is compiled."""
    counts = {
        "sources": [{"count": 3, "names": ["table", "letters"]}],
        "train": {"pairs": 3},
        "validation": {"pairs": 1},
        "test": {"pairs": 2},
    }
    levels = {"levels_px": [1, 3], "weights": [1, 1], "proposals": 8}
    return make_plan(deepcopy(TINY) | counts | {"psf": {"kind": "disk"}, "blur": levels})


READ: list[str] = []  # sources, each time that one was read for the fixture


@pytest.fixture(scope="module")
def ablation(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Ablation]:
    def counting(source: sources.SourceName, plan: Plan) -> sources.Sharp:
        READ.append(source.name)
        return read_source(source, plan)

    out = tmp_path_factory.mktemp("ablation")
    config = settings(steps=3, batch=2, validation={"every": 2, "images": 0})
    read_source = sources.read_source
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sources, "read_source", counting)
        return out, run_ablation(AblationStudy(small_plan(), config, out), LocalEngine(1))


def test_variants_change_one_thing() -> None:
    plan = small_plan()
    changed = {
        variant.name: [
            line
            for line in settings_difference(plan.as_json(), variant_plan(plan, variant).as_json())
            if not line.startswith(("name", "validation.pairs", "test.pairs"))
        ]
        for variant in variants_of(["gaussian", "no-isp", "single-depth", "paper"])
    }
    assert changed == {
        "full": [],
        "gaussian": ['psf.kind: "disk" -> "gaussian"'],
        "no-isp": ["sensor.isp: true -> false"],
        "single-depth": ['depth.mode: "layers" -> "single"', 'blur.counts: "rendered" -> "patch"'],
        "paper": ['psf.kind: "disk" -> "paper"'],
    }
    with pytest.raises(ConfigError, match="variant 'papr'; expected some of full, gaussian"):
        variants_of(["papr"])


def test_same_patches_blurred_in_other_ways(ablation: tuple[Path, Ablation]) -> None:
    out, made = ablation
    assert made.same == {"gaussian": (3, 3), "no-isp": (3, 3), "single-depth": (3, 3)}
    pairs = {v.name: list(PairDataset(out / DATA / v.name)) for v in VARIANTS}  # type: ignore[call-overload]
    for name in ("gaussian", "no-isp", "single-depth"):
        assert [p["id"] for p in pairs[name]] == [p["id"] for p in pairs["full"]]
        apart = [float((a["input"] - b["input"]).abs().mean()) for a, b in zip(pairs[name], pairs["full"], strict=True)]
        assert max(apart) > 1e-3, name
    for name in ("gaussian", "single-depth"):  # what a lens without blur would show is the same
        assert all(bool((a["target"] == b["target"]).all()) for a, b in zip(pairs[name], pairs["full"], strict=True))


def test_a_photograph_is_read_once_to_draw_and_to_make(ablation: tuple[Path, Ablation]) -> None:
    assert set(Counter(READ).values()) == {len(VARIANTS)}  # a run for each variant


def test_judged_alike(ablation: tuple[Path, Ablation]) -> None:
    out, made = ablation
    (test,) = made.results.table.tests
    assert [row.trained_on for row in made.results.table.rows] == ["", *(v.title for v in VARIANTS)]
    values = made.results.values(test.key, "psnr")
    assert len(values) == 5
    assert all(len(of_row) == 2 for of_row in values.values())
    weights = {row.weights.read_bytes() for row in made.results.table.rows if row.weights}
    assert len(weights) == 4
    text = made.report.read_text()
    assert "gaussian: 3 of 3" in text
    assert "| Gaussian PSFs |" in text
    assert (out / CURVES).stat().st_size > 10_000
    assert made.results.table.blur_levels_px == small_plan().blur.levels_px == (1.0, 3.0)


def test_pairs_that_could_not_be_made_are_told(ablation: tuple[Path, Ablation], tmp_path: Path) -> None:
    out, made = ablation
    more = make_plan(small_plan().as_json() | {"train": {"pairs": 5}})
    study = AblationStudy(more, settings(), out)
    assert study.missing_pairs(VARIANTS[0]) == ["full synthesis: 3 of 5 train pairs could be made"]
    assert made.missing == ()
    assert "Fewer pairs than the plan wants: so; many." in study.report(made.results, {}, ("so", "many"))
    sharp = make_plan(small_plan().as_json() | {"limits": {"coc_px": 1e-6}})  # that no lens keeps
    with pytest.raises(DatasetError, match=r"none of 3 train pairs could be made: none of \d+ lenses is safe"):
        AblationStudy(sharp, settings(), tmp_path).make_pairs(LocalEngine(1))
    assert not (tmp_path / DATA / "gaussian").exists()


def test_seeds_are_told_together_and_each(tmp_path: Path) -> None:
    """Full: 30 dB with both seeds; the others 1, 2, 3 dB less with seed 0, and 0.5 dB less than that with seed 1."""
    study = AblationStudy(small_plan(), settings(), tmp_path, seeds=(0, 1), metrics=("psnr",))
    table = study.table()
    (test,) = table.tests
    records = []
    for row in table.rows:
        place = next((n for n, v in enumerate(VARIANTS) if row.trained_on.startswith(v.title)), 10)
        less = place + 0.5 * (row.trained_on.endswith("seed 1") and place > 0)
        for picture in range(12):
            one = PictureRecord(
                test.key, row.key, f"{picture:02d}", 1.0 + picture % 2 * 2.0, {"psnr": 30.0 + picture - less}
            )
            if (picture, row.trained_on) != (11, "one depth, seed 1"):  # a picture that one of them does not have
                records.append(one)
    results = Results(table, tuple(records))
    together = study.over_seeds(results)
    assert [row.trained_on for row in together.table.rows] == ["", *(v.title for v in VARIANTS)]
    found = together.means(test.key, "psnr")
    assert [round(found[row.key].value, 9) for row in together.table.rows] == [25.0, 35.0, 33.75, 32.75, 31.75]
    assert {e.count for e in found.values()} == {11}
    text = study.report(results, {})
    assert "| nafnet (Gaussian PSFs) | −1.25 [−1.25, −1.25] |" in text
    assert "| Gaussian PSFs | 34.00 (−1.00) | 33.50 (−1.50) |" in text
    assert "| full synthesis | 35.00 | 35.00 |" in text
    draw_levels(together, test, OwnedFolder(tmp_path / "levels", "ablation"))
    assert (tmp_path / "levels" / f"{test.key}-psnr-by-blur.png").stat().st_size > 10_000


def test_what_would_not_be_fair_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = small_plan()
    untested = plan.model_copy(update={"test": plan.test.model_copy(update={"pairs": 0})})
    with pytest.raises(ConfigError, match=r"test\.pairs"):
        AblationStudy(untested, settings(), tmp_path).check()
    with pytest.raises(ConfigError, match="different numbers"):
        AblationStudy(plan, settings(), tmp_path, seeds=(1, 1)).check()
    file = tmp_path / "plan.toml"
    file.write_text('[psf]\nkind = "disk"\n')
    assert run(["ablate", str(file), "--out", str(tmp_path / "out"), "--seeds", "one"]) == 2
    assert "expected whole numbers" in capsys.readouterr().err


def test_what_fails_at_the_end_is_said_at_the_beginning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("DEFOCUS_NIQE", raising=False)
    monkeypatch.setattr("defocus.evaluate.ablation.AblationStudy.make_pairs", lambda *_: pytest.fail("work began"))
    (tmp_path / "plan.toml").write_text('[psf]\nkind = "disk"\n[train]\npairs = 3\n[test]\npairs = 2\n')
    lessons = "[[curriculum]]\nstart = 0.0\nblur_px = [0, 4]\n"
    (tmp_path / "lessons.toml").write_text(
        f'recipe = "nafnet-small"\n[data]\nkind = "synthesis"\nplan = "plan.toml"\ncache = "no"\n{lessons}'
    )
    (tmp_path / "photos").mkdir()
    Image.new("RGB", (40, 32)).save(tmp_path / "photos" / "a.png")
    out, photographs = tmp_path / "out", ["--photographs", str(tmp_path / "photos")]
    for arguments, message in (
        (["--metrics", "psnr,ssmi"], "'ssmi'; did you mean 'ssim'?"),
        (["--metrics", "psnr,niqe"], "the parameters of NIQE are not part of defocus"),
        (photographs, "real photographs has no truth, and every measure needs one; add niqe"),
        (["--photographs", str(tmp_path / "none")], "none: there is no such folder"),
        (["--train", str(tmp_path / "lessons.toml")], "leave out [[curriculum]]"),
        (["--set", "data.kind=synthesis", "--set", "data.cache=no"], 'leave out data.kind = "synthesis"'),
        (["--set", "model.overrides.widht=4"], "unknown key 'widht'"),
        (["--set", "loss.name=l3"], "loss 'l3'"),
        (["--set", "crop=4096"], "crops of 4096 pixels do not fit"),
    ):
        assert run(["ablate", str(tmp_path / "plan.toml"), "--out", str(out), *arguments]) == 2, arguments
        told = capsys.readouterr().err
        assert message in told
        assert told.count("\n") == 1
    assert not out.exists()
    out.mkdir()
    (out / "ablation.md").write_text("my own notes")
    assert run(["ablate", str(tmp_path / "plan.toml"), "--out", str(out), "--set", "crop=64"]) == 2
    assert "holds ablation.md and was not made for an ablation" in capsys.readouterr().err
    assert (out / "ablation.md").read_text() == "my own notes"


def test_the_report_tells_the_stages_and_progress_the_variant(
    ablation: tuple[Path, Ablation], capsys: pytest.CaptureFixture[str]
) -> None:
    text = ablation[1].report.read_text()
    assert "nafnet (paper), 3 steps of 2 crops of 16 pixels, seed 0." in text
    assert "\n\n## unseen lenses and scenes" in text
    stages = [{"start": 0.0, "crop": 16, "batch": 4}, {"start": 0.5, "crop": 24, "batch": 2}]
    study = AblationStudy(small_plan(), settings(progressive=stages, batch=99), ablation[0])
    made = study.report(ablation[1].results, {})
    assert "12 steps of 4 crops of 16 pixels, from 0.5 of them on 2 crops of 24 pixels, seed 0" in made
    bar = ProgressBar(counted=True)
    for name in ("full synthesis", "one depth"):
        show_training(bar, TrainProgress(3, "training", 1), name)
        show_synthesis(bar, Progress(stage="comparing with what is there"), name)
        show_synthesis(bar, Progress(stage="making pairs", done=1, planned=3), name)
    told = capsys.readouterr().err
    assert "full synthesis: training: 1 of 3" in told
    assert "one depth: training: 1 of 3" in told
    assert "one depth: comparing with what is there\none depth: making pairs: 1 of 3\n" in told


def test_nrknet_s_recipe_and_real_test_sets(tmp_path: Path) -> None:
    """A recipe that goes back to its best weights finds them on pairs of its own; real test sets are judged as well."""
    schedule = {"kind": "steps", "milestones": [0.5], "factors": [0.5], "reload_best": True}
    real = Test(kind="realdof", folder=str(tmp_path / "realdof"))
    study = AblationStudy(
        small_plan(), settings(schedule=schedule, validation={"every": 2}), tmp_path / "study", real_tests=[real]
    )
    for variant in VARIANTS:
        own = str(study.data_folder(variant).absolute())
        training = study.training(variant, 0)
        assert (training.data.folders, training.validation.folders) == ((own,), (own,))
    assert study.table().tests[1:] == (real,)
    with pytest.raises(DatasetError, match="there is no such folder"):
        study.check()
    assert run(["ablate", "plan.toml", "--out", str(tmp_path / "study"), "--test", "realdof"]) == 2
