"""The paper's ablation: what each part of the synthesis is worth to a network.

One plan is carried out four times with the same patches, lenses, focus distances and noise: in full, with Gaussian
PSFs of the same circle of confusion, without sensor and ISP, and with one depth for each patch; if asked for, also with
the paper's own PSFs, to see what the differences between those and ours are worth. The same network is
trained in the same way on each. All are judged on the test split of the full synthesis, whose photographs and lenses
none of them has seen. Judged are the last weights, not the best ones, so that no test set and no luck takes part in
their choice. Every stage goes on where it was stopped.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..draw import draw_training_curves, figure_bytes
from ..draw.charts import LINES
from ..draw.pages import markdown_words as words
from ..errors import ConfigError, DatasetError
from ..files.ownership import OwnedFolder
from ..files.pair_folders import existing_store, read_records
from ..files.settings import validated
from ..restore.build import loss_name
from ..restore.config import TrainConfig, merged
from ..restore.losses import build_loss
from ..restore.training import TrainProgress, train
from ..synth.engines import Engine
from ..synth.plan import Plan, make_plan
from ..synth.run import Progress, run_plan
from .evaluation import evaluate_table, opened_set, ready_measures
from .figures import draw_levels
from .results import Results, compare, pooled, seed_table
from .table_file import EvaluationTable, TableRow, Test

DATA, RUNS, JUDGED, REPORT, CURVES, LAST = "data", "runs", "evaluation", "ablation.md", "curves.png", "last.pt"
# What makes a pair the same patch behind the same lens.
SAME = ("source", "centre", "rotation_rad", "scale", "flip", "exposure", "lens", "field", "focus_m")


@dataclass(frozen=True)
class Variant:
    """One way of making the pairs of a plan: the settings that differ from the full synthesis."""

    name: str
    title: str
    changes: dict[str, Any]


VARIANTS = (
    Variant("full", "full synthesis", {}),
    Variant("gaussian", "Gaussian PSFs", {"psf": {"kind": "gaussian"}}),
    Variant("no-isp", "no ISP, no noise", {"sensor": {"isp": False}}),
    # Blur levels, where a plan has them, count as in the full synthesis: they choose lens and focus.
    Variant("single-depth", "one depth", {"depth": {"mode": "single"}, "blur": {"counts": "patch"}}),
)  # the paper's own
PAPER_PSF = Variant("paper", "the paper's PSFs", {"psf": {"kind": "paper"}})


def variants_of(names: Sequence[str]) -> tuple[Variant, ...]:
    """The variants of these names. Raises `ConfigError` for unknown ones; the full synthesis is always the first."""
    every = {variant.name: variant for variant in (*VARIANTS, PAPER_PSF)}
    for name in names:
        if name not in every:
            raise ConfigError(f"variant {name!r}; expected some of {', '.join(every)}")
    return tuple(variant for name, variant in every.items() if name in names or variant is VARIANTS[0])


@dataclass(frozen=True)
class Ablation:
    """`same`: of the training pairs of each variant, how many show what the full synthesis's pair of that name does.
    `missing`: pairs of the plan that could not be made, in words."""

    results: Results
    same: dict[str, tuple[int, int]]
    missing: tuple[str, ...]
    report: Path


def variant_plan(plan: Plan, variant: Variant) -> Plan:
    """The plan of a variant: pairs to train on; only the full synthesis has pairs to be judged by.

    The other splits keep one pair where they have any: which images and lenses are left for training depends on it.
    """
    changes = variant.changes | {"name": f"{plan.name}, {variant.title}"}
    if variant.changes:
        changes |= {name: {"pairs": min(plan.split(name).pairs, 1)} for name in ("validation", "test")}
    return make_plan(merged(plan.as_json(), changes))


def run_ablation(study: AblationStudy, engine: Engine) -> Ablation:
    """Make, train and judge the variants of a study."""
    study.check()
    study.make_pairs(engine)
    study.train()
    return study.judge()


@dataclass(frozen=True)
class AblationStudy:
    """A plan, the training of a network on its variants, and how they are judged; all of it goes to the folder `out`.

    Each seed is a training of its own. `photographs`: a folder of real ones, to look at: they are restored by all, and
    drawn side by side. `real_tests`: test sets with a truth that all are judged on as well.
    """

    plan: Plan
    config: TrainConfig
    out: Path
    seeds: Sequence[int] = (0,)
    photographs: Path | None = None
    metrics: Sequence[str] = ("psnr", "ssim")
    variants: Sequence[Variant] = VARIANTS
    real_tests: Sequence[Test] = ()

    def check(self) -> None:
        """Raises `DefocusError` where the study cannot be carried out to its last table, or would not be fair."""
        plan, config = self.plan, self.config
        if not plan.train.pairs or not plan.test.pairs:
            raise ConfigError("an ablation needs pairs to train on and pairs to test with: train.pairs and test.pairs")
        if config.validation.every and not plan.validation.pairs:
            raise ConfigError("validation.every is set, but the plan has no validation.pairs; set it to 0 or give some")
        if len(set(self.seeds)) != len(self.seeds) or not self.seeds:
            raise ConfigError(f"seeds {list(self.seeds)}; expected different numbers")
        if config.data.kind != "pairs" or config.curriculum:
            setting = "[[curriculum]]" if config.curriculum else f'data.kind = "{config.data.kind}"'
            raise ConfigError(f"an ablation trains on pairs that it makes of the plan: leave out {setting}")
        self.training(self.variants[0], self.seeds[0])
        build_loss(loss_name(config), **config.loss.options)  # a wrong network is refused on the way
        table = self.table()
        ready_measures(table, [opened_set(test) for test in table.tests[1:]])
        for stage in config.stages:
            if stage.crop > plan.patch.size:
                raise ConfigError(
                    f"crops of {stage.crop} pixels do not fit the plan's pairs of {plan.patch.size} (patch.size): set "
                    "a smaller crop, or make larger patches"
                )
        self.folder().require(REPORT, CURVES)

    def folder(self) -> OwnedFolder:
        """The folder of the study, which is claimed. Raises `OwnershipError` if it holds other things."""
        return OwnedFolder(self.out, "ablation")

    def data_folder(self, variant: Variant) -> Path:
        return self.out / DATA / variant.name

    def run_folder(self, variant: Variant, seed: int) -> Path:
        return self.out / RUNS / f"{variant.name}-{seed}"

    def title(self, variant: Variant, seed: int) -> str:
        return variant.title if len(self.seeds) == 1 else f"{variant.title}, seed {seed}"

    def make_pairs(self, engine: Engine, progress: Callable[[str, Progress], Any] | None = None) -> None:
        """Make the pairs of all variants. Raises `DatasetError` where a split has no pair at all, before the next
        variant is begun."""
        for variant in self.variants:
            plan, folder = variant_plan(self.plan, variant), self.data_folder(variant)
            summary = run_plan(plan, folder, engine, watch=_with_title(variant.title, progress))
            for split, count in summary.pairs.items():
                if summary.planned[split] and not count:
                    why = f": {summary.reasons[0][0]} ({summary.reasons[0][1]} times)" if summary.reasons else ""
                    raise DatasetError(
                        f"none of {summary.planned[split]} {split} pairs could be made{why}", file=folder
                    )

    def training(self, variant: Variant, seed: int) -> TrainConfig:
        """The settings of one training. All are validated on pairs of the full synthesis, for their curves alone; with
        a recipe that goes back to the best weights, on pairs of their own, or the full synthesis would choose them."""
        own, full = (str(self.data_folder(one).absolute()) for one in (variant, self.variants[0]))
        data = {"kind": "pairs", "folders": [own], "weights": [], "plan": None}
        validation = {"folders": [own if self.config.schedule.reload_best else full], "split": "validation"}
        return self.config.changed({"seed": seed, "data": data, "validation": validation})

    def train_variant(
        self, variant: Variant, seed: int, progress: Callable[[str, TrainProgress], Any] | None = None
    ) -> None:
        """Carry out one training."""
        watch = _with_title(self.title(variant, seed), progress)
        train(self.training(variant, seed), self.run_folder(variant, seed), progress=watch)

    def train(self, progress: Callable[[str, TrainProgress], Any] | None = None) -> None:
        """Train the network on every variant with every seed."""
        for seed in self.seeds:
            for variant in self.variants:
                self.train_variant(variant, seed, progress)

    def table(self) -> EvaluationTable:
        """What is compared with what; pictures by the plan's blur levels, where it has any. Raises `ConfigError` for
        unknown measures."""
        rows = [TableRow(kind="input")]
        for seed in self.seeds:
            for variant in self.variants:
                weights = (self.run_folder(variant, seed) / LAST).absolute()
                rows.append(
                    TableRow(name=self.config.model.name, trained_on=self.title(variant, seed), weights=weights)
                )
        full = str(self.data_folder(self.variants[0]).absolute())
        tests = [Test(kind="pairs", folder=full, name="unseen lenses and scenes")]
        if self.photographs is not None:
            tests.append(Test(kind="photographs", folder=str(self.photographs.absolute()), name="real photographs"))
        tests += self.real_tests
        settings = {"title": "Ablation", "rows": rows, "tests": tests, "metrics": list(self.metrics)}
        if self.plan.blur.levels_px:
            settings["blur_levels_px"] = list(self.plan.blur.levels_px)
        return validated(EvaluationTable, settings, ConfigError)

    def judge(self, progress: Callable[[str, float], Any] | None = None) -> Ablation:
        """The last weights of all trainings, judged; with the report and its figures."""
        folder = self.folder()
        results = evaluate_table(self.table(), self.out / JUDGED, progress)
        missing = tuple(line for variant in self.variants for line in self.missing_pairs(variant))
        same = {variant.name: self.same_pairs(variant) for variant in self.variants[1:]}
        self.draw_curves(folder)
        if len(self.seeds) > 1:
            for test in results.table.tests:
                draw_levels(self.over_seeds(results), test, folder)
        folder.write(REPORT, self.report(results, same, missing).encode())
        return Ablation(results, same, missing, self.out / REPORT)

    def seed_rows(self, results: Results) -> dict[str, list[TableRow]]:
        """The rows of each variant, seed by seed."""
        rows = {row.trained_on: row for row in results.table.rows}
        return {variant.title: [rows[self.title(variant, seed)] for seed in self.seeds] for variant in self.variants}

    def over_seeds(self, results: Results) -> Results:
        """One row for each variant: of each picture the mean over the seeds."""
        rows = self.seed_rows(results)
        return pooled(results, [(of[0].model_copy(update={"trained_on": title}), of) for title, of in rows.items()])

    def same_pairs(self, variant: Variant) -> tuple[int, int]:
        """How many training pairs of a variant are the same patches as in the full synthesis, and how many it has."""
        stores = (existing_store(self.data_folder(one)) for one in (self.variants[0], variant))
        full, own = (
            {r["id"]: [r[key] for key in SAME] for r in read_records(store) if r["split"] == "train"}
            for store in stores
        )
        return sum(full.get(key) == value for key, value in own.items()), len(own)

    def missing_pairs(self, variant: Variant) -> list[str]:
        """Of each split that has fewer pairs than the plan asks for, how many."""
        plan = variant_plan(self.plan, variant)
        counts = Counter(record["split"] for record in read_records(existing_store(self.data_folder(variant))))
        planned = {split: plan.split(split).pairs for split in plan.splits}
        return [
            f"{variant.title}: {counts[s]} of {n} {s} pairs could be made" for s, n in planned.items() if counts[s] < n
        ]

    def draw_curves(self, folder: OwnedFolder) -> None:
        """Draw PSNR on validation pairs while the networks learn, where there was validation."""
        curves: dict[str, list[list[tuple[float, float]]]] = {}
        blurred = None
        for variant in self.variants:
            for seed in self.seeds:
                file = self.run_folder(variant, seed) / "validation.csv"
                if not file.is_file():
                    continue
                with file.open(encoding="utf-8", newline="") as lines:
                    rows = list(csv.DictReader(lines))
                if rows:
                    curve = [(float(row["step"]), float(row["psnr"])) for row in rows]
                    curves.setdefault(variant.title, []).append(curve)
                    blurred = ("blurred pictures", float(rows[-1]["input_psnr"]))
        if curves:
            dashes = ", ".join(f"{seed} {line}" for seed, line in zip(self.seeds, LINES, strict=False))
            pairs = "pairs of its own" if self.config.schedule.reload_best else "the full synthesis"
            title = f"Validation on {pairs}" + (f"; seed {dashes}" if len(self.seeds) > 1 else "")
            folder.write(CURVES, figure_bytes(draw_training_curves(curves, "PSNR, dB", title, level=blurred)))

    def report(self, results: Results, same: dict[str, tuple[int, int]], missing: Sequence[str] = ()) -> str:
        """The report in Markdown: the training in a sentence, the tables, and those of each seed."""
        config = self.config
        shared = "; ".join(f"{name}: {count} of {total}" for name, (count, total) in same.items())
        seeds = ("seeds " if len(self.seeds) > 1 else "seed ") + ", ".join(map(str, self.seeds))
        about = (
            f"{config.model.name} ({config.model.size}), {config.steps:,} steps of {_batches(config)}, {seeds}. "
            f"Training pairs that show the same patch, lens and focus as those of the full synthesis: {shared}."
        )
        parts = []
        if len(self.seeds) > 1:
            about += " The value of a picture is its mean over the seeds; intervals are of pictures, not of seeds."
            parts = ["## Each seed", "In brackets: less or more than the first row with the same seed."]
            for test in results.table.tests:
                table = seed_table(results, test, self.seed_rows(results), self.seeds)
                parts += [f"{words(test.label)}:", table]
            results = self.over_seeds(results)
        fewer = [f"Fewer pairs than the plan wants: {'; '.join(missing)}."] if missing else []
        title, _, tables = compare(results).partition("\n")
        return "\n\n".join([title, about, *fewer, tables.strip("\n"), *parts]) + "\n"


def _with_title(title: str, progress: Callable[[str, Any], Any] | None) -> Callable[[Any], Any] | None:
    return None if progress is None else lambda state: progress(title, state)


def _batches(config: TrainConfig) -> str:
    """ "16 crops of 128 pixels"; of progressive learning, every stage with the part of the steps where it begins."""
    batches = [f"{stage.batch} crops of {stage.crop} pixels" for stage in config.stages]
    later = [f"from {stage.start:.3g} of them on {text}" for stage, text in zip(config.stages, batches, strict=True)]
    return ", ".join([batches[0], *later[1:]])
