"""The section ``training``: the loop, its end, its checkpoints; algorithms have own options."""

from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from astra_core.settings.agents import AgentTraining as AgentTraining, Part as Part
from astra_core.settings.sections import (
    Choice,
    Count,
    NonNegative,
    Positive,
    Section,
    refuse_unread,
)


class EarlyStopping(Section):
    """When training ends before its last step; every rule that is set can end it.

    Patience is checked after a training step, the other rules before every optimiser step.
    """

    patience: Count | None = Field(
        None, description="Evaluations without improvement before the end; null never stops."
    )
    min_delta: NonNegative = Field(0.0, description="A smaller gain is no improvement.")
    max_kl_nats: Positive | None = Field(
        30.0,
        description="Mean KL to the reference per probe of an experience; from one above it "
        "nothing is learned and training ends. null never stops.",
    )
    max_optimizer_steps: Count | None = Field(
        None, description="Updates; the last may be in the middle of an experience."
    )
    max_seconds: Positive | None = Field(None, description="Wall-clock time of this process.")


class CheckpointConfiguration(Section):
    """When the state of a run is written, how much of it is kept, and where a run starts."""

    save_every: Count = Field(10, description="Training steps between checkpoints.")
    keep: Count = Field(2, description="Newest checkpoints kept; best and last always are.")
    resume: str = Field(
        "auto",
        min_length=1,
        description="auto resumes this run; never starts from scratch and deletes its "
        "checkpoints; else the folder of a checkpoint, or of several, to start from.",
    )
    export: bool = Field(
        True,
        description="Leaves the last state in models/checkpoint, from which a longer run goes on.",
    )
    allow_other_version: bool = Field(
        False, description="Resume checkpoints of another major version of the package."
    )


class LoraConfiguration(Section):
    """Low-rank adapters (arXiv:2106.09685); no dropout, since the policy must train as it samples.

    Only the adapters are trained; the exported model has them merged.
    """

    rank: int = Field(8, ge=1, le=4096, description="Of each adapter.")
    alpha: Positive = Field(16.0, description="Adapters count alpha / rank times.")
    target_modules: tuple[str, ...] | None = Field(
        None, min_length=1, description="Names of linear layers; null takes all but the head."
    )


class KLConfiguration(Section):
    """Limits on the KL divergence between the attacker before and after an experience.

    All are means over probes, summed over a probe's tokens. See docs/method.md.
    """

    max_per_experience_nats: Positive | None = Field(
        4.0,
        description="An update whose own pass finds the attacker this far from where the "
        "experience began is left out, and with it the rest of the experience; null never.",
    )
    warn_per_experience_nats: Positive | None = Field(
        10.0,
        description="An experience that moves the attacker further is named at the end of the "
        "stage, in its report and in a tag of the run; null never.",
    )


Correction = Literal["none", "token", "sequence", "sequence_mask"]


class StalenessConfiguration(Section):
    """Experiences that are collected while earlier ones are learned from. See docs/scaling.md.

    The attacker's version is the number of training steps it has learned.
    """

    max_versions: int = Field(
        default=0,
        ge=0,
        le=64,
        description="Training steps by which the policy that sampled is behind the one that "
        "learns, exactly so many after the start; 0 collects with the attacker of now.",
    )
    correction: Correction = Field(
        default="none",
        description="Of what an older attacker sampled, or another engine (trainer vllm): token "
        "and sequence weigh by the capped ratio of the attacker, as it begins "
        "the training step, to the policy that sampled; sequence_mask leaves out probes whose "
        "mean ratio is far from 1; none leaves it to the algorithm's own ratio.",
    )
    cap: Positive | None = Field(
        default=None,
        description="The largest weight; of sequence_mask the largest mean ratio, above 1, whose "
        "inverse is the smallest. null is 2 of token, 5 of sequence and 1.01 of sequence_mask.",
    )

    @model_validator(mode="after")
    def _every_setting_has_an_effect(self) -> Self:
        if self.correction == "none":
            refuse_unread(self, "cap", when="correction is 'none'")
        if self.correction == "sequence_mask" and self.cap is not None and self.cap <= 1.0:
            msg = f"cap must be above 1 when correction is 'sequence_mask', got {self.cap:g}"
            raise ValueError(msg)
        return self


Shuffle = Literal["trees", "steps"]
"""What is shuffled before an experience is divided into micro-batches."""


# An option that is given another value than for turns, and the defaults that were chosen with it.
_TOGETHER = {
    "kl": ("kl_estimator", "kl_coefficient"),
    "clip_low": ("surrogate",),
    "clip_high": ("surrogate",),
    "dual_clip": ("surrogate",),
}


class AlgorithmChoice(Choice):
    """An algorithm, and which defaults its options have."""

    defaults: Literal["published", "turns"] = Field(
        "published",
        description="Which values options have that are left out: published, those of the paper or "
        "the best-known implementation; turns, those by which early turns also learn from what "
        "later ones earn, and grpo and ppo from rare successes. An algorithm without the second "
        "set has the first.",
    )

    def options_for(self, plugin: type[Any]) -> Mapping[str, Any]:
        """The options given, over those that the class has for turns if these are asked for.

        A class that only inherits these keeps the defaults that it has changed itself.
        """
        if self.defaults == "published":
            return self.options
        owner: Any = next(each for each in plugin.__mro__ if "options_for_turns" in vars(each))
        own, theirs = plugin.Options.model_fields, owner.Options.model_fields
        alike = {
            key for key in own.keys() & theirs.keys() if own[key].default == theirs[key].default
        }
        of_turns = plugin.options_for_turns
        found = {k: v for k, v in of_turns.items() if owner is plugin or k in alike}
        for name, others in _TOGETHER.items():
            if self.options.get(name, of_turns.get(name)) != of_turns.get(name):
                found = {k: v for k, v in found.items() if k not in others}
        return found | self.options


class TrainingConfiguration(Section):
    """Settings of the Trainer; the algorithm has its own options."""

    trainer: Choice = Field(Choice(name="trainer"), description="Runs the loop.")
    algorithm: AlgorithmChoice = Field(
        AlgorithmChoice(name="dpo"), description="What the attacker learns by."
    )
    training_steps: Count = Field(1024, description="Experiences collected and learned from.")
    num_episodes_per_experience: Count = Field(8, description="Prompts rolled out per step.")
    batch_size: Count = Field(16, description="Rows of one forward and backward pass.")
    gradient_accumulation_steps: Count = Field(
        1, description="Forward passes per optimiser update."
    )
    epochs_per_experience: Count = Field(1, description="Times each experience is learned from.")
    max_update_share: Positive = Field(
        1.0,
        le=1.0,
        description="Of an experience, for one update: with a sixteenth the few pairs of a rare "
        "success move the attacker as far as many do.",
    )
    shuffle: Shuffle = Field(
        "trees",
        description="What is shuffled: whole trees, read with their common context, or steps.",
    )
    lr: Positive = Field(3e-3, description="Peak learning rate.")
    optimizer: Choice = Field(Choice(name="adamw"), description="Updates the weights.")
    schedule: Choice = Field(Choice(name="transformers"), description="Of the learning rate.")
    warmup_steps: int = Field(0, ge=0, description="Training steps of linear warm-up.")
    max_grad_norm: Positive | None = Field(1.0, description="null does not clip.")
    precision: Literal["device", "auto", "fp32", "bf16"] = Field(
        "device",
        description="Of a training pass: device is fp32 on a CPU and bf16 on a GPU; bf16 is faster "
        "where the processor has units for it; auto takes what a trial finds faster, and a resumed "
        "run what it began with.",
    )
    compile: Literal["auto"] | bool = Field(
        "auto",
        description="torch compiles the layers of an update, ten seconds for each shape of a "
        "batch; auto does on a GPU, for models of 300 million weights and more.",
    )
    gradient_checkpointing: bool = Field(
        False, description="Computes activations again in the backward pass: less memory."
    )
    sharding: Literal["none", "full"] = Field(
        "none",
        description="full divides layers, gradients and moments among machine.num_processes.",
    )
    parts: dict[str, Part] = Field(
        default_factory=dict,
        description="Learning rates and timetables of named groups of weights.",
    )
    agents: dict[str, AgentTraining] = Field(
        default_factory=dict, description="Of the agents in system.roles; null follows the above."
    )
    lora: LoraConfiguration | None = Field(None, description="null trains all weights.")
    evaluate: Literal["every", "first_and_last", "first", "last", "none"] = Field(
        "every",
        description="Which attackers are evaluated: every eval_every training steps and at the "
        "end, the untrained, the trained, both or none.",
    )
    eval_first: bool = Field(True, description="every: the untrained attacker too.")
    eval_every: Count = Field(10, description="every: training steps between evaluations.")
    metric: str = Field(
        "eval/attack_success_rate",
        description="Chooses the best checkpoint; with mode max and min_delta 0 eval/score_mean "
        "does among equals.",
    )
    mode: Literal["max", "min"] = Field("max", description="Of the metric that is best.")
    keep: Literal["best", "last"] = Field(
        "best",
        description="The attacker that a run ends with: the best of those evaluated, or the last. "
        "Without an evaluation of a trained attacker it is the last.",
    )
    staleness: StalenessConfiguration = StalenessConfiguration()
    kl: KLConfiguration = KLConfiguration()
    early_stopping: EarlyStopping = EarlyStopping()
    checkpoint: CheckpointConfiguration = CheckpointConfiguration()
    max_nonfinite_steps: int = Field(
        3, ge=0, description="Updates skipped for a NaN or infinity before the run stops."
    )
    require_signal: bool = Field(
        True,
        description="No training where the first rollouts have neither success nor slope, or "
        "siblings that differ by chance alone.",
    )
    dump_steps: tuple[Count, ...] = Field(
        (), description="Optimiser steps whose tensors are saved beside checkpoints."
    )

    @model_validator(mode="after")
    def _metric_names_an_area(self) -> Self:
        if not self.metric.startswith("eval/"):
            msg = "metric must name an evaluation metric such as eval/attack_success_rate"
            raise ValueError(msg)
        return self

    @model_validator(mode="after")
    def _a_correction_has_something_to_correct(self) -> Self:
        samples_here = self.trainer.name == "trainer"
        if samples_here and not self.staleness.max_versions and self.staleness.correction != "none":
            msg = (
                "staleness.correction must be left out when max_versions is 0 and the trainer is "
                f"'trainer', which samples what it learns, got '{self.staleness.correction}'"
            )
            raise ValueError(msg)
        return self

    @model_validator(mode="after")
    def _shards_are_of_plain_weights(self) -> Self:
        if self.sharding == "full":
            when = "sharding is 'full'"
            refuse_unread(self, "lora", "dump_steps", "gradient_checkpointing", when=when)
        return self
