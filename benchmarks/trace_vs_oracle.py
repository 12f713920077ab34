"""The ray trace against the independent one of tests/physics/oracle.py, for every lens of a collection.

    python benchmarks/trace_vs_oracle.py --lenses ../shared/lenses [--out FOLDER]
    python benchmarks/trace_vs_oracle.py --quick              # one built-in lens

Three fields, three wavelengths, rays over the whole pupil and beyond it. The tests do the same for a selection, each
lens at one of the wavelengths; this is the whole collection, some minutes of extended-precision arithmetic. The result
is a table by kind of lens.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.physics.conftest import launch_all, stratum  # noqa: E402
from tests.physics.harness import LARGE, MEDIUM, PLAIN  # noqa: E402
from tests.physics.test_real_rays import Comparison, compare_launched  # noqa: E402

from defocus.lens import load_lens  # noqa: E402
from defocus.lens.formats import read_lens, write_lens  # noqa: E402
from defocus.optics.system import bucket_of  # noqa: E402
from machine import SMALL_LENS, read_arguments, write_report  # noqa: E402

QUANTITIES = ("position", "direction", "path")


def table(results: dict[str, Comparison], kinds: dict[str, str]) -> list[dict[str, Any]]:
    rows = []
    for kind in [*sorted(set(kinds.values())), "all"]:
        some = [results[name] for name in results if kind in (kinds[name], "all")]
        rows.append(
            {
                "kind": kind,
                "lenses": len(some),
                "passing": sum(c.passing for c in some),
                "failing": sum(c.failing for c in some),
                "disagree": sum(len(c.disagreements) for c in some),
                **{name: max(getattr(c, name) for c in some) for name in QUANTITIES},
            }
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])  # type: ignore[union-attr]
    parser.add_argument("--lenses", type=Path, default=ROOT.parent / "shared" / "lenses")
    options = read_arguments(parser)
    if options.quick:
        options.lenses = options.out / "lenses"
        options.lenses.mkdir()
        write_lens(load_lens(SMALL_LENS), options.lenses / f"{SMALL_LENS}.json")
    files = sorted(options.lenses.rglob("*.json"))
    names = [file.relative_to(options.lenses).as_posix() for file in files]
    lenses = [read_lens(file) for file in files]
    launched = launch_all(lenses, names)
    results: dict[str, Comparison] = {}
    for bucket in (PLAIN, MEDIUM, LARGE):
        left = [i for i, name in enumerate(names) if name not in results]
        fitting = []
        for i in left:
            own = bucket_of(lenses[i])
            if own.surfaces <= bucket.surfaces and own.even <= bucket.even and own.odd <= bucket.odd:
                fitting.append(i)
        for start in range(0, len(fitting), 40):
            results |= compare_launched(launched, fitting[start : start + 40], bucket)
            print(f"{len(results)} of {len(names)}", file=sys.stderr, flush=True)
    kinds = {name: stratum(name, lens) for name, lens in zip(names, lenses, strict=True)}
    rows = table(results, kinds)
    lines = [
        "# Ray trace against an independent one",
        "",
        "| lenses | number | rays that pass | rays that fail inside the lens | fates that differ | "
        "position, mm | direction | optical path, mm |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for r in rows:
        numbers = " | ".join(f"{r[name]:.1e}" for name in QUANTITIES)
        lines.append(f"| {r['kind']} | {r['lenses']} | {r['passing']} | {r['failing']} | {r['disagree']} | {numbers} |")
    unreached = [names[i] for i in range(len(names)) if not launched.chief.found[i].all()]
    lines += ["", f"Lenses whose stated image circle no chief ray reaches: {len(unreached)}."]
    worst = {name: c.disagreements[:5] for name, c in results.items() if c.disagreements}
    report = {"table": rows, "unreached": unreached, "disagreements": worst}
    write_report(options.out, "oracle", report, "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
