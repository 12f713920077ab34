"""A training on the terminal: how far, the loss, how fast, how long still."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

from .synth_progress import LINE_EVERY, duration

if TYPE_CHECKING:
    from ..restore.training import TrainProgress

REDRAWN_EVERY = 0.2  # seconds


class TrainBar:
    """A live line on a terminal; elsewhere a line now and then. Called with the state of the training, and with
    its name where there are several."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        console = Console(stderr=True)
        self._live = console.is_terminal
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[told]}"),
        )
        self._bar = Progress(*columns, console=console, transient=True, disable=not self._live)
        self._task = self._bar.add_task("", total=None, told="")
        self._last = ("", 0.0)

    def __enter__(self) -> TrainBar:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def __call__(self, progress: TrainProgress, name: str = "") -> None:
        stage = f"{name}: {progress.stage}" if name else progress.stage
        now = time.monotonic()
        since = now - self._last[1]
        if stage == self._last[0] and since < (REDRAWN_EVERY if self._live else LINE_EVERY):
            return
        if not self._live and progress.stage == "validating":
            return  # what comes of it is told with the next line
        self._last = (stage, now)
        before = progress.total and progress.stage != "training"
        done, total = (progress.done, progress.total) if before else (progress.step, progress.steps)
        text = told(progress)
        self._bar.update(self._task, description=stage, completed=done, total=total or None, told=text)
        if not self._live:
            sys.stderr.write(f"{stage}: {done} of {total} {text}\n")


def told(progress: TrainProgress) -> str:
    """Loss, scores, speed and the time that is left."""
    parts = []
    if progress.loss is not None:
        parts.append(f"loss {progress.loss:.4g}")
    if progress.psnr is not None and progress.best_psnr is not None:
        parts.append(f"PSNR {progress.psnr:.2f} dB (best {progress.best_psnr:.2f})")
    if progress.steps_per_s is not None:
        parts.append(f"{progress.steps_per_s:.3g} steps/s")
    if progress.seconds_left is not None:
        parts.append(f"{duration(progress.seconds_left)} left")
    return " · ".join(parts)
