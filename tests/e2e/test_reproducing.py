"""The road of docs/reproducing.md from DPDD's folders to table 1, with pictures and networks of a few pixels."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy.ndimage import gaussian_filter

pytest.importorskip("torch", reason="torch is not installed: pip install 'defocus[train]'")

from defocus.cli import run

from ..synth.conftest import TINY, write_plan

ROWS, COLS = 80, 120
SCENES = {"train": 6, "val": 2, "test": 2}
SMALL_TRAINING = (
    "steps=2", "crop=32", "batch=1", "data.workers=0", "validation.every=1", "validation.images=1",
    "model.overrides={width=4,kernels=3}",
)  # fmt: skip


def dpdd(root: Path) -> Path:
    """Folders and names as in the archive of DPDD: sources and targets have names of their own, paired by order."""
    rng = np.random.default_rng(0)
    number = 0
    for split, count in SCENES.items():
        for _ in range(count):
            sharp = gaussian_filter(rng.random((ROWS, COLS, 3)), (1, 1, 0))
            sharp = (sharp - sharp.min()) / np.ptp(sharp)
            for side, picture in (("source", gaussian_filter(sharp, (2, 2, 0))), ("target", sharp)):
                number += 1
                file = root / f"{split}_c" / side / f"1P0A{number:04d}.png"
                file.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray((picture * 255).astype(np.uint8)).save(file)
                if side == "target":
                    depth = np.linspace(1.0, 3.0 + number, COLS, dtype=np.float32)
                    np.savez(file.with_suffix(".npz"), depth_m=np.broadcast_to(depth, (ROWS, COLS)))
    return root


def test_from_dpdd_to_table_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    dpdd(tmp_path / "data" / "dpdd")
    folders = [f"data/dpdd/{split}_c/target" for split in SCENES]
    sources = [{"kind": "rgb", "folder": folder, "depth": "{stem}.npz"} for folder in folders]
    write_plan(tmp_path / "plan.toml", TINY | {"name": "CLDefocus", "sources": sources})
    assert run(["synth", "check", "plan.toml"]) == 0
    assert run(["synth", "run", "plan.toml", "--out", "data/cldefocus"]) == 0
    changes = [part for change in SMALL_TRAINING for part in ("--set", change)]
    assert run(["train", "nrknet", "--data", "data/cldefocus", "--out", "runs/nrknet-cldefocus", *changes]) == 0
    table = ["evaluate", "--paper", "1", "--out", "results/table-1", "--metrics", "psnr,ssim", "--device", "cpu"]
    capsys.readouterr()
    assert run(table) == 2
    assert "2 pairs; DPDD has 76 for testing" in capsys.readouterr().err
    assert run([*table, "--partial"]) == 0
    captured = capsys.readouterr()
    assert "left out: NRKNet (DPDD): no weights" in captured.err
    assert "left out: RTF: no folder" in captured.err
    text = (tmp_path / "results" / "table-1" / "results.md").read_text()
    assert "Ours / the paper's:" in text
    assert "restored pictures: 2 whole" in text
    for row, number in (("cldefocus", 32.16), ("dpdd", 24.73)):
        values = json.loads((tmp_path / "results/table-1/summary.json").read_text())["tests"][row]["rows"]
        ours = values["nrknet-cldefocus"]
        assert ours["paper"]["psnr"] == number
        assert f"{ours['metrics']['psnr']['mean']:.2f} / {number}" in text
