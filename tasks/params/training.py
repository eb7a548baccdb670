"""The section ``training`` of a run; the Trainer's own defaults, of its interface, differ."""

from copy import copy
from typing import Any, Literal

from astra_core.config import (
    AlgorithmChoice,
    CheckpointConfiguration,
    Choice,
    Count,
    EarlyStopping,
    Positive,
    Section,
    TrainingConfiguration,
)


def _default(name: str, value: Any, section: type[Section] = TrainingConfiguration) -> Any:
    """A key with its rule and meaning, and another default."""
    field = copy(section.model_fields[name])
    field.default = value
    return field


_COSINE = Choice(name="transformers", options={"kind": "cosine"})


class RunAlgorithmChoice(AlgorithmChoice):
    """The algorithm of a run."""

    defaults: Literal["published", "turns"] = _default("defaults", "turns", AlgorithmChoice)


class RunStopping(EarlyStopping):
    """When the training of a run ends early."""

    patience: Count | None = _default("patience", 3, EarlyStopping)


class RunCheckpoints(CheckpointConfiguration):
    """The checkpoints of a run."""

    save_every: Count = _default("save_every", 2, CheckpointConfiguration)


class RunTraining(TrainingConfiguration):
    """The training of a run: six long experiences."""

    algorithm: RunAlgorithmChoice = _default("algorithm", RunAlgorithmChoice(name="dpo"))
    training_steps: Count = _default("training_steps", 6)
    num_episodes_per_experience: Count = _default("num_episodes_per_experience", 16)
    batch_size: Count = _default("batch_size", 32)
    epochs_per_experience: Count = _default("epochs_per_experience", 3)
    max_update_share: Positive = _default("max_update_share", 0.0625)
    lr: Positive = _default("lr", 3e-4)
    schedule: Choice = _default("schedule", _COSINE)
    warmup_steps: int = _default("warmup_steps", 1)
    eval_every: Count = _default("eval_every", 3)
    early_stopping: RunStopping = RunStopping()
    checkpoint: RunCheckpoints = RunCheckpoints()
