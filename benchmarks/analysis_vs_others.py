"""MTF, distortion, foci, lateral colour and fans against Optiland and ray-optics, and MTFs in three ways of our own.

    python -m venv OPTILAND && OPTILAND/bin/pip install optiland==0.6.3
    python -m venv RAYOPTICS && RAYOPTICS/bin/pip install rayoptics
    python benchmarks/analysis_vs_others.py --optiland OPTILAND/bin/python --rayoptics RAYOPTICS/bin/python

Each of the others gets an environment of its own, in which this script runs itself again; one that is missing is left
out, and the page says so. All take the same surfaces and indices, at infinity, sensor on the prescription's image
plane, stopped down, without other clear apertures than the stop; the field is the angle of our chief ray.

- ray-optics: its trace, with rays aimed at places in the stop until they are there; its Coddington trace (spherical
  surfaces alone).
- Optiland: `Distortion` and `FieldCurvature`, with its ray aiming; lateral colour from its chief rays; `FFTMTF`.
- Ours, of the lenses as they are, wide open: the MTF from the overlap of the pupil with itself (`Analysis.mtf`)
  against the Fourier transform of `Camera.psf`.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import versus_optiland
from versus_optiland import lens_numbers, optiland_lens

if TYPE_CHECKING:
    from defocus.lens.prescription import Lens

LENSES = (
    "zeiss-tessar-50-f3.5", "leica-summicron-50-f2", "zeiss-planar-50-f1.4", "zeiss-biogon-35-f2.8",
    "nikon-nikkor-24-f2.8", "zeiss-distagon-35-f4", "zeiss-sonnar-180-f2.8", "voigtlander-heliar-105-f3.5",
    "canon-serenar-50-f1.8", "hasselblad-hc-80-f2.8", "canon-rf-50-f1.2", "phone-us7558005",
)  # fmt: skip
F_NUMBER = 5.6
FIELDS = (0.0, 0.5, 0.7)
WAVES = (486.1327, 587.5618, 656.2725)
FREQUENCIES = (10.0, 20.0, 30.0, 40.0)
PITCH_UM = (
    2.5  # of the points of Huygens' sum: finer than half a period of all frequencies that f/5.6 passes, but for few
)
HEIGHTS = (-0.9, -0.5, 0.5, 0.9)  # of the stop, for fans
QUANTITIES = {
    "distortion": "chief ray at d, of its height",
    "sagittal_focus": "mm / focal length",
    "tangential_focus": "mm / focal length",
    "lateral_colour": "F − C, of the image height",
    "fan": "tangential, of the image height",
    "mtf_huygens": "10 to 40 lp/mm, d",
    "mtf_fft": "10 to 40 lp/mm, d",
}
Numbers = dict[str, Any]


# --- in the other program's environment ---------------------------------------------------------------------------


def with_optiland(case: Numbers) -> Numbers:
    """What Optiland says of one lens at one field."""
    import numpy as np
    from optiland.analysis import Distortion, FieldCurvature  # type: ignore[import-not-found]
    from optiland.mtf import FFTMTF  # type: ignore[import-not-found]

    def numbers(wave: float) -> Numbers:
        of_field = {"pupil_mm": case["pupil_mm"], "angle_deg": case["angles"], "height_mm": case["heights_mm"]}
        return case["media"][str(wave)] | of_field

    def optic(wave: float) -> Any:
        one = optiland_lens(numbers(wave))
        one.ray_tracer.set_aiming("iterative", 50, 1e-12)
        return one

    def chief(wave: float) -> float:
        one = optic(wave)
        one.trace_generic(0.0, 1.0, 0.0, 0.0, wavelength=wave * 1e-3)
        return abs(float(one.surfaces.y[-1, 0]))

    main = optic(WAVES[1])
    tangential, sagittal = (float(np.asarray(v)[-1]) for v in FieldCurvature(main, num_points=2).data[0])
    answer: Numbers = {
        "distortion": float(np.asarray(Distortion(main, num_points=2).data[0])[-1]),
        "sagittal_focus": sagittal,
        "tangential_focus": tangential,
        "lateral_colour": chief(WAVES[0]) - chief(WAVES[2]),
    }
    mtf = FFTMTF(main, [(0.0, 1.0)], WAVES[1] * 1e-3, 512, 1024)
    curves = zip((mtf.freq_sag[0], mtf.freq_tang[0]), mtf.mtf[0][::-1], strict=True)
    answer["mtf_fft"] = [np.interp(FREQUENCIES, np.asarray(f), np.asarray(v)).tolist() for f, v in curves]
    if case["field"] == FIELDS[1]:  # takes long
        versus_optiland.PITCH_UM, versus_optiland.optiland_lens = PITCH_UM, lambda _: main
        light = np.asarray(versus_optiland.optiland_psf(numbers(WAVES[1]), "Huygens")(1.0))
        answer["mtf_huygens"] = spectrum(light * (1.0 - case["outside"]) / light.sum(), PITCH_UM)
    return answer


def spectrum(light: Any, pitch_um: float) -> list[list[float]]:
    """|Fourier transform| of light on points, rows along y: sagittal and tangential."""
    import numpy as np

    size = len(light)
    place = (np.arange(size) - size // 2) * pitch_um * 1e-3
    waves = np.exp(-2j * np.pi * np.outer(FREQUENCIES, place))
    return [np.abs(waves @ light.sum(axis=axis)).tolist() for axis in (0, 1)]


def with_rayoptics(case: Numbers) -> Numbers:
    """What ray-optics says of one lens at one field."""
    import numpy as np
    from opticalglass.opticalmedium import ConstantIndex  # type: ignore[import-not-found]
    from rayoptics.elem import profiles  # type: ignore[import-not-found]
    from rayoptics.optical.opticalmodel import OpticalModel  # type: ignore[import-not-found]
    from rayoptics.raytr import RayPkg, raytrace  # type: ignore[import-not-found]
    from rayoptics.raytr.trace import trace_coddington_fan  # type: ignore[import-not-found]

    def model(wave: float) -> Any:
        numbers = case["media"][str(wave)]
        opm = OpticalModel()
        sm = opm["seq_model"]
        sm.gaps[0].thi = 100.0  # rays start there, all in one direction
        opm["optical_spec"]["wvls"].set_from_list([[wave, 1.0]])
        for i, s in enumerate(numbers["surfaces"]):
            curvature = 0.0 if math.isinf(s["radius"]) else 1.0 / s["radius"]
            sm.add_surface([curvature, s["thickness"]])
            sm.gaps[sm.cur_surface].medium = ConstantIndex(numbers["index"][i + 1], f"n{i}")
            powers = dict(s["aspheric"])
            if powers:
                terms = [powers.get(p, 0.0) for p in range(2, max(powers) + 1, 2)]
                sm.ifcs[sm.cur_surface].profile = profiles.EvenPolynomial(c=curvature, cc=s["conic"], coefs=terms)
            elif s["conic"]:
                sm.ifcs[sm.cur_surface].profile = profiles.Conic(c=curvature, cc=s["conic"])
            if i == numbers["stop"]:
                sm.set_stop()
        opm.update_model()
        return opm

    angle = math.radians(case["angles"][-1])
    direction = np.array([0.0, math.sin(angle), math.cos(angle)])

    def ray(opm: Any, wave: float, height: float) -> Any:
        """The ray that crosses the stop at `height` mm, by secants."""
        sm = opm["seq_model"]

        def send(y: float) -> Any:
            return RayPkg(*raytrace.trace(sm, np.array([0.0, y, 0.0]), direction, wave))

        a, b = -100.0 * math.tan(angle) + case["start_mm"], -100.0 * math.tan(angle) + case["start_mm"] + 0.1
        of = [send(v).ray[sm.stop_surface][0][1] - height for v in (a, b)]
        for _ in range(30):
            if of[1] == of[0] or abs(of[1]) < 1e-13:
                break
            a, b = b, b - of[1] * (b - a) / (of[1] - of[0])
            of = [of[1], send(b).ray[sm.stop_surface][0][1] - height]
        return send(b)

    main = model(WAVES[1])
    chief = ray(main, WAVES[1], 0.0)
    landing = chief.ray[-1][0][1]
    first = chief.ray[0]
    chief.ray[0] = (
        type(first)(first[0], first[1], 1e30, first[3]) if hasattr(first, "_fields") else [*first[:2], 1e30, first[3]]
    )
    sagittal, tangential = trace_coddington_fan(main, chief)
    colours = [ray(model(wave), wave, 0.0).ray[-1][0][1] for wave in (WAVES[0], WAVES[2])]
    fan = [ray(main, WAVES[1], p * case["stop_mm"]).ray[-1][0][1] - landing for p in case["heights"]]
    spherical = not any(s["aspheric"] or s["conic"] for s in case["media"][str(WAVES[1])]["surfaces"])
    answer: Numbers = {"height": abs(landing), "lateral_colour": abs(colours[0]) - abs(colours[1]), "fan": fan}
    return answer | ({"sagittal_focus": sagittal, "tangential_focus": tangential} if spherical else {})


def answer_cases(program: str) -> None:
    """Print what the program says of each case on standard input, as JSON."""
    warnings.simplefilter("ignore")
    answers: list[Any] = []
    for case in json.load(sys.stdin):
        try:
            answers.append({"Optiland": with_optiland, "ray-optics": with_rayoptics}[program](case))
        except Exception as error:  # whatever another program raises is a result
            answers.append(f"{type(error).__name__}: {error}".splitlines()[0])
    print("\n" + json.dumps(answers))


# --- here ---------------------------------------------------------------------------------------------------------


def opened(lens: Lens) -> Lens:
    """The lens with no clear aperture but the stop's."""
    return replace(lens, surfaces=tuple(replace(s, semi_diameter=1e3) for s in lens.surfaces), states=(), source=None)


def our_cases(name: str) -> list[tuple[Numbers, Numbers]]:
    """The questions about a lens at each field off the axis, and our answers."""
    import numpy as np

    from defocus import Camera, load_lens
    from defocus.analysis import Analysis
    from defocus.psf.bands import Bands
    from machine import amount

    lens = opened(load_lens(name))
    widest = float(Camera(lens, sensor_shift_mm=0.0).f_number)
    camera = Camera(lens, sensor_shift_mm=0.0, f_number=max(F_NUMBER, widest))
    colours = Analysis(camera, fields=FIELDS, bands=Bands(("FdC",), (WAVES,), ((0.2, 0.6, 0.2),)))
    single = Analysis(camera, fields=FIELDS, bands=Bands(("d",), (WAVES[1:2],), ((1.0,),)))
    bent, foci, lateral = colours.distortion(), colours.field_curvature(), colours.lateral_colour()
    fans, mtf = single.ray_fans(None), single.mtf(FREQUENCIES)
    data = camera.first_order
    chief = colours.wavefronts.pose.chief
    cases = []
    for i, field in enumerate(FIELDS[1:], 1):
        # Stop heights are those of two of our fan's rays on each side: no interpolation.
        heights = fans.pupil[i, 0, 1]
        places = [int(np.nanargmin(np.abs(heights - h))) for h in HEIGHTS]
        slope = float(chief.direction[i, 1] / chief.direction[i, 2])
        case = {
            "lens": name,
            "field": field,
            "angles": [0.0, float(bent.angle_deg[i])],
            "pupil_mm": 2.0 * float(data.entrance_pupil_radius),
            "stop_mm": float(data.stop_radius),
            "start_mm": abs(slope) * 100.0 + float(chief.position[i, 1] - slope * (chief.position[i, 2] + 100.0)),
            "heights": [float(heights[p]) for p in places],
            "heights_mm": [0.0, float(bent.field_mm[i])],
            "outside": float(
                camera.with_pixels(pixel_um=PITCH_UM)
                .psf(math.inf, (0.0, field), size=amount(versus_optiland.SIZE, quick=32), bands="d")
                .report["energy_outside"]
            ),
            "media": {str(wave): lens_numbers(camera.lens, wave) for wave in WAVES},
        }
        answer = {
            "height": float(bent.field_mm[i]),
            "focal_length": float(data.focal_length),
            "distortion": float(bent.percent[i]),
            "sagittal_focus": float(foci.sagittal_mm[i, 1]),
            "tangential_focus": float(foci.tangential_mm[i, 1]),
            "lateral_colour": float(lateral.shift_mm[i, 0] - lateral.shift_mm[i, 2]),
            "fan": [float(fans.transverse_mm[i, 0, 1, p]) for p in places],
            "mtf": [mtf.sagittal[i].tolist(), mtf.tangential[i].tolist()],
        }
        cases.append((case, answer))
    return cases


def psf_difference(name: str) -> float:
    """Largest difference between the MTF of `Analysis` and of `Camera.psf`, wide open, over fields and directions."""
    import numpy as np

    from defocus import Camera, load_lens
    from defocus.analysis import Analysis
    from defocus.psf.bands import Bands
    from machine import amount

    pixel, size = 1.0, amount(1024, quick=32)
    camera = Camera(load_lens(name), pixel_um=pixel)
    mtf = Analysis(camera, fields=FIELDS, bands=Bands(("d",), (WAVES[1:2],), ((1.0,),))).mtf(FREQUENCIES)
    worst = 0.0
    for i, field in enumerate(FIELDS):
        psf = camera.psf(math.inf, (0.0, field), size=size, bands="d", exact=True)
        light = psf.array[0].astype(float) * (1.0 - float(psf.report["energy_outside"]))
        curves = np.array(spectrum(light, pixel)) / np.sinc(np.array(FREQUENCIES) * pixel * 1e-3)
        worst = max(worst, float(np.abs(curves - [mtf.sagittal[i], mtf.tangential[i]]).max()))
    return worst


def differences(program: str, ours: Numbers, theirs: Numbers) -> Numbers:
    """Each quantity's difference, in the unit that `QUANTITIES` says."""
    height, focal = ours["height"], ours["focal_length"]
    gaps: Numbers = {}
    if "height" in theirs:
        gaps["distortion"] = abs(theirs["height"] / height - 1.0)
    elif "distortion" in theirs:
        gaps["distortion"] = abs((100.0 + theirs["distortion"]) / (100.0 + ours["distortion"]) - 1.0)
    for name in ("sagittal_focus", "tangential_focus"):
        if name in theirs:
            gaps[name] = abs(theirs[name] - ours[name]) / focal
    gaps["lateral_colour"] = abs(theirs["lateral_colour"] - ours["lateral_colour"]) / height
    if "fan" in theirs:
        gaps["fan"] = max(abs(a - b) for a, b in zip(theirs["fan"], ours["fan"], strict=True)) / height
    for name in ("mtf_huygens", "mtf_fft"):
        if name in theirs:
            curves = zip(theirs[name], ours["mtf"], strict=True)
            gaps[name] = max(abs(a - b) for pair in curves for a, b in zip(*pair, strict=True))
    return gaps


def main() -> None:
    from machine import SMALL_LENS, amount, machine, read_arguments, write_report

    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--optiland", type=Path, help="Python of an environment that has Optiland")
    parser.add_argument("--rayoptics", type=Path, help="Python of an environment that has ray-optics")
    options = read_arguments(parser)
    names = amount(LENSES, quick=(SMALL_LENS,))
    pairs = [pair for name in names for pair in our_cases(name)]
    records: list[Numbers] = []
    for program, interpreter in (("Optiland", options.optiland), ("ray-optics", options.rayoptics)):
        if interpreter is None:
            continue
        words = [str(interpreter.absolute()), str(Path(__file__).resolve()), "--answer", program]
        text = json.dumps([case for case, _ in pairs])
        run = subprocess.run(words, input=text, capture_output=True, text=True, check=False)
        if run.returncode:
            sys.exit(f"{program}: {run.stderr.strip().splitlines()[-1]}")
        for (case, ours), theirs in zip(pairs, json.loads(run.stdout.splitlines()[-1]), strict=True):
            record = {"program": program, "lens": case["lens"], "field": case["field"]}
            failed = isinstance(theirs, str)
            records.append(record | ({"failure": theirs} if failed else differences(program, ours, theirs)))
    psfs = {name: psf_difference(name) for name in names}
    result = {"machine": machine(), "lenses": list(names), "records": records, "psf": psfs}
    write_report(options.out, "analysis", result, markdown(result))


def markdown(result: dict[str, Any]) -> str:
    """The report as Markdown."""
    about = result["machine"]
    lines = [
        "# Analysis against Optiland and ray-optics",
        "",
        f"{len(result['lenses'])} lenses at f/{F_NUMBER:g} (or wide open), fields {FIELDS[1]:g} and {FIELDS[2]:g},",
        "focused at infinity, without clear apertures but the stop's. Largest (median) difference over all cases.",
        f"{about['cpu']}, Python {about['python']}, jax {about['jax']}.",
        "",
        "| quantity | unit | " + " | ".join(("ray-optics", "Optiland")) + " |",
        "| --- | --- | --- | --- |",
    ]
    for name, unit in QUANTITIES.items():
        cells = []
        for program in ("ray-optics", "Optiland"):
            values = sorted(r[name] for r in result["records"] if r["program"] == program and name in r)
            cells.append(f"{values[-1]:.1e} ({values[len(values) // 2]:.0e}), {len(values)} cases" if values else "–")
        lines.append(f"| {name.replace('_', ' ')} | {unit} | " + " | ".join(cells) + " |")
    lines += [
        "",
        "## By lens",
        "",
        "| lens | MTF, Huygens | FFT | worst ray quantity, ray-optics | Optiland | MTF, our PSF wide open |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name in result["lenses"]:
        own = [r for r in result["records"] if r["lens"] == name and "failure" not in r]
        cells = []
        for kind in ("mtf_huygens", "mtf_fft"):
            values = [r[kind] for r in own if kind in r]
            cells.append(f"{max(values):.4f}" if values else "–")
        for program in ("ray-optics", "Optiland"):
            rays = [
                v for r in own if r["program"] == program for k, v in r.items() if k in QUANTITIES and "mtf" not in k
            ]
            cells.append(f"{max(rays):.1e}" if rays else "–")
        lines.append(f"| {name} | " + " | ".join([*cells, f"{result['psf'][name]:.4f}"]) + " |")
    failures = [
        f"- {r['program']}, {r['lens']}, field {r['field']:g}: {r['failure']}"
        for r in result["records"]
        if "failure" in r
    ]
    lines += ["", *REMARKS, "", f"## Not computed: {len(failures)}", "", *failures]
    return "\n".join(lines) + "\n"


REMARKS = (
    "The rays are the same to rounding; Optiland's tangential foci come from finite differences. MTFs of seven lenses",
    "agree within 0.005 by one of Optiland's two ways; those of five do not. Optiland spreads light evenly over its",
    "pupil coordinates, those of the stop here, and its FFT takes them for directions; ours enters evenly through the",
    "beam in front of the lens, and directions are traced. That this explains the five was not shown. Ours agrees with",
    "the transform of our PSF (1024 pixels of 1 µm), which `psf_vs_huygens.py` compares with a sum over rays.",
    "That of the f/1.2 lens has pixels as large as its spot, and few points in each.",
)

if __name__ == "__main__":
    if sys.argv[1:2] == ["--answer"]:
        answer_cases(sys.argv[2])
    else:
        main()
