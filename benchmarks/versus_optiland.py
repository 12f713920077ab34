"""A PSF and an MTF by Optiland and by ours, on the same lens: seconds from the start of Python on, and agreement.

    python -m venv ENVIRONMENT && ENVIRONMENT/bin/pip install optiland==0.6.3
    python benchmarks/versus_optiland.py --optiland ENVIRONMENT/bin/python [--out FOLDER] [--quick]

A double Gauss of 50 mm at f/4, focused at infinity, d line, every medium with the index that ours has; light at
129 × 129 points 1 µm apart around the chief ray, on the axis and at 0.4 of the image radius. Optiland computes it by
FFT (on the points that its grid gives), by a matrix transform and by Huygens' sum; ours is `Camera.psf` with one point
per pixel. An MTF is Optiland's own, ours the FFT of our PSF.

Each runs in a process of its own, first with nothing compiled and kept ("cold"), then with what the first left
("again"); in that process once more at other fields ("next", median of three). CPU seconds of all threads, with those
of the wall beside them. Writes versus_optiland.json and .md. --quick without Optiland runs ours alone.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from machine import amount, machine, read_arguments, require, write_report

if TYPE_CHECKING:
    import numpy as np

    from defocus.lens.prescription import Lens

LENS, F_NUMBER, WAVELENGTH_NM = "leica-summicron-50-f2", 4.0, 587.5618
SIZE, PITCH_UM = amount(129, quick=33), 1.0
RAYS, GRID = amount((128, 512), quick=(32, 64))  # Optiland's samples across the pupil, and the grid of its FFT
FIELDS = (0.0, 0.4)  # of the image radius
Numbers = dict[str, Any]


def lens_numbers(lens: Lens, wavelength_nm: float) -> Numbers:
    """What `optiland_lens` builds a lens of: media by their index at one wavelength, and the surfaces."""
    from defocus.optics.system import refractive_indices

    rows = [
        {"radius": s.radius, "thickness": s.thickness, "conic": s.conic, "aspheric": list(s.aspheric)}
        for s in lens.surfaces
    ]
    return {
        "index": [float(n) for n in refractive_indices(lens, wavelength_nm)],
        "surfaces": rows,
        "stop": lens.stop,
        "wavelength_nm": wavelength_nm,
    }


def optiland_lens(numbers: Numbers) -> Any:
    """The lens in Optiland; without aperture, fields and wavelengths, unless `numbers` have them."""
    import numpy as np
    from optiland.materials import IdealMaterial
    from optiland.optic import Optic

    index, optic = numbers["index"], Optic()
    optic.surfaces.add(index=0, thickness=np.inf, material=IdealMaterial(index[0]))
    for i, s in enumerate(numbers["surfaces"]):
        powers = dict(s["aspheric"])
        shape: dict[str, Any] = {"surface_type": "standard"}
        if powers:
            odd = any(p % 2 for p in powers)
            terms = range(1, max(powers) + 1) if odd else range(2, max(powers) + 1, 2)
            shape = {"surface_type": "odd_asphere" if odd else "even_asphere"}
            shape |= {"coefficients": [powers.get(p, 0.0) for p in terms], "tol": 1e-13, "max_iter": 100}
        optic.surfaces.add(
            index=i + 1,
            radius=s["radius"],
            thickness=s["thickness"],
            conic=s["conic"],
            material=IdealMaterial(index[i + 1]),
            is_stop=i == numbers["stop"],
            **shape,
        )
    optic.surfaces.add(index=len(numbers["surfaces"]) + 1)
    if "pupil_mm" in numbers:
        optic.set_aperture(aperture_type="EPD", value=numbers["pupil_mm"])
        optic.fields.set_type("angle")
        for angle in numbers["angle_deg"]:
            optic.fields.add(y=angle)
        optic.wavelengths.add(value=numbers["wavelength_nm"] * 1e-3, is_primary=True)
    return optic


# --- what runs in a process of its own --------------------------------------------------------------------------------


def optiland_psf(numbers: Numbers, way: str) -> Callable[[float], np.ndarray]:
    """Optiland's PSF as a function of the field (of the farthest), rows from below."""
    import numpy as np
    from optiland.psf import FFTPSF, ScalarHuygensPSF
    from optiland.psf.mmdft import MMDFTPSF

    optic, wave = optiland_lens(numbers), numbers["wavelength_nm"] * 1e-3

    class HuygensPSF(ScalarHuygensPSF):
        """Around our chief ray, not around the mean of the rays."""

        def _determine_image_center(self) -> tuple[np.ndarray, np.ndarray]:
            return np.zeros(1), np.array([np.interp(self.fields[0].coord[1], (0.0, 1.0), numbers["height_mm"])])

    ways: dict[str, Callable[[float], Any]] = {
        "FFT": lambda y: FFTPSF(optic, (0.0, y), wave, RAYS, GRID),
        "matrix": lambda y: MMDFTPSF(optic, (0.0, y), wave, RAYS, SIZE, PITCH_UM),
        # It spreads its points from edge to edge.
        "Huygens": lambda y: HuygensPSF(
            optic, (0.0, y), wave, RAYS, SIZE, pixel_pitch=PITCH_UM * 1e-3 * (SIZE - 1) / SIZE
        ),
    }
    return lambda y: ways[way](y).psf


def optiland_mtf(numbers: Numbers, way: str) -> Callable[[float], np.ndarray]:
    """Optiland's MTF as a function of the field: frequencies (1/mm), tangential and sagittal."""
    import numpy as np
    from optiland.mtf import FFTMTF, HuygensMTF

    optic, wave = optiland_lens(numbers), numbers["wavelength_nm"] * 1e-3

    def mtf(y: float) -> np.ndarray:
        if way == "FFT":
            result = FFTMTF(optic, [(0.0, y)], wave, RAYS, GRID)
        else:
            result = HuygensMTF(optic, [(0.0, y)], wave, RAYS, SIZE)
        tangential, sagittal = result.mtf[0]
        frequency = np.asarray(result.freq[0] if isinstance(result.freq, list) else result.freq)
        count = min(len(frequency), len(tangential), len(sagittal))
        return np.stack([frequency[:count], tangential[:count], sagittal[:count]])

    return mtf


def our_psf(numbers: Numbers, way: str) -> Callable[[float], np.ndarray]:
    """`Camera.psf` with one point per pixel."""
    import math

    from defocus import Camera, load_lens

    camera = Camera(load_lens(LENS), f_number=F_NUMBER, pixel_um=PITCH_UM, sensor_shift_mm=0.0)
    options = {"size": SIZE, "bands": "d", "supersample": 1, "exact": True}
    return lambda y: camera.psf(math.inf, (0.0, y * FIELDS[-1]), **options).array[0]


def our_mtf(numbers: Numbers, way: str) -> Callable[[float], np.ndarray]:
    """The FFT of our PSF: frequencies (1/mm), tangential and sagittal."""
    psf = our_psf(numbers, way)

    def mtf(y: float) -> np.ndarray:
        import numpy as np

        light = psf(y)
        spectra = [np.abs(np.fft.rfft(light.sum(axis))) for axis in (1, 0)]
        return np.stack([np.fft.rfftfreq(SIZE, PITCH_UM * 1e-3), *(s / s[0] for s in spectra)])

    return mtf


WAYS: dict[str, tuple[Callable[[Numbers, str], Callable[[float], Any]], str]] = {
    "PSF, ours": (our_psf, ""),
    "PSF, Optiland, matrix transform": (optiland_psf, "matrix"),
    "PSF, Optiland, FFT": (optiland_psf, "FFT"),
    "PSF, Optiland, Huygens": (optiland_psf, "Huygens"),
    "MTF, ours": (our_mtf, ""),
    "MTF, Optiland, FFT": (optiland_mtf, "FFT"),
    "MTF, Optiland, Huygens": (optiland_mtf, "Huygens"),
}


def work(name: str, numbers: Numbers, folder: Path) -> None:
    """In a process of its own: the farthest field, which counts from the start of Python on, and then others."""
    import numpy as np

    make, way = WAYS[name]
    call = make(numbers, way)
    arrays = {FIELDS[-1]: np.asarray(call(1.0))}
    first = {"cpu_s": time.process_time(), "wall_s": time.time() - float(os.environ["BEGAN"])}
    times = []
    for y in (0.0, 0.3, 0.7):
        cpu, wall = time.process_time(), time.perf_counter()
        array = np.asarray(call(y))
        times.append({"cpu_s": time.process_time() - cpu, "wall_s": time.perf_counter() - wall})
        arrays.setdefault(y, array)
    after = {clock: statistics.median(t[clock] for t in times) for clock in times[0]}
    np.savez(folder / f"{name}.npz", axis=arrays[0.0], field=arrays[FIELDS[-1]])
    print(json.dumps({"first": first, "next": after}), flush=True)


# --- report -----------------------------------------------------------------------------------------------------------


def run(name: str, python: str, folder: Path) -> dict[str, Any]:
    """A way cold and again, in processes that share what they keep."""
    variables = {k: v for k, v in os.environ.items() if not k.startswith(("JAX_", "XLA_", "DEFOCUS_"))}
    cache = folder / str(list(WAYS).index(name))
    variables |= {"DEFOCUS_CACHE": str(cache), "NUMBA_CACHE_DIR": str(cache), "JAX_PLATFORMS": "cpu"}
    variables |= {"MPLBACKEND": "agg", "PYTHONWARNINGS": "ignore"}
    words = [python, __file__, "--process", name, "--out", str(folder), *(["--quick"] if "--quick" in sys.argv else [])]
    moments = []
    for _ in range(2):
        began = str(time.time())
        done = subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True, env=variables | {"BEGAN": began})
        moments.append(json.loads(done.stdout.splitlines()[-1]))
    return {"cold": moments[0]["first"], "again": moments[1]["first"], "next": moments[1]["next"]}


def agreement(folder: Path) -> dict[str, Any]:
    """Relative L1 between our PSF and theirs where the points are the same, and the largest difference of MTFs."""
    import numpy as np

    def arrays(name: str) -> Any:
        return np.load(folder / f"{name}.npz")

    numbers: dict[str, Any] = {}
    if not list(folder.glob("*Optiland*.npz")):
        return numbers
    for place in ("axis", "field"):
        light = arrays("PSF, ours")[place]
        light = light / light.sum()
        for way in ("matrix transform", "Huygens"):
            other = arrays(f"PSF, Optiland, {way}")[place]
            other = other / other.sum()
            numbers[f"PSF, {way}, {place}"] = {"relative_l1": float(np.abs(other[::-1] - light).sum())}
        frequency, *curves = arrays("MTF, ours")[place]
        for way in ("FFT", "Huygens"):
            theirs = arrays(f"MTF, Optiland, {way}")[place]
            inside = frequency <= min(300.0, theirs[0].max())
            gap = [
                np.abs(np.interp(frequency, theirs[0], t) - c)[inside].max()
                for t, c in zip(theirs[1:], curves, strict=True)
            ]
            numbers[f"MTF, {way}, {place}"] = {"largest_difference": float(max(gap))}
    return numbers


def markdown(result: dict[str, Any]) -> str:
    on = result["machine"]
    lines = [
        "# A PSF and an MTF beside Optiland",
        "",
        f"{on['cpu']}, {on['cores']} cores, load {on['load_before']:.1f} before; Python {on['python']}, jax "
        f"{on['jax']}, Optiland {result['optiland']}. {LENS} at f/{F_NUMBER:g}, focused at infinity, d line; "
        f"{SIZE} × {SIZE} points {PITCH_UM:g} µm apart; Optiland with {RAYS} × {RAYS} rays, FFT on {GRID} × {GRID}. "
        "CPU seconds (wall seconds) from the start of Python on: cold, nothing compiled; again, with what the first "
        "process left; next, another field in that process.",
        "",
        "| what | cold | again | next |",
        "| --- | --- | --- | --- |",
    ]
    for name, times in result["seconds"].items():
        cells = (
            f"{times[moment]['cpu_s']:.2f} ({times[moment]['wall_s']:.2f})" for moment in ("cold", "again", "next")
        )
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    lines += [
        "",
        "Agreement with ours: relative L1 of PSFs, each summing to 1 in the window; largest difference of MTFs up to "
        "300 cycles/mm.",
        "",
        "| what | on the axis | at 0.4 of the image radius |",
        "| --- | --- | --- |",
    ]
    names = dict.fromkeys(name.rpartition(", ")[0] for name in result["agreement"])
    for name in names:
        numbers = (result["agreement"][f"{name}, {place}"] for place in ("axis", "field"))
        cells = (f"{n.get('relative_l1', n.get('largest_difference')):.4f}" for n in numbers)
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    lines += ["", result["note"]] if "note" in result else []
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--optiland", help="a Python that has Optiland; by default this one")
    parser.add_argument("--process", choices=tuple(WAYS), help=argparse.SUPPRESS)
    options = read_arguments(parser)
    if options.process is not None:
        work(options.process, json.loads((options.out / "lens.json").read_text()), options.out)
        return
    if options.optiland is None and not options.quick:
        require("optiland")
    python, ways, version = options.optiland or sys.executable, list(WAYS), "not installed"
    if options.optiland is None and not importlib.util.find_spec("optiland"):
        ways = [name for name in WAYS if "ours" in name]
    else:
        code = "from importlib.metadata import version; print(version('optiland'))"
        version = subprocess.run([python, "-c", code], check=True, capture_output=True, text=True).stdout.strip()
    result: dict[str, Any] = {"machine": machine(), "optiland": version, "seconds": {}}
    from defocus import Camera, load_lens

    camera = Camera(load_lens(LENS), f_number=F_NUMBER, pixel_um=PITCH_UM, sensor_shift_mm=0.0)
    reports = [camera.psf(float("inf"), (0.0, y), size=32, bands="d").report for y in FIELDS]
    numbers = lens_numbers(camera.lens, WAVELENGTH_NM) | {
        "pupil_mm": float(camera.first_order.focal_length) / F_NUMBER,
        "angle_deg": [report["field_deg"] for report in reports],
        "height_mm": [report["image_height_mm"] for report in reports],
    }
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "lens.json").write_text(json.dumps(numbers))
        for name in ways:
            result["seconds"][name] = run(name, sys.executable if "ours" in name else python, folder)
            print(name, result["seconds"][name], flush=True)
        result["agreement"] = agreement(folder)
    write_report(options.out, "versus_optiland", result, markdown(result))


if __name__ == "__main__":
    main()
