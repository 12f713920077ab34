"""The paper's ablation: what each part of the synthesis is worth to a network.

One plan is carried out four times with the same patches, lenses, focus distances and noise: in full, with Gaussian
PSFs of the same circle of confusion, without sensor and ISP, and with one depth for each patch. The same network is
trained in the same way on each. All are judged on the test split of the full synthesis, whose photographs and lenses
none of them has seen. Judged are the last weights, not the best ones, so that no test set and no luck takes part in
their choice. Every stage goes on where it was stopped.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..draw import draw_training_curves, save
from ..draw.charts import LINES
from ..errors import ConfigError, DatasetError
from ..files.pair_folders import existing_store, read_records
from ..files.settings import validated
from ..restore.build import loss_name
from ..restore.config import TrainConfig, merged
from ..restore.losses import build_loss
from ..restore.training import TrainProgress, train
from ..synth.folder import open_folder
from ..synth.plan import Plan, make_plan
from ..synth.run import Engine, Progress, run_plan
from .evaluation import evaluate_table, opened_set, ready_measures
from .figures import draw_levels
from .results import Results, pooled
from .table_file import EvaluationTable, TableRow, Test
from .tables import compare, seed_table

DATA, RUNS, JUDGED, REPORT, CURVES = "data", "runs", "evaluation", "ablation.md", "curves.png"
# What makes a pair the same patch behind the same lens.
SAME = ("source", "centre", "rotation_rad", "scale", "flip", "exposure", "lens", "field", "focus_m")


@dataclass(frozen=True)
class Variant:
    name: str
    title: str
    changes: dict[str, Any]


VARIANTS = (
    Variant("full", "full synthesis", {}),
    Variant("gaussian", "Gaussian PSFs", {"psf": {"kind": "gaussian"}}),
    Variant("no-isp", "no ISP, no noise", {"sensor": {"isp": False}}),
    # Blur levels, where a plan has them, count as in the full synthesis: they choose lens and focus.
    Variant("single-depth", "one depth", {"depth": {"mode": "single"}, "blur": {"counts": "patch"}}),
)


@dataclass(frozen=True)
class Ablation:
    """`same`: of the training pairs of each variant, how many show what the full synthesis's pair of that name does.
    `missing`: what was wanted and could not be made, in words."""

    results: Results
    same: dict[str, tuple[int, int]]
    missing: tuple[str, ...]
    report: Path


@dataclass
class Watch:
    """Whoever shows how far an ablation is; each is told the variant and its state."""

    data: Callable[[str, Progress], Any] = lambda _name, _state: None
    training: Callable[[str, TrainProgress], Any] = lambda _name, _state: None
    judging: Callable[[str, float], Any] = lambda _stage, _part: None


def variant_plan(plan: Plan, variant: Variant) -> Plan:
    """Pairs to train on; only the full synthesis has pairs to be judged by.

    The other splits keep one pair where they have any: which images and lenses are left for training depends on it.
    """
    changes = variant.changes | {"name": f"{plan.name}, {variant.title}"}
    if variant.changes:
        changes |= {name: {"pairs": min(plan.split(name).pairs, 1)} for name in ("validation", "test")}
    return make_plan(merged(plan.as_json(), changes))


def run_ablation(
    plan: Plan,
    config: TrainConfig,
    out: str | Path,
    engine: Engine,
    *,
    seeds: Sequence[int] = (0,),
    photographs: Path | None = None,
    metrics: Sequence[str] = ("psnr", "ssim"),
    watch: Watch | None = None,
) -> Ablation:
    """Make, train and judge the variants in the folder `out`. Each seed is a training of its own.

    `photographs`: a folder of real ones, to look at: they are restored by all, and drawn side by side.
    """
    check_ablation(plan, config, seeds, photographs=photographs, metrics=metrics)
    out, watch = Path(out), watch or Watch()
    make_variants(plan, out, engine, watch)
    weights = train_variants(config, out, seeds, watch)
    return judge_variants(config, out, weights, photographs, metrics, watch)


def make_variants(plan: Plan, out: Path, engine: Engine, watch: Watch) -> None:
    """Raises `DatasetError` where a split has no pair at all, before the next variant is begun."""
    for variant in VARIANTS:
        own, folder = variant_plan(plan, variant), out / DATA / variant.name
        made = run_plan(own, folder, engine, watch=_named(variant.title, watch.data))
        for split, count in made.pairs.items():
            if made.wanted[split] and not count:
                why = f": {made.reasons[0][0]} ({made.reasons[0][1]} times)" if made.reasons else ""
                raise DatasetError(f"none of {made.wanted[split]} {split} pairs could be made{why}", file=folder)


def train_variants(config: TrainConfig, out: Path, seeds: Sequence[int], watch: Watch) -> dict[tuple[str, int], Path]:
    """The last weights of each variant and seed."""
    made = {}
    for seed in seeds:
        for variant in VARIANTS:
            told = _named(_title(variant, seed, seeds), watch.training)
            made[variant.name, seed] = train_variant(config, out, variant, seed, told)
    return made


def train_variant(
    config: TrainConfig, out: Path, variant: Variant, seed: int, told: Callable[[TrainProgress], Any] | None = None
) -> Path:
    """One training; its last weights."""
    return train(own_config(config, out, variant, seed), run_folder(out, variant, seed), progress=told).last


def own_config(config: TrainConfig, out: Path, variant: Variant, seed: int) -> TrainConfig:
    """The settings of one training. All are validated on pairs of the full synthesis, for their curves alone."""
    data = {"kind": "pairs", "folders": [str((out / DATA / variant.name).absolute())], "weights": [], "plan": None}
    validation = {"folders": [str((out / DATA / "full").absolute())], "split": "validation"}
    return config.changed({"seed": seed, "data": data, "validation": validation})


def run_folder(out: Path, variant: Variant, seed: int) -> Path:
    return out / RUNS / f"{variant.name}-{seed}"


def judge_variants(
    config: TrainConfig,
    out: Path,
    weights: dict[tuple[str, int], Path],
    photographs: Path | None,
    metrics: Sequence[str],
    watch: Watch,
) -> Ablation:
    seeds = sorted({seed for _, seed in weights})
    plans = {variant.name: _plan_of(out / DATA / variant.name) for variant in VARIANTS}
    levels = plans["full"].blur.levels_px
    table = judging_table(config, out, weights, photographs, metrics, levels)
    results = evaluate_table(table, out / JUDGED, watch.judging)
    missing = tuple(text for v in VARIANTS for text in missing_pairs(out / DATA / v.name, plans[v.name], v.title))
    same = {variant.name: same_pairs(out, variant) for variant in VARIANTS[1:]}
    draw_curves(out, seeds)
    if len(seeds) > 1:
        for test in results.table.tests:
            draw_levels(over_seeds(results, seeds), test, out)
    report = out / REPORT
    report.write_text(_report(results, same, seeds, config, missing), encoding="utf-8")
    return Ablation(results, same, missing, report)


def over_seeds(results: Results, seeds: Sequence[int]) -> Results:
    """One row for each variant: of each picture the mean over the seeds."""
    groups = []
    for title, rows in seed_rows(results, seeds).items():
        groups.append((rows[0].model_copy(update={"trained_on": title}), rows))
    return pooled(results, groups)


def seed_rows(results: Results, seeds: Sequence[int]) -> dict[str, list[TableRow]]:
    """The rows of each variant, seed by seed."""
    rows = {row.trained_on: row for row in results.table.rows}
    return {variant.title: [rows[_title(variant, seed, seeds)] for seed in seeds] for variant in VARIANTS}


def judging_table(
    config: TrainConfig,
    out: Path,
    weights: dict[tuple[str, int], Path],
    photographs: Path | None,
    metrics: Sequence[str],
    levels_px: Sequence[float] = (),
) -> EvaluationTable:
    """What is compared with what; pictures by the plan's blur levels, where it has any. Raises `ConfigError` for
    measures that are not known."""
    seeds = {seed for _, seed in weights}
    variants = {variant.name: variant for variant in VARIANTS}
    rows = [TableRow(kind="input")]
    for (name, seed), file in weights.items():
        told = _title(variants[name], seed, seeds)
        rows.append(TableRow(name=config.model.name, trained_on=told, weights=file.absolute()))
    tests = [Test(kind="pairs", folder=str((out / DATA / "full").absolute()), name="unseen lenses and scenes")]
    if photographs is not None:
        tests.append(Test(kind="photographs", folder=str(photographs.absolute()), name="real photographs"))
    given: dict[str, Any] = {"title": "Ablation", "rows": rows, "tests": tests, "metrics": list(metrics)}
    if levels_px:
        given["blur_levels_px"] = list(levels_px)
    return validated(EvaluationTable, given, ConfigError)


def draw_curves(out: Path, seeds: Sequence[int]) -> Path | None:
    """PSNR on the full synthesis's validation pairs while the networks learn; None where there was no validation."""
    curves: dict[str, list[list[tuple[float, float]]]] = {}
    blurred = None
    for variant in VARIANTS:
        for seed in seeds:
            file = run_folder(out, variant, seed) / "validation.csv"
            if not file.is_file():
                continue
            with file.open(encoding="utf-8", newline="") as lines:
                rows = list(csv.DictReader(lines))
            if rows:
                curve = [(float(row["step"]), float(row["psnr"])) for row in rows]
                curves.setdefault(variant.title, []).append(curve)
                blurred = ("blurred pictures", float(rows[-1]["input_psnr"]))
    if not curves:
        return None
    told = (f"{seed} {line}" for seed, line in zip(seeds, LINES, strict=False))
    title = "Validation on the full synthesis" + (f"; seed {', '.join(told)}" if len(seeds) > 1 else "")
    figure = draw_training_curves(curves, "PSNR, dB", title, level=blurred)
    save(figure, out / CURVES)
    return out / CURVES


def same_pairs(out: Path, variant: Variant) -> tuple[int, int]:
    """Training pairs of a variant, and how many of them are the same patches as in the full synthesis."""
    full, own = (_recipes(out / DATA / name) for name in ("full", variant.name))
    return sum(full.get(key) == value for key, value in own.items()), len(own)


def missing_pairs(folder: Path, plan: Plan, title: str) -> list[str]:
    """Of each split that has fewer pairs than the plan wants, how many."""
    made = Counter(record["split"] for record in read_records(existing_store(folder)))
    wanted = {split: plan.split(split).pairs for split in plan.splits}
    return [f"{title}: {made[s]} of {n} {s} pairs could be made" for s, n in wanted.items() if made[s] < n]


def _plan_of(folder: Path) -> Plan:
    with open_folder(folder) as pairs:
        return make_plan(pairs.plan)


def _recipes(folder: Path) -> dict[str, list[Any]]:
    records = read_records(existing_store(folder))
    return {r["id"]: [r[key] for key in SAME] for r in records if r["split"] == "train"}


def check_ablation(
    plan: Plan,
    config: TrainConfig,
    seeds: Sequence[int],
    *,
    photographs: Path | None = None,
    metrics: Sequence[str] = ("psnr", "ssim"),
) -> None:
    """Raises `DefocusError` where an ablation cannot be carried out to its last table, or would not be fair."""
    if not plan.train.pairs or not plan.test.pairs:
        raise ConfigError("an ablation needs pairs to train on and pairs to test with: train.pairs and test.pairs")
    if config.validation.every and not plan.validation.pairs:
        raise ConfigError("validation.every is set, but the plan has no validation.pairs; set it to 0, or give some")
    if config.schedule.reload_best:
        raise ConfigError("schedule.reload_best chooses weights by the full synthesis, which is what is to be judged")
    if len(set(seeds)) != len(seeds) or not seeds:
        raise ConfigError(f"seeds {list(seeds)}; expected different numbers")
    if config.data.kind != "pairs" or config.curriculum:
        told = "[[curriculum]]" if config.curriculum else f'data.kind = "{config.data.kind}"'
        raise ConfigError(f"an ablation trains on pairs that it makes of the plan: leave out {told}")
    own_config(config, Path(), VARIANTS[0], seeds[0])
    build_loss(loss_name(config), **config.loss.options)  # a wrong network is told on the way
    weights = {(variant.name, seed): Path("weights") for seed in seeds for variant in VARIANTS}
    table = judging_table(config, Path(), weights, photographs, metrics)
    ready_measures(table, [opened_set(test) for test in table.tests if test.kind == "photographs"])


def _title(variant: Variant, seed: int, seeds: Collection[int]) -> str:
    return variant.title if len(seeds) == 1 else f"{variant.title}, seed {seed}"


def _named(title: str, told: Callable[[str, Any], Any]) -> Callable[[Any], Any]:
    return lambda state: told(title, state)


def _report(
    results: Results,
    same: dict[str, tuple[int, int]],
    seeds: Sequence[int],
    config: TrainConfig,
    missing: Sequence[str] = (),
) -> str:
    shared = "; ".join(f"{name}: {count} of {total}" for name, (count, total) in same.items())
    named = ("seeds " if len(seeds) > 1 else "seed ") + ", ".join(map(str, seeds))
    lines = [
        f"{config.model.name} ({config.model.size}), {config.steps:,} steps of {_batches(config)}, {named}. Training "
        f"pairs that show the same patch, lens and focus as those of the full synthesis: {shared}.",
        "",
    ]
    if missing:
        lines += [f"Fewer pairs than the plan wants: {'; '.join(missing)}.", ""]
    if len(seeds) == 1:
        title, _, rest = compare(results).partition("\n")
        return "\n".join([title, "", *lines, rest.lstrip("\n")])
    lines[0] += " The value of a picture is its mean over the seeds; intervals are of pictures, not of seeds."
    title, _, rest = compare(over_seeds(results, seeds)).partition("\n")
    apart = ["## Each seed", "", "In brackets: less or more than the first row with the same seed.", ""]
    for test in results.table.tests:
        apart += [f"{test.label}:", "", seed_table(results, test, seed_rows(results, seeds), seeds), ""]
    return "\n".join([title, "", *lines, rest.lstrip("\n"), *apart])


def _batches(config: TrainConfig) -> str:
    """ "16 crops of 128 pixels"; of progressive learning, every stage with the part of the steps where it begins."""
    told = [f"{stage.batch} crops of {stage.crop} pixels" for stage in config.stages]
    later = [f"from {stage.start:.3g} of them on {text}" for stage, text in zip(config.stages, told, strict=True)]
    return ", ".join([told[0], *later[1:]])
