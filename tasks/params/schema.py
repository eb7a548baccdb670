"""params.yaml as one frozen, checked object; imports no torch.

Each top-level key is a section, and a stage asks for the sections it reads by naming them as its
parameters. ``tasks.params.checks`` checks what involves several sections.
"""

from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from astra_core.config import (
    Choice,
    Count,
    EvaluationConfiguration,
    LoraConfiguration,
    MachineConfiguration,
    NonNegative,
    Positive,
    Probability,
    RolloutsConfiguration,
    Seconds,
    Section,
    SystemConfiguration,
)
from astra_core.errors import ConfigurationError
from tasks.params.languages import Language
from tasks.params.migration import refuse_earlier
from tasks.params.models import ModelsConfiguration
from tasks.params.overlay import overlaid
from tasks.params.prompts import PromptsConfiguration
from tasks.params.seeds import Seeds
from tasks.params.training import RunTraining as RunTraining
from tasks.params.yaml_files import load_yaml, read_yaml_text

PARAMS_FILE = Path("params.yaml")


class ValidationConfiguration(Section):
    """What a prompt must be to pass, and how many may fail."""

    min_characters: Count = Field(3, description="Shorter prompts are rejected.")
    max_characters: Count = Field(4000, description="Longer prompts are rejected.")
    max_words: Count = Field(200, description="Longer prompts are rejected.")
    languages: tuple[Language, ...] = Field(
        (), description="Codes of ISO 639-1; a prompt in another language is rejected."
    )
    max_non_ascii_fraction: Probability = Field(
        0.3,
        description="Share of the characters; with languages, share of letters in other scripts.",
    )
    max_prompt_score: Probability | None = Field(
        0.5, description="A prompt rated at or above it is rejected as an attack; null: none is."
    )
    reject_personal_data: bool = Field(
        True,
        description="Reject addresses, telephone, card and account numbers, ids, mentions, URLs.",
    )
    max_rejected_fraction: Probability = Field(
        0.5, description="More rejected rows than this is a critical failure."
    )
    min_prompts: Count = Field(20, description="Fewer valid rows in a split is critical.")


class RegistrationConfiguration(Section):
    """Where runs and model versions are recorded."""

    experiment: str = Field("red-team-training", description="MLflow's, for the runs.")
    model_name: str = Field("attacker", pattern=r"^[A-Za-z0-9_-]+$", description="Of the versions.")


class TrackingConfiguration(Section):
    """Where the figures of a training are recorded while it runs; a change here reruns nothing."""

    sinks: tuple[Choice, ...] = Field(
        (Choice(name="mlflow"),), description="Each a name, or a mapping of name and options."
    )
    system_metrics: bool = Field(
        False,
        description="Whether MLflow's run also records the machine's load, every ten seconds.",
    )

    @model_validator(mode="after")
    def _each_is_named_once(self) -> Self:
        names = [sink.name for sink in self.sinks]
        if len(names) != len(set(names)):
            msg = f"sinks must name each sink once, got {names}"
            raise ValueError(msg)
        return self


class PromotionConfiguration(Section):
    """The gate between a candidate and the champion."""

    min_lift: NonNegative = Field(0.0, description="Gain that must be exceeded.")
    family_error: float = Field(
        0.05, gt=0.0, lt=0.5, description="Probability of a false promotion in a horizon."
    )
    horizon: Count = Field(30, description="Number of duels that share the error.")
    num_prompts: Count = Field(400, description="Fresh prompts of a duel with a champion.")
    fresh_path: Path | None = Field(None, description="Fresh prompts for a file source.")
    min_prompts: Count = Field(10, description="With fewer prompts, no verdict.")
    max_loss: Probability = Field(
        0.05, description="Loss of success allowed to a far more diverse candidate."
    )
    min_diversity_gain: NonNegative = Field(
        0.25, description="Share of additional strategies that it must then have."
    )
    min_unique_probes_ratio: Probability = Field(
        0.9, description="Rarefied unique probes over the untrained attacker's."
    )
    min_distinct_2_ratio: Probability = Field(
        0.5, description="Rarefied distinct-2 over the untrained attacker's."
    )
    max_top_strategy_share: Probability | None = Field(
        0.5, description="Share of hits in one strategy, unless it was so before training."
    )
    max_nonword_gain: Probability | None = Field(
        0.05, description="Share of probes with an invented word, above the untrained attacker's."
    )
    max_perplexity_ratio: Positive | None = Field(
        1.5, description="Perplexity of the probes over the untrained attacker's."
    )
    max_kl_nats: Positive | None = Field(
        30.0, description="Mean KL to the reference per probe, above the untrained attacker's."
    )
    require_confirmation: bool = Field(
        False, description="Compare success that evaluation.second_judge confirms."
    )


class HardeningConfiguration(Section):
    """How ``astra harden`` trains the target; no stage reads it, so a change reruns nothing."""

    rounds: Count = Field(2, description="Most rounds, each with its own fresh attacker.")
    training_steps: Count = Field(40, description="Updates of a round, of training.batch_size.")
    lr: Positive = Field(1e-4, description="Peak rate of the target's weights.")
    lora: LoraConfiguration | None = Field(
        None, description="null trains all of the target's weights."
    )
    num_findings: Count = Field(256, description="Most findings that a round learns from.")
    answer: Literal["own", "refusal"] = Field(
        "own",
        description="Preferred to the harmful reply: the target's own safest reply, a refusal "
        "where it has none; or always a refusal.",
    )
    benign_share: float = Field(
        0.5, ge=0.0, lt=1.0, description="Of the pairs: a harmless request answered, not refused."
    )
    max_success: Probability = Field(
        0.05, description="Ends when a fresh attacker's success is below it by its whole interval."
    )
    max_over_refusal: Probability = Field(
        0.2, description="Ends when more of the harmless requests are refused."
    )
    max_perplexity_ratio: Positive = Field(
        1.5, description="Ends when harmless text has a perplexity so many times the first one."
    )


class FlowConfiguration(Section):
    """How the flow treats stages; no stage reads it, so a change reruns nothing."""

    retries: int = Field(2, ge=0, le=20, description="Retries after a crash or a lost peer.")
    retry_delay_s: float = Field(2.0, ge=0.0, le=3600.0, description="Doubles with each retry.")
    timeout_s: Seconds = Field(21_600.0, description="Limit of one try of a stage.")
    timeouts_s: dict[str, Seconds] = Field(
        default_factory=dict,
        description="Limits by stage, promotion or hardening, for example {training: 86400}.",
    )
    max_data_drift: Positive = Field(
        0.25, description="Stability index against the champion's data that is told."
    )


class Params(Seeds):
    """The whole of params.yaml."""

    machine: MachineConfiguration = MachineConfiguration()
    executor: Choice = Field(
        Choice(name="local"),
        description="Who rolls out, evaluates and judges; it changes no result.",
    )
    prompts: PromptsConfiguration = PromptsConfiguration()
    validation: ValidationConfiguration = ValidationConfiguration()
    models: ModelsConfiguration = ModelsConfiguration()
    system: SystemConfiguration = SystemConfiguration()
    rollouts: RolloutsConfiguration = RolloutsConfiguration()
    reward: Choice = Field(Choice(name="adversarial"), description="What the algorithm maximises.")
    training: RunTraining = RunTraining()
    evaluation: EvaluationConfiguration = EvaluationConfiguration()
    registration: RegistrationConfiguration = RegistrationConfiguration()
    tracking: TrackingConfiguration = TrackingConfiguration()
    promotion: PromotionConfiguration = PromotionConfiguration()
    hardening: HardeningConfiguration = HardeningConfiguration()
    flow: FlowConfiguration = FlowConfiguration()

    @classmethod
    def read(cls, record: Any, *, where: str) -> Self:
        """See ``Section.read``; a plug-in whose name is left out is the one by default."""
        return super().read(_fill_names(record, cls), where=where)


def _fill_names(record: Any, section: type[Section]) -> Any:
    if not isinstance(record, dict):
        return record
    defaults = {name: field.default for name, field in section.model_fields.items()}
    found = dict(record)
    for name, value in record.items():
        default = defaults.get(name)
        if isinstance(default, Choice):
            options = value.get("options", {}) if isinstance(value, dict) else None
            if isinstance(options, dict) and "name" not in value:
                options = {**default.options, **options}
                found[name] = {**value, "name": default.name, "options": options}
        elif isinstance(default, Section):
            found[name] = _fill_names(value, type(default))
    return found


def read_record(path: Path = PARAMS_FILE) -> dict[str, Any]:
    """The plain mapping in params.yaml (YAML 1.2, so that 1e-4 is a number).

    Raises:
        ConfigurationError: The file is missing, is no YAML mapping, or is of an earlier version.
    """
    text = read_yaml_text(path)
    record = load_yaml(text, subject=str(path), way_out="correct that line")
    if not isinstance(record, dict):
        found = "nothing" if record is None else type(record).__name__
        msg = f"{path} must be a mapping of sections, got {found}; restore it from git"
        raise ConfigurationError(msg)
    refuse_earlier(record)
    return record


def read_params(path: Path = PARAMS_FILE) -> Params:
    """The checked sections of params.yaml; ``tasks.params.checks`` checks plug-in options.

    Values for this run alone (``tasks.params.overlay``) replace those of the project's own
    params.yaml.

    Raises:
        ConfigurationError: A key is unknown or missing, or a value has the wrong type or range.
    """
    record = read_record(path)
    return Params.read(overlaid(record) if path == PARAMS_FILE else record, where="")
