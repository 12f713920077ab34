"""Memory and time of deblurring large photographs on a CPU, tile by tile.

    python benchmarks/deblur_memory.py [--out FOLDER] [--quick]

Each photograph is a JPEG of noise over smooth shapes, each run a process of its own: `defocus deblur` as a user would
call it, with NAFNets of random weights: a tiny one, and those of the recipes `nafnet-small` and `general`. `base` is
the process before it reads the photograph (torch, JAX, the network); what is above it is the photograph as float32, the
result, a batch of tiles inside the network, and the bytes of the file that is written.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from machine import amount, is_quick, machine, read_arguments, write_report

NETWORKS: dict[str, dict[str, Any]] = {"tiny": {"width": 8, "encoder_blocks": (1, 1, 1, 1)}, "small": {}, "general": {}}
RUNS = amount(
    (
        ("tiny", (3000, 2000)),
        ("tiny", (6000, 4000)),
        ("small", (3000, 2000)),
        ("small", (6000, 4000)),
        ("general", (1760, 1168)),
        ("general", (6000, 4000)),
    ),
    quick=(("tiny", (96, 64)), ("general", (96, 64))),
)
TILE, OVERLAP = amount((512, 64), quick=(64, 16))


def photograph(file: Path, size: tuple[int, int]) -> None:
    from PIL import Image

    width, height = size
    random = np.random.default_rng(0)
    y, x = np.meshgrid(np.arange(height), np.arange(width), indexing="ij", sparse=True)
    smooth = 128.0 + 60.0 * np.sin(x / 211.0) * np.cos(y / 173.0)
    values = smooth[..., None].astype(np.float32) + random.integers(-20, 20, (height, width, 3), dtype=np.int8)
    Image.fromarray(values.clip(0, 255).astype(np.uint8)).save(file, quality=90)


def peak_gb() -> float:
    """The most memory that this process held; getrusage would tell that of the process which started it, too."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1024 / 1e9


def one(photo: Path, weights: Path, out: Path) -> dict[str, Any]:
    """In a process of its own: its peak is this photograph's."""
    import torch

    from defocus.restore.deblurring import DeblurFolder, DeblurJob, TileSettings, deblur_files
    from defocus.restore.models.checkpoints import load_model

    if not is_quick():
        torch.set_num_threads(2)
    model = load_model(weights)
    small = out / "warm.jpg"
    photograph(small, (TILE, TILE))
    settings, results = TileSettings(TILE, OVERLAP), DeblurFolder(out, {})
    deblur_files(model, [DeblurJob(small, out / "warm_out.jpg", 8)], settings, results)  # what starts on first use
    base = peak_gb()
    start = time.perf_counter()
    summary = deblur_files(model, [DeblurJob(photo, out / "out.jpg", 8)], settings, results, overwrite=True)
    assert not summary.failed, summary.failed
    peak = peak_gb()
    return {
        "seconds": time.perf_counter() - start,
        "base_GB": base,
        "peak_GB": peak,
        "parameters": sum(p.numel() for p in model.parameters()),
    }


def build_network(name: str) -> Any:
    from defocus.restore.build import network_overrides
    from defocus.restore.config import TrainConfig
    from defocus.restore.models import build_model

    if name == "general":
        return build_model("nafnet", **network_overrides(TrainConfig.from_toml("general")))
    return build_model("nafnet", "small", **NETWORKS[name])


def main() -> None:
    from defocus.restore.models.checkpoints import save_weights

    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--one", nargs=3, type=Path, help=argparse.SUPPRESS)
    options = read_arguments(parser)
    if options.one:
        print(json.dumps(one(*options.one)))
        return
    rows = []
    told = machine()
    with tempfile.TemporaryDirectory() as folder:
        weights = Path(folder) / "weights.pth"
        for name, size in RUNS:
            model = build_network(name)
            save_weights(weights, "nafnet", model.options.model_dump(), model.state_dict())
            photo = Path(folder) / "photo.jpg"
            photograph(photo, size)
            command = [sys.executable, __file__, "--one", str(photo), str(weights), folder]
            if options.quick:
                made = one(photo, weights, Path(folder))
            else:
                text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
                made = json.loads(text.splitlines()[-1])
            rows.append(
                {
                    "network": name,
                    "width": model.options.width,
                    "size": f"{size[0]}×{size[1]}",
                    "megapixels": size[0] * size[1] / 1e6,
                    **made,
                }
            )
            print(rows[-1], flush=True)
    result = {
        **told,
        "torch": metadata.version("torch"),
        "tile": TILE,
        "overlap": OVERLAP,
        "rows": rows,
    }
    lines = [
        "# Deblurring large photographs on a CPU",
        "",
        f"{told['cpu']}, {told['cores']} cores; torch {result['torch']}. NAFNets; tiles of {TILE} pixels that share "
        f"{OVERLAP}; JPEG in and out. Load before: {told['load_before']:.1f}.",
        "",
        "| network | width | parameters | photograph | Mpx | seconds | base | peak | per megapixel, above the base |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for r in rows:
        per = 1000.0 * (r["peak_GB"] - r["base_GB"]) / r["megapixels"]
        cells = (
            r["network"],
            str(r["width"]),
            f"{r['parameters']:,}",
            r["size"],
            f"{r['megapixels']:.0f}",
            f"{r['seconds']:.0f}",
            f"{r['base_GB']:.2f} GB",
            f"{r['peak_GB']:.2f} GB",
        )
        lines.append("| " + " | ".join((*cells, f"{per:.0f} MB")) + " |")
    lines += [
        "",
        "`base`: the process with the network, after one tile. A megapixel in float32 is 12 MB, in and out 24.",
    ]
    write_report(options.out, "deblur_memory", result, "\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
