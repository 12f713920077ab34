"""What is ours in a data set, and what is not: foreign files stay, lost pictures and lost ledgers are made again."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import fsspec
import pytest

from defocus.cli import run
from defocus.errors import DatasetError, OwnershipError
from defocus.files.ownership import MARK
from defocus.files.pair_folders import LEDGER
from defocus.files.stores import open_store
from defocus.synth.engines.local import LocalEngine
from defocus.synth.folder import ASIDE, TASKS, Lead, task_paths
from defocus.synth.ledger import Ledger
from defocus.synth.plan import Plan, make_plan
from defocus.synth.recipe import Outcome
from defocus.synth.resume import Resumption
from defocus.synth.run import Progress, RunSummary, run_plan
from defocus.synth.verify import verify_folder

from .conftest import TINY, contents, write_plan


@pytest.fixture
def data_set(reference_folder: Path, tmp_path: Path) -> Path:
    """A copy of the finished data set, to be damaged."""
    return Path(shutil.copytree(reference_folder, tmp_path / "pairs"))


def go_on(folder: Path | str, plan: Plan | None = None, **options: Any) -> RunSummary:
    return run_plan(plan or make_plan(TINY), folder, LocalEngine(1), **options)


def visible(folder: Path) -> dict[str, bytes]:
    return {path: data for path, data in contents(folder).items() if not path.startswith(".")}


def test_what_a_lost_worker_was_writing_is_removed(data_set: Path) -> None:
    """By the run that lost it, not by the next."""
    picture = next(data_set.glob("train_c/source/*.png"))
    picture.unlink()
    rest, engine = picture.with_name(f".{picture.name}.{12 * 'a'}.part"), LocalEngine(1)
    engine.losses = 1

    def watch(progress: Progress) -> None:
        if progress.stage == "making pairs":
            rest.touch()

    assert run_plan(make_plan(TINY), data_set, engine, watch=watch).complete
    assert picture.exists()
    assert not rest.exists()


# --- whose it is ---


def test_another_run_s_ledger_removes_nothing(data_set: Path, tmp_path: Path) -> None:
    foreign = tmp_path / "holiday" / "train_c" / "source" / "000001.png"
    foreign.parent.mkdir(parents=True)
    foreign.write_bytes(b"somebody else's")
    with pytest.raises(OwnershipError, match="holds train_c and was not made for a data set"):
        go_on(tmp_path / "holiday", ledger_file=data_set / LEDGER)
    with pytest.raises(DatasetError, match="this ledger is that of another data set"):
        go_on(tmp_path / "new", ledger_file=data_set / LEDGER)
    assert not (tmp_path / "new").exists()
    # A ledger of a version that knew no marks goes with the folder that it lies in, and with no other.
    (data_set / MARK).unlink()
    with sqlite3.connect(data_set / LEDGER) as db:
        db.execute("DELETE FROM facts WHERE key = 'folder'")
    db.close()
    for folder in ("holiday", "newer"):
        with pytest.raises((OwnershipError, DatasetError), match=r"another data set|was not made for"):
            go_on(tmp_path / folder, ledger_file=data_set / LEDGER)
    assert foreign.read_bytes() == b"somebody else's"
    assert not (tmp_path / "newer").exists()
    assert go_on(data_set).complete
    assert (data_set / MARK).exists()


def test_a_foreign_database_is_not_adopted(tmp_path: Path) -> None:
    folder = tmp_path / "app"
    folder.mkdir()
    with sqlite3.connect(folder / LEDGER) as db:
        db.execute("CREATE TABLE customers (name TEXT)")
    db.close()
    before = contents(folder) | {LEDGER: (folder / LEDGER).read_bytes()}
    with pytest.raises(OwnershipError, match=LEDGER):
        go_on(folder)
    with pytest.raises(DatasetError, match="no ledger of a data set: a database with customers"):
        go_on(tmp_path / "new", ledger_file=folder / LEDGER)
    assert contents(folder) | {LEDGER: (folder / LEDGER).read_bytes()} == before


def test_one_run_at_a_time(data_set: Path) -> None:
    with Ledger(data_set / LEDGER), pytest.raises(DatasetError, match="another run is at work here"):
        go_on(data_set)


def test_pictures_of_others_in_a_data_set_stay(data_set: Path) -> None:
    far, near = data_set / "train_c/source/123456.png", data_set / "train_c/source/000001.png"
    records = (data_set / "pairs.jsonl").read_text()
    near = next(p for n in range(9) if f'"train-{n:06d}"' not in records and (p := near.with_name(f"{n:06d}.png")))
    far.write_bytes(b"mine")
    (data_set / "README.md").write_text("my own words")
    with pytest.raises(DatasetError, match="begun with another plan"):
        go_on(data_set, make_plan(TINY | {"seed": 4}))
    assert (data_set / "README.md").read_text() == "my own words"
    summary = go_on(data_set)
    assert any("left as they are, since no record names them: train_c/source/123456.png" in n for n in summary.notices)
    assert any("changed since they were written" in notice and "README.md" in notice for notice in summary.notices)
    assert (data_set / ASIDE / "README.md").read_text() == "my own words"
    near.write_bytes(b"mine, too")  # where a candidate might come to lie
    with pytest.raises(DatasetError, match=f"no record of this data set names train_c/source/{near.name}"):
        go_on(data_set)
    assert (far.read_bytes(), near.read_bytes()) == (b"mine", b"mine, too")


def test_replan_says_what_it_removes_and_removes_no_more(data_set: Path) -> None:
    record = json.loads((data_set / "pairs.jsonl").read_text().splitlines()[0])
    changed = data_set / record["files"]["sharp"]["path"]
    (data_set / "notes.txt").write_text("mine")
    (data_set / "train_c/source/777777.png").write_bytes(b"mine")
    changed.write_bytes(changed.read_bytes()[:-1] + b"x")  # as long as it was, and another one
    new = make_plan(TINY | {"train": {"pairs": 2}, "seed": 5})
    seen: list[str] = []
    with suppress(DatasetError):  # where the new plan may come to write what was changed
        go_on(data_set, new, replan=True, watch=lambda progress: seen.extend(progress.notices[len(seen) :]))
    assert seen[0] == "--replan: the pictures of 10 pairs are removed, and all pairs are made anew"
    assert str(changed.relative_to(data_set)) in seen[1]
    assert changed.exists()
    assert (data_set / "notes.txt").read_text() == "mine"
    assert (data_set / "train_c/source/777777.png").read_bytes() == b"mine"
    changed.unlink()
    assert go_on(data_set, new).complete
    assert verify_folder(data_set).problems == ["train_c/source/777777.png: belongs to no pair"]


# --- what is lost is made again ---


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data set in shards, its plan beside it."""
    folder = tmp_path_factory.mktemp("shards") / "pairs"
    assert go_on(folder, sharded()).complete
    return folder


def sharded() -> Plan:
    return make_plan(TINY | {"output": {"layout": "webdataset", "pairs_per_shard": 3}})


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-7])


def _flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[700 if path.suffix == ".tar" else -20] ^= 1
    path.write_bytes(bytes(data))


@pytest.mark.parametrize("layout", ["dpdd", "webdataset"])
def test_lost_and_damaged_pictures_are_made_again(
    layout: str, reference_folder: Path, shards: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    original = reference_folder if layout == "dpdd" else shards
    plan = make_plan(TINY) if layout == "dpdd" else sharded()
    folder = Path(shutil.copytree(original, tmp_path / "pairs"))
    files = sorted(path for path in folder.rglob("*/*.*") if path.suffix in (".png", ".tar"))
    before = {path: path.stat().st_mtime_ns for path in files}
    files[0].unlink()
    _cut(files[1])
    summary = go_on(folder, plan)
    assert summary.complete
    assert any("are made again: lost or damaged are" in notice for notice in summary.notices)
    assert visible(folder) == visible(original)
    assert len(list((folder / ASIDE).rglob("*.*"))) == 1
    again = [path for path in files if path.stat().st_mtime_ns != before[path]]
    assert len(again) <= (4 if layout == "dpdd" else 2), "no more than what was lost"

    # As long as it should be, but another: only the sum says so.
    _flip(files[2])
    assert go_on(folder, plan).notices == ()
    (folder / ("train_c/metadata.jsonl" if layout == "dpdd" else "README.md")).unlink()
    capsys.readouterr()
    assert run(["synth", "verify", str(folder)]) == 1
    if layout == "dpdd":
        assert run(["synth", "report", str(folder)]) == 2
        assert "`defocus synth verify --repair` makes it again" in capsys.readouterr().err
    assert run(["synth", "verify", str(folder), "--repair"]) == 0
    assert "sound" in capsys.readouterr().out
    assert visible(folder) == visible(original)
    for name in (MARK, LEDGER, "plan.json"):
        (folder / name).unlink()
    assert run(["synth", "verify", str(folder), "--repair"]) == 2
    assert "no data set made by `defocus synth run`" in capsys.readouterr().err


@pytest.mark.parametrize("layout", ["dpdd", "webdataset"])
@pytest.mark.parametrize("loss", ["empty", "gone"])
def test_a_lost_ledger_is_made_anew(
    layout: str, loss: str, reference_folder: Path, shards: Path, tmp_path: Path
) -> None:
    original = reference_folder if layout == "dpdd" else shards
    plan = make_plan(TINY) if layout == "dpdd" else sharded()
    folder = Path(shutil.copytree(original, tmp_path / "pairs"))
    if loss == "empty":
        (folder / LEDGER).write_bytes(b"")
    else:
        (folder / LEDGER).unlink()
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*/*.*")}
    summary = go_on(folder, plan, limit=4)
    assert summary.complete, "a limit below what is there takes nothing away"
    assert "made anew from the folder's own records" in summary.notices[0]
    assert visible(folder) == visible(original)
    assert {path: path.stat().st_mtime_ns for path in before} == before, "no picture was made again"


@pytest.mark.parametrize("with_ledger", [True, False])
def test_the_record_of_a_killed_task_tells_what_is_there(
    with_ledger: bool, reference_folder: Path, data_set: Path
) -> None:
    """Killed after the record and the pictures of one task, and within those of another; then the ledger is lost."""
    lines = (data_set / "pairs.jsonl").read_bytes().splitlines(keepends=True)
    whole, cut = (json.loads(line) for line in lines[:2])
    (data_set / cut["files"]["sharp"]["path"]).unlink()
    (data_set / "pairs.jsonl").write_bytes(b"".join(lines[2:]))
    store = open_store(data_set)
    lead = Lead.take(store)
    lead.write_task("make/train/0", [Outcome(whole["id"], "done", "", whole)], {})
    lead.write_task("make/train/1", [Outcome(cut["id"], "done", "", cut)], {})
    assert len(task_paths(store)) == 2
    if with_ledger:
        with sqlite3.connect(data_set / LEDGER) as db:
            db.execute("UPDATE items SET status = 'drawn' WHERE id IN (?, ?)", (whole["id"], cut["id"]))
            db.execute("UPDATE facts SET value = '{}' WHERE key = 'metadata'")
        db.close()
    else:
        (data_set / LEDGER).unlink()
        facts = json.loads((data_set / ".defocus-run.json").read_text())
        (data_set / ".defocus-run.json").write_text(json.dumps(facts | {"metadata": "{}"}))
    kept = data_set / whole["files"]["sharp"]["path"]
    written = kept.stat().st_mtime_ns
    assert go_on(data_set).complete
    assert kept.stat().st_mtime_ns == written
    assert visible(data_set) == visible(reference_folder)
    assert not list((data_set / TASKS).iterdir())


def test_workers_that_outlive_their_leader_change_nothing(reference_folder: Path, data_set: Path) -> None:
    """While the next run goes on, one writes the second picture of a pair, and would write more."""
    pair = json.loads((data_set / "pairs.jsonl").read_text().splitlines()[0])
    sharp = data_set / pair["files"]["sharp"]["path"]
    picture = sharp.read_bytes()
    sharp.unlink()
    with sqlite3.connect(data_set / LEDGER) as db:
        db.execute("UPDATE items SET status = 'drawn' WHERE id = ?", (pair["id"],))
    db.close()
    outcomes = [Outcome(pair["id"], "done", "", pair)]
    before = Lead.take(open_store(data_set))
    before.write_task("make/train/0", outcomes, {})
    refusals = []

    def outlive(progress: Progress) -> None:
        if progress.stage == "comparing with what is there":
            sharp.write_bytes(picture)
            with pytest.raises(DatasetError, match="another run has begun in this folder") as refusal:
                before.write_task("make/train/1", outcomes, {})
            refusals.append(refusal)

    assert go_on(data_set, watch=outlive).complete
    assert refusals
    assert contents(data_set) == contents(reference_folder)


def test_pictures_of_tasks_without_a_result(reference_folder: Path, data_set: Path) -> None:
    """A task that fails leaves nothing of its own; what a worker with another plan replaced is made again."""
    gone, changed, replaced = (json.loads(line) for line in (data_set / "pairs.jsonl").read_text().splitlines()[:3])
    store, (kept, other) = open_store(data_set), (pair["files"]["sharp"]["path"] for pair in (changed, replaced))
    for path in (kept, other):
        _flip(data_set / path)
    foreign = json.loads(json.dumps(replaced))
    foreign["files"]["sharp"]["sha256"] = store.digest(other)
    before, notices = Lead.take(store), list[str]()
    with Ledger(data_set / LEDGER) as ledger:
        ledger.take("", [Outcome(one["id"], "failed", "lost") for one in (gone, changed)])
        resumption = Resumption(make_plan(TINY), store, ledger, False, notices.append)
        replace(before, replans=1).write_task("make/train/9", [Outcome(gone["id"], "done", "", gone)], {})
        resumption.recover()  # the record is of before a --replan, and names no pair of now
        assert ledger.counts()["failed"] == 2
        before.write_task("make/train/0", [Outcome(foreign["id"], "done", "", foreign)], {})
        lead = Lead.take(store)
        lead.write_task("make/train/0", [Outcome(one["id"], "done", "", one) for one in (gone, changed)], {})
        assert resumption.settle(lead, ["make/train/0"])
        assert ledger.counts() == {"done": 7, "drawn": 1, "failed": 2, "spare": 5}
    assert notices[0].endswith(f"not what was written: {kept}")
    assert not any(store.exists(about["path"]) for about in gone["files"].values())
    assert store.exists(kept)
    assert store.listing(ASIDE, hidden=True) == [f"{ASIDE}/{other}"]
    store.remove(kept)
    assert go_on(data_set).complete
    assert visible(data_set) == visible(reference_folder)


@pytest.fixture
def bucket() -> Iterator[str]:
    yield "memory://repair/pairs"
    fsspec.filesystem("memory").rm("/repair", recursive=True)


def test_an_object_store_is_repaired_and_owned(
    bucket: str, reference_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    store, ledger = open_store(bucket), tmp_path / "ledger.sqlite"
    plan = ["synth", "run", str(write_plan(tmp_path / "plan.toml", TINY)), "--out", bucket, "--ledger", str(ledger)]
    assert run(plan) == 0
    expected = visible(reference_folder)
    assert {path: store.read(path) for path in store.listing()} == expected
    lost, damaged = sorted(path for path in expected if path.endswith(".png") and "/" in path)[:2]
    store.remove(lost)
    store.write(damaged, b"x")
    assert run(["synth", "verify", bucket]) == 1
    ledger.unlink()
    assert run(["synth", "verify", bucket, "--repair", "--ledger", str(ledger)]) == 0
    assert {path: store.read(path) for path in store.listing()} == expected
    capsys.readouterr()
    foreign = open_store("memory://repair/photos")
    foreign.write("train_c/source/000001.png", b"somebody else's")
    assert run([*plan[:4], foreign.root, "--ledger", str(ledger)]) == 2
    assert run([*plan[:4], foreign.root, "--ledger", str(tmp_path / "new.sqlite")]) == 2
    assert capsys.readouterr().err.count("was not made for a data set") == 2
    assert foreign.listing() == ["train_c/source/000001.png"]


# --- damaged records ---


def test_damaged_records_are_one_line(reference_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    """Bytes of the records are changed, cut and doubled: every command says in a line what is wrong, or nothing is."""
    import numpy as np

    random = np.random.default_rng(7)
    values = [b"null", b"-1", b'"x"', b"[]", b"{}", b"1e999", b"NaN", b"[" * 100_000, b'{"a":1}', b"true", b""]
    keys = [b'"path":', b'"bytes":', b'"files":', b'"coc_px":', b'"id":', b'"split":', b'"noise":', b'"output":']
    for name in ("pairs.jsonl", "plan.json"):
        folder = tmp_path / name
        shutil.copytree(reference_folder, folder)
        (folder / LEDGER).unlink()
        whole = (folder / name).read_bytes().replace(b'": ', b'":')
        for number in range(40):
            data = bytearray(whole)
            key = keys[number % len(keys)]
            if number % 3 and key in whole:
                start = whole.index(key) + len(key)
                data[start : start + int(random.integers(0, 30))] = values[int(random.integers(len(values)))]
            else:
                data[int(random.integers(len(data)))] = int(random.integers(256))
            (folder / name).write_bytes(bytes(data))
            report = ["report", str(folder), "--out", str(tmp_path / "report.html")]
            for command in (["verify", "--no-pictures", str(folder)], report)[: 2 if number % 5 == 0 else 1]:
                code = run(["synth", *command])
                shown = capsys.readouterr()
                assert "Traceback" not in shown.err + shown.out
                assert code in (0, 1) or (shown.err.count("\n"), str(folder) in shown.err) == (1, True), shown.err


def test_a_damaged_ledger_is_named(data_set: Path, capsys: pytest.CaptureFixture) -> None:
    whole = (data_set / LEDGER).read_bytes()
    holes = bytearray(whole)
    holes[5000::37] = bytes(len(holes[5000::37]))
    for damage in (b"no database at all" * 300, whole[: len(whole) // 2], bytes(holes)):
        (data_set / LEDGER).write_bytes(damage)
        plan = write_plan(data_set.parent / "plan.toml", TINY)
        for command in (
            ["verify", str(data_set)],
            ["report", str(data_set), "--out", str(data_set.parent / "r.html")],
            ["run", str(plan), "--out", str(data_set)],
        ):
            assert run(["synth", *command]) in (0, 1, 2)
            message = capsys.readouterr()
            assert "Traceback" not in message.err + message.out
    assert os.path.getsize(data_set / LEDGER)
