"""How exact and how fast is the ray trace? Measured against Optiland, a lens design program in numpy.

    python -m venv ENVIRONMENT && ENVIRONMENT/bin/pip install -e . optiland==0.6.3
    ENVIRONMENT/bin/python benchmarks/trace_vs_optiland.py --lenses FOLDER

Optiland is heavy (it needs VTK, numba and pandas) and plays no part in the product, so it gets an environment of its
own. Without it the script measures what it can and says that the comparison is missing. Run it on a quiet machine;
--quick takes one built-in lens.

What is measured
1. Agreement: the same rays, aimed by our chief ray and launched over the pupil, through the same lenses in both codes;
   three fields, three wavelengths; where they land on the image plane, their directions and optical paths. Optiland's
   media are given the constant indices that ours have at that wavelength.
2. Survey: `survey_folder` over the collection in a fresh process, imports and compilation included.
3. Throughput: all lenses × 3 fields × 1,000 rays in one call, after compilation.
4. The same tracing in Optiland, on a part of the lenses, extrapolated by their number of surfaces.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib import metadata
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from defocus.lens import load_lens
from defocus.lens.formats import read_lens, write_lens
from defocus.lens.prescription import C_LINE_NM, D_LINE_NM, F_LINE_NM, Lens
from defocus.optics.batch import over_lenses
from defocus.optics.pupil import chief_ray, launch, pupil_half_widths
from defocus.optics.system import Bucket, System, group_by_bucket, pack, refractive_indices
from defocus.optics.trace import Rays, Trace, trace
from defocus.survey import survey_folder
from machine import SMALL_LENS, amount, is_quick, machine, read_arguments, write_report
from versus_optiland import lens_numbers, optiland_lens

WAVELENGTHS = (F_LINE_NM, D_LINE_NM, C_LINE_NM)
FIELDS = (0.0, 0.7, 1.0)  # of the image radius
RAYS = amount(1000, quick=16)
THREADS = 2
try:
    import optiland
    from optiland.rays import RealRays
except ImportError:
    optiland = None  # type: ignore[assignment]


# --- our side ---------------------------------------------------------------------------------------------------------


def sunflower(count: int) -> tuple[jax.Array, jax.Array]:
    """Points that fill the unit disc evenly."""
    k = np.arange(count)
    radius, angle = np.sqrt((k + 0.5) / count), k * np.pi * (3.0 - np.sqrt(5.0))
    return jnp.asarray(radius * np.cos(angle)), jnp.asarray(radius * np.sin(angle))


def aim(system: System, radius: jax.Array, count: int) -> tuple[jax.Array, Rays]:
    """Rays over the pupil of each lens and field, fields side by side on the ray axis, and which fields exist."""
    u, v = sunflower(count)

    def one(system: System, height: jax.Array) -> tuple[jax.Array, Rays]:
        chief = chief_ray(system, height, "image_height")
        half = pupil_half_widths(system, chief)
        return chief.found, launch(chief, half[0] * u, half[1] * v)

    def lens(system: System, radius: jax.Array) -> tuple[jax.Array, Rays]:
        found, rays = jax.vmap(one, in_axes=(None, 0))(system, radius * jnp.array(FIELDS))
        return found, jax.tree.map(lambda leaf: jnp.moveaxis(leaf, 0, -2).reshape(*leaf.shape[1:-1], -1), rays)

    return jax.vmap(lens)(system, radius)


aim_all = jax.jit(aim, static_argnums=2)


def outcome(system: System, rays: Rays) -> tuple[jax.Array, ...]:
    traced = trace(system, rays)
    return traced.position, traced.direction, traced.path, traced.clip


trace_together = jax.jit(jax.vmap(outcome))


class Group:
    """The lenses of one bucket, packed, with their rays."""

    def __init__(self, lenses: Sequence[Lens], bucket: Bucket) -> None:
        self.lenses, self.bucket = list(lenses), bucket
        self.system = pack(self.lenses, bucket=bucket)
        radius = jnp.array([lens.image_radius for lens in self.lenses])
        self.aim = lambda: jax.block_until_ready(aim_all(self.system, radius, RAYS))
        self.found, self.rays = self.aim()
        half = (len(self.lenses) + 1) // 2
        take = [slice(0, half), slice(len(self.lenses) - half, None)]  # equal parts: one compilation
        self.halves = [jax.tree.map(lambda leaf, s=s: leaf[s], (self.system, self.rays)) for s in take]


@jax.jit
def trace_batch(system: System, rays: Rays) -> Trace:
    """`trace` over a batch of lenses: every leaf of `system` and `rays` has one leading axis."""
    return over_lenses(trace, system, rays)


def batched_together(groups: Sequence[Group], _pool: ThreadPoolExecutor) -> None:
    """All lenses of a bucket as one array operation per step."""
    for group in groups:
        jax.block_until_ready(trace_together(group.system, group.rays))


def batched_in_turn(groups: Sequence[Group], pool: ThreadPoolExecutor) -> None:
    """`trace_batch`: lens after lens inside the compiled program, half of the lenses on each of two threads."""
    work = [half for group in groups for half in group.halves]
    list(pool.map(lambda half: jax.block_until_ready(trace_batch(*half)), work))


def median_time(call: Callable[[], Any], repeat: int) -> dict[str, Any]:
    call()  # compile
    wall = []
    for _ in range(repeat):
        start = time.perf_counter()
        call()
        wall.append(time.perf_counter() - start)
    return {"median_s": statistics.median(wall), "all_s": wall}


def time_survey(folder: Path, repeat: int) -> dict[str, Any]:
    """`survey_folder` in fresh processes."""
    code = f"from defocus.survey import survey_folder; print(len(survey_folder({str(folder)!r})))"
    wall, count = [], 0
    for _ in range(repeat):
        start = time.perf_counter()
        if is_quick():
            count = len(survey_folder(folder))
        else:
            done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
            count = int(done.stdout.split()[-1])
        wall.append(time.perf_counter() - start)
    return {"lenses": count, "median_s": statistics.median(wall), "all_s": wall}


# --- Optiland ---------------------------------------------------------------------------------------------------------


def optiland_trace(optic: Any, position: np.ndarray, direction: np.ndarray, wavelength: float) -> Any:
    """Trace rays given in the frame of the first vertex to the image plane."""
    ones = np.ones(position.shape[1])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rays = RealRays(*position, *direction, ones, ones * wavelength * 1e-3)
        return optic.surfaces.trace(rays, skip=1, record=False)


def kind(lens: Lens) -> str:
    powers = {p for s in lens.surfaces for p, _ in s.aspheric}
    if any(p % 2 for p in powers):
        return "odd asphere"
    return "even asphere" if powers else "sphere"


def choose(names: Sequence[str], lenses: Sequence[Lens], each: int) -> list[int]:
    """Evenly spread over phones, and over spheres, even and odd aspheres of the others."""
    kinds: dict[str, list[int]] = {}
    for i, lens in enumerate(lenses):
        kinds.setdefault("phone" if names[i].startswith("phone") else kind(lens), []).append(i)
    chosen = []
    for members in kinds.values():
        chosen += [members[j] for j in np.unique(np.linspace(0, len(members) - 1, each).round().astype(int))]
    return sorted(chosen)


def agreement(names: Sequence[str], lenses: Sequence[Lens], each: int = 18, count: int = 60) -> dict[str, Any]:
    """Largest deviations between the two codes over the rays that pass in ours."""
    chosen = choose(names, lenses, each)
    some = [lenses[i] for i in chosen]
    radius = jnp.array([lens.image_radius for lens in some])
    bucket = Bucket(64, 10, 10)
    found, rays = aim_all(pack(some, bucket=bucket), radius, count)
    rows, worst = [], {"position_mm": 0.0, "direction": 0.0, "path_mm": 0.0}
    passing = lost = elsewhere = 0
    for wavelength in WAVELENGTHS:
        position, direction, path, clip = (
            np.asarray(v) for v in trace_together(pack(some, wavelength, bucket=bucket), rays)
        )
        for k, lens in enumerate(some):
            passes = (clip[k] < 0) & np.repeat(np.asarray(found[k]), count)
            start, heading = np.asarray(rays.position[k])[:, passes], np.asarray(rays.direction[k])[:, passes]
            if not passes.any():
                continue
            theirs = optiland_trace(optiland_lens(lens_numbers(lens, wavelength)), start, heading, wavelength)
            p, s = position[k][:, passes], direction[k][:, passes]
            length = -p[2] / s[2]
            index = float(refractive_indices(lens, wavelength)[-1])
            here = p[:2] + length * s[:2]
            there = np.stack([theirs.x, theirs.y])
            heading_there = np.stack([theirs.L, theirs.M, theirs.N])
            alive = np.isfinite(there).all(axis=0)
            gap = np.where(alive, np.abs(here - there).max(axis=0), np.inf)
            same = gap < 1e-3  # else the other code took another meeting with the surface, or none
            deviation = {
                "position_mm": float(gap[same].max(initial=0.0)),
                "direction": float(np.abs(s - heading_there)[:, same].max(initial=0.0)),
                "path_mm": float(
                    np.abs(path[k][passes] + index * length - np.asarray(theirs.opd))[same].max(initial=0.0)
                ),
            }
            passing, lost, elsewhere = passing + passes.sum(), lost + (~alive).sum(), elsewhere + (alive & ~same).sum()
            worst = {name: max(worst[name], value) for name, value in deviation.items()}
            rows.append({"lens": names[chosen[k]], "kind": kind(lens), "wavelength_nm": wavelength, **deviation})
    by_kind = {
        which: {
            "lenses": len({r["lens"] for r in rows if r["kind"] == which}),
            **{name: max(r[name] for r in rows if r["kind"] == which) for name in worst},
        }
        for which in sorted({r["kind"] for r in rows})
    }
    return {
        "lenses": len({row["lens"] for row in rows}),
        "fields": list(FIELDS),
        "wavelengths_nm": list(WAVELENGTHS),
        "rays_that_pass": int(passing),
        "lost_in_optiland": int(lost),
        "elsewhere_in_optiland": int(elsewhere),
        "largest": worst,
        "by_kind": by_kind,
    }


def time_optiland(groups: Sequence[Group], repeat: int, every: int) -> dict[str, Any]:
    """Trace 3 fields × 1,000 rays through every n-th lens of each bucket; extrapolate by ray-surfaces."""
    all_surfaces = sum(len(lens.surfaces) for group in groups for lens in group.lenses)
    work, surfaces, count = [], 0, 0
    for group in groups:
        for i in range(0, len(group.lenses), every):
            optic = optiland_lens(lens_numbers(group.lenses[i], D_LINE_NM))
            work.append((optic, np.asarray(group.rays.position[i]), np.asarray(group.rays.direction[i])))
            surfaces += len(group.lenses[i].surfaces)
            count += 1

    def call() -> None:
        for optic, position, direction in work:
            optiland_trace(optic, position, direction, D_LINE_NM)

    measured = median_time(call, repeat)
    return {
        "lenses": count,
        **measured,
        "extrapolated_s": measured["median_s"] * all_surfaces / surfaces,
    }


# --- report -----------------------------------------------------------------------------------------------------------


def markdown(report: dict[str, Any]) -> str:
    m = report["machine"]
    lines = [
        "# Ray trace: exactness and speed",
        "",
        f"{m['cpu']}, {m['cores']} cores (load before: {m['load_before']:.1f}); Python {m['python']}, jax {m['jax']}, "
        f"numpy {m['numpy']}, Optiland {m['optiland']}. Medians of {report['repeat']} runs.",
        "",
        "| what | time |",
        "| --- | --- |",
    ]
    if "survey" in report:
        s = report["survey"]
        lines.append(f"| survey of {s['lenses']} lenses, fresh process, compilation included | {s['median_s']:.1f} s |")
    t = report["throughput"]
    work = f"{t['lenses']} lenses × {len(FIELDS)} fields × {RAYS} rays, after compilation"
    lines += [
        f"| {work}: lens after lens, two threads | {t['in_turn']['median_s']:.2f} s |",
        f"| {work}: lenses of a bucket together | {t['together']['median_s']:.2f} s |",
        f"| finding their {t['lenses'] * len(FIELDS)} chief rays and pupils | {t['aim']['median_s']:.2f} s |",
    ]
    if "optiland" in report:
        o = report["optiland"]
        lines += [
            f"| Optiland, {o['lenses']} of the lenses | {o['median_s']:.2f} s |",
            f"| Optiland, extrapolated to all | {o['extrapolated_s']:.1f} s |",
            f"| ratio | {report['ratio']:.1f} |",
        ]
    lines += ["", "Time per bucket (surfaces, even terms, odd terms):", ""]
    lines += ["| bucket | lenses | in turn, one thread | together |", "| --- | --- | --- | --- |"]
    for row in t["buckets"]:
        lines.append(
            f"| {tuple(row['bucket'])} | {row['lenses']} | {row['in_turn_s']:.2f} s | {row['together_s']:.2f} s |"
        )
    if "agreement" in report:
        a = report["agreement"]
        lines += [
            "",
            f"Agreement with Optiland: {a['lenses']} lenses × 3 fields × 3 wavelengths, {a['rays_that_pass']} rays "
            f"that pass; Optiland lost {a['lost_in_optiland']} of them and found another meeting with a surface for "
            f"{a['elsewhere_in_optiland']}. Largest deviations of the others on the image plane:",
            "",
            "| lenses | number | position, mm | direction | optical path, mm |",
            "| --- | --- | --- | --- | --- |",
        ]
        for name, row in [*a["by_kind"].items(), ("all", {"lenses": a["lenses"], **a["largest"]})]:
            numbers = " | ".join(f"{row[quantity]:.1e}" for quantity in a["largest"])
            lines.append(f"| {name} | {row['lenses']} | {numbers} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    root = Path(__file__).resolve().parents[1]
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])  # type: ignore[union-attr]
    parser.add_argument("--lenses", type=Path, default=root.parent / "shared" / "lenses")
    parser.add_argument("--repeat", type=int, default=amount(3, quick=1))
    parser.add_argument("--every", type=int, default=15, help="time Optiland on every n-th lens")
    parser.add_argument("--no-survey", action="store_true")
    options = read_arguments(parser)
    if options.quick:
        options.lenses = options.out / "lenses"
        options.lenses.mkdir()
        write_lens(load_lens(SMALL_LENS), options.lenses / f"{SMALL_LENS}.json")
    if not options.lenses.is_dir():
        parser.error(f"{options.lenses} is not a folder of lenses; give one with --lenses")

    versions = {"optiland": metadata.version("optiland") if optiland else "not installed"}
    report: dict[str, Any] = {"machine": machine() | versions, "repeat": options.repeat}
    files = sorted(options.lenses.rglob("*.json"))
    names = [file.relative_to(options.lenses).as_posix() for file in files]
    lenses = [read_lens(file) for file in files]
    if not options.no_survey:
        report["survey"] = time_survey(options.lenses, options.repeat)
        print("survey", report["survey"], flush=True)

    groups = [Group([lenses[i] for i in members], bucket) for bucket, members in group_by_bucket(lenses)]
    with ThreadPoolExecutor(THREADS) as pool:
        throughput: dict[str, Any] = {
            "lenses": len(lenses),
            "rays": len(lenses) * len(FIELDS) * RAYS,
            "in_turn": median_time(lambda: batched_in_turn(groups, pool), options.repeat),
            "together": median_time(lambda: batched_together(groups, pool), options.repeat),
            "aim": median_time(lambda: [group.aim() for group in groups], options.repeat),
        }
    throughput["buckets"] = [
        {
            "bucket": list(group.bucket),
            "lenses": len(group.lenses),
            "in_turn_s": 2
            * median_time(lambda g=group: jax.block_until_ready(trace_batch(*g.halves[0])), options.repeat)["median_s"],
            "together_s": median_time(
                lambda g=group: jax.block_until_ready(trace_together(g.system, g.rays)), options.repeat
            )["median_s"],
        }
        for group in groups
    ]
    report["throughput"] = throughput
    print("throughput", throughput, flush=True)
    if optiland is None:
        print("Optiland is not installed: no agreement and no ratio", file=sys.stderr)
    else:
        report["agreement"] = agreement(names, lenses)
        print("agreement", report["agreement"], flush=True)
        report["optiland"] = time_optiland(groups, options.repeat, options.every)
        best = min(throughput[name]["median_s"] for name in ("in_turn", "together"))
        report["ratio"] = report["optiland"]["extrapolated_s"] / best

    write_report(options.out, "trace", report, markdown(report))


if __name__ == "__main__":
    main()
