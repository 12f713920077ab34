"""2,000 planned patches against the paper's formulas: splits, lenses, focus, field, augmentation, sensor, sharpness.

    python benchmarks/synth_statistics.py [--out FOLDER] [--quick]

Everything is drawn as a data set draws it and nothing is rendered. Photographs, patches and kernel are a quarter of the
paper's size, so that pixels are four times as large and a kernel spans the same millimetres: the same lenses are safe.
Expected values and limits come from formulas of this file's own; p is that of a Kolmogorov-Smirnov or binomial test.
"""

from __future__ import annotations

import argparse
import math
import time
from collections import Counter
from typing import Any

import jax.numpy as jnp
import numpy as np
from scipy.stats import binomtest, kstest

from defocus.synth import focus_draws
from defocus.synth.candidates import LensChoice, candidate_numbers, draw_candidates
from defocus.synth.lens_pool import PoolLens, find_lenses, safe_lenses
from defocus.synth.patches import Place, cut_patch, sharpest
from defocus.synth.plan import Plan, make_plan
from defocus.synth.recipe import Recipe
from defocus.synth.sources import Sharp, find_sources, read_source
from machine import SMALL_PLAN, amount, machine, read_arguments, write_report

PLAN: dict[str, Any] = {
    "seed": 2026,
    "sources": amount([{"count": 30}], quick=SMALL_PLAN["sources"]),
    "lenses": {"survey": False},
    "train": {"pairs": amount(1200, quick=24)},
    "validation": {"pairs": amount(67, quick=4)},
    "test": {"pairs": amount(67, quick=4)},
    "patch": {"size": 96, "kernel": 32, "photograph": [420, 280]},
}
D_LINE_MM = 587.5618e-6
SCAN = 13  # depths and focus distances of the brute-force filter
Row = tuple[str, str, str, str]


class Thin:
    """A lens by its principal planes and exit pupil, in mm."""

    def __init__(self, lens: PoolLens) -> None:
        data = lens.camera.first_order
        d = {name: float(getattr(data, name)) for name in data.__dataclass_fields__}
        self.focal = d["focal_length"]
        self.to_object = d["front_principal"] - d["entrance_pupil"]
        self.to_image = d["rear_principal"] - d["exit_pupil"]
        self.exit_radius = d["exit_pupil_radius"]
        self.na = math.sin(math.atan(self.exit_radius / (self.to_image + self.focal)))
        self.image_radius = float(lens.camera.image_radius_mm)

    def image(self, depth_m: np.ndarray) -> np.ndarray:
        return self.to_image + 1.0 / (1.0 / self.focal - 1.0 / (depth_m * 1e3 + self.to_object))

    def blur_and_samples(
        self, depth_m: np.ndarray, focus_m: np.ndarray, diagonal: float
    ) -> tuple[np.ndarray, np.ndarray]:
        at, sensor = self.image(depth_m), self.image(focus_m)
        blur = self.exit_radius * np.abs((sensor - at) / at) / (2.0 * self.image_radius / diagonal)
        return blur, 16.0 * self.na**2 / math.sqrt(1.0 - self.na**2) * np.abs(sensor - at) / D_LINE_MM

    def safe(self, depths: tuple[float, float], reach: tuple[float, float], diagonal: float, plan: Plan) -> bool:
        at = 1.0 / np.linspace(1.0 / depths[0], 1.0 / depths[1], SCAN)[:, None]
        focus = 1.0 / np.linspace(1.0 / reach[0], 1.0 / reach[1], SCAN)[None, :]
        if min(depths[0], reach[0]) * 1e3 + self.to_object <= self.focal:
            return False
        blur, samples = self.blur_and_samples(at, focus, diagonal)
        return bool(blur.max() <= plan.patch.kernel / 4.0 and samples.max() <= 1536.0)


def patch_depth(plan: Plan, sharp: Sharp, record: dict[str, Any]) -> np.ndarray:
    place = Place.batch([Recipe.from_json(record).placement]).row(0)
    return np.asarray(cut_patch(jnp.asarray(sharp.linear), jnp.asarray(sharp.depth_m), place, size=plan.patch.size)[1])


def focus_places(depth_m: np.ndarray) -> np.ndarray:
    """Ends and inner clusters in t = 1/(d − 0.2 + 1), of width 0.01. In single precision, as the patch is measured:
    a depth on the border of two clusters belongs to either."""
    t = np.float32(1.0) / (np.clip(depth_m, 0.2, 250.0).astype(np.float32) - np.float32(0.2) + np.float32(1.0))
    cells = np.unique(((t - t.min()) / np.float32(0.01)).astype(int))
    far, near = (1.0 / (np.clip(float(d), 0.2, 250.0) - 0.2 + 1.0) for d in (depth_m.max(), depth_m.min()))
    inner = far + 0.01 * (cells + 0.5)
    return np.array([far, *inner[(inner > far + 0.01) & (inner < near - 0.01)], near])


def even(name: str, values: Any, what: str) -> Row:
    """A row for values that should be spread evenly over 0..1."""
    values = np.asarray(values, float)
    return (
        name,
        what,
        f"mean {values.mean():.3f} of 0.5, {len(values)} values",
        f"{kstest(values, 'uniform').pvalue:.2f}",
    )


def share(name: str, count: int, total: int, expected: float) -> Row:
    return name, f"{expected:.1%}", f"{count / total:.1%} of {total}", f"{binomtest(count, total, expected).pvalue:.2f}"


def focus_rows(seen: list[tuple[np.ndarray, float]]) -> list[Row]:
    """From the places of each patch and the focus distance that was drawn."""
    ends = total = outside = 0
    ranks, offsets, lean = [], [], []
    random = np.random.default_rng(0)
    for places, focus in seen:
        t = 1.0 / (focus - 0.2 + 1.0)
        if len(places) < 3:
            continue
        total += 1
        steps = np.diff(places)
        chosen = int(np.argmin(np.abs(places - t)))
        gap = min(steps[max(chosen - 1, 0)], steps[min(chosen, len(steps) - 1)])
        outside += abs(t - places[chosen]) > gap / 2.0 + 1e-9
        ends += chosen in (0, len(places) - 1)
        half = (places[-1] - places[0]) / 2.0
        lean.append((t - places[0] - half) / half)
        if 0 < chosen < len(places) - 1:
            ranks.append((chosen - 1 + random.random()) / (len(places) - 2))
            offsets.append((t - places[chosen]) / gap + 0.5)
    distances = np.array([focus for _, focus in seen])
    mean, error = float(np.mean(lean)), float(np.std(lean) / math.sqrt(len(lean)))
    return [
        share("focus at one of the two ends (patches with clusters between)", ends, total, 0.6),
        even("focus at inner clusters: which", ranks, "even"),
        even("focus: noise over the nearest gap", offsets, "even, ± half a gap"),
        ("focus: noise beyond half a gap", "none", str(outside), ""),
        ("focus: mean between the ends, −1 far to 1 near", "0", f"{mean:+.3f} ± {error:.3f}", ""),
        ("focus distances", "0.2 to 250 m", f"{distances.min():.3g} to {distances.max():.3g} m", ""),
    ]


def split_rows(plan: Plan, sources: dict[Any, Any], lenses: dict[Any, tuple[str, ...]]) -> list[Row]:
    rows: list[Row] = []
    for what, groups in (("images", {k: [s.name for s in v] for k, v in sources.items()}), ("lenses", lenses)):
        sizes = [len(groups[s]) for s in plan.splits]
        fractions = {"images": (0.7, 0.15, 0.15), "lenses": (0.6, 0.2, 0.2)}[what]
        total = sum(sizes)
        expected = " / ".join(f"{f * total:.1f}" for f in fractions)
        rows.append((f"{what} of train, validation, test", expected, " / ".join(map(str, sizes)), ""))
        split_of: dict[str, set[str]] = {}
        for split, names in groups.items():
            for name in names:
                split_of.setdefault(name.partition("@")[0], set()).add(split)
        rows.append((f"{what} in two splits", "none", str(sum(len(v) > 1 for v in split_of.values())), ""))
    return rows


def draw(plan: Plan) -> tuple[list[Row], dict[str, Any]]:
    sources, pool = find_sources(plan), find_lenses(plan)
    thin = {name: Thin(lens) for name, lens in pool.lenses.items()}
    rows = split_rows(plan, sources, pool.of_split)
    drawn: list[dict[str, Any]] = []
    rejected: Counter[str] = Counter()
    focus: list[tuple[np.ndarray, float]] = []
    agree = disagree = 0
    ranks, limits, kept_rows = [], [], []
    random = np.random.default_rng(1)
    for split in plan.splits:
        choice = LensChoice.of([pool.lenses[name] for name in pool.of_split[split]])
        own: list[dict[str, Any]] = []
        for source, numbers in zip(sources[split], candidate_numbers(plan, split, len(sources[split])), strict=True):
            sharp = read_source(source, plan)
            for outcome in draw_candidates(plan, split, numbers, sharp, choice):
                if outcome.record is None:
                    rejected[outcome.reason.partition(":")[0]] += 1
                    continue
                record = outcome.record
                own.append(record)
                depth = patch_depth(plan, sharp, record)
                places = focus_places(depth)
                focus.append((places, record["focus_m"]))
                reach, ends = focus_draws.reach(places, plan.focus), (float(depth.min()), float(depth.max()))
                said = safe_lenses(choice.table.filled(sharp.diagonal_px), plan, ends, reach)
                brute = np.array([thin[lens.name].safe(ends, reach, sharp.diagonal_px, plan) for lens in choice.lenses])
                agree += int((said == brute).sum())
                disagree += int((said != brute).sum())
                safe = [lens.name for lens, ok in zip(choice.lenses, brute, strict=True) if ok]
                ranks.append((safe.index(record["lens"]) + random.random()) / len(safe))
                at = np.array(record["depth_m"]), np.array(record["focus_m"]), sharp.diagonal_px
                limits.append([v.max() for v in thin[record["lens"]].blur_and_samples(*at)])
        drawn += own
        measures = np.array([r["sharpness"] for r in own])
        stretched = (measures - measures.min(0)) / (measures.max(0) - measures.min(0))
        score = stretched.prod(1)
        wanted = plan.split(split).pairs
        best = set(np.argsort(-score, kind="stable")[:wanted])
        same = set(sharpest(measures, wanted).tolist()) == best
        others = np.array([k not in best for k in range(len(own))])
        kept_rows.append((
            f"{split}: kept of {len(own)} drawn", f"{wanted}, the sharpest",
            f"{len(best)}, {'the same' if same else 'OTHERS'}; median score {np.median(score[~others]):.2g}, of those "
            f"left {np.median(score[others]):.2g}", "",
        ))  # fmt: skip
    blur, samples = np.array(limits).T
    train = [r for r in drawn if r["split"] == "train"]
    x, y = np.array([r["field"] for r in drawn]).T
    rows += [
        ("patches planned", "2000", str(len(drawn) + sum(rejected.values())), ""),
        ("of them without a safe lens", "", str(sum(rejected.values())), ""),
        ("lens filter against a scan over focus and depth", "equal", f"{agree} equal, {disagree} not", ""),
        even("lens: which of the safe ones", ranks, "even"),
        ("largest blur radius, px", f"at most {plan.patch.kernel / 4:g}", f"{blur.max():.2f}", ""),
        ("most samples of the paper's estimate", "at most 1536", f"{samples.max():.0f}", ""),
        *focus_rows(focus),
        even("field: squared radius / 0.7²", (x**2 + y**2) / 0.49, "even (a disk)"),
        even("field: direction", np.arctan2(y, x) / (2 * math.pi) + 0.5, "even"),
        even("rotation (train)", [r["rotation_rad"] / (2 * math.pi) + 0.5 for r in train], "even, ± 180°"),
        even("log scale (train)", [math.log(r["scale"] / 0.7) / math.log(2) for r in train], "even, 0.7 to 1.4"),
        even("log exposure (train)", [math.log(r["exposure"] / 0.7) / math.log(2) for r in train], "even, 0.7 to 1.4"),
        share("mirrored (train)", sum(r["flip"] for r in train), len(train), 0.5),
        even("shot noise", [r["noise"][0] / 1e-5 - 0.5 for r in drawn], "even, 0.5 to 1.5 × 1e-5"),
        even("read noise", [r["noise"][1] / 1e-5 - 0.5 for r in drawn], "even, 0.5 to 1.5 × 1e-5"),
        even("power of highlights", [r["saturation"] / 4.0 for r in drawn], "even, 0 to 4"),
        *kept_rows,
    ]
    used = Counter(r["lens"] for r in drawn)
    about = {
        "lenses_used": len(used),
        "largest_blur_px_quartiles": [round(float(v), 3) for v in np.quantile(blur, (0.25, 0.5, 0.75))],
        "focus_m_quartiles": [
            round(float(v), 3) for v in np.quantile([r["focus_m"] for r in drawn], (0.25, 0.5, 0.75))
        ],
        "clusters_per_patch": round(float(np.mean([len(p) for p, _ in focus])), 2),
    }
    return rows, about


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options = read_arguments(parser)
    started = time.process_time()
    rows, about = draw(make_plan(PLAN))
    seconds = time.process_time() - started
    told = [dict(zip(("quantity", "expected", "found", "p"), row, strict=True)) for row in rows]
    result = {"machine": machine(), "plan": PLAN, "cpu_seconds": round(seconds, 1), "about": about, "rows": told}
    lines = ["| quantity | expected | found | p |", "| --- | --- | --- | --- |"]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    size, photo = PLAN["patch"]["size"], "×".join(map(str, PLAN["patch"]["photograph"]))
    note = (
        f"Patches of {size} pixels from procedural scenes of {photo}, kernel 32: the paper's settings at a quarter of "
        f"its size; built-in lenses without the survey; {seconds:.0f} s of processor time. Half of the patches have a "
        f"largest blur between {about['largest_blur_px_quartiles'][0]} and {about['largest_blur_px_quartiles'][2]} px "
        f"and a focus between {about['focus_m_quartiles'][0]} and {about['focus_m_quartiles'][2]} m.\n\n"
    )
    write_report(options.out, "synth_statistics", result, note + "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
