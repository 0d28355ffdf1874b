"""The training loop: batches in, one program call per step, checkpoints out."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from volta import functions as F
from volta.dtypes import aligned_copy
from volta.errors import CheckpointError, DataError, NotFiniteError, UsageError
from volta.model.config import Config, from_dict
from volta.model.transformer import tinylm
from volta.plan.fingerprint import graph_digest
from volta.tensor import asarray, from_storage
from volta.train import checkpoint as checkpoints
from volta.train.checkpoint import Checkpoint
from volta.train.data import Batches, Validation, split
from volta.train.early_stop import EarlyStop
from volta.train.optim import Optimizer
from volta.train.schedule import Schedule, learning_rate
from volta.train.step import evaluation, training_step
from volta.train.text import text_sha256

Arrays = dict[str, npt.NDArray[Any]]


@dataclass(frozen=True, slots=True)
class Settings:
    """What a run is, beside its text: resuming reads it from the checkpoint.

    batch: rows per shard. shards: gradient accumulation, part of the arithmetic (N12). validation:
    fraction of the text held back; evaluate_every, save_every: steps (0: only at the end).
    """

    config: Config
    schedule: Schedule
    optimizer: Optimizer = field(default_factory=Optimizer)
    batch: int = 12
    shards: int = 1
    seed: int = 1
    validation: float = 0.05
    evaluate_every: int = 100
    save_every: int = 200
    patience: int = 0

    def __post_init__(self) -> None:
        if self.config.dtype == "int8":
            raise UsageError("[train] dtype is int8: expected f32 or bf16, whole numbers have no gradient")
        for name, low, high in (
            ("batch", 1, 1 << 20),
            ("shards", 1, 1024),
            ("evaluate_every", 0, 1 << 62),
            ("save_every", 0, 1 << 62),
            ("patience", 0, 1 << 62),
        ):
            value = getattr(self, name)
            if type(value) is not int or not low <= value <= high:
                raise UsageError(f"[train] {name} is {value!r}: expected a whole number, {low} to {high}")
        if type(self.seed) is not int or not 0 <= self.seed < 2**64:
            raise UsageError(f"[train] seed is {self.seed!r}: expected 64 unsigned bits")


@dataclass(frozen=True, slots=True)
class Report:
    """One step: loss and gradient norm before its update; `validation` where it was measured."""

    step: int
    steps: int
    loss: float
    norm: float
    rate: float
    seconds: float
    tokens: int
    validation: float | None = None
    saved: Path | None = None


class Trainer:
    """A run in memory: `steps()` goes on until the schedule's last step, a stop, or a failure."""

    def __init__(
        self,
        settings: Settings,
        text: bytes,
        directory: Path | None = None,
        start: Checkpoint | None = None,
        text_path: Path | None = None,
    ) -> None:
        """start: the checkpoint to continue from; its settings and text must be the same. text_path: where
        the text came from, kept in checkpoints for who resumes."""
        self.settings = settings
        self.directory = directory
        self.text_sha256 = text_sha256(text)
        stored = start.data.get("text") if start is not None else None
        self._text_path = str(text_path.resolve()) if text_path is not None else stored
        config = settings.config
        tokens = np.frombuffer(text, np.uint8)
        if tokens.size and int(tokens.max()) >= config.vocabulary:
            raise DataError(
                f"[train] the text has byte {int(tokens.max())}: the vocabulary is {config.vocabulary}"
            )
        train_tokens, held_back = split(tokens, settings.validation)
        self._batches = Batches(train_tokens, settings.batch * settings.shards, config.context, settings.seed)
        self._validation = (
            Validation(held_back, settings.batch, config.context) if len(held_back) > config.context else None
        )
        if settings.patience and (self._validation is None or not settings.evaluate_every):
            raise UsageError(
                f"[train] patience is {settings.patience}: expected evaluate_every above 0 and more "
                f"held-back text than {config.context} bytes, there are {len(held_back)}"
            )
        self.model = tinylm(config)
        self._evaluate = evaluation(self.model)
        self.step = 0
        self.early_stop = EarlyStop(settings.patience)
        self.first_loss: float | None = None
        self.last_saved: Path | None = None
        self._whole = True
        self._stopping = False
        if directory is not None:
            checkpoints.prepare(directory, start.step if start is not None else 0)
        self._bind(start)

    def _bind(self, start: Checkpoint | None) -> None:
        """Builds the step's program and puts the initial or the saved state into its memory."""
        settings = self.settings
        compiled = training_step(self.model, settings.optimizer, settings.shards, settings.config.dropout > 0)
        if start is None:
            parameters = self.model.init(settings.seed)
            state = settings.optimizer.init(parameters)
        else:
            shapes = {name: spec.shape for name, spec in self.model.parameters.items()}
            parameters = {name: F.zeros(shape) for name, shape in shapes.items()}
            state = settings.optimizer.init(parameters)
            checkpoints.expect(start, shapes, optimizer={name: value.shape for name, value in state.items()})
            parameters = {
                name: from_storage(aligned_copy(start.parameters[name]), value.dtype)
                for name, value in parameters.items()
            }
            state = {
                name: from_storage(aligned_copy(start.optimizer[name]), value.dtype)
                for name, value in state.items()
            }
        shape = (settings.shards, settings.batch, settings.config.context)
        self._call = compiled.bind(
            parameters,
            state,
            F.zeros(shape, "i32"),
            F.zeros(shape, "i32"),
            F.zeros(()),
            F.random_key(settings.seed),
        )
        self.graph = graph_digest(self._call.graph)
        if start is not None:
            if start.graph != self.graph:
                raise CheckpointError(
                    f"[resume] {start.path} was made by {start.writer} with another training graph: "
                    "going on would not give the bits of an uninterrupted run"
                )
            self.step = start.step
            self.early_stop = EarlyStop.from_json(start.state.get("early_stop", {}))
            self.first_loss = start.state.get("first_loss")
            self.last_saved = start.path

    @property
    def plan(self) -> Any:
        """The step's verified plan."""
        return self._call.executable.plan

    @property
    def signature(self) -> str:
        """What the step was compiled for: device, instruction set, threads."""
        return self._call.executable.signature

    @property
    def measured_arena_bytes(self) -> int:
        return self._call.executable.program.measured_arena_bytes

    @property
    def parameters(self) -> Arrays:
        """The current weights: the program's own memory, not to be written."""
        arrays: Arrays = self._call.arguments[0]
        return arrays

    def weights_sha256(self) -> str:
        return checkpoints.weights_sha256(self.parameters)

    def advance(self) -> Report:
        """One step. Raises NotFiniteError (nothing was updated), naming step, tensor, last checkpoint."""
        settings = self.settings
        _, _, tokens, targets, rate, key = self._call.arguments
        inputs, wanted = self._batches.at(self.step)
        tokens[...] = inputs.reshape(tokens.shape)
        targets[...] = wanted.reshape(targets.shape)
        rate[...] = learning_rate(settings.schedule, self.step)
        key[2] = self.step
        begin = time.perf_counter()
        self._whole = False  # an interrupt between the update and its count must not be saved
        try:
            self._call.run()
        except NotFiniteError as error:
            self._whole = True
            saved = (
                f"the last good checkpoint is {self.last_saved}"
                if self.last_saved
                else "no checkpoint was saved"
            )
            raise NotFiniteError(
                f"{error} at step {self.step + 1}: the weights are as before that step; {saved}",
                error.step,
                error.detail,
            ) from None
        seconds = time.perf_counter() - begin
        _, _, loss, norm = self._call.results
        self.step += 1
        self._whole = True
        if self.first_loss is None:
            self.first_loss = float(loss)
        return Report(
            self.step, settings.schedule.steps, float(loss), float(norm), float(rate), seconds, tokens.size
        )

    def stop(self) -> None:
        """Asks `steps` to end after the step it is at, as a signal handler may."""
        self._stopping = True

    def steps(self) -> Iterator[Report]:
        """Advances to the last step, evaluating and saving on the way and at the end."""
        settings = self.settings
        last = settings.schedule.steps
        while self.step < last and not self.early_stop.stop and not self._stopping:
            report = self.advance()
            if self._validation is not None and _due(self.step, settings.evaluate_every, last):
                loss = self.evaluate()
                self.early_stop = self.early_stop.after(self.step, loss)
                report = replace(report, validation=loss)
            best = settings.patience > 0 and self.early_stop.best_step == self.step
            if self.directory is not None and (
                best or _due(self.step, settings.save_every, last) or self.early_stop.stop
            ):
                report = replace(report, saved=self.save())
            yield report

    def evaluate(self) -> float:
        """Mean loss over the fixed validation windows; NaN without any."""
        if self._validation is None:
            return math.nan
        parameters = {name: from_storage(array, self._dtype(name)) for name, array in self.parameters.items()}
        losses = []
        for index in range(len(self._validation)):
            inputs, targets = self._validation.at(index)
            losses.append(float(self._evaluate(parameters, asarray(inputs), asarray(targets))))
        return sum(losses) / len(losses)

    def _dtype(self, name: str) -> Any:
        return checkpoints.dtype_of(name, self.parameters[name])

    def save(self) -> Path:
        """A checkpoint of this very moment; a no-op where it is saved already."""
        if self.directory is None:
            raise UsageError("[train] this run has no directory to save to")
        if not self._whole:
            raise UsageError("[train] the last step was interrupted: its weights are not those of any step")
        if self.last_saved is not None and self.last_saved.name == f"step-{self.step:08d}.safetensors":
            return self.last_saved
        best = self.early_stop.best_step
        kept = () if best is None else (best,)
        self.last_saved = checkpoints.save(self.directory, self.snapshot(), kept=kept)
        return self.last_saved

    def snapshot(self) -> Checkpoint:
        """Everything needed to go on with the very bits of an uninterrupted run."""
        settings = self.settings
        return Checkpoint(
            step=self.step,
            config=settings.config.to_dict(),
            parameters=dict(self.parameters),
            optimizer=dict(self._call.arguments[1]),
            optimizer_config=settings.optimizer.to_dict(),
            rng={"seed": settings.seed, "step": self.step},
            data={
                "text": self._text_path,
                "text_sha256": self.text_sha256,
                "batch": settings.batch,
                "shards": settings.shards,
                "validation": settings.validation,
            },
            state={
                "schedule": asdict(settings.schedule),
                "evaluate_every": settings.evaluate_every,
                "save_every": settings.save_every,
                "early_stop": self.early_stop.to_json(),
                "first_loss": self.first_loss,
            },
            graph=self.graph,
        )


def settings_of(checkpoint: Checkpoint) -> Settings:
    """The settings a checkpoint was made with. Raises CheckpointError where they are not this version's."""
    try:
        return Settings(
            config=from_dict(checkpoint.config),
            schedule=Schedule(**checkpoint.state["schedule"]),
            optimizer=Optimizer(**checkpoint.optimizer_config),
            batch=checkpoint.data["batch"],
            shards=checkpoint.data["shards"],
            seed=checkpoint.rng["seed"],
            validation=checkpoint.data["validation"],
            evaluate_every=checkpoint.state["evaluate_every"],
            save_every=checkpoint.state["save_every"],
            patience=checkpoint.state["early_stop"]["patience"],
        )
    except (KeyError, TypeError, UsageError) as error:
        raise CheckpointError(
            f"[resume] {checkpoint.path} has no settings that this version knows: {error}"
        ) from error


def resume(path: Path, text: bytes, steps: int | None = None, directory: Path | None = None) -> Trainer:
    """A run's trainer at its newest checkpoint (or at the checkpoint file `path`), to go on with the bits of
    an uninterrupted run.

    The text must be the same (by sha256). steps: a later last step; the schedule then stretches, so the
    result equals an uninterrupted run only where the rate does not depend on the number of steps.
    directory: where to save from now on (the run itself by default).
    """
    start = checkpoints.load(path)
    settings = settings_of(start)
    if steps is not None:
        if steps <= start.step:
            raise UsageError(f"[resume] steps is {steps}: the run has done {start.step} already")
        settings = replace(settings, schedule=replace(settings.schedule, steps=steps))
    given = text_sha256(text)
    if given != start.data.get("text_sha256"):
        raise DataError(
            f"[resume] the text has sha256 {given[:16]}…, the run was trained on "
            f"{str(start.data.get('text_sha256'))[:16]}…: give the same text"
        )
    own = path if path.is_dir() else path.parent
    return Trainer(settings, text, directory if directory is not None else own, start)


def _due(step: int, every: int, last: int) -> bool:
    return step == last or (every > 0 and step % every == 0)
