"""What the PSFs are worth that a network learns from: the one of `defocus deblur`, taught by PSFs of several kinds.

    python benchmarks/psf_study.py WORK --data PREPARED --photos MULTI_FOCUS [--minutes M] [--set KEY=VALUE] [--out F]
    python benchmarks/psf_study.py --quick             # all of it, tiny, with discs alone

Each kind (`general_training.KINDS`) gives a bank of the same lens settings, and each bank one training with each seed:
the same network, photographs, scenes, noise and steps. All are judged on the same pairs by full synthesis through
lenses and photographs that none has seen, and on real photographs of which another one, focused elsewhere, shows the
truth (`real_pairs.py`; MULTI_FOCUS is a folder of theirs). Differences are of the same pictures, intervals of 95 % over
scenes; the value of a picture is its mean over the seeds.

PREPARED is what `general_training.py prepare` leaves. Without --steps the first training takes as many steps as
--minutes hold, and the others as many as it. WORK is a folder outside the repository; PSFs, banks, trainings
and judgements of pairs that are there are not made again. Writes psf_study.json and .md.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from itertools import pairwise
from pathlib import Path
from typing import Any

import general_training as general
from machine import amount, is_quick, machine, read_arguments, write_report

TITLES = {"lens": "lenses", "paper": "the paper's", "gaussian": "Gaussians", "disk": "discs"}
UNSEEN, REAL = "unseen lenses and scenes", "real photographs"
RADII_PX = (0.0, 0.3, 2.0, 4.0, 8.0, 16.0)  # of the circle of confusion: levels of the banks' spreads
EVERY = 4  # settings of a bank that are looked at


def title(kind: str, seed: int) -> str:
    return f"{TITLES[kind]}, seed {seed}"


def own_arguments(given: argparse.Namespace, kind: str, seed: int) -> argparse.Namespace:
    """Of the general training: its bank and its results in folders of this kind and seed."""
    name = f"{kind}-{seed}"
    out = given.work / "trained" / name
    out.mkdir(parents=True, exist_ok=True)
    changes = [f"seed={seed}", *given.changes]
    return argparse.Namespace(**vars(given) | {"kind": kind, "run": f"run-{name}", "out": out, "changes": changes})


def trained(given: argparse.Namespace, kind: str, seed: int) -> Path:
    """The weights of one training, which is carried out unless it was."""
    own = own_arguments(given, kind, seed)
    weights = own.out / "general.safetensors"
    if not (own.out / "general_train.json").is_file():
        print(f"training on {title(kind, seed)}", flush=True)
        weights = general.train_general(own)
    return weights


def unseen_records(given: argparse.Namespace, test: Any, kind: str, seed: int, row: Any) -> tuple[list[Any], list[Any]]:
    """PSNR of every test pair by full synthesis, blurred and restored."""
    from defocus.evaluate.results import PictureRecord

    own = own_arguments(given, kind, seed)
    if not (own.out / "general_training.json").is_file():
        general.judge(argparse.Namespace(**vars(own) | {"weights": own.out / "general.safetensors"}))
    pairs = json.loads((own.out / "general_training.json").read_text())["pairs"]

    def records(key: str, side: str) -> list[Any]:
        return [PictureRecord(test.key, key, p["id"], p["radius_px"], {"psnr": p[side]}, p["source"]) for p in pairs]

    return records("input", "in"), records(row.key, "out")


def real_records(given: argparse.Namespace, test: Any, rows: dict[str, Path]) -> list[Any]:
    """PSNR of real photographs where another one shows the truth, of the picture and of what each network makes."""
    import real_pairs
    from defocus.evaluate.results import PictureRecord
    from defocus.evaluate.test_sets import open_test_set

    restorers = {"input": lambda image: image}
    restorers |= {key: real_pairs.network(file, given.device, 2048) for key, file in rows.items()}
    records = []
    for picture in open_test_set("multi_focus", given.photos).images:
        measured = real_pairs.judged(picture, restorers, None)
        print(measured["picture"], {k: round(v, 2) for k, v in measured["psnr"].items()}, flush=True)
        records += [
            PictureRecord(test.key, key, measured["picture"], None, {"psnr": value}, picture.scene)
            for key, value in measured["psnr"].items()
        ]
    return records


def spreads(given: argparse.Namespace, kind: str) -> list[float | None]:
    """RMS spread of a bank's green PSFs along one axis, pixels: the mean of each level of the blur radius."""
    import numpy as np

    from defocus.synth.bank import Bank

    bank = Bank.load(general.bank_folder(own_arguments(given, kind, given.seeds[0])))
    psfs = np.asarray(bank.psfs[::EVERY, :, 1], float)
    psfs /= psfs.sum((-2, -1), keepdims=True)
    place = np.arange(psfs.shape[-1])
    variances = []
    for lines in (psfs.sum(-2), psfs.sum(-1)):
        mean = (lines * place).sum(-1, keepdims=True)
        variances.append((lines * (place - mean) ** 2).sum(-1))
    spread, radius = np.sqrt(np.mean(variances, axis=0)), np.abs(bank.coc_px[::EVERY])
    levels = [(low <= radius) & (radius < high) for low, high in pairwise(RADII_PX)]
    return [float(spread[level].mean()) if level.any() else None for level in levels]


def spread_table(rows: dict[str, list[float | None]]) -> str:
    lines = ["| radius, px | " + " | ".join(map(TITLES.__getitem__, rows)) + " |", "| --- |" + " ---: |" * len(rows)]
    for (low, high), values in zip(pairwise(RADII_PX), zip(*rows.values(), strict=True), strict=True):
        lines.append(f"| {low:g}–{high:g} | " + " | ".join("–" if v is None else f"{v:.1f}" for v in values) + " |")
    return "\n".join(lines)


def report(given: argparse.Namespace, results: Any, groups: dict[str, list[Any]]) -> None:
    """Tables of the kinds, and of every training."""
    from defocus.evaluate.results import compare, pooled, seed_table
    from defocus.restore.models.checkpoints import load_model

    several = len(given.seeds) > 1
    means = results
    if several:
        named = [(of[0].model_copy(update={"trained_on": kind}), of) for kind, of in groups.items()]
        means = pooled(results, named)
    first = own_arguments(given, given.kinds[0], given.seeds[0]).out
    facts = json.loads((first / "general_train.json").read_text())
    parameters = sum(weight.numel() for weight in load_model(first / "general.safetensors").parameters())
    spread = {kind: spreads(given, kind) for kind in given.kinds}
    about = (
        f"A network of {parameters:,} parameters, {facts['steps']:,} steps of {facts['batch']} crops of "
        f"{facts['crop']} pixels, {facts['seconds']:.0f} s for the first training; "
        f"seeds {', '.join(map(str, given.seeds))}, {facts['device']}; banks of {given.settings} settings at most. "
        f"Settings: `{' '.join(given.changes)}`. "
        "The value of a picture is its mean over the seeds; intervals are of scenes, not of seeds."
    )
    head, _, tables = compare(means).partition("\n")
    parts = [head, about, tables.strip("\n")]
    if several:
        parts += ["## Each seed", "In brackets: less or more than the first row with the same seed."]
        for test in results.table.tests:
            parts += [f"{test.label}:", seed_table(results, test, groups, given.seeds)]
    about_spread = "Spread (RMS, along one axis, pixels) of the green ones by the radius of the circle of confusion:"
    parts += ["## PSFs of the banks", about_spread, spread_table(spread)]
    training = {key: facts[key] for key in ("device", "steps", "batch", "crop", "seconds")}
    training |= {"parameters": parameters, "settings": given.changes}
    numbers = {"machine": machine(("torch", "jax", "numpy")), "training": training, "bank_settings": given.settings,
               "radii_px": RADII_PX, "spread_px": spread,
               "over_seeds": means.as_json(), "results": results.as_json()}  # fmt: skip
    write_report(given.out, "psf_study", numbers, "\n\n".join(parts) + "\n")


def study(given: argparse.Namespace) -> None:
    from defocus.evaluate.results import Results
    from defocus.evaluate.table_file import EvaluationTable, TableRow, Test

    data = own_arguments(given, "lens", given.seeds[0])
    general.make_data(data)
    for kind in given.kinds:
        begin = time.perf_counter()
        general.make_psfs(own_arguments(given, kind, given.seeds[0]))
        general.make_psf_bank(own_arguments(given, kind, given.seeds[0]))
        print(f"PSFs of {TITLES[kind]}: {time.perf_counter() - begin:.0f} s", flush=True)
    weights: dict[tuple[str, int], Path] = {}
    for seed in given.seeds:
        for kind in given.kinds:
            weights[kind, seed] = trained(given, kind, seed)
            if not given.steps:
                first = own_arguments(given, kind, seed).out / "general_train.json"
                given.steps = json.loads(first.read_text())["steps"]
    rows = {key: TableRow(name="network", trained_on=title(*key), weights=file) for key, file in weights.items()}
    tests = [Test(kind="pairs", folder=str(given.work / "pairs"), name=UNSEEN),
             Test(kind="multi_focus", folder=str(given.photos), name=REAL)]  # fmt: skip
    table = EvaluationTable(
        title="What the PSFs are worth that a network learns from", rows=(TableRow(kind="input"), *rows.values()),
        tests=tuple(tests), metrics=("psnr",), blur_levels_px=(2.0, 8.0, 16.5),
    )  # fmt: skip
    records, blurred = [], []
    for (kind, seed), row in rows.items():
        blurred, own = unseen_records(given, tests[0], kind, seed, row)
        records += own
    records += blurred + real_records(given, tests[1], {row.key: weights[key] for key, row in rows.items()})
    groups = {TITLES[kind]: [rows[kind, seed] for seed in given.seeds] for kind in given.kinds}
    report(given, Results(table, tuple(records)), groups)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", nargs="?", type=Path)
    parser.add_argument("--data", type=Path, default=general.DATA)
    parser.add_argument("--photos", type=Path, help="multi-focus photographs")
    parser.add_argument(
        "--kinds", nargs="+", choices=general.KINDS, default=amount(list(general.KINDS), quick=["disk"])
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--settings", type=int, default=amount(480, quick=4), help="lens settings of each bank")
    parser.add_argument("--tests", type=int, default=general.COUNTS["test"], help="test pairs at most")
    parser.add_argument("--minutes", type=float, default=1.5, help="of each training")
    parser.add_argument("--steps", type=int, default=amount(0, quick=2), help="so many, in place of --minutes")
    parser.add_argument("--set", dest="changes", action="append", default=[], metavar="KEY=VALUE")
    given = read_arguments(parser)
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    given = argparse.Namespace(**vars(given) | {"psfs": None, "start": None, "stage": "study", "lenses": None})
    if is_quick() and given.work is None:
        import real_pairs

        general.quick_inputs(given)
        given.photos = given.out / "multi_focus"
        real_pairs.make_inputs(given.photos)
    if given.work is None or given.photos is None:
        parser.error("WORK or --photos is missing")
    import torch

    given.device = "cuda" if torch.cuda.is_available() else "cpu"
    study(given)


if __name__ == "__main__":
    main()
