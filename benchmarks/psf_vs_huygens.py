"""PSFs against the ray-exact Huygens sum: lenses × fields × blur sizes, pixel-integrated on both sides.

    python benchmarks/psf_vs_huygens.py OUT_FOLDER [LENSES] [--forms] [--beyond]
    python benchmarks/psf_vs_huygens.py OUT_FOLDER --figure FILE.png

Also doubles the number of samples; with --forms, compares other forms of the wavefront, the paper's clipping and its
constant amplitude as well. Points are nearer than the focus; with --beyond, farther. Wants a GPU. The second form draws
the worst cases of a run.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from defocus.psf.compute import psf_batch

from defocus.lens import list_lenses, load_lens
from defocus.lens.prescription import D_LINE_NM, Lens
from defocus.optics.field import vergence_of
from defocus.optics.paraxial import FirstOrder, depth_of_confusion, first_order
from defocus.optics.pupil import ChiefRay, chief_ray
from defocus.optics.rim import Rim, find_rim
from defocus.optics.system import Bucket, System, bucket_of, pack
from defocus.psf.huygens import huygens, patches_from_rays
from defocus.psf.wavefronts import focused_sensor

FIELDS = (0.0, 0.5, 0.7, 0.9)
COC_PX = (-2.0, -8.0, -24.0)
BEYOND_PX = (2.0, 8.0)
SIZE = 64
SUPERSAMPLE = 5
WAVELENGTH = D_LINE_NM * 1e-6


def choose(count: int) -> list[tuple[str, Lens]]:
    """A spread over the library: phones are every fourth lens or so."""
    entries = list(list_lenses())
    phones = [e for e in entries if e.category == "phone"]
    others = [e for e in entries if e.category != "phone"]
    phone_count = max(4, count // 5)
    picked = [phones[i] for i in np.linspace(0, len(phones) - 1, phone_count).astype(int)]
    picked += [others[i] for i in np.linspace(0, len(others) - 1, count - phone_count).astype(int)]
    return [(e.name, load_lens(e.name)) for e in picked]


@jax.jit
def prepare(
    system: System, height: jax.Array, depth: jax.Array, focus: jax.Array
) -> tuple[FirstOrder, ChiefRay, Rim, jax.Array, jax.Array]:
    data = first_order(system)
    sensor_z = focused_sensor(system, data, focus)
    chief = chief_ray(system, height, "image_height", sensor_z)
    vergence = vergence_of(chief, depth - data.entrance_pupil)
    return data, chief, find_rim(system, chief, vergence, data=data), vergence, sensor_z


def main(out: Path, count: int, forms: bool, circles: tuple[float, ...], stem: str) -> None:
    cases = []
    chosen = choose(count)
    # One bucket for all, so that the slow sum compiles once per number of rays.
    shape = Bucket(*(max(getattr(bucket_of(lens), f) for _, lens in chosen) for f in ("surfaces", "even", "odd")))
    for name, lens in chosen:
        system = pack([lens], D_LINE_NM, shape)[0]
        data = first_order(system)
        pixel = 2.0 * lens.image_radius / np.hypot(1680.0, 1120.0)
        focus = 40.0 * float(data.focal_length)
        for coc in circles:
            depth = float(depth_of_confusion(data, jnp.array(coc * pixel), jnp.array(focus)))
            if not 0.0 < depth < float("inf"):
                continue  # so large a circle lies beyond infinity
            for field in FIELDS:
                cases.append((name, lens, system, field, coc, depth, focus, pixel))
    request = {
        "height_mm": [c[3] * c[1].image_radius for c in cases],
        "azimuth": [np.pi / 2.0] * len(cases),
        "depth_mm": [c[5] for c in cases],
        "focus_mm": [c[6] for c in cases],
        "pixel_um": [c[7] * 1e3 for c in cases],
        "size": SIZE,
        "bands": "d",
        "supersample": SUPERSAMPLE,
    }
    lenses = [c[1] for c in cases]
    start = time.perf_counter()
    ours = psf_batch(lenses, **request)
    print(f"{len(cases)} PSFs in {time.perf_counter() - start:.1f} s", flush=True)
    variants = (
        {}
        if not forms
        else {
            "plane_wave_form": psf_batch(lenses, form="plane-wave", **request),
            "exit_pupil_form": psf_batch(lenses, form="exit-pupil", **request),
            "fitted_clipping": psf_batch(lenses, clipping="fit", **request),
            "constant_amplitude": psf_batch(lenses, amplitude="constant", **request),
        }
    )
    doubled: dict[int, np.ndarray] = {}
    for samples in sorted({int(r["samples"]) for r in ours.reports if r["status"] == "ok"}):
        members = [i for i, r in enumerate(ours.reports) if r.get("samples") == samples]
        part = {k: [v[i] for i in members] if isinstance(v, list) else v for k, v in request.items()}
        again = psf_batch([lenses[i] for i in members], sampling=2 * samples, **part)
        doubled |= dict(zip(members, again.psf, strict=True))
    rows: list[dict[str, object]] = []
    kept = np.zeros((len(cases), SIZE, SIZE), np.float32)
    for i, (name, lens, system, field, coc, depth, focus, pixel) in enumerate(cases):
        row = {"lens": name, "field": field, "coc_px": coc, "depth_mm": depth, "status": ours.reports[i]["status"]}
        if row["status"] == "ok":
            numbers = [jnp.array(v) for v in (field * lens.image_radius, depth, focus)]
            data, chief, rim, vergence, sensor_z = prepare(system, *numbers)
            needed = float(ours.reports[i]["samples_needed"])
            rays = next(n for n in (512, 768, 1024, 1536, 2048, 3072, 4096) if n >= min(1.25 * needed, 4096))
            start = time.perf_counter()
            truth = np.asarray(
                huygens(
                    patches_from_rays(
                        system, data, chief, rim, vergence, sensor_z, chief.image_height, jnp.array(WAVELENGTH),
                        rays=rays,
                    ),
                    jnp.array(pixel), size=SIZE, supersample=SUPERSAMPLE,
                )
            )  # fmt: skip
            kept[i] = truth
            row |= {
                "relative_l1": float(np.abs(ours.psf[i, 0] - truth).sum()),
                "doubling": float(np.abs(ours.psf[i, 0] - doubled[i][0]).sum()),
                "samples": ours.reports[i]["samples"],
                "residual_waves": ours.reports[i]["residual_waves"],
                "energy_outside": ours.reports[i]["energy_outside"],
                "rays": rays,
                "huygens_s": time.perf_counter() - start,
            }
            row |= {k: float(np.abs(v.psf[i, 0] - truth).sum()) for k, v in variants.items()}
        rows.append(row)
        if i % len(FIELDS) == len(FIELDS) - 1:
            write(out / stem, rows)
            print(name, coc, [round(r.get("relative_l1", float("nan")), 4) for r in rows[-4:]], flush=True)
    print(markdown(write(out / stem, rows)))
    np.savez_compressed(out / f"{stem}.npz", ours=ours.psf[:, 0], huygens=kept)


def write(stem: Path, rows: list[dict[str, object]]) -> dict[str, object]:
    result = {"device": jax.devices()[0].device_kind, "jax": jax.__version__, "size": SIZE, "rows": rows}
    stem.parent.mkdir(parents=True, exist_ok=True)
    stem.with_suffix(".json").write_text(json.dumps(result, indent=1) + "\n")
    stem.with_suffix(".md").write_text(markdown(result))
    return result


def markdown(result: dict[str, object]) -> str:
    rows = [r for r in result["rows"] if r["status"] == "ok"]
    circles = sorted({r["coc_px"] for r in rows}, key=abs)
    errors = np.array([r["relative_l1"] for r in rows])
    lines = [
        f"# PSFs against the ray-exact Huygens sum ({result['device']})",
        "",
        f"{len(rows)} of {len(result['rows'])} cases, {len({r['lens'] for r in rows})} lenses, fields {FIELDS}, "
        f"circles of confusion {circles} px (negative: nearer than the focus), "
        f"{result['size']}×{result['size']} px, d line, pixel-integrated (u = 5).",
        "",
        "| | median | 95 % | worst |",
        "| --- | --- | --- | --- |",
    ]
    variants = ("plane_wave_form", "exit_pupil_form", "fitted_clipping", "constant_amplitude")
    for key in ("relative_l1", *(v for v in variants if v in rows[0]), "doubling"):
        v = np.array([r[key] for r in rows])
        lines.append(f"| {key} | {np.median(v):.4f} | {np.quantile(v, 0.95):.4f} | {v.max():.4f} |")
    lines += ["", f"At most 0.03: {int((errors <= 0.03).sum())} of {len(rows)}.", "", "The worst:", ""]
    lines += [
        "| lens | field | CoC / px | relative L1 | doubling N | N | residual / waves |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for r in sorted(rows, key=lambda r: -r["relative_l1"])[:15]:
        numbers = (f"{r['coc_px']:g}", f"{r['relative_l1']:.4f}", f"{r['doubling']:.1e}", f"{r['samples']}")
        lines.append("| " + " | ".join([r["lens"], f"{r['field']}", *numbers, f"{r['residual_waves']:.4f}"]) + " |")
    refused = [r for r in result["rows"] if r["status"] != "ok"]
    lines += ["", *(f"- {r['lens']}, field {r['field']}, CoC {r['coc_px']:g} px: {r['status']}" for r in refused)]
    return "\n".join(lines) + "\n"


def figure(out: Path, file: Path) -> None:
    """The worst of five lenses and a middling one: ours, the Huygens sum, and their difference."""
    from matplotlib.figure import Figure

    rows = json.loads((out / "psf_vs_huygens.json").read_text())["rows"]
    kept = np.load(out / "psf_vs_huygens.npz")
    order = sorted((i for i, r in enumerate(rows) if r["status"] == "ok"), key=lambda i: -rows[i]["relative_l1"])
    worst: dict[str, int] = {}
    for i in order:
        worst.setdefault(rows[i]["lens"], i)
    shown = [*list(worst.values())[:5], order[len(order) // 2]]
    drawn = Figure(figsize=(2.0 * len(shown), 6.6), layout="constrained")
    axes = drawn.subplots(3, len(shown))
    for column, i in enumerate(shown):
        ours, truth = kept["ours"][i], kept["huygens"][i]
        top = truth.max()
        for row, (picture, low) in enumerate(((ours, 0.0), (truth, 0.0), (ours - truth, -0.1 * top))):
            high = top if low == 0.0 else -low
            axes[row, column].imshow(picture, cmap="inferno" if low == 0.0 else "RdBu", vmin=low, vmax=high)
            axes[row, column].set_xticks([])
            axes[row, column].set_yticks([])
        r = rows[i]
        title = f"{r['lens']}\nfield {r['field']:g}, {r['coc_px']:g} px\nL1 {r['relative_l1']:.4f}"
        axes[0, column].set_title(title, fontsize=7)
    for row, name in enumerate(("ours", "Huygens sum", "difference, ±10 % of the peak")):
        axes[row, 0].set_ylabel(name, fontsize=8)
    drawn.savefig(file, dpi=110)


if __name__ == "__main__":
    if "--figure" in sys.argv:
        figure(Path(sys.argv[1]), Path(sys.argv[sys.argv.index("--figure") + 1]))
        sys.exit()
    beyond = "--beyond" in sys.argv
    circles, stem = (BEYOND_PX, "psf_vs_huygens_beyond") if beyond else (COC_PX, "psf_vs_huygens")
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 20, "--forms" in sys.argv, circles, stem)
