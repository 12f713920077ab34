"""How fast candidates of a data set are drawn on one core: per second, with and without the measuring of patches.

    python benchmarks/candidate_speed.py [--out FOLDER] [--before SOURCE_FOLDER] [--quick]

The draws of a photograph over 667 lenses, the built-in ones over and over, plain and with wanted blur levels. With
--before, the `src` folder of another checkout is measured, too, and must draw the same candidates. Writes
candidate_speed.json and .md.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from machine import SMALL_PLAN, amount, machine, read_arguments, write_report

LENSES, CANDIDATES = amount((667, 400), quick=(4, 2))
PLAN: dict[str, Any] = {
    "seed": 3,
    "sources": [{"count": 6, "names": ["table", "letters"]}],
    "lenses": {"survey": False},
    "patch": {"size": 128, "kernel": 64, "photograph": [480, 320]},
} | amount({}, quick=SMALL_PLAN)
PLANS = {"plain": {}, "blur levels": {"blur": {"levels_px": [2, 8, 32], "weights": [1, 1, 1]}}}


def measure() -> dict[str, dict[str, Any]]:
    """Candidates per CPU second of this process, and a sum of what was drawn."""
    from defocus.synth import candidates
    from defocus.synth.lens_pool import find_lenses
    from defocus.synth.plan import as_plan
    from defocus.synth.sources import SourceCache, find_sources

    result = {}
    for name, changes in PLANS.items():
        plan = as_plan(PLAN | changes)
        pool = find_lenses(plan)
        lenses = [pool.lenses[one] for one in pool.of_split["train"]] * LENSES
        choice = candidates.LensChoice.of(lenses[:LENSES])
        sharp = SourceCache(plan).get(find_sources(plan)["train"][0])
        work = (plan, "train", range(CANDIDATES), sharp, choice)
        measure_patches, seconds, kept = candidates._measure, {}, []
        try:
            for moment in ("compiling", "all", "keeping", "host"):
                if moment == "keeping":
                    candidates._measure = lambda *own: kept.extend(measure_patches(*own)) or kept  # noqa: B023
                if moment == "host":
                    candidates._measure = lambda *_: kept  # noqa: B023
                start = time.process_time()
                outcomes = candidates.draw_candidates(*work)
                seconds[moment] = time.process_time() - start
        finally:  # a quick run shares its process with tests
            candidates._measure = measure_patches
        text = json.dumps([[one.id, one.status, one.reason, one.record] for one in outcomes], sort_keys=True)
        rates = {moment: round(CANDIDATES / max(seconds[moment], 1e-9)) for moment in ("all", "host")}
        result[name] = rates | {"sha256": hashlib.sha256(text.encode()).hexdigest()}
    return result


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--before", type=Path, help="the src folder of the version to compare with")
    options = read_arguments(parser)
    own = Path(__file__).resolve().parents[1] / "src"
    sources = {"now": own} if options.before is None else {"before": options.before.resolve(), "now": own}
    result: dict[str, Any] = {"machine": machine()}
    for version, source in sources.items():
        if options.quick:
            result[version] = measure()
            continue
        code = "import json, candidate_speed; print(json.dumps(candidate_speed.measure()))"
        variables = os.environ | {"PYTHONPATH": str(source), "JAX_PLATFORMS": "cpu"}
        done = subprocess.run(
            [sys.executable, "-c", code], check=True, stdout=subprocess.PIPE, env=variables, cwd=Path(__file__).parent
        )
        result[version] = json.loads(done.stdout.splitlines()[-1])
    on = result["machine"]
    lines = [
        "# Drawing candidates",
        "",
        f"Candidates per CPU second, one core of {on['cpu']}; {LENSES} lenses, patches of 128 pixels.",
        "On a GPU the host's part is what a run waits for: patches are measured there.",
        "",
        "| plan | with measuring the patches | the host's part |",
        "| --- | --- | --- |",
    ]
    for name in PLANS:
        rows = [result[version][name] for version in sources]
        assert len({row["sha256"] for row in rows}) == 1, f"{name}: other candidates than before"
        lines.append(f"| {name} | " + " | ".join(" → ".join(str(r[m]) for r in rows) for m in ("all", "host")) + " |")
    if "before" in sources:
        lines += ["", "→: before and now; the candidates are the same, number for number."]
    write_report(options.out, "candidate_speed", result, "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
