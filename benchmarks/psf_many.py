"""Very many PSFs over a whole collection of lenses: each is refused with a reason, or sane; none is silent.

    python benchmarks/psf_many.py LENS_FOLDER [--count N] [--piece N] [--seconds S] [--out FOLDER]
    python benchmarks/psf_many.py --quick              # one built-in lens

Lens, field (anywhere in the image circle, its rim included), focus and depth are drawn at random: focus (one of twelve
distances for each lens) and depth evenly in 1 / distance, from infinity down to 15 focal lengths. A PSF that is called
ok is sane if all its values are finite, none is negative beyond rounding, they sum to 1, between none (within the 3 %
that points on a pixel may miss) and a fifth of the light falls outside the window, and the light that comes through the
pupil is more than none. Requests are computed in pieces, so that memory does not grow with their number; --seconds ends
before the piece that would begin later.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import jax
import numpy as np

from defocus import Camera, PsfBatch
from defocus.lens import load_lens
from defocus.lens.formats import read_lens, write_lens
from defocus.point_requests import make_requests
from defocus.psf.bands import parse_bands
from defocus.psf.engine import PsfOptions, TracedRequests
from machine import SMALL_LENS, SMALL_PSF, amount, machine, read_arguments, write_report

SIZE = amount(128, quick=SMALL_PSF["size"])
NEAREST = 15.0  # focal lengths
FOCUSES = amount(12, quick=1)  # for each lens


@dataclass(frozen=True)
class Draw:
    """What is asked for: a lens file, a camera, a depth and a field for each PSF."""

    names: list[str]
    cameras: list[Camera]
    depth_m: list[float]
    field: list[tuple[float, float]]

    def part(self, rows: slice) -> Draw:
        """Some of the requests."""
        return Draw(self.names[rows], self.cameras[rows], self.depth_m[rows], self.field[rows])


def draw(folder: Path, count: int, seed: int = 20) -> Draw:
    """Requests at random over the lenses of a folder."""
    files = sorted(folder.rglob("*.json"))
    rng = np.random.default_rng(seed)
    order = np.concatenate([rng.permutation(len(files)) for _ in range(-(-count // len(files)))])[:count]
    lenses = {i: Camera(read_lens(files[i])) for i in sorted(set(order.tolist()))}
    focal = {i: abs(float(camera.first_order.focal_length)) for i, camera in lenses.items()}

    def vergence(size: int) -> np.ndarray:
        """Of the nearest distance; none at all for one in ten."""
        return np.where(rng.random(size) < 0.1, 0.0, rng.random(size))

    with np.errstate(divide="ignore"):
        depth = np.array([focal[i] for i in order.tolist()]) * NEAREST * 1e-3 / vergence(count)
        focus = {i: focal[i] * NEAREST * 1e-3 / vergence(FOCUSES) for i in lenses}
    cameras = {i: [camera.focused(float(f)) for f in focus[i]] for i, camera in lenses.items()}
    which = rng.integers(0, FOCUSES, count)
    radius = np.where(rng.random(count) < 0.1, 1.0, np.sqrt(rng.random(count)))
    azimuth = rng.uniform(-np.pi, np.pi, count)
    return Draw(
        [files[i].relative_to(folder).as_posix() for i in order],
        [cameras[i][k] for i, k in zip(order.tolist(), which.tolist(), strict=True)],
        depth.tolist(),
        list(zip((radius * np.cos(azimuth)).tolist(), (radius * np.sin(azimuth)).tolist(), strict=True)),
    )


def kind(status: str) -> str:
    """A status without its numbers."""
    if status.startswith("needs"):
        return "needs too many samples"
    return (
        "more than a fifth of the light outside the window" if "% of the light" in status else status.partition(":")[0]
    )


@dataclass
class Tally:
    """What became of the requests so far."""

    statuses: Counter[str] = field(default_factory=Counter)
    insane: Counter[str] = field(default_factory=Counter)
    examples: list[dict[str, object]] = field(default_factory=list)
    sum_error: float = 0.0
    lowest: float = 0.0
    outside: list[float] = field(default_factory=list)
    residual: list[float] = field(default_factory=list)
    samples: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)  # of each piece

    def add(self, drawn: Draw, batch: PsfBatch) -> None:
        """Count the PSFs of a piece, and judge those that are called ok."""
        for row, report in enumerate(batch.reports):
            status = report["status"]
            self.statuses[kind(status)] += 1
            if (status == "ok") != bool(batch.ok[row]) or not status:
                self._insane("status and mask disagree", drawn, row, report)
            if status != "ok":
                if np.any(batch.psf[row]):
                    self._insane("refused, but not zero", drawn, row, report)
                continue
            psf = batch.psf[row]
            if not np.isfinite(psf).all():
                self._insane("not finite", drawn, row, report)
                continue
            error, low = float(np.abs(psf.sum(axis=(1, 2)) - 1.0).max()), float(psf.min() / psf.max())
            self.sum_error, self.lowest = max(self.sum_error, error), min(self.lowest, low)
            outside, light = report["energy_outside"], report["light_mm2"]
            checks = {
                "sum": error < 1e-5,
                "sign": low > -1e-6,
                "energy outside": -0.03 < outside <= 0.2,
                "light": 0.0 < light < np.inf,
            }
            for name, good in checks.items():
                if not good:
                    self._insane(name, drawn, row, report)
            self.outside.append(outside)
            self.residual.append(report["residual_waves"])
            self.samples.append(report["samples"])

    def _insane(self, what: str, drawn: Draw, row: int, report: dict[str, object]) -> None:
        self.insane[what] += 1
        if len(self.examples) < 30:
            numbers = {key: value for key, value in report.items() if isinstance(value, str | int | float)}
            here = {"lens": drawn.names[row], "depth_m": drawn.depth_m[row], "field": drawn.field[row]}
            self.examples.append({"what": what, **here, "focus_m": float(drawn.cameras[row].focus_m), **numbers})

    def as_json(self, lenses: int) -> dict[str, object]:
        quantiles = ("0", "0.5", "0.95", "0.99", "0.999", "1")
        pieces = [self.seconds[0], float(np.median(self.seconds[1:] or self.seconds))]
        return {
            "device": jax.devices()[0].device_kind,
            **machine(),
            "requests": self.statuses.total(),
            "lenses": lenses,
            "seconds": sum(self.seconds),
            "seconds_of_first_piece_and_median": pieces,
            "status": dict(self.statuses.most_common()),
            "insane": dict(self.insane),
            "examples": self.examples,
            "largest_sum_error": self.sum_error,
            "lowest_value_of_peak": self.lowest,
            "energy_outside": {q: float(np.quantile(self.outside, float(q))) for q in quantiles},
            "residual_waves": {q: float(np.quantile(self.residual, float(q))) for q in quantiles},
            "samples": {q: float(np.quantile(self.samples, float(q))) for q in quantiles},
        }


def markdown(result: dict[str, object], piece: int) -> str:
    first, others = result["seconds_of_first_piece_and_median"]
    quantiles = zip(result["residual_waves"].items(), result["energy_outside"].values(), strict=True)
    lines = [
        f"# {result['requests']:,} PSFs over {result['lenses']} lenses ({result['device']})",
        "",
        f"{SIZE}×{SIZE} pixels, d line, {result['seconds']:.0f} s in all; the first {piece:,} take {first:.0f} s, "
        f"compilation included, further ones {others:.1f} s. Largest deviation of a sum from 1: "
        f"{result['largest_sum_error']:.1e}; lowest value: {result['lowest_value_of_peak']:.1e} of the peak.",
        "",
        "| outcome | number |",
        "| --- | --- |",
        *(f"| {status} | {count:,} |" for status, count in result["status"].items()),
        f"| of these silent or insane | {sum(result['insane'].values())} |",
        *(f"| insane: {what} | {count} |" for what, count in result["insane"].items()),
        "",
        "| quantile | residual of the fit, waves RMS | light outside the window |",
        "| --- | --- | --- |",
        *(f"| {q} | {residual:.2g} | {outside:.2g} |" for (q, residual), outside in quantiles),
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lenses", type=Path, nargs="?")
    parser.add_argument("--count", type=int, default=amount(10_000, quick=2))
    parser.add_argument("--piece", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=1e9)
    options = read_arguments(parser)
    if options.quick and options.lenses is None:
        options.lenses = Path(tempfile.mkdtemp())
        write_lens(load_lens(SMALL_LENS), options.lenses / f"{SMALL_LENS}.json")
    elif options.lenses is None:
        parser.error("LENS_FOLDER is missing")
    drawn = draw(options.lenses, options.count)
    begin, tally = time.perf_counter(), Tally()
    print(f"{options.count:,} requests over {len(set(drawn.names))} lenses", flush=True)
    for start in range(0, options.count, options.piece):
        if time.perf_counter() - begin > options.seconds:
            break
        piece = drawn.part(slice(start, start + options.piece))
        clock = time.perf_counter()
        requests = make_requests(piece.cameras, piece.depth_m, piece.field)
        traced = TracedRequests(requests, parse_bands("d"), size=SIZE)
        batch = traced.psfs(SIZE, PsfOptions())
        tally.seconds.append(time.perf_counter() - clock)
        tally.add(piece, batch)
        print(f"{tally.statuses.total():,} in {sum(tally.seconds):.0f} s, insane: {dict(tally.insane)}", flush=True)
    result = tally.as_json(len(set(drawn.names)))
    write_report(options.out, "psf_many", result, markdown(result, options.piece))


if __name__ == "__main__":
    main()
