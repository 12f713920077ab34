"""How cost grows: time and peak memory against lenses, PSFs, their size, layers, pixels and pairs.

    python benchmarks/growth.py [--only TABLE ...] [--lenses FOLDER] [--seconds S] [--out FOLDER] [--quick]
    python benchmarks/growth.py --figure docs/images/growth.png

Each table takes one number from small to large and holds everything else. The first call of a point compiles, or loads
programs that are kept; what counts is the median of the calls after it. On a processor each point has a process of its
own, whose largest resident memory is the peak; on a GPU each table has one, and the peak is the allocator's, of this
point and those before it. A table ends before the point whose calls after the first would take it beyond --seconds. The
exponent is the slope of log(seconds) over log(items) in the upper half of the points, and over log(work) where the work
of an item depends on the number. Writes growth_cpu.json and .md, or growth_gpu; tables that are not measured stay.

It measures through the whole of the package what psf_speed, render_speed, photograph_speed and synth_speed look into,
and takes their scenes and settings.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from machine import (
    ONE_PSF,
    SMALL_CAMERA,
    SMALL_LENS,
    SMALL_PLAN,
    SMALL_PSF,
    SMALL_PX,
    amount,
    is_quick,
    machine,
    read_arguments,
    write_report,
)

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # two processes share a GPU

Facts = dict[str, float]
Row = dict[str, Any]
PSF: dict[str, Any] = {"size": 64, "bands": "d"}
CALLS, ENOUGH_S = 3, 4.0  # calls that count, at most; none begins after so many seconds
WIDTHS = {300_000: (672, 448), 700_000: (1024, 684), 1_500_000: (1500, 1000), 6_000_000: (3000, 2000)}
WIDTHS |= {24_000_000: (6000, 4000), 3072: SMALL_PX}


@dataclass(frozen=True)
class Job:
    """What a point measures, and what compiles it where that takes less than the work itself."""

    call: Callable[[], Facts]
    first: Callable[[], Facts] | None = None


@dataclass(frozen=True)
class Table:
    """One number that grows; `items` of a point are what its seconds are divided by."""

    title: str
    axis: str
    item: str
    job: Callable[[int, argparse.Namespace], Job]
    points: tuple[int, ...]
    items: Callable[[int], float] = float


# --- what is measured -------------------------------------------------------------------------------------------------


def lenses(count: int, options: argparse.Namespace) -> Job:
    """Cameras and one PSF of each of many lenses in one call, focus and depth in focal lengths."""
    from defocus import Camera, list_lenses, load_lens, psfs
    from defocus.lens.formats import read_lens

    if options.lenses is None:
        names = [SMALL_LENS] if is_quick() else [entry.name for entry in list_lenses()]
        collection: list[Any] = names
        read: Callable[[Any], Any] = load_lens
    else:
        collection, read = sorted(options.lenses.rglob("*.json")), read_lens
    order = np.random.default_rng(1).permutation(len(collection))[:count]
    prescriptions = [read(collection[i]) for i in order.tolist()]
    focal_m = [abs(float(Camera(lens).first_order.focal_length)) * 1e-3 for lens in prescriptions]

    def call() -> Facts:
        cameras = [Camera(lens, focus_m=50.0 * f, pixel_um=4.0) for lens, f in zip(prescriptions, focal_m, strict=True)]
        batch = psfs(cameras, [51.0 * f for f in focal_m], (0.3, 0.4), **amount(PSF, quick=SMALL_PSF))
        return {"ok": int(batch.ok.sum())}

    return Job(call)


def _camera() -> Any:
    """A lens of 50 mm at f/4, pixels of 4 µm, focused at 2 m."""
    from defocus import Camera, load_lens

    return Camera(load_lens(SMALL_LENS), focus_m=2.0, f_number=4.0, pixel_um=4.0)


def psfs_of_a_camera(count: int, options: argparse.Namespace) -> Job:
    """PSFs of one camera in one call, fields and depths at random: blur radii up to 12 pixels."""
    rng = np.random.default_rng(2)
    camera = _camera()
    depth = (1.0 / rng.uniform(1.0 / 2.9, 1.0 / 1.55, count)).tolist()
    radius, azimuth = 0.9 * np.sqrt(rng.random(count)), rng.uniform(-np.pi, np.pi, count)
    field = list(zip((radius * np.cos(azimuth)).tolist(), (radius * np.sin(azimuth)).tolist(), strict=True))

    def call() -> Facts:
        batch = camera.psfs(depth, field, **amount(PSF, quick=SMALL_PSF))
        return {"ok": int(batch.ok.sum())}

    return Job(call)


def psf_of_size(depth_m: float) -> Callable[[int, argparse.Namespace], Job]:
    """One PSF in windows of different size; its work is that of the propagation's transforms."""

    def job(size: int, options: argparse.Namespace) -> Job:
        camera = _camera()

        def call() -> Facts:
            report = camera.psf(depth_m, (0.3, 0.4), size=size, bands="d").report
            samples, points = report["samples"], report.get("supersample", 0) * size
            if report["propagation"] == "pixels":  # as `psf.pixel_integral.is_cheaper` counts it
                flop = samples**2 * (8000.0 + 24.0 * size)
            elif report["propagation"] == "rays":
                flop = samples**2 + size**2
            else:
                flop = 8.0 * (samples**2 * points + samples * points**2)
            return {"work": float(flop), "samples": samples, "propagation": report["propagation"]}

        return Job(call)

    return job


def patch_layers(count: int, options: argparse.Namespace) -> Job:
    """The patch of one pair, 384 × 384 pixels, PSFs of 128 × 128 pixels in three bands."""
    import jax
    import jax.numpy as jnp

    from defocus.render.composite import render_layers
    from defocus.scene.layers import quantise
    from render_speed import PATCH, kernels, scene

    linear, coc = map(jnp.asarray, scene(PATCH, PATCH, 0, float(count - 1)))
    psfs = jnp.asarray(kernels(count, 0))

    @jax.jit
    def render(linear: jax.Array, coc: jax.Array, psfs: jax.Array) -> jax.Array:
        return render_layers(linear, coc, quantise(coc, jnp.ones_like(coc), layers=count), psfs)

    def call() -> Facts:
        jax.block_until_ready(render(linear, coc, psfs))
        return {}

    return Job(call)


def photograph_layers(count: int, options: argparse.Namespace) -> Job:
    """A photograph of 768 × 512 pixels in two tiles, one PSF of 128 × 128 pixels for each layer."""
    from defocus.render.full_field import render_photograph
    from defocus.scene.layers import cut_layers
    from render_speed import kernels, scene

    cols, rows = amount((768, 512), quick=SMALL_PX)
    linear, coc = scene(rows, cols, 1, float(count - 1))
    layers = cut_layers(coc, np.ones_like(coc))
    psfs = kernels(layers.coc_px.shape[0], 0)[None, None]

    def call() -> Facts:
        render_photograph(linear, coc, layers, psfs)
        return {"layers": int(np.asarray(layers.used).sum())}

    return Job(call)


def photograph(constant_blur: bool) -> Callable[[int, argparse.Namespace], Job]:
    """The built-in portrait through a lens of 50 mm; its work is the sum of the layers' pixels.

    More pixels on the same sensor are smaller ones, and blur reaches over more of them. With a `constant_blur` the stop
    closes by as much: blur in pixels and the number of layers stay.
    """

    def job(pixels: int, options: argparse.Namespace) -> Job:
        from defocus import Camera
        from defocus.lens import load_lens
        from defocus.scene.procedural import make_scene
        from photograph_speed import scaled

        size = WIDTHS[pixels]
        f_number = 2.8 * (size[0] / WIDTHS[MEGAPIXELS[0]][0] if constant_blur else 1.0)
        settings = amount({"pixels": size, "f_number": f_number}, quick=SMALL_CAMERA)
        camera = Camera(load_lens(SMALL_LENS), focus_m=1.52, **settings)
        # As small as the smallest: the making of a large one would be the peak of memory.
        sharp = make_scene("portrait", amount(WIDTHS[MEGAPIXELS[0]], quick=SMALL_PX)).picture(samples=1)
        linear, depth = scaled(sharp.linear, size), scaled(sharp.depth_m, size)

        def call() -> Facts:
            report = camera.photograph(linear, depth, **amount({}, quick=ONE_PSF)).report
            facts = {"layers": report["layers"], "kernel_px": report["kernel_px"], "psfs": report["psfs_computed"]}
            stages = {f"{name}_s": seconds for name, seconds in report["seconds"].items()}
            return facts | stages | {"work": float(pixels * report["layers"])}

        return Job(call)

    return job


def pairs(count: int, options: argparse.Namespace) -> Job:
    """A plan from its start to its last file, pairs of 128 × 128 pixels of six scenes through many lenses."""
    import user_programs
    from defocus.synth.engines.local import LocalEngine
    from defocus.synth.plan import make_plan
    from defocus.synth.run import run_plan

    def run(pairs: int) -> Facts:
        plan = make_plan(
            amount(user_programs.PLAN, quick=SMALL_PLAN)
            | {"train": {"pairs": pairs, "image_fraction": 1.0, "lens_fraction": 1.0}}
            | {"validation": {"pairs": 0}, "test": {"pairs": 0}}
        )
        with tempfile.TemporaryDirectory() as folder:
            summary = run_plan(plan, Path(folder) / "pairs", LocalEngine(1))
        return {"pairs": sum(summary.pairs.values())}

    return Job(lambda: run(count), lambda: run(min(count, 32)))


SIZES = (32, 64, 128, 256, 512)
LAYERS = (1, 2, 4, 8, 16, 32, 64)
MEGAPIXELS = (300_000, 700_000, 1_500_000, 6_000_000, 24_000_000)
PSFS = (1, 3, 10, 30, 100, 300, 1000, 3000, 10_000, 30_000, 100_000)
TABLES = {
    "lenses": Table(
        "Lenses: one PSF of each, in one call", "lenses", "lens", lenses, (1, 3, 10, 30, 81, 150, 300, 667)
    ),
    "psfs": Table("PSFs of one camera, in one call", "PSFs", "PSF", psfs_of_a_camera, PSFS),
    "size_in_focus": Table(
        "Size of a PSF, in focus", "pixels across", "pixel", psf_of_size(2.0), SIZES, lambda n: float(n * n)
    ),
    "size_defocused": Table(
        "Size of a PSF, blur radius 12 pixels",
        "pixels across", "pixel", psf_of_size(2.9), SIZES, lambda n: float(n * n),
    ),
    "patch_layers": Table("Layers of a pair's patch", "layers", "layer", patch_layers, LAYERS),
    "photograph_layers": Table("Layers of a photograph", "layers", "layer", photograph_layers, (1, 8, 16, 32, 64)),
    "photograph": Table(
        "Pixels of a photograph, same stop", "pixels", "megapixel", photograph(False), MEGAPIXELS,
        lambda n: n / 1e6,
    ),
    "photograph_same_blur": Table(
        "Pixels of a photograph, same blur", "pixels", "megapixel", photograph(True), MEGAPIXELS,
        lambda n: n / 1e6,
    ),
    "pairs": Table("Pairs", "pairs", "pair", pairs, (10, 30, 100, 300, 1000, 3000, 10_000, 30_000, 100_000)),
}  # fmt: skip
QUICK_POINTS = {"lenses": 1, "psfs": 1, "size_in_focus": 32, "size_defocused": 32, "patch_layers": 4}
QUICK_POINTS |= {"photograph_layers": 4, "photograph": 3072, "photograph_same_blur": 3072, "pairs": 4}


# --- how it is measured -----------------------------------------------------------------------------------------------


def measure(name: str, n: int, options: argparse.Namespace) -> Row:
    """Seconds of the first call and of those after it, and the peak of memory so far."""
    import jax

    job = TABLES[name].job(n, options)
    before_mb = _resident_mb()
    start = time.perf_counter()
    facts = (job.first or job.call)()
    first = time.perf_counter() - start
    wall, cpu = [], []
    while len(wall) < amount(CALLS, quick=1) and sum(wall) < ENOUGH_S:
        begin, clock = time.process_time(), time.perf_counter()
        facts = job.call()
        wall.append(time.perf_counter() - clock)
        cpu.append(time.process_time() - begin)
    memory = jax.devices()[0].memory_stats() or {}
    return {
        "n": n,
        "first_s": first,
        "seconds": statistics.median(wall),
        "cpu_s": statistics.median(cpu),
        "calls_s": sum(wall),
        "peak_MB": memory.get("peak_bytes_in_use", 0) / 1e6 or _resident_mb(),
        "host_MB": _resident_mb(),
        "before_MB": before_mb,
        **facts,
    }


def _resident_mb() -> float:
    """The largest resident memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (1e6 if sys.platform == "darwin" else 1e3)


@contextmanager
def process_of(name: str, options: argparse.Namespace) -> Iterator[Callable[[int], Row]]:
    """A process that measures points of one table, one after the other; with --quick this one."""
    if is_quick():
        yield lambda n: measure(name, n, options)
        return
    words = [sys.executable, __file__, "--process", name, *(["--lenses", str(options.lenses)] * bool(options.lenses))]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin is not None
        assert child.stdout is not None

        def ask(n: int) -> Row:
            print(n, file=child.stdin, flush=True)
            for line in child.stdout or ():
                if line.startswith('{"n"'):
                    return json.loads(line)
            raise ChildProcessError(f"its process ended with code {child.wait()}")

        yield ask
        child.stdin.close()


def answer(name: str, options: argparse.Namespace) -> None:
    """Measure the points whose numbers come in by the standard input."""
    for line in sys.stdin:
        print(json.dumps(measure(name, int(line), options)), flush=True)


def grow(name: str, backend: str, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """A table point by point, until it is whole or the next point would take longer than is left."""
    table = TABLES[name]
    rows: list[Row] = []
    result: dict[str, Any] = {"load_before": os.getloadavg()[0], "rows": rows}
    most = len(list(options.lenses.rglob("*.json"))) if options.lenses else 81
    points = [QUICK_POINTS[name]] if is_quick() else list(table.points)
    if name == "lenses":
        points = sorted({min(n, most) for n in points})
    spent = 0.0
    together = backend != "cpu" or is_quick()
    with process_of(name, options) if together else nullcontext() as one_process:
        for n in points:
            if rows:
                longer = next_seconds(table, rows, n)
                if spent + longer > options.seconds:
                    result["stopped"] = f"before {n:,}: about {longer:.0f} s more, of {options.seconds:.0f} s in all"
                    break
            try:
                with nullcontext(one_process) if one_process else process_of(name, options) as ask:
                    rows.append(ask(n))
            except (ChildProcessError, BrokenPipeError) as error:
                result["stopped"] = f"at {n:,}: {error}"
                break
            spent += rows[-1]["calls_s"]
            result |= exponents(table, rows)
            print(name, rows[-1], flush=True)
            yield result
    yield result


def next_seconds(table: Table, rows: list[Row], n: int) -> float:
    """What a call of the next point may take: as the last two points grow, of one alone as its items."""

    def ratio(a: int, b: int) -> float:
        return table.items(b) / table.items(a)

    slope = 1.0
    if len(rows) > 1:
        before, last = rows[-2:]
        slope = min(max(math.log(last["seconds"] / before["seconds"], ratio(before["n"], last["n"])), 0.0), 1.3)
    return rows[-1]["seconds"] * ratio(rows[-1]["n"], n) ** slope


def exponents(table: Table, rows: list[Row]) -> dict[str, float]:
    """Slopes of log(seconds) in the upper half of the points, over items and over work, of the wall and of the CPU."""
    upper = rows[-max(2, math.ceil(len(rows) / 2)) :]
    if len(upper) < 2:
        return {}
    slopes = {}
    for clock, prefix in (("seconds", ""), ("cpu_s", "cpu_")):
        over = {f"{prefix}exponent": [table.items(row["n"]) for row in upper]}
        if "work" in upper[0]:
            over[f"{prefix}exponent_of_work"] = [row["work"] for row in upper]
        for name, values in over.items():
            if len(set(values)) > 1:
                slopes[name] = float(np.polyfit(np.log(values), np.log([row[clock] for row in upper]), 1)[0])
    return slopes


# --- report -----------------------------------------------------------------------------------------------------------


def _cell(value: float | int | str) -> str:
    return value if isinstance(value, str) else f"{value:.3g}" if isinstance(value, float) else f"{value:,}"


def markdown(result: dict[str, Any]) -> str:
    on = result["machine"]
    lines = [
        f"# How cost grows on {result['device']}",
        "",
        f"{on['cpu']}, {on['cores']} cores; Python {on['python']}, jax {on['jax']}, numpy {on['numpy']}. Seconds are "
        "those of a call after the first (median), CPU seconds those of all threads; the first call compiles, or loads "
        "programs that are kept. Exponents: slope of log(seconds) over log(items), and over log(work) where an item's "
        "work depends on the number; upper half of each table.",
        *(["", result["note"]] if "note" in result else []),
        "",
        "| what grows | from, to | exponent | of CPU seconds | over work | of CPU seconds |",
        "| --- | --- | --- | --- | --- | --- |",
    ]  # fmt: skip
    keys = ("exponent", "cpu_exponent", "exponent_of_work", "cpu_exponent_of_work")
    for name, table in result["tables"].items():
        numbers = (f"{table[key]:.2f}" if key in table else "" for key in keys)
        ends = f"{table['rows'][0]['n']:,}, {table['rows'][-1]['n']:,}" if table["rows"] else ""
        lines.append(f"| {TABLES[name].title} | {ends} | " + " | ".join(numbers) + " |")
    for name, table in result["tables"].items():
        kind = TABLES[name]
        extra = [key for row in table["rows"][:1] for key in row if key not in PLAIN]
        lines += ["", f"## {kind.title}", ""]
        lines += [f"{_about(kind)} Load before: {table['load_before']:.1f}.", ""]
        heads = (kind.axis, "seconds", "CPU s", f"ms per {kind.item}", "peak memory, MB", "first call, s", *extra)
        lines += ["| " + " | ".join(heads) + " |", "| --- " * len(heads) + "|"]
        for row in table["rows"]:
            each = 1e3 * row["seconds"] / kind.items(row["n"])
            cells = [f"{row['n']:,}", f"{row['seconds']:.3f}", f"{row['cpu_s']:.3f}", f"{each:.3g}"]
            cells += [f"{row['peak_MB']:,.0f}", f"{row['first_s']:.1f}"]
            cells += [_cell(row[key]) for key in extra]
            lines.append("| " + " | ".join(cells) + " |")
        if "stopped" in table:
            lines += ["", f"Stopped {table['stopped']}."]
    return "\n".join(lines) + "\n"


PLAIN = {"n", "first_s", "seconds", "cpu_s", "calls_s", "peak_MB", "host_MB", "before_MB"}
ABOUT = {
    "size_in_focus": psf_of_size.__doc__,
    "size_defocused": psf_of_size.__doc__,
    "photograph": photograph.__doc__,
    "photograph_same_blur": photograph.__doc__,
}


def _about(table: Table) -> str:
    """The first sentence of what a table measures."""
    name = next(key for key, value in TABLES.items() if value is table)
    return " ".join((ABOUT.get(name) or table.job.__doc__ or "").partition("\n\n")[0].split())


def _power(value: float) -> str:
    """A power of ten as a figure's axis shows it."""
    exponent = round(math.log10(value))
    return (
        f"{value:g}"
        if -3 <= exponent <= 3
        else "10" + str(exponent).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))
    )


def draw(out: Path, file: Path) -> None:
    """Small multiples: seconds over the number that grows, on each machine that has a result."""
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    from defocus.draw import style
    from defocus.draw.sheet import Sheet, plain_plot

    machines = [path for where in ("cpu", "gpu") if (path := out / f"growth_{where}.json").exists()]
    results = [json.loads(path.read_text()) for path in machines]
    columns, wide, high = 3, 2.55, 2.2
    rows = math.ceil(len(TABLES) / columns)
    with style.look():
        sheet = Sheet(0.35 + columns * wide, rows * high + 0.75)
        names = [f"{result['device'].partition(' (')[0]}, {result['machine']['cores']} cores" for result in results]
        sheet.title(
            "How cost grows", "seconds of a call; lines: slope 1 over the work; numbers: slope of the upper half"
        )
        for number, (name, table) in enumerate(TABLES.items()):
            left, top = 0.55 + number % columns * wide, sheet.height - 0.85 - number // columns * high
            axes = sheet.axes((left, top - high + 0.75, wide - 0.65, high - 0.85))
            plain_plot(axes)
            axes.set(xscale="log", yscale="log")
            for axis in (axes.xaxis, axes.yaxis):
                axis.set_major_locator(LogLocator(numticks=5))
                axis.set_major_formatter(FuncFormatter(lambda value, _: _power(value)))
                axis.set_minor_formatter(NullFormatter())
            axes.set_xlabel(
                table.axis if table.item != "megapixel" else "megapixels", fontsize=style.SMALL, labelpad=1.0
            )
            axes.set_title(
                table.title.replace(", in one call", ""), fontsize=style.SMALL, fontweight="bold", loc="left"
            )
            words = []
            for result, label, colour in zip(results, names, (style.BLUE, style.ORANGE), strict=False):
                if name not in result["tables"]:
                    continue
                points = result["tables"][name]["rows"]
                work = [row.get("work", table.items(row["n"])) for row in points]
                floor = [points[-1]["seconds"] * w / work[-1] for w in work]
                count = [row["n"] / (1e6 if table.item == "megapixel" else 1.0) for row in points]
                axes.plot(count, floor, color=colour, linewidth=0.6, linestyle=":")
                axes.plot(count, [row["seconds"] for row in points], color=colour, marker="o", markersize=3.0,
                          linewidth=1.2, label=label)  # fmt: skip
                slope = result["tables"][name].get("exponent_of_work", result["tables"][name].get("exponent"))
                words.append("–" if slope is None else f"{slope:.2f}")
            axes.text(0.03, 0.97, " / ".join(words), transform=axes.transAxes, va="top", fontsize=style.SMALL)
            low, high_end = axes.get_ylim()
            axes.set_ylim(low, high_end * 2.0)
            axes.tick_params(which="both", length=2.0, pad=1.5)
            if number == 0:
                lines = axes.get_legend_handles_labels()
        sheet.figure.legend(*lines, loc="lower right", bbox_to_anchor=(0.99, 0.0), ncols=len(results))
        style.save(sheet.figure, file)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--only", nargs="+", choices=tuple(TABLES), default=tuple(TABLES))
    parser.add_argument("--lenses", type=Path, help="a folder of prescriptions in place of the built-in ones")
    parser.add_argument("--seconds", type=float, default=60.0, help="of the calls after the first, for each table")
    parser.add_argument("--process", choices=tuple(TABLES), help=argparse.SUPPRESS)
    parser.add_argument("--figure", type=Path, help="draw the results of --out instead of measuring")
    options = read_arguments(parser)
    if options.process is not None:
        answer(options.process, options)
        return
    if options.figure is not None:
        draw(options.out, options.figure)
        return
    import jax

    backend = jax.default_backend()
    device, stem = f"{jax.devices()[0].device_kind} ({backend})", f"growth_{backend}"
    result: dict[str, Any] = {"device": device, "machine": machine(), "tables": {}}
    earlier = options.out / f"{stem}.json"
    if earlier.exists():
        before = json.loads(earlier.read_text())
        if before["device"] == device and before["machine"]["cpu"] == result["machine"]["cpu"]:
            result["tables"] = before["tables"]
    for name in options.only:
        for table in grow(name, backend, options):
            result["tables"][name] = table
            ordered = {key: result["tables"][key] for key in TABLES if key in result["tables"]}
            result["tables"] = ordered
            (options.out / f"{stem}.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        write_report(options.out, stem, result, markdown(result))


if __name__ == "__main__":
    main()
