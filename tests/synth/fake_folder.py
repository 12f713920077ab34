"""A finished data set of random textures, made without any optics: ledger, pictures, metadata, checksums."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
from scipy.ndimage import gaussian_filter

from defocus.files.ownership import claim
from defocus.files.pair_folders import LEDGER, PLANES
from defocus.files.pictures import plane_bytes, quantise
from defocus.files.png import png_bytes
from defocus.files.stores import open_store
from defocus.synth.folder import KIND
from defocus.synth.layouts import pair_paths, shard_bytes, shard_path
from defocus.synth.ledger import Ledger
from defocus.synth.metadata import write_metadata
from defocus.synth.plan import Plan, make_plan
from defocus.synth.recipe import Outcome, Recipe

SIDE = 48
SHARD = 4


def texture(rng: np.random.Generator, side: int = SIDE) -> np.ndarray:
    """Smooth colour with fine grain, 0..1."""
    coarse = gaussian_filter(rng.random((side, side, 3)), (side / 8, side / 8, 0))
    fine = gaussian_filter(rng.random((side, side, 3)), (0.8, 0.8, 0))
    mixed = (coarse - coarse.min()) / np.ptp(coarse) + 0.6 * (fine - fine.mean())
    return np.clip(mixed, 0.0, 1.0).astype(np.float32)


def fake_record(identity: str, rng: np.random.Generator, side: int = SIDE) -> dict[str, Any]:
    """The record of a pair without its files; images and lenses belong to one split each."""
    split, number = identity.rpartition("-")[::2]
    near, far = sorted(10.0 ** rng.uniform(-0.5, 2.0, 2))
    low, high = sorted(rng.uniform(-20.0, 20.0, 2))
    recipe = Recipe(
        id=identity,
        split=split,
        index=int(number),
        seed=int(rng.integers(2**31)),
        source=f"{split}-scene-{rng.integers(3)}",
        source_sha256="0" * 64,
        centre=(float(rng.uniform(200, 1400)), float(rng.uniform(200, 900))),
        rotation_rad=float(rng.uniform(-3, 3)),
        scale=float(rng.uniform(0.7, 1.4)),
        flip=bool(rng.integers(2)),
        exposure=1.0,
        patch_px=side,
        lens=f"{split} <lens> & {rng.integers(4)}",
        lens_sha256="1" * 64,
        state="wide",
        field=(float(rng.uniform(-0.5, 0.5)), float(rng.uniform(-0.5, 0.5))),
        focus_m=float(near),
        pixel_um=4.0,
        f_number=float(rng.uniform(1.4, 5.6)),
        depth_m=(float(near), float(far)),
        coc_px=(float(low), float(high)),
        layers=8,
        saturation=1.5,
        noise=(1e-5, 1e-6),
        sharpness=(0.1, 0.2),
    )
    extra = {
        "source_kind": "scenes",
        "psf": {"kind": "lens", "bands": {"d": [587.6]}, "kernel_px": 128, "energy_outside": 0.001},
        "layer_depth_m": [float(near), float(far)],
        "layer_coc_px": [float(low), float(high)],
        "notes": ["nothing — to note"],
    }
    return json.loads(json.dumps(recipe.to_json() | extra))


LABELS = ("depth", "blur_radius", "stack_00", "stack_01")


def fake_plan(
    layout: str = "dpdd",
    bits: int = 8,
    pairs: tuple[int, int, int] = (6, 2, 2),
    side: int = SIDE,
    roles: tuple[str, ...] = (),
) -> Plan:
    labels = {role: role in roles for role in LABELS[:2]} | {
        "focal_stack": sum(role.startswith("stack") for role in roles)
    }
    counts = dict(zip(("train", "validation", "test"), ({"pairs": n} for n in pairs), strict=True))
    output = {"layout": layout, "bits": bits, "pairs_per_shard": SHARD, "licence": "CC0"}
    return make_plan({"name": "Fake <pairs>", "output": output, "patch": {"size": side}, "labels": labels} | counts)


def fake_folder(
    folder: Path,
    layout: str = "dpdd",
    bits: int = 8,
    pairs: tuple[int, int, int] = (6, 2, 2),
    side: int = SIDE,
    roles: tuple[str, ...] = ("blurred", "sharp"),
) -> Path:
    """Write a whole data set as a finished run leaves it. Labels are the red of the sharp picture, and its negative;
    the stack is the blurred picture and the sharp one."""
    rng = np.random.default_rng(5)
    plan = fake_plan(layout, bits, pairs, side, roles)
    store = open_store(folder)
    claim(store, KIND)  # a finished run leaves its mark
    ledger = Ledger(folder / LEDGER)
    ledger.put("plan", json.dumps(plan.as_json()))
    records: list[dict[str, Any]] = []
    for split in plan.splits:
        members = []
        for number in range(plan.split(split).pairs):
            identity = f"{split}-{3 * number:06d}"
            record = fake_record(identity, rng, side)
            sharp = texture(rng, side)
            spread = 1.0 + abs(record["coc_px"][0]) / 8.0
            blurred = gaussian_filter(sharp, (spread, spread, 0))
            images = {"blurred": blurred, "sharp": sharp, "left": blurred, "right": blurred}
            images |= {"stack_00": blurred, "stack_01": sharp}
            files = {role: png_bytes(quantise(images[role], bits)) for role in roles if role not in PLANES}
            red = quantise(sharp, bits)[..., 0].astype(np.float32) / np.float32(2**bits - 1)
            files |= {
                role: plane_bytes(red * sign) for role, sign in zip(LABELS, (1, -1), strict=False) if role in roles
            }
            record |= {"stack_m": record["depth_m"]} if "stack_00" in roles else {}
            members.append((identity, files, record))
        if layout == "webdataset":
            for number, first in enumerate(range(0, len(members), SHARD)):
                data, index = shard_bytes(members[first : first + SHARD])
                path = shard_path(split, number)
                store.write(path, data)
                for identity, _, record in members[first : first + SHARD]:
                    record["files"] = {role: about | {"path": path} for role, about in index[identity].items()}
        else:
            for identity, pictures, record in members:
                record["files"] = {}
                for role, path in pair_paths(layout, identity, roles).items():
                    data = pictures[role]
                    store.write(path, data)
                    about = {"path": path, "sha256": hashlib.sha256(data).hexdigest(), "bytes": len(data)}
                    record["files"][role] = about
        records += [record for _, _, record in members]
        ledger.take(split, [Outcome(identity, "done", "", record) for identity, _, record in members])
    refused = [f"no lens keeps {limit}.5 px within the kernel" for limit in (31, 47, 32)]
    ledger.take("others", [Outcome(f"train-{900 + n:06d}", "rejected", text) for n, text in enumerate(refused)])
    ledger.take("spares", [Outcome(f"train-{950 + n:06d}", "spare") for n in range(4)])
    killed = ledger.start_run(1.7e9, "local", 1, "cpu")
    assert killed
    run = ledger.start_run(1.7e9 + 60.0, "local", 2, "cpu")
    ledger.end_run(run, 1.7e9 + 65.0, len(records), {"decode": 1.5, "blur": 6.25, "encode": 0.5})
    write_metadata(plan, store, ledger, sample=False)
    ledger.close()
    return folder
