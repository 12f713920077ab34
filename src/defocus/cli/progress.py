"""A progress bar for work in stages."""

from __future__ import annotations


class StageBar:
    """A bar on the terminal that names the stage; nothing elsewhere. Called with a stage and the part of it done."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import Progress

        console = Console(stderr=True)
        self.prefix = ""
        self._bar = Progress(console=console, transient=True, disable=not console.is_terminal)
        self._task = self._bar.add_task("", total=None)

    def __enter__(self) -> StageBar:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def __call__(self, stage: str, done: float | None = None) -> None:
        self._bar.update(
            self._task,
            description=self.prefix + stage,
            completed=0.0 if done is None else done,
            total=None if done is None else 1.0,
        )


__all__ = ["StageBar"]
