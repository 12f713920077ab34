"""Can each network learn one batch by heart? And how long does a training step take?

    python benchmarks/overfit.py [--out FOLDER] [--networks nrknet,nafnet] [--seconds 90] [--speed] [--quick]

Each of the four networks at the paper's size learns two pairs of 128×128 pixels: overlapping discs, bars and stripes,
blurred in linear light by discs of 2 and 4 pixels radius. The loss is −PSNR for all of them: their own weigh spectra
and features, too, and trade decibels for them. The learning rate rises over the first twentieth of the time and falls
to zero at its end; a run stops before it when the goal is passed. On a GPU a step is captured once as a CUDA graph and
replayed, since these networks have thousands of small kernels to launch. With --speed, steps
with each network's own loss (without LPIPS) are timed at crops and batches of one GPU of the paper's recipes. Needs
torch, numpy, pydantic and src/ on the path.

Writes overfit_gpu.json and .md, or overfit_cpu; networks that are not asked for keep the rows of an earlier run there.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from defocus.restore.losses import OWN_LOSS, build_loss
from defocus.restore.models import MODELS, build_model
from machine import amount, is_quick, machine, read_arguments, write_report

RADII_PX = (2.0, 4.0)
RATES = {"nrknet": 2e-3, "iniknet": 1e-3, "nafnet": 1e-3, "restormer": 3e-4}
STEPS = {
    "nrknet": (4, 256),
    "iniknet": (4, 256),
    "nafnet": amount((8, 256), quick=(1, 32)),
    "restormer": (8, 128),
}  # batch, crop
WARM, TIMED = 5, 20  # steps
SMALL_MODEL: dict[str, Any] = amount({}, quick={"width": 4, "encoder_blocks": (1,), "decoder_blocks": (1,)})


def picture(size: int, seed: int) -> np.ndarray:
    """Linear light: shapes of all sizes over each other, each with stripes of its own."""
    random = np.random.default_rng(seed)
    y, x = np.mgrid[:size, :size].astype(np.float32)
    light = np.broadcast_to(random.random(3, np.float32), (size, size, 3)).copy()
    for _ in range(60):
        row, col, angle = random.random() * size, random.random() * size, random.random() * math.pi
        along = (x - col) * math.cos(angle) + (y - row) * math.sin(angle)
        across = (y - row) * math.cos(angle) - (x - col) * math.sin(angle)
        radius = size * 0.25 ** random.uniform(0.7, 2.2)
        round_ = random.random() < 0.5
        inside = along**2 + across**2 < radius**2 if round_ else np.maximum(abs(along), 4 * abs(across)) < radius
        stripes = 0.75 + 0.25 * np.sin(along * random.uniform(0.2, 2.0))
        light[inside] = (random.random(3, np.float32) * stripes[..., None])[inside]
    return light


def blurred(light: np.ndarray, radius_px: float) -> np.ndarray:
    """By a disc, periodic, in linear light."""
    size = light.shape[0]
    y, x = (np.minimum(grid, size - grid) for grid in np.mgrid[:size, :size])
    disc = np.clip(radius_px + 0.5 - np.hypot(x, y), 0.0, 1.0)
    transfer = np.fft.rfft2(disc / disc.sum())[..., None]
    return np.fft.irfft2(np.fft.rfft2(light, axes=(0, 1)) * transfer, s=(size, size), axes=(0, 1))


def display(light: np.ndarray) -> np.ndarray:
    light = np.clip(light, 0.0, 1.0)
    return np.where(light <= 0.0031308, 12.92 * light, 1.055 * light ** (1 / 2.4) - 0.055)


def pairs(size: int, device: str) -> tuple[torch.Tensor, torch.Tensor]:
    sharp = [picture(size, 7 + number) for number in range(len(RADII_PX))]
    soft = [blurred(light, radius) for light, radius in zip(sharp, RADII_PX, strict=True)]
    image, target = (np.stack([display(one) for one in many]).transpose(0, 3, 1, 2) for many in (soft, sharp))
    return tuple(torch.from_numpy(np.ascontiguousarray(a, np.float32)).to(device) for a in (image, target))


def decibels(output: torch.Tensor, target: torch.Tensor) -> float:
    return -10.0 * math.log10(float((output.float() - target).square().mean()))


def rate_at(part: float) -> float:
    """Of the largest rate, after a part of the time."""
    return min(1.0, part / 0.05, 0.5 * (1.0 + math.cos(math.pi * min(1.0, max(0.0, part - 0.05) / 0.95))) + 1e-3)


def overfit(name: str, given: argparse.Namespace, device: str) -> dict[str, Any]:
    torch.manual_seed(0)
    highest = given.rate or RATES[name]
    model = build_model(name, given.size, **SMALL_MODEL).to(device).train()
    image, target = pairs(given.pixels, device)
    rate = torch.tensor(0.0, device=device) if device == "cuda" else 0.0
    loss, optimizer = build_loss("psnr"), torch.optim.Adam(model.parameters(), lr=rate, capturable=device == "cuda")
    output = torch.zeros_like(target)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        made = loss(model, image, target)
        made.total.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        output.copy_(made.output.detach())

    learn = captured(step) if device == "cuda" and not given.plain else step
    curve: list[tuple[int, float, float]] = []
    reached: dict[str, Any] | None = None
    start, steps, found = time.perf_counter(), 0, 0.0
    while found < given.goal and (spent := time.perf_counter() - start) < given.seconds:
        for group in optimizer.param_groups:
            now = highest * rate_at(spent / given.seconds)
            group["lr"] = group["lr"].fill_(now) if device == "cuda" else now
        learn()
        steps += 1
        if steps % 10 == 0:
            found = decibels(output, target)
            if reached is None and found > 40.0:
                reached = {"steps": steps, "seconds": round(spent, 1)}
            if steps % 100 == 0:
                curve.append((steps, round(spent, 1), round(found, 2)))
    seconds = time.perf_counter() - start
    with torch.no_grad():
        learned = decibels(model(image), target)
        restored = decibels(model.eval()(image), target)
    count = sum(parameter.numel() for parameter in model.parameters())
    return {
        "network": name, "parameters": count, "blurred_db": round(decibels(image, target), 2), "steps": steps,
        "seconds": round(seconds, 1), "learned_db": round(learned, 2), "eval_mode_db": round(restored, 2),
        "over_40_db": reached, "rate": highest, "allowed_s": given.seconds, "goal_db": given.goal, "curve": curve,
    }  # fmt: skip


def captured(step: Callable[[], None]) -> Callable[[], None]:
    """The same step as a CUDA graph. The steps that come before a capture are taken at a rate of zero."""
    beside = torch.cuda.Stream()
    beside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(beside):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(beside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    return graph.replay


def step_times(name: str, precision: str, compiled: bool, given: argparse.Namespace, device: str) -> dict[str, Any]:
    """Milliseconds of a training step: forwards, loss, backwards, update."""
    torch.manual_seed(0)
    if compiled:
        torch.compiler.reset()
    batch, crop = amount(STEPS[name], quick=(1, 32))
    crop = min(crop, given.pixels) if device == "cpu" else crop
    model = build_model(name, given.size, **SMALL_MODEL).to(device).train()
    if given.channels_last:
        model = model.to(memory_format=torch.channels_last)
    loss = build_loss(OWN_LOSS[name], **({"perceptual": 0} if name == "iniknet" else {}))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-5)
    network = torch.compile(model) if compiled else model
    image, target = (torch.rand(batch, 3, crop, crop, device=device) for _ in range(2))
    if given.channels_last:
        image = image.to(memory_format=torch.channels_last)
    if device == "cuda":
        torch.cuda.reset_peak_memory_stats()

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(device, dtype=torch.bfloat16, enabled=precision == "bf16"):
            total = loss(network, image, target).total
        total.backward()
        optimizer.step()
        if device == "cuda":
            torch.cuda.synchronize()

    start = time.perf_counter()
    step()
    first = time.perf_counter() - start
    warm, timed = (WARM, TIMED) if device == "cuda" else amount((1, 2), quick=(0, 1))
    for _ in range(warm):
        step()
    times = []
    for _ in range(timed):
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    return {
        "network": name, "precision": precision, "compiled": compiled, "channels_last": given.channels_last,
        "batch": batch, "crop": crop, "ms": round(1e3 * statistics.median(times), 1), "first_step_s": round(first, 1),
        "peak_gb": round(torch.cuda.max_memory_allocated() / 1e9, 2) if device == "cuda" else None,
    }  # fmt: skip


def markdown(result: dict[str, Any]) -> str:
    told = result["machine"]
    lines = [
        f"# Learning one batch by heart ({result['device']})",
        "",
        f"{told['cpu']}, {told['cores']} cores; torch {told['torch']}. Networks of the {result['size']} size, float32 "
        f"({result['matmul']}), Adam, −PSNR; two pairs of {result['pixels']}×{result['pixels']}, blurred by discs of 2 "
        f"and 4 px radius. A run ends with its time or above its goal. {result['notes']}".rstrip(),
        "",
        "| network | parameters | rate | blurred | learned | evaluating | steps | seconds | goal | 40 dB after |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in result["rows"]:
        over = row["over_40_db"]
        passed = f"{over['steps']} steps, {over['seconds']} s" if over else "not reached"
        lines.append(
            f"| {row['network']} | {row['parameters']:,} | {row['rate']:g} | {row['blurred_db']} dB | "
            f"{row['learned_db']} dB | {row['eval_mode_db']} dB | {row['steps']} | {row['seconds']} of "
            f"{row['allowed_s']:g} | {row['goal_db']:g} dB | {passed} |"
        )
    if result["speed"]:
        lines += [
            "",
            "A training step: forwards, the network's own loss without LPIPS, backwards, Adam. The first one compiles.",
            "",
            "| network | batch | crop | precision | compiled | channels last | ms | first step | peak GB |",
            "| --- | --- | --- | --- | --- | --- | --- | --- | --- |",
        ]
        lines += [
            f"| {row['network']} | {row['batch']} | {row['crop']} | {row['precision']} | "
            f"{'yes' if row['compiled'] else 'no'} | {'yes' if row['channels_last'] else 'no'} | {row['ms']} | "
            f"{row['first_step_s']} s | {row['peak_gb'] or '–'} |"
            for row in result["speed"]
        ]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--networks", default=amount(",".join(MODELS), quick="nafnet"))
    parser.add_argument("--size", default=amount("paper", quick="small"))
    parser.add_argument("--rate", type=float, help="the largest learning rate, instead of the one for each network")
    parser.add_argument("--pixels", type=int, default=amount(128, quick=32))
    seconds = amount(85.0, quick=0.1)
    parser.add_argument("--seconds", type=float, default=seconds, help="for each network")
    parser.add_argument("--goal", type=float, default=45.0, help="dB at which to stop")
    parser.add_argument("--plain", action="store_true", help="no CUDA graph")
    parser.add_argument("--speed", action="store_true", default=is_quick(), help="time training steps, too")
    parser.add_argument("--only-speed", action="store_true")
    parser.add_argument(
        "--no-compile", action="store_true", default=is_quick(), help="leave out torch.compile, which takes minutes"
    )
    parser.add_argument("--channels-last", action="store_true")
    given = read_arguments(parser)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    matmul = "TF32" if device == "cuda" else "no TF32"
    if device == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
        torch.backends.cudnn.benchmark = True
    result: dict[str, Any] = {
        "machine": machine(("torch", "numpy")), "matmul": matmul, "size": given.size, "pixels": given.pixels,
        "device": torch.cuda.get_device_name() if device == "cuda" else "CPU", "notes": "", "rows": [],
        "speed": [],
    }  # fmt: skip
    kind = "gpu" if device == "cuda" else "cpu"
    names = given.networks.split(",")
    earlier = given.out / f"overfit_{kind}.json"
    if earlier.is_file():
        kept = json.loads(earlier.read_text())
        if any(kept[key] != result[key] for key in ("device", "matmul", "size", "pixels")):
            raise SystemExit(f"{earlier} was measured with other settings; give another folder")
        result["notes"] = kept["notes"]
        result["rows"] = [row for row in kept["rows"] if given.only_speed or row["network"] not in names]
        result["speed"] = [] if given.speed or given.only_speed else kept["speed"]

    def keep(row: dict[str, Any], table: str) -> None:
        """Written after each row: a run that is cut short has told what it knew."""
        print({key: value for key, value in row.items() if key != "curve"}, flush=True)
        result[table].append(row)
        write_report(given.out, f"overfit_{kind}", result, markdown(result))

    for name in names if not given.only_speed else ():
        keep(overfit(name, given, device), "rows")
    for name in names if given.speed or given.only_speed else ():
        for precision in ("fp32", "bf16"):
            for compiled in (False,) if given.no_compile else (False, True):
                keep(step_times(name, precision, compiled, given, device), "speed")


if __name__ == "__main__":
    main()
