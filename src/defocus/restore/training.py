"""Training a network: `train(config, out)`.

A step is a pure function of the weights and its number: its pairs (batches.py), its learning rate (schedules.py) and
its random numbers all follow from the seed and the step. A training that was killed goes on from its last state and
gives the weights and the curve that it would have given; to the bit on a CPU, within rounding on a GPU, whose sums have
no fixed order. Losses are looked at now and then, so that a GPU need not wait for the host at each step, but always
before anything is saved.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..errors import ConfigError, MissingExtraError, TrainingError
from ..files.png import png_bytes
from ..files.randomness import seed_for
from .config import TrainConfig
from .schedules import Stages, milestone_steps, rate_at

try:
    import torch
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState
except ModuleNotFoundError as error:
    raise MissingExtraError("training", "train") from error

from .averaging import Average
from .build import loss_name, network_overrides
from .logs import Logs, check_kinds
from .losses import build_loss
from .models import build_model
from .models.checkpoints import save_weights
from .run_state import VERSION, RunFolder, State, check_same, other_judges, read_state, write_whole
from .train_data import Feed, ValidationPairs
from .validation import Scores, judge

SPEED_AFTER = 5  # steps: the first ones compile, tune and fill


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
    _clock: tuple[int, float] | None = field(default=None, repr=False)

    @property
    def steps_per_s(self) -> float | None:
        """Of this run, validation and saving included; None until there is something to tell it from."""
        if self._clock is None or self.step <= self._clock[0]:
            return None
        return (self.step - self._clock[0]) / max(time.monotonic() - self._clock[1], 1e-9)

    @property
    def seconds_left(self) -> float | None:
        speed = self.steps_per_s
        return None if speed is None else (self.steps - self.step) / speed


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
    config: TrainConfig,
    out: str | Path,
    *,
    folders: tuple[str | Path, ...] = (),
    anew: bool = False,
    accept_changes: bool = False,
    progress: Watcher | None = None,
) -> TrainResult:
    """Train into the folder `out`, or go on there. `folders` take the place of `config.data.folders`.

    `anew`: forget what is there; `accept_changes`: go on although settings or data changed. Under `accelerate launch`
    every process calls this with the same arguments. Raises `ConfigError`, `DatasetError` or `TrainingError`.
    """
    config = config.with_folders(folders)
    AcceleratorState._reset_state(reset_partial_state=False)  # another training of this process had its own settings
    accelerator = _accelerator(config)
    folder = RunFolder(Path(out))
    with _quiet_devices(accelerator.device), _lost_processes(accelerator.num_processes):
        if not accelerator.is_main_process:
            return _Training(config, folder, accelerator, progress).run(accept_changes)
        folder.check()
        with folder.locked():
            training = _Training(config, folder, accelerator, progress)
            if anew:  # now that nothing is wrong with what takes its place
                folder.clear()
            return training.run(accept_changes)


class _Training:
    def __init__(
        self, config: TrainConfig, folder: RunFolder, accelerator: Accelerator, progress: Watcher | None
    ) -> None:
        self.config, self.folder, self.accelerator, self.watch = config, folder, accelerator, progress
        self.told = TrainProgress(config.steps)
        self.device = accelerator.device
        check_kinds(config.logs.kinds)
        self.loss = build_loss(loss_name(config), **config.loss.options)
        torch.manual_seed(config.seed)
        self.raw = build_model(config.model.name, config.model.size, **network_overrides(config))
        self.feed = Feed(config, self.device, accelerator.process_index, accelerator.num_processes, self._tell_stage)
        self.validation = ValidationPairs(config, self._tell_stage) if config.validation.every else None
        self.judged_by = self.validation.identity if self.validation is not None else None
        layout = torch.channels_last if config.compute.channels_last else torch.contiguous_format
        self.layout = layout
        self.raw.to(self.device, memory_format=layout)
        self.average = Average(self.raw, config.ema)
        self.model, self.optimizer = accelerator.prepare(self.raw, _optimizer(config, self.raw, self.device))
        self.stages = Stages.of(config)
        self.reloads = set(milestone_steps(config.schedule, config.steps)) if config.schedule.reload_best else set()
        self.waiting: list[tuple[int, torch.Tensor]] = []  # losses of steps, still on the device
        self.rows: list[list[float]] = []  # losses that are looked at, but in no log yet
        self.columns: list[str] = []
        self.best: dict[str, float] = {}
        self.history: list[dict[str, float]] = []

    # --- the run

    def run(self, accept_changes: bool) -> TrainResult:
        first = self._resume(accept_changes)
        main = self.accelerator.is_main_process
        self.logs = Logs(self.folder.path, self.config.logs.kinds, first) if main else None
        self.told.step = self.told.resumed = first
        self._event("resumed" if first else "began", first, **self._about())
        self.accelerator.wait_for_everyone()
        try:
            if first < self.config.steps:
                self._steps(first)
                self._event("ended", self.config.steps, steps_per_s=self.told.steps_per_s)
        finally:
            if self.logs is not None:
                self.logs.close()
        best = self.folder.path / "best.pt" if self.best else None
        return TrainResult(best, self.folder.path / "last.pt", self.history, bool(self.config.ema))

    def _steps(self, first: int) -> None:
        self.model.train()
        with closing(self.feed.batches(first)) as batches:  # and its workers, whatever happens
            self._steps_with(first, batches)

    def _steps_with(self, first: int, batches: Iterator[tuple[torch.Tensor, torch.Tensor]]) -> None:
        for step in range(first, self.config.steps):
            if step in self.reloads and self.best:
                self._reload()
            try:
                self._step(step, batches)
            except torch.OutOfMemoryError as error:
                raise self._no_memory(step) from error
            done = step + 1
            self._tell(done)
            last = done == self.config.steps
            if last or done % self.config.logs.every == 0:
                self._log(done)
            better = False
            if self.validation is not None and (last or done % self.config.validation.every == 0):
                better = self._validate(done)
            if last or better or done % self.config.save.every == 0:
                self._save(done, better)

    def _step(self, step: int, batches: Iterator[tuple[torch.Tensor, torch.Tensor]]) -> None:
        config, accelerator = self.config, self.accelerator
        torch.manual_seed(seed_for(config.seed, "step", step, accelerator.process_index))
        self.told.rate = rate_at(config.schedule, config.optimizer.rate, step, config.steps)
        for group in self.optimizer.param_groups:
            group["lr"] = self.told.rate
        parts = self.stages.at(step).accumulate or 1
        found = []
        for part in range(parts):
            image, target = next(batches)
            image = image.contiguous(memory_format=self.layout)
            with _shared_later(accelerator, self.model, part < parts - 1):
                loss = self.loss(self.model, image, target.contiguous(memory_format=self.layout))
                accelerator.backward(loss.total / parts)
            found.append(torch.stack([loss.total.detach(), *loss.parts.values()]).float())
        self.columns = ["loss", *loss.parts, "gradient_norm"]
        norm = accelerator.clip_grad_norm_(self.model.parameters(), config.clip_norm or float("inf"))
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.average.update(self.raw, step)
        mean = torch.stack(found).mean(0) if parts > 1 else found[0]
        self.waiting.append((step, torch.cat((mean, norm.detach().float().reshape(1)))))

    # --- looking at losses

    def _look(self) -> None:
        """Bring the losses that wait to the host. Raises `TrainingError` where one is no number."""
        if not self.waiting:
            return
        steps = [step for step, _ in self.waiting]
        values = self.accelerator.reduce(torch.stack([row for _, row in self.waiting]), "mean").tolist()
        self.waiting = []
        scaled = self.config.compute.precision == "fp16"  # whose steps are left out where gradients overflow
        for step, row in zip(steps, values, strict=True):
            looked_at = row[:-1] if scaled else row
            if not all(abs(value) < float("inf") for value in looked_at):
                raise self._not_finite(step, dict(zip(self.columns, row, strict=True)))
        self.rows += values
        self.told.loss = values[-1][0]

    def _log(self, done: int) -> None:
        self._look()
        means = [sum(column) / len(column) for column in zip(*self.rows, strict=True)]
        self.rows = []
        stage = self.stages.at(done - 1)
        row = dict(zip(self.columns, means, strict=True))
        row |= {"rate": self.told.rate, "batch": stage.batch, "crop": stage.crop}
        if self.logs is not None:
            self.logs.loss(done, row, self.told.steps_per_s)

    def _not_finite(self, step: int, row: dict[str, float]) -> TrainingError:
        names = self.feed.data.names(step)
        shown = ", ".join(names[:16]) + (f" and {len(names) - 16} more" if len(names) > 16 else "")
        told = ", ".join(f"{key} {value:g}" for key, value in row.items())
        return TrainingError(
            f"step {step + 1} gave no finite numbers ({told}). Its pairs were {shown}. Nothing of it was saved: lower "
            'optimizer.rate, set clip_norm, schedule.warmup or compute.precision = "no", then --accept-changes'
        )

    def _no_memory(self, step: int) -> TrainingError:
        stage = self.stages.at(step)
        parts = stage.accumulate or 1
        each = stage.batch // parts // self.accelerator.num_processes
        return TrainingError(
            f"out of GPU memory in step {step + 1}, with {each} crops of {stage.crop} pixels at once: raise accumulate "
            f"from {parts} to {2 * parts} (the same training, in smaller parts), or lower batch or crop, or take "
            'compute.precision = "bf16"'
        )

    # --- judging

    def _validate(self, done: int) -> bool:
        """Whether these are the best weights so far."""
        assert self.validation is not None
        self._look()
        self._tell_stage("validating", 0, 0)
        wanted = self.config.validation
        network = self.average.refreshed(self.raw)
        try:
            scores: Scores = judge(network, self.validation, self.accelerator, batch=wanted.batch, images=wanted.images)
        except torch.OutOfMemoryError as error:
            raise TrainingError(
                f"out of GPU memory while validating {wanted.batch} whole pictures at once: lower validation.batch"
            ) from error
        row: dict[str, float] = {"step": done, **scores.row()}
        self.history.append(row)
        self.told.psnr = scores.psnr
        better = not self.best or scores.psnr > self.best["psnr"]
        if better:
            self.best = row
        self.told.best_psnr = self.best["psnr"]
        if self.logs is not None:
            self.logs.validation(done, scores.row(), scores.strips)
            if scores.strips is not None:
                write_whole(self.folder.path / "pictures" / f"step-{done:08d}.png", png_bytes(scores.strips))
        self.told.stage = "training"
        return better

    # --- states

    def _save(self, done: int, better: bool) -> None:
        self._look()
        network = self.average.refreshed(self.raw)
        for model in (self.raw, network):
            if not all(bool(p.isfinite().all()) for p in model.parameters()):
                raise self._not_finite(done - 1, {"weights": float("nan")})
        if self.logs is None:
            return
        self.logs.keep()
        scaler = self.accelerator.scaler
        state: State = {
            "version": VERSION,
            "step": done,
            "config": self.config.decisive(),
            "data": self.feed.identity,
            "validation": self.judged_by,  # of the pairs that the best score is of
            "model": self.raw.state_dict(),
            "average": network.state_dict() if self.config.ema else None,
            "optimizer": self.optimizer.state_dict(),
            "scaler": scaler.state_dict() if scaler is not None else None,
            "rows": self.rows,
            "columns": self.columns,
            "best": self.best,
            "history": self.history,
        }
        self.folder.save(state, self.config.save.keep)
        self._write_weights("last", network.state_dict())
        if better:
            self._write_weights("best", network.state_dict())

    def _write_weights(self, name: str, state: dict[str, Any]) -> None:
        options = self.raw.options.model_dump(mode="json")
        save_weights(self.folder.path / f"{name}.pt", self.config.model.name, options, state)

    def _resume(self, accept_changes: bool) -> int:
        """Take up the last state; the step to go on with."""
        self.accelerator.wait_for_everyone()
        file = self.folder.latest()
        state = read_state(file) if file is not None else None
        changes: list[str] = []
        judges = self.judged_by
        if state is not None:
            changes = check_same(state, self.config, self.feed.identity, judges, self.folder.path, accept_changes)
            self._take(state)
        self.accelerator.wait_for_everyone()
        if self.accelerator.is_main_process:
            self.folder.write_config(self.config)
        if state is None:
            return 0
        self.rows, self.columns = state["rows"], state["columns"]
        if not other_judges(state, judges):  # scores of other pairs are no match for those to come
            self.best, self.history = state["best"], state["history"]
            self.judged_by = judges or state.get("validation")
        self.told.best_psnr = self.best.get("psnr")
        if self.accelerator.is_main_process:  # a kill may have come between the state and the weights
            self._write_weights("last", state["average"] or state["model"])
            best_file = self.folder.state_file(self.best["step"]) if self.best else None
            if best_file is not None and (best_file == file or not (self.folder.path / "best.pt").exists()):
                best = read_state(best_file)
                self._write_weights("best", best["average"] or best["model"])
        self.changes = changes
        return int(state["step"])

    def _take(self, state: State) -> None:
        try:
            self.raw.load_state_dict(state["model"])
            if self.config.ema:
                self.average.model.load_state_dict(state["average"] or state["model"])
            self.optimizer.load_state_dict(state["optimizer"])
        except (RuntimeError, ValueError) as error:
            raise TrainingError(
                f"{self.folder.path}: what was trained there is another network than the settings ask for; --anew "
                "begins again, or choose another folder"
            ) from error
        if self.accelerator.scaler is not None and state["scaler"] is not None:
            self.accelerator.scaler.load_state_dict(state["scaler"])

    def _reload(self) -> None:
        """Back to the best weights, as NRKNet's authors do where the rate falls."""
        self._look()
        self.accelerator.wait_for_everyone()
        self._take(read_state(self.folder.state_file(self.best["step"])))

    # --- telling

    def _tell(self, done: int) -> None:
        told = self.told
        told.stage, told.step = "training", done
        if told._clock is None and done - told.resumed >= min(SPEED_AFTER, told.steps - told.resumed - 1):
            told._clock = (done, time.monotonic())
        if self.watch is not None:
            self.watch(told)

    def _tell_stage(self, stage: str, done: int, total: int) -> None:
        self.told.stage, self.told.done, self.told.total = stage, done, total
        if self.watch is not None:
            self.watch(self.told)

    def _event(self, name: str, step: int, **about: Any) -> None:
        if self.logs is not None:
            self.logs.event(name, step=step, **about)

    def _about(self) -> dict[str, Any]:
        device = torch.cuda.get_device_name(self.device) if self.device.type == "cuda" else self.device.type
        parameters = sum(p.numel() for p in self.raw.parameters())
        return {
            "device": device,
            "processes": self.accelerator.num_processes,
            "torch": torch.__version__,
            "parameters": parameters,
            "pairs": self.feed.pairs,
            "changes": getattr(self, "changes", []),
        }


def _accelerator(config: TrainConfig) -> Accelerator:
    compute = config.compute
    if compute.precision == "fp16" and not torch.cuda.is_available():
        raise ConfigError('compute.precision = "fp16" needs a GPU; here take "no" or "bf16"')
    started = int(os.environ.get("WORLD_SIZE") or 1)
    accelerator = Accelerator(
        mixed_precision=compute.precision,
        dynamo_backend="inductor" if compute.compile else "no",
        cpu=started > 1 and not torch.cuda.is_available(),  # else accelerate takes each for a training of its own
    )
    kind = accelerator.distributed_type.value
    if kind not in ("NO", "MULTI_GPU", "MULTI_CPU"):
        raise TrainingError(f"training is not made for accelerate's {kind}; choose one or many GPUs without it")
    if accelerator.num_processes != started:
        raise TrainingError(
            f"{started} processes were started (WORLD_SIZE), but accelerate knows of {accelerator.num_processes}: "
            "start them with accelerate launch or torchrun, or unset WORLD_SIZE for one alone"
        )
    return accelerator


def _optimizer(config: TrainConfig, model: torch.nn.Module, device: torch.device) -> torch.optim.Optimizer:
    wanted = config.optimizer
    kind = torch.optim.AdamW if wanted.kind == "adamw" else torch.optim.Adam
    fused = {"fused": True} if device.type == "cuda" else {}
    return kind(model.parameters(), lr=wanted.rate, betas=wanted.betas, weight_decay=wanted.weight_decay, **fused)


@contextmanager
def _shared_later(accelerator: Accelerator, model: torch.nn.Module, later: bool) -> Iterator[None]:
    """Many GPUs exchange gradients after the last part of a batch alone."""
    if later:
        with accelerator.no_sync(model):
            yield
    else:
        yield


@contextmanager
def _lost_processes(count: int) -> Iterator[None]:
    """Where one of many processes ends, the others only see a connection that broke: one line, not its traceback."""
    try:
        yield
    except RuntimeError as error:
        broken = "gloo" in str(error) or "by peer" in str(error)
        if count == 1 or not (broken or isinstance(error, torch.distributed.DistError)):
            raise
        raise TrainingError("another process of this training ended; what it wrote says why") from error


@contextmanager
def _quiet_devices(device: torch.device) -> Iterator[None]:
    """Random numbers and settings of the process are afterwards as they were."""
    tuned = torch.backends.cudnn.benchmark
    with torch.random.fork_rng([device.index or 0] if device.type == "cuda" else []):
        try:
            torch.backends.cudnn.benchmark = True
            yield
        finally:
            torch.backends.cudnn.benchmark = tuned
