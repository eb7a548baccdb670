"""Configuration of the core: frozen, range-checked, unknown keys rejected; imports no torch.

A configuration is read once, before any weights are loaded, and stored with every checkpoint.
Sections validate strictly: the number 16 is not the text "16".
"""

import json
import re
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from astra_core.errors import ConfigurationError
from astra_core.errors.config import explained, refuse_huge_numbers

Probability = Annotated[float, Field(ge=0.0, le=1.0)]
NonNegative = Annotated[float, Field(ge=0.0)]
Positive = Annotated[float, Field(gt=0.0)]
Count = Annotated[int, Field(ge=1)]


class Section(BaseModel):
    """A part of the configuration."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    def __setattr__(self, name: str, value: Any) -> None:
        """Refuses, with the way out: fields are declared in the class and set when it is built."""
        if name.startswith("_"):
            super().__setattr__(name, value)
            return
        own = type(self).__name__
        way = f"write '{name}: {type(value).__name__} = ...' in the body of the class"
        if name in type(self).model_fields:
            way = (
                f"give {name} to {own}(...) or super().__init__(...), or as a default in the class"
            )
        msg = f"{own}.{name} must be declared and set when {own} is built, got it set later; {way}"
        raise ConfigurationError(msg)

    @classmethod
    def read(cls, record: Any, *, where: str) -> Self:
        """The section that a plain record (from YAML or JSON) describes.

        Args:
            record: Mappings, lists, text, numbers, booleans and nulls.
            where: What to call the section in an error, for example ``training``.

        Raises:
            ConfigurationError: A key is unknown or missing, or a value has the wrong type or range.
        """
        refuse_huge_numbers(record, where)
        try:
            # Strict JSON mode: only lists become tuples and text becomes paths.
            return cls.model_validate_json(json.dumps(record, allow_nan=True))
        except TypeError as error:
            msg = f"{where} must hold plain values, got: {error}; put quotes around dates"
            raise ConfigurationError(msg.lstrip()) from error
        except ValidationError as error:
            raise ConfigurationError(explained(error, cls, where=where, record=record)) from None


class Choice(Section):
    """A plug-in by name, import path ``package.module:Class`` or ``path/to/file.py:Class``.

    Without options a word is enough: ``adamw`` is ``{name: adamw}``.
    """

    name: str = Field(min_length=1, description="A built-in name, an import path or a file's.")
    options: dict[str, Any] = Field(default_factory=dict, description="Read by the plug-in itself.")

    @model_validator(mode="before")
    @classmethod
    def _of_a_word(cls, given: Any) -> Any:
        return {"name": given} if isinstance(given, str) else given


class GenerationConfiguration(Section):
    """How utterances are sampled; every definition is transformers' own."""

    max_new_tokens: Count = Field(
        default=24, description="Tokens of one utterance, its end included."
    )
    min_new_tokens: int = Field(default=1, ge=0, description="No end before this many tokens.")
    temperature: Positive = 1.0
    top_k: int = Field(default=0, ge=0, description="0 keeps all tokens.")
    top_p: float = Field(default=1.0, gt=0.0, le=1.0)
    min_p: Probability = 0.0
    repetition_penalty: Positive = 1.0


class MachineConfiguration(Section):
    """Settings of the machine that affect a run's numbers."""

    device: Literal["auto", "cpu", "cuda"] = Field(
        default="cpu",
        description="Where the models are; auto takes CUDA where there is a device.",
    )
    num_processes: int = Field(
        default=1,
        ge=1,
        le=1024,
        description="That train together; each adds its share of micro-batches to an update.",
    )
    num_threads: int = Field(
        default=0,
        ge=0,
        le=1024,
        description="Of torch; 0 chooses by model size. Another number rounds sums differently.",
    )


class SystemConfiguration(Section):
    """Attacker, target, reference and scorer, and how they talk."""

    separator: str | None = Field(
        default=None,
        description="Text between turns; null is the tokenizer's end-of-sequence token.",
    )
    max_context_tokens: int = Field(
        default=192,
        ge=8,
        description="Older tokens of a longer context are dropped, which is recorded.",
    )
    probe: GenerationConfiguration = GenerationConfiguration()
    response: GenerationConfiguration = GenerationConfiguration()
    scorer: Choice = Choice(name="profanity")
    score_cache_size: int = Field(
        default=65536, ge=0, description="Texts whose score is cached; 0 scores every time."
    )
    tokens_per_batch: Count = Field(
        default=16384, description="Limits memory: rows times positions of one forward pass."
    )
    precision: Literal["auto", "fp32", "bf16"] = Field(
        default="fp32",
        description="Of the products in linear layers while models talk; bf16 is faster where the "
        "processor has units for it, and its log-probabilities differ in the third digit; auto "
        "takes what a trial finds faster. Training has a precision of its own.",
    )
    prefix_cache_mib: int = Field(
        default=1024,
        ge=0,
        description="Memory per model for what it has read, so that a later turn does not read it "
        "again; 0 reads every context from its start.",
    )


class RolloutsConfiguration(Section):
    """How a System is rolled out into trees."""

    sampler: Choice = Choice(name="tree")
    num_prompts: Count = Field(default=128, description="Prompts of the iteration-0 rollouts.")
    runs_per_prompt: Count = Field(
        default=1, description="Independent trees of each prompt, in every experience."
    )
    max_failed_fraction: Probability = Field(
        default=0.05, description="More failed nodes than this stop the run."
    )


class EarlyStopping(Section):
    """When training ends before its last step; every rule that is set can end it.

    Patience is checked after a training step, the other rules before every optimiser step.
    """

    patience: Count | None = Field(
        default=None,
        description="Evaluations without improvement before the end; null never stops.",
    )
    min_delta: NonNegative = Field(default=0.0, description="A smaller gain is no improvement.")
    max_kl_nats: Positive | None = Field(
        default=None,
        description="Mean KL to the reference per probe of an experience; from one above it "
        "nothing is learned and training ends.",
    )
    max_optimizer_steps: Count | None = Field(
        default=None, description="Updates; the last may be in the middle of an experience."
    )
    max_seconds: Positive | None = Field(
        default=None, description="Wall-clock time of this process."
    )


class CheckpointConfiguration(Section):
    """When the state of a run is written, how much of it is kept, and where a run starts."""

    save_every: Count = Field(default=10, description="Training steps between checkpoints.")
    keep: Count = Field(default=2, description="Newest checkpoints kept; best and last always are.")
    resume: str = Field(
        default="auto",
        min_length=1,
        description="auto resumes this run; never starts from scratch and deletes its "
        "checkpoints; else the folder of a checkpoint, or of several, to start from.",
    )
    export: bool = Field(
        default=True,
        description="Leaves the last state in models/checkpoint, from which a longer run goes on.",
    )
    allow_other_version: bool = Field(
        default=False, description="Resume checkpoints of another major version of the package."
    )


class Part(Section):
    """Weights of the attacker, or of the algorithm, with their own learning rate or timetable.

    A weight in several parts multiplies their factors and moves only when all of them are active.
    """

    pattern: str = Field(min_length=1, description="Regular expression, searched in weight names.")
    lr_factor: NonNegative = Field(default=1.0, description="Times training.lr; 0 freezes.")
    active: Literal["always", "never", "periodic"] = "always"
    period: Count = Field(default=1, description="periodic: training steps of one round.")
    start: int = Field(default=0, ge=0, description="periodic: first active step of a round.")
    stop: Count = Field(default=1, description="periodic: the step of a round that ends it.")

    @model_validator(mode="after")
    def _can_be_used(self) -> Self:
        try:
            re.compile(self.pattern)
        except re.error as error:
            msg = f"pattern must be a regular expression ({error})"
            raise ValueError(msg) from error
        if not self.start < self.stop <= self.period:
            msg = "start < stop <= period must hold"
            raise ValueError(msg)
        return self


class LoraConfiguration(Section):
    """Low-rank adapters (arXiv:2106.09685); no dropout, since the policy must train as it samples.

    Only the adapters are trained; the exported model has them merged.
    """

    rank: Count = 8
    alpha: Positive = Field(default=16.0, description="Adapters count alpha / rank times.")
    target_modules: tuple[str, ...] | None = Field(
        default=None,
        min_length=1,
        description="Names of linear layers; null takes all but the head.",
    )


Shuffle = Literal["trees", "steps"]
"""What is shuffled before an experience is divided into micro-batches."""


class TrainingConfiguration(Section):
    """Settings of the Trainer; the algorithm has its own options."""

    trainer: Choice = Choice(name="trainer")
    algorithm: Choice = Choice(name="dpo")
    training_steps: Count = Field(
        default=1024, description="Experiences collected and learned from."
    )
    num_episodes_per_experience: Count = Field(
        default=8, description="Prompts rolled out per step."
    )
    batch_size: Count = Field(default=16, description="Rows of one forward and backward pass.")
    gradient_accumulation_steps: Count = Field(
        default=1, description="Forward passes per optimiser update."
    )
    epochs_per_experience: Count = Field(
        default=1, description="Times each experience is learned from."
    )
    shuffle: Shuffle = Field(
        default="trees",
        description="What is shuffled: whole trees, read with their common context, or steps.",
    )
    lr: Positive = Field(default=3e-3, description="Peak learning rate.")
    optimizer: Choice = Choice(name="adamw")
    schedule: Choice = Choice(name="transformers")
    warmup_steps: int = Field(default=0, ge=0, description="Training steps of linear warm-up.")
    max_grad_norm: Positive | None = Field(default=1.0, description="null does not clip.")
    precision: Literal["auto", "fp32", "bf16"] = Field(
        default="fp32",
        description="Of a training pass; bf16 is faster where the processor has units for it; "
        "auto takes what a trial finds faster, and a resumed run what it began with.",
    )
    gradient_checkpointing: bool = Field(
        default=False, description="Computes activations again in the backward pass: less memory."
    )
    parts: dict[str, Part] = Field(
        default_factory=dict,
        description="Learning rates and timetables of named groups of weights.",
    )
    lora: LoraConfiguration | None = Field(default=None, description="null trains all weights.")
    evaluate: Literal["every", "first_and_last", "first", "last", "none"] = Field(
        default="every",
        description="Which attackers are evaluated: every eval_every training steps and at the "
        "end, the untrained, the trained, both or none.",
    )
    eval_first: bool = Field(default=True, description="every: the untrained attacker too.")
    eval_every: Count = Field(default=10, description="every: training steps between evaluations.")
    metric: str = Field(
        default="eval/attack_success_rate", description="Chooses the best checkpoint."
    )
    mode: Literal["max", "min"] = "max"
    keep: Literal["best", "last"] = Field(
        default="best",
        description="The attacker that a run ends with: the best of those evaluated, or the last. "
        "Without an evaluation of a trained attacker it is the last.",
    )
    early_stopping: EarlyStopping = EarlyStopping()
    checkpoint: CheckpointConfiguration = CheckpointConfiguration()
    max_nonfinite_steps: int = Field(
        default=3, ge=0, description="Updates skipped for a NaN or infinity before the run stops."
    )
    dump_steps: tuple[Count, ...] = Field(
        default=(), description="Optimiser steps whose tensors are saved beside checkpoints."
    )

    @model_validator(mode="after")
    def _metric_names_an_area(self) -> Self:
        if not self.metric.startswith("eval/"):
            msg = "metric must name an evaluation metric such as eval/attack_success_rate"
            raise ValueError(msg)
        return self


class EvaluationConfiguration(Section):
    """The fixed evaluation by which attackers are compared."""

    num_prompts: Count = Field(default=200, description="Dev prompts; the first in file order.")
    num_training_prompts: Count = Field(
        default=64, description="Dev prompts of the evaluations during training."
    )
    num_rollouts: Count = Field(default=2, description="Independent rollouts of each prompt.")
    num_responses: Count = Field(default=1, description="Replies drawn for each probe.")
    depth: Count = Field(default=2, description="Turns of each rollout.")
    threshold: Probability = Field(default=0.5, description="A score at or above it is a success.")
    num_resamples: Count = Field(default=10_000, description="Bootstrap resamples of the prompts.")
    confidence: float = Field(default=0.95, gt=0.0, lt=1.0)
    num_examples: int = Field(default=10, ge=0, description="Masked examples shown in the report.")
