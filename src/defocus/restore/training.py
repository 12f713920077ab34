"""Training a network: `train(config, out)`.

A step is a pure function of the weights and its number: its pairs, its learning rate and its random numbers
all follow from the seed and the step. A training that was killed goes on from its last state and gives the weights and
the curve that it would have given; to the bit on a CPU, within rounding on a GPU, whose sums have no fixed order.
Losses are looked at now and then, so that a GPU need not wait for the host at each step, but always before anything is
saved.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import ConfigError, TrainingError
from ..files.randomness import seed_for
from ._torch import Tensor, torch
from .build import (
    Average,
    compile_blocks,
    loss_name,
    lost_processes,
    network_overrides,
    open_accelerator,
    quiet_device,
)
from .config import TrainConfig
from .data import Batch
from .loader import TrainLoader
from .losses import build_loss
from .models import build_model
from .models.checkpoints import fill, read_weights, write_weights
from .recording import RecordedStep
from .run_folder import VERSION, RunFolder, State, TrainLogs, check_same, other_judges, read_state, tensorboard_writer
from .validation import ValidationPairs, judge

if TYPE_CHECKING:
    from accelerate import Accelerator

SPEED_AFTER = 5  # steps: the first ones compile, tune and fill
TIMED_STEPS = 60  # after which a training of so many minutes knows its speed
TIME_FOR_STEPS = 0.93  # of what is left then; the rest is for validation and saving


@dataclass
class TrainProgress:
    """Where a training stands, for whoever shows it."""

    steps: int
    stage: str = ""
    step: int = 0  # steps that are done, those of earlier runs included
    done: int = 0  # of a stage before the first step: how many of `total`
    total: int = 0
    loss: float | None = None  # the last one that was looked at
    psnr: float | None = None
    best_psnr: float | None = None
    rate: float = 0.0
    resumed: int = 0  # the step that this run began with
    watcher: Watcher | None = field(default=None, repr=False)
    _clock: tuple[int, float] | None = field(default=None, repr=False)

    @property
    def steps_per_s(self) -> float | None:
        """Speed of this run, validation and saving included; None in its first steps."""
        if self._clock is None or self.step <= self._clock[0]:
            return None
        return (self.step - self._clock[0]) / max(time.monotonic() - self._clock[1], 1e-9)

    @property
    def seconds_left(self) -> float | None:
        speed = self.steps_per_s
        return None if speed is None else (self.steps - self.step) / speed

    def report(self, stage: str, done: int = 0, total: int = 0) -> None:
        """Tell the watcher how far a stage beside the steps is."""
        self.stage, self.done, self.total = stage, done, total
        if self.watcher is not None:
            self.watcher(self)

    def advance(self, step: int) -> None:
        """Tell the watcher how many steps are done."""
        self.step = step
        if self._clock is None and step - self.resumed >= min(SPEED_AFTER, self.steps - self.resumed - 1):
            self._clock = (step, time.monotonic())
        self.report("training")


Watcher = Callable[[TrainProgress], None]


@dataclass(frozen=True)
class TrainResult:
    """`best` and `last`: files of weights (`best` is None without validation); `history`: a row for each validation;
    `averaged`: whether the weights are the moving average."""

    best: Path | None
    last: Path
    history: list[dict[str, float]]
    averaged: bool


def train(
    config: TrainConfig | str | Path,
    out: str | Path,
    *,
    folders: tuple[str | Path, ...] = (),
    anew: bool = False,
    accept_changes: bool = False,
    progress: Watcher | None = None,
    minutes: float | None = None,
) -> TrainResult:
    """Train into the folder `out`, or go on there. `config`: settings, a TOML file of them, or a recipe's name.

    With `minutes`, the settings' steps are cut to what such a time holds from now on, by the speed of the first ones:
    the schedule ends with it. `folders` take the place of `config.data.folders`; `anew`: remove what a training made
    there, and nothing else; `accept_changes`: go on although settings or data changed. Under `accelerate launch` every
    process calls this with the same arguments. Raises `ConfigError`, `DatasetError`, `TrainingError`, or
    `OwnershipError` for a folder that is not ours.
    """
    if not isinstance(config, TrainConfig):
        config = TrainConfig.from_toml(config)
    if minutes is not None and (config.progressive or config.curriculum):  # which decide what is read ahead of the cut
        raise ConfigError("minutes are for trainings without progressive and curriculum: set steps, or leave them out")
    end = None if minutes is None else time.monotonic() + 60.0 * minutes
    config = config.with_folders(folders)
    accelerator, folder = open_accelerator(config.compute), RunFolder(Path(out))
    main = accelerator.is_main_process
    lock = folder.opened() if main else nullcontext()
    with quiet_device(accelerator.device), lost_processes(accelerator.num_processes), lock:
        training = _Training(config, folder, accelerator, TrainProgress(config.steps, watcher=progress))
        if anew and main:  # now that nothing is wrong with what takes its place
            folder.files.clear()
        return training.run(accept_changes, end)


class _Training:
    def __init__(
        self, config: TrainConfig, folder: RunFolder, accelerator: Accelerator, progress: TrainProgress
    ) -> None:
        self.config, self.folder, self.accelerator, self.progress = config, folder, accelerator, progress
        self.device, self.main = accelerator.device, accelerator.is_main_process
        tensorboard_writer(config.logs.kinds)  # says so if it is missing
        self.loss = build_loss(loss_name(config), **config.loss.options)
        torch.manual_seed(config.seed)
        self.network = build_model(config.model.name, config.model.size, **network_overrides(config))
        if config.model.start is not None:
            fill(self.network, read_weights(config.model.start)[2], config.model.start)
        ranks = accelerator.process_index, accelerator.num_processes
        self.loader = TrainLoader(config, self.device, *ranks, progress.report)
        self.validation = ValidationPairs(config, progress.report) if config.validation.every else None
        self.judges = self.validation.identity if self.validation is not None else None
        self.layout = torch.channels_last if config.compute.channels_last else torch.contiguous_format
        self.network.to(self.device, memory_format=self.layout)
        self.average = Average(self.network, config.ema)
        if config.compute.compile and config.compute.compile_mode == "blocks":
            compile_blocks(self.network)
        recording = config.compute.record and self.device.type == "cuda"
        if recording and (accelerator.num_processes > 1 or any(stage.parts > 1 for stage in config.stages)):
            raise ConfigError("compute.record is for one process and batches in one part: set it to false")
        if recording and config.schedule.reload_best:  # puts other arrays in the place of those that were recorded
            raise ConfigError("compute.record is for schedules without reload_best: set one of them to false")
        # A recorded step reads its rate where it was recorded.
        self.rate = torch.tensor(config.optimizer.rate, device=self.device) if recording else None
        self.recorded = RecordedStep(lambda *batch: self._update([batch])) if recording else None
        self.model, self.optimizer = accelerator.prepare(self.network, self._optimizer())
        # Losses and gradient norms of the steps since the last log: on the device until somebody looks, then as rows.
        self.waiting: list[tuple[int, Tensor]] = []
        self.rows: list[list[float]] = []
        self.columns: list[str] = []
        self.logs: TrainLogs | None = None  # of the main process
        self.best: dict[str, float] = {}
        self.history: list[dict[str, float]] = []
        self.changes: list[str] = []

    def run(self, accept_changes: bool, end: float | None = None) -> TrainResult:
        """All steps from the last state on; `end`: the second of the monotonic clock to be ready at."""
        config, progress = self.config, self.progress
        first = progress.step = progress.resumed = self._resume(accept_changes)
        self.logs = TrainLogs(self.folder.files, config.logs.kinds, first) if self.main else None
        self._event("resumed" if first else "began", first, **self._about())
        self.accelerator.wait_for_everyone()
        self.model.train()
        try:
            with closing(self.loader.batches(first)) as batches:  # and its workers, whatever happens
                for step in count(first):
                    if end is not None and step - first == TIMED_STEPS:
                        config = self._cut_to(end, step)
                    if step >= config.steps:
                        break
                    if config.schedule.reload_best and step in config.milestone_steps and self.best:
                        self._reload()
                    self._step(step, batches)
                    done = step + 1
                    progress.advance(done)
                    last = done == config.steps
                    if last or done % config.logs.every == 0:
                        self._log(done)
                    judged = self.validation is not None and (last or done % config.validation.every == 0)
                    better = judged and self._validate(done)
                    if last or better or done % config.save.every == 0:
                        self._save(done, better)
            if first < config.steps:
                self._event("ended", config.steps, steps_per_s=progress.steps_per_s)
        finally:
            if self.logs is not None:
                self.logs.close()
        best = self.folder.path / "best.pt" if self.best else None
        return TrainResult(best, self.folder.path / "last.pt", self.history, bool(config.ema))

    def _cut_to(self, end: float, step: int) -> TrainConfig:
        """Settings of as many steps as there is time for, those that are done included."""
        self._look()  # the device has done what was asked of it
        speed = self.progress.steps_per_s
        left = max(0.0, TIME_FOR_STEPS * (end - time.monotonic()))
        steps = min(self.config.steps, step + max(1, int(left * speed))) if speed else self.config.steps
        self.config = self.loader.config = self.config.changed({"steps": steps})
        self.progress.steps = steps
        if self.main:
            self.folder.write_config(self.config)
        self._event("timed", step, steps=steps, steps_per_s=speed)
        return self.config

    def _step(self, step: int, batches: Iterator[Batch]) -> None:
        config, accelerator, stage = self.config, self.accelerator, self.config.stage_at(step)
        torch.manual_seed(seed_for(config.seed, "step", step, accelerator.process_index))
        self.progress.rate = config.rate_at(step)
        for group in self.optimizer.param_groups:
            group["lr"] = self.progress.rate if self.rate is None else self.rate.fill_(self.progress.rate)
        try:
            parts = ([side.contiguous(memory_format=self.layout) for side in next(batches)] for _ in range(stage.parts))
            row = self._update(parts) if self.recorded is None else self.recorded(*next(parts))
        except torch.OutOfMemoryError as error:
            raise TrainingError(
                f"out of GPU memory in step {step + 1}, with {stage.batch // stage.parts // accelerator.num_processes} "
                f"crops of {stage.crop} pixels at once: raise accumulate from {stage.parts} to {2 * stage.parts} (the "
                'same training, in smaller parts), or lower batch or crop, or take compute.precision = "bf16"'
            ) from error
        self.average.update(step)
        self.waiting.append((step, row))

    def _update(self, parts: Iterable[Sequence[Tensor]]) -> Tensor:
        """One step of the optimizer; losses and gradient norm, on the device."""
        accelerator, count, rows = self.accelerator, self.config.stage_at(self.progress.step).parts, []
        for part, (image, target) in enumerate(parts):
            # Many GPUs exchange gradients after the last part of a batch alone.
            with accelerator.no_sync(self.model) if part < count - 1 else nullcontext():
                loss = self.loss(self.model, image, target)
                accelerator.backward(loss.total / count)
            rows.append(torch.stack([loss.total.detach(), *loss.parts.values()]).float())
        norm = accelerator.clip_grad_norm_(self.model.parameters(), self.config.clip_norm or float("inf"))
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.columns = ["loss", *loss.parts, "gradient_norm"]
        return torch.cat((torch.stack(rows).mean(0), norm.detach().float().reshape(1)))

    def _look(self) -> None:
        """Bring the losses that wait to the host, means over all processes. Raises `TrainingError` where one is no
        number."""
        if not self.waiting:
            return
        steps, tensors = zip(*self.waiting, strict=True)
        self.waiting = []
        rows = self.accelerator.reduce(torch.stack(tensors), "mean").tolist()
        self.rows += rows
        for step, row in zip(steps, rows, strict=True):
            # With fp16, steps are left out where gradients overflow.
            numbers = row[:-1] if self.config.compute.precision == "fp16" else row
            if not all(abs(value) < float("inf") for value in numbers):
                raise self._not_finite(step, dict(zip(self.columns, row, strict=True)))
            self.progress.loss = row[0]

    def _log(self, done: int) -> None:
        self._look()
        stage = self.config.stage_at(done - 1)
        means = [sum(column) / len(column) for column in zip(*self.rows, strict=True)]
        self.rows = []
        row = dict(zip(self.columns, means, strict=True))
        row |= {"rate": self.progress.rate, "batch": stage.batch, "crop": stage.crop}
        if self.logs is not None:
            self.logs.add("loss", done, row, steps_per_s=self.progress.steps_per_s)

    def _validate(self, done: int) -> bool:
        """Judge the network; whether these are the best weights so far."""
        assert self.validation is not None
        self._look()
        self.progress.report("validating")
        settings = self.config.validation
        network = self.average.refreshed(self.network)
        try:
            scores = judge(network, self.validation, self.accelerator, batch=settings.batch, images=settings.images)
        except torch.OutOfMemoryError as error:
            raise TrainingError(
                f"out of GPU memory while validating {settings.batch} whole pictures at once: lower validation.batch"
            ) from error
        self.history.append({"step": done, **scores.row()})
        better = not self.best or scores.psnr > self.best["psnr"]
        if better:
            self.best = self.history[-1]
        self.progress.psnr, self.progress.best_psnr = scores.psnr, self.best["psnr"]
        if self.logs is not None:
            self.logs.add("validation", done, scores.row())
            if scores.strips is not None:
                self.logs.show(done, scores.strips)
        return better

    def _save(self, done: int, better: bool) -> None:
        self._look()
        average = self.average.refreshed(self.network)
        for network in (self.network, average):
            if not all(bool(p.isfinite().all()) for p in network.parameters()):
                raise self._not_finite(done - 1, {"weights": float("nan")})
        if self.logs is None:
            return
        self.logs.flush()
        scaler = self.accelerator.scaler
        state: State = {
            "version": VERSION,
            "step": done,
            "config": self.config.decisive(),
            "data": self.loader.identity,
            "validation": self.judges,  # the pairs that the best score is of
            "model": self.network.state_dict(),
            "average": average.state_dict() if self.config.ema else None,
            "optimizer": self.optimizer.state_dict(),
            "scaler": scaler.state_dict() if scaler is not None else None,
            "rows": self.rows,
            "columns": self.columns,
            "best": self.best,
            "history": self.history,
        }
        self.folder.save(state, self.config.save.keep)
        self._write_weights("last", state)
        if better:
            self._write_weights("best", state)

    def _resume(self, accept_changes: bool) -> int:
        """Take up the last state; the step to go on with."""
        self.accelerator.wait_for_everyone()
        file = self.folder.latest()
        state = read_state(file) if file is not None else None
        if state is not None:
            identities = self.loader.identity, self.judges
            self.changes = check_same(state, self.config, *identities, self.folder.path, accept_changes)
            self._load(state)
        self.accelerator.wait_for_everyone()
        if self.main:
            self.folder.write_config(self.config)
        if state is None:
            return 0
        self.rows, self.columns = state["rows"], state["columns"]
        if not other_judges(state, self.judges):  # scores of other pairs are no match for those to come
            self.best, self.history = state["best"], state["history"]
            self.judges = self.judges or state.get("validation")
        self.progress.best_psnr = self.best.get("psnr")
        if self.main:  # a kill may have come between the state and the weights
            self._write_weights("last", state)
            best_file = self.folder.state_file(self.best["step"]) if self.best else None
            if best_file is not None and (best_file == file or not (self.folder.path / "best.pt").exists()):
                self._write_weights("best", read_state(best_file))
        return int(state["step"])

    def _reload(self) -> None:
        """Go back to the best weights, as NRKNet's authors do where the rate falls."""
        self._look()
        self.accelerator.wait_for_everyone()
        self._load(read_state(self.folder.state_file(self.best["step"])))

    def _load(self, state: State) -> None:
        try:
            self.network.load_state_dict(state["model"])
            self.average.network.load_state_dict(state["average"] or state["model"])
            self.optimizer.load_state_dict(state["optimizer"])
        except (RuntimeError, ValueError) as error:
            raise TrainingError(
                f"{self.folder.path}: what was trained there is another network than the settings ask for; --anew "
                "begins again, or choose another folder"
            ) from error
        if self.accelerator.scaler is not None and state["scaler"] is not None:
            self.accelerator.scaler.load_state_dict(state["scaler"])

    def _write_weights(self, name: str, state: State) -> None:
        options = self.network.options.model_dump(mode="json")
        with self.folder.files.writing(f"{name}.pt") as file:
            write_weights(file, self.network.name, options, state["average"] or state["model"])

    def _optimizer(self) -> torch.optim.Optimizer:
        settings = self.config.optimizer
        kind = torch.optim.AdamW if settings.kind == "adamw" else torch.optim.Adam
        fused = {"fused": True} if self.device.type == "cuda" else {}
        rate = settings.rate if self.rate is None else self.rate
        fused |= {"capturable": True} if self.rate is not None else {}
        options = {"lr": rate, "betas": settings.betas, "weight_decay": settings.weight_decay} | fused
        return kind(self.network.parameters(), **options)

    def _not_finite(self, step: int, row: dict[str, float]) -> TrainingError:
        names = self.loader.names(step)
        shown = ", ".join(names[:16]) + (f" and {len(names) - 16} more" if len(names) > 16 else "")
        numbers = ", ".join(f"{key} {value:g}" for key, value in row.items())
        return TrainingError(
            f"step {step + 1} gave no finite numbers ({numbers}). Its pairs were {shown}. Nothing of it was saved: "
            'lower optimizer.rate, set clip_norm, schedule.warmup or compute.precision = "no", then --accept-changes'
        )

    def _event(self, name: str, step: int, **about: Any) -> None:
        if self.logs is not None:
            self.logs.event(name, step=step, **about)

    def _about(self) -> dict[str, Any]:
        device = torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else self.device.type
        return {
            "device": device,
            "processes": self.accelerator.num_processes,
            "torch": torch.__version__,
            "parameters": sum(p.numel() for p in self.network.parameters()),
            "pairs": self.loader.pairs,
            "changes": self.changes,
        }
