"""Long work of many visitors: one job at a time in the order of asking, each told where it stands.

A visitor's new job of a kind takes the place of the old one: what nobody waits for any more is stopped at its next
report of progress. No job runs longer than the line's limit.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from ..errors import DefocusError

Report = Callable[[str, float], None]  # a stage, and how much of it is done, 0 to 1
EVERY_S = 0.25  # between two looks at a job


class JobStopped(Exception):
    """A job that nobody waits for; not an error."""


@dataclass(frozen=True)
class JobState:
    """Where a job stands: jobs before it, or its stage and how much of that is done."""

    before: int
    stage: str = ""
    done: float = 0.0

    @property
    def text(self) -> str:
        """The state in words."""
        if self.before:
            others = "another picture is" if self.before == 1 else f"{self.before} others are"
            return f"waiting: {others} being made before yours"
        return f"{self.stage} {self.done:.0%}" if self.stage else "starting"


@dataclass
class Job:
    """One piece of work and who waits for it."""

    key: tuple[str, str]  # visitor, kind of work
    work: Callable[[Report], Any]
    deadline_s: float
    is_stopped: bool = False
    stage: str = ""
    done: float = 0.0
    result: Any = None
    error: BaseException | None = None
    began: float = 0.0
    ended: threading.Event = field(default_factory=threading.Event)

    def report(self, stage: str, done: float) -> None:
        """Note the progress; raises where the job is to end here."""
        self.stage, self.done = stage, done
        if self.is_stopped:
            raise JobStopped
        if time.monotonic() - self.began > self.deadline_s:
            raise DefocusError(
                f"not done within {self.deadline_s:.0f} s ({stage}): stop the lens down, take a smaller picture, or "
                "run the command line below on your own machine"
            )


class JobLine:
    """A thread that works through jobs."""

    def __init__(self, deadline_s: float = 120.0) -> None:
        self.deadline_s = deadline_s
        self._jobs: list[Job] = []  # in the order of asking; the first has begun, or is about to
        self._change = threading.Condition()
        self._is_closed = False
        self._thread = threading.Thread(target=self._work, name="defocus jobs", daemon=True)
        self._thread.start()

    def ask(self, visitor: str, kind: str, work: Callable[[Report], Any]) -> Job:
        """Add a job at the end; the visitor's last one of this kind is stopped."""
        job = Job((visitor, kind), work, self.deadline_s)
        with self._change:
            for other in [one for one in self._jobs if one.key == job.key]:
                self._stop(other)
            self._jobs.append(job)
            self._change.notify_all()
        return job

    def close(self) -> None:
        """Stop every job, and wait for the running one: a thread within compiled code must not outlive the program."""
        with self._change:
            self._is_closed = True
            for job in list(self._jobs):
                self._stop(job)
            self._change.notify_all()
        self._thread.join()

    def stop(self, job: Job) -> None:
        """End a job that nobody waits for any more."""
        with self._change:
            self._stop(job)

    def states(self, job: Job) -> Iterator[JobState]:
        """Where a job stands, now and then until it has ended; stopped if the reader stops."""
        last = None
        try:
            while not job.ended.wait(EVERY_S if last else 0.05):
                state = self._state(job)
                if state != last:
                    last = state
                    yield state
        finally:
            if not job.ended.is_set():
                self.stop(job)

    def _state(self, job: Job) -> JobState:
        with self._change:
            ahead = self._jobs[: self._jobs.index(job)] if job in self._jobs else []
            others = [one for one in ahead if one.key[0] != job.key[0]]  # one's own that is about to stop is none
            return JobState(len(others), job.stage, job.done)

    def _stop(self, job: Job) -> None:
        job.is_stopped = True
        if job in self._jobs and not job.began:
            self._jobs.remove(job)
            job.error = JobStopped()
            job.ended.set()

    def _work(self) -> None:
        while True:
            with self._change:
                self._change.wait_for(lambda: self._jobs or self._is_closed)
                if not self._jobs:
                    return
                job = self._jobs[0]
                job.began = time.monotonic()
            try:
                job.result = job.work(job.report)
            except BaseException as error:  # it belongs to whoever asked
                job.error = error
            with self._change:
                self._jobs.remove(job)
            job.ended.set()
