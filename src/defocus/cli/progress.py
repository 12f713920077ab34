"""Progress on the terminal: one bar for all commands, and what it says of a data set and of a training."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..restore.training import TrainProgress
    from ..synth.run import Progress

DELAY_S = 2.0  # until a status line is shown
LINE_EVERY = 30.0  # seconds, where there is no terminal


class ProgressBar:
    """A live bar on a terminal. With `counted` it shows how many of how many, and elsewhere a line now and then.

    It appears `delay_s` after it was started: what is over by then needs none.
    """

    def __init__(self, *, counted: bool = False, delay_s: float = 0.0) -> None:
        self.prefix = ""
        self.is_live = sys.stderr.isatty()
        self._counted = counted
        self._line = ("", 0.0)  # the last one that was written: its stage and when
        if not self.is_live:
            return
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
        from rich.progress import Progress as Bar

        stage, text = TextColumn("{task.description}"), TextColumn("{task.fields[text]}")
        columns = (stage, BarColumn(), MofNCompleteColumn(), text) if counted else Bar.get_default_columns()
        self._bar = Bar(*columns, console=Console(stderr=True), transient=True)
        self._task = self._bar.add_task("", total=None, text="")
        self._delay = threading.Timer(delay_s, self._bar.start)
        self._delay.daemon = True

    def __enter__(self) -> ProgressBar:
        if self.is_live and self._delay.interval > 0.0:
            self._delay.start()
        elif self.is_live:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if not self.is_live:
            return
        self._delay.cancel()
        if self._delay.is_alive():
            self._delay.join()
        if self._bar.live.is_started:
            self._bar.stop()

    def counter(self, stage: str, total: float) -> Callable[[float], None]:
        """A function that is called with how much more of a stage is done."""
        done = 0.0

        def count(more: float) -> None:
            nonlocal done
            done = min(done + more, total)  # what is computed again, in a larger window, is no more than all
            self(stage, done, total)

        return count

    def __call__(self, stage: str, done: float | None = None, total: float = 1.0, text: str = "") -> None:
        """Show a stage, how much of it is done (None: not known) and some words."""
        stage, end = self.prefix + stage, None if done is None else total or None
        if self.is_live:
            self._bar.update(self._task, description=stage, completed=done or 0.0, total=end, text=text)
        now = time.monotonic()
        if self._counted and not self.is_live and (stage != self._line[0] or now - self._line[1] > LINE_EVERY):
            self._line = (stage, now)
            count = "" if end is None else f": {done} of {total}"
            sys.stderr.write(f"{stage}{count} {text}".rstrip() + "\n")


@contextmanager
def status_line(text: str) -> Iterator[ProgressBar]:
    """A bar that says what a command is at, if that takes longer than DELAY_S."""
    with ProgressBar(delay_s=DELAY_S) as bar:
        bar(text)
        yield bar


def show_synthesis(bar: ProgressBar, progress: Progress, name: str = "") -> None:
    """Show where a data set (its name, where there are several) stands: speed, time left, and where the time goes."""
    parts = []
    if progress.rate > 0.0:
        parts.append(f"{progress.rate:.3g} pairs/s")
        if progress.seconds_left is not None:
            parts.append(f"{duration(progress.seconds_left)} left")
    elif progress.stage == "making pairs" and progress.done < progress.ends_at:
        parts.append("compiling")
    total = sum(progress.seconds.values())
    if total > 0.0:
        shares = sorted(progress.seconds.items(), key=lambda item: -item[1])[:4]
        parts.append(", ".join(f"{part} {seconds / total:.0%}" for part, seconds in shares))
    if progress.rejected or progress.failed:
        parts.append(f"{progress.rejected} rejected, {progress.failed} failed")
    drawing = progress.stage == "drawing candidates"
    done, of = (progress.drawn, progress.candidates) if drawing else (progress.done, progress.planned)
    bar(f"{name}: {progress.stage}" if name else progress.stage, done, of, " · ".join(parts))


def show_training(bar: ProgressBar, progress: TrainProgress, name: str = "") -> None:
    """Show where a training (its name, where there are several) stands: loss, scores, speed and the time left."""
    if not bar.is_live and progress.stage == "validating":
        return  # the scores come with the next line
    parts = []
    if progress.loss is not None:
        parts.append(f"loss {progress.loss:.4g}")
    if progress.psnr is not None and progress.best_psnr is not None:
        parts.append(f"PSNR {progress.psnr:.2f} dB (best {progress.best_psnr:.2f})")
    if progress.steps_per_s is not None:
        parts.append(f"{progress.steps_per_s:.3g} steps/s")
    if progress.seconds_left is not None:
        parts.append(f"{duration(progress.seconds_left)} left")
    before = progress.total and progress.stage != "training"
    done, of = (progress.done, progress.total) if before else (progress.step, progress.steps)
    bar(f"{name}: {progress.stage}" if name else progress.stage, done, of, " · ".join(parts))


def duration(seconds: float) -> str:
    """A time in seconds, minutes or hours."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
