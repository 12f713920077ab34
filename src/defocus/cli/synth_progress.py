"""A data set in the making, on the terminal: how far, how fast, how long still, and where the time goes."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ..synth.run import Progress

LINE_EVERY = 30.0  # seconds, where there is no terminal


class SynthBar:
    """A live line on a terminal; elsewhere a line now and then. Called with the state of the run, and with the name of
    the data set where several are made."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn
        from rich.progress import Progress as Bar

        console = Console(stderr=True)
        self._live = console.is_terminal
        texts = TextColumn("{task.description}"), TextColumn("{task.fields[told]}")
        columns = (texts[0], BarColumn(), MofNCompleteColumn(), texts[1])
        self._bar = Bar(*columns, console=console, transient=True, disable=not self._live)
        self._task = self._bar.add_task("", total=None, told="")
        self._last = ("", 0.0)

    def __enter__(self) -> SynthBar:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def __call__(self, progress: Progress, name: str = "") -> None:
        stage = f"{name}: {progress.stage}" if name else progress.stage
        drawing = progress.stage == "drawing candidates"
        done, total = (progress.drawn, progress.candidates) if drawing else (progress.done, progress.planned)
        text = told(progress)
        self._bar.update(self._task, description=stage, completed=done, total=total or None, told=text)
        now = time.monotonic()
        if not self._live and (stage != self._last[0] or now - self._last[1] > LINE_EVERY):
            self._last = (stage, now)
            sys.stderr.write(f"{stage}: {done} of {total} {text}\n")


def told(progress: Progress) -> str:
    """Speed, time left and the stages that take the time."""
    parts = []
    if progress.rate > 0.0:
        parts.append(f"{progress.rate:.3g} pairs/s")
        left = progress.seconds_left
        if left is not None:
            parts.append(f"{duration(left)} left")
    elif progress.stage == "making pairs":
        parts.append("compiling")
    total = sum(progress.seconds.values())
    if total > 0.0:
        shares = sorted(progress.seconds.items(), key=lambda item: -item[1])[:4]
        parts.append(", ".join(f"{name} {seconds / total:.0%}" for name, seconds in shares))
    if progress.rejected or progress.failed:
        parts.append(f"{progress.rejected} rejected, {progress.failed} failed")
    return " · ".join(parts)


def duration(seconds: float) -> str:
    """In seconds, minutes or hours."""
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
