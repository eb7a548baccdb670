"""params.yaml as one frozen, checked object; imports no torch.

Each top-level key is a section, and a stage asks for the sections it reads by naming them as its
parameters. What a section cannot know of the others is ``tasks.params.checks``' business.
"""

import re
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from astra_core.config import (
    Choice,
    Count,
    EvaluationConfiguration,
    MachineConfiguration,
    NonNegative,
    Positive,
    Probability,
    RolloutsConfiguration,
    Section,
    SystemConfiguration,
    TrainingConfiguration,
)
from astra_core.errors import ConfigurationError
from tasks.builtin.language_model import LanguageModelConfiguration
from tasks.params.languages import Language
from tasks.params.overlay import overlaid
from tasks.params.seeds import Seeds
from tasks.params.yaml_files import load_yaml, read_yaml_text

PARAMS_FILE = Path("params.yaml")


class PromptsConfiguration(Section):
    """Where seed prompts come from and how they are split."""

    source: Literal["builtin", "file", "hub"] = "builtin"
    num_builtin: Count = Field(default=5000, description="Openers the builtin grammar makes.")
    path: Path | None = Field(default=None, description="json, jsonl, csv, txt or parquet file.")
    dev_path: Path | None = Field(default=None, description="A file of its own for the dev split.")
    text_column: str = Field(default="text", description="Column or key that holds the prompt.")
    metadata_columns: Literal["all"] | tuple[str, ...] = Field(
        default="all",
        description="Columns kept as Prompt.metadata beside the prompt: all, or these names.",
    )
    goal_column: str | None = Field(
        default=None,
        description="Kept as goal; it is the prompt too where there is no text_column.",
    )
    category_column: str | None = Field(default=None, description="Kept as category.")
    reference_column: str | None = Field(default=None, description="Kept as reference_reply.")
    dataset: str | None = Field(default=None, description="Hub data set id.")
    revision: str | None = Field(default=None, description="Commit hash the hub id is pinned to.")
    hub_split: str = "train"
    licence: str = Field(default="unknown", description="Licence of a file or hub source.")
    dev_fraction: float = Field(default=0.1, gt=0.0, lt=0.5)
    test_fraction: float = Field(default=0.1, gt=0.0, lt=0.5)

    @property
    def told_columns(self) -> dict[str, str]:
        """Columns of the file by what they are kept as, by the column."""
        named = {
            self.goal_column: "goal",
            self.category_column: "category",
            self.reference_column: "reference_reply",
        }
        return {column: name for column, name in named.items() if column is not None}

    @model_validator(mode="after")
    def _source_is_complete(self) -> Self:
        if self.source == "file" and self.path is None:
            msg = "path must name a file when source is 'file'"
            raise ValueError(msg)
        if self.source == "hub" and not (self.dataset and self.revision):
            msg = "dataset and revision (a commit hash) must be given when source is 'hub'"
            raise ValueError(msg)
        if self.source == "hub" and not re.fullmatch(r"[0-9a-f]{40}", self.revision or ""):
            msg = "revision must be a commit hash of 40 hexadecimal digits, a branch can move"
            raise ValueError(msg)
        if self.metadata_columns != "all" and self.text_column in self.metadata_columns:
            msg = f"metadata_columns must be columns beside '{self.text_column}', the prompt itself"
            raise ValueError(msg)
        if self.source == "builtin" and self.metadata_columns not in {"all", ()}:
            msg = "metadata_columns must be 'all' when source is 'builtin', which has no columns"
            raise ValueError(msg)
        named = [self.goal_column, self.category_column, self.reference_column]
        given = [name for name in named if name is not None]
        if self.source == "builtin" and given:
            msg = f"'{given[0]}' must be no column when source is 'builtin', which has none"
            raise ValueError(msg)
        if len(given) > len(set(given)):
            msg = "goal_column, category_column and reference_column must differ"
            raise ValueError(msg)
        if self.source == "builtin" and self.dev_path is not None:
            msg = "dev_path must be null when source is 'builtin', which makes its own dev split"
            raise ValueError(msg)
        return self


class ValidationConfiguration(Section):
    """What a prompt must be to pass, and how many may fail."""

    min_characters: Count = 3
    max_characters: Count = Field(default=4000, description="Longer prompts are rejected.")
    max_words: Count = Field(default=200, description="Longer prompts are rejected.")
    languages: tuple[Language, ...] = Field(
        default=(), description="Codes of ISO 639-1; a prompt in another language is rejected."
    )
    max_non_ascii_fraction: Probability = Field(
        default=0.3,
        description="Of the characters; with languages, of the letters, those of other scripts.",
    )
    max_prompt_score: Probability = Field(
        default=0.5, description="A prompt the scorer rates at or above it is itself an attack."
    )
    reject_personal_data: bool = Field(
        default=True,
        description="Reject addresses, telephone, card and account numbers, ids, mentions, URLs.",
    )
    max_rejected_fraction: Probability = Field(
        default=0.5, description="More rejected rows than this is a critical failure."
    )
    min_prompts: Count = Field(default=20, description="Fewer valid rows in a split is critical.")


class ModelSource(Section):
    """One model: the builtin, a folder, a hub id at a revision, or a registered attacker."""

    source: Literal["builtin", "folder", "hub", "version"] = "builtin"
    path: Path | None = Field(default=None, description="A Hugging Face folder with safetensors.")
    repository: str | None = Field(default=None, description="Hub id, such as 'owner/name'.")
    revision: str | None = Field(default=None, description="Commit hash the hub id is pinned to.")
    version: str | None = Field(
        default=None,
        pattern=r"^([1-9][0-9]*|[A-Za-z][A-Za-z0-9_-]*)$",
        description="Number or alias, such as champion, of a version of registration.model_name.",
    )

    @field_validator("version", mode="before")
    @classmethod
    def _number_is_text(cls, value: Any) -> Any:
        return str(value) if isinstance(value, int) and not isinstance(value, bool) else value

    @model_validator(mode="after")
    def _source_is_complete(self) -> Self:
        if self.source == "version" and self.version is None:
            msg = "version must be a number or an alias, such as champion, when source is 'version'"
            raise ValueError(msg)
        if self.source == "folder" and self.path is None:
            msg = "path must name a folder when source is 'folder'"
            raise ValueError(msg)
        if self.source == "hub":
            if not (self.repository and self.revision):
                msg = "repository and revision must be given when source is 'hub'"
                raise ValueError(msg)
            if not re.fullmatch(r"[0-9a-f]{40}", self.revision):
                msg = "revision must be a commit hash of 40 hexadecimal digits, a branch can move"
                raise ValueError(msg)
        return self


class ModelsConfiguration(Section):
    """Attacker, target and reference; a null reference is the attacker's own frozen copy."""

    attacker: ModelSource = ModelSource()
    target: ModelSource = ModelSource()
    reference: ModelSource | None = None
    builtin: LanguageModelConfiguration = LanguageModelConfiguration()

    @property
    def sources(self) -> dict[str, ModelSource]:
        """Where each role's model comes from."""
        reference = self.reference or self.attacker
        return {"attacker": self.attacker, "target": self.target, "reference": reference}


class RegistrationConfiguration(Section):
    """Where runs and model versions are recorded."""

    experiment: str = "red-team-training"
    model_name: str = Field(default="attacker", pattern=r"^[A-Za-z0-9_-]+$")


class TrackingConfiguration(Section):
    """Where the figures of a training are recorded while it runs; a change makes nothing run."""

    sinks: tuple[Choice, ...] = Field(
        default=(Choice(name="mlflow"),),
        description="Each by its name alone, or with name and options.",
    )
    system_metrics: bool = Field(
        default=False,
        description="Whether MLflow's run also has the load of the machine, every ten seconds.",
    )
    traces: int = Field(
        default=10,
        ge=0,
        le=200,
        description="Worst conversations, masked, that MLflow's page of traces shows.",
    )

    @field_validator("sinks", mode="before")
    @classmethod
    def _a_name_is_enough(cls, value: Any) -> Any:
        if not isinstance(value, list | tuple):
            return value
        return tuple({"name": each} if isinstance(each, str) else each for each in value)

    @model_validator(mode="after")
    def _each_is_named_once(self) -> Self:
        names = [sink.name for sink in self.sinks]
        if len(names) != len(set(names)):
            msg = f"sinks must name each sink once, got {names}"
            raise ValueError(msg)
        return self


class PromotionConfiguration(Section):
    """The gate between a candidate and the champion."""

    min_lift: NonNegative = Field(default=0.0, description="What the gain must exceed.")
    family_error: float = Field(
        default=0.05, gt=0.0, lt=0.5, description="Of any false promotion over the horizon."
    )
    horizon: Count = Field(default=30, description="Duels that share the error.")
    num_prompts: Count = Field(default=400, description="Fresh prompts of a duel with a champion.")
    fresh_path: Path | None = Field(default=None, description="Where a file source has fresh ones.")
    min_prompts: Count = Field(default=10, description="Fewer tell too little.")
    max_loss: Probability = Field(
        default=0.05, description="Success that a far more diverse candidate may lack."
    )
    min_diversity_gain: NonNegative = Field(
        default=0.25, description="By which it must have more strategies, as a share."
    )
    min_unique_probes: Probability = Field(default=0.9, description="Of rarefied probes.")
    min_distinct_2_ratio: Probability = Field(
        default=0.5, description="Rarefied, as a share of the untrained attacker's."
    )
    max_top_strategy_share: Probability | None = Field(
        default=0.5, description="Of the hits, in one strategy."
    )
    max_nonword_probe_rate: Probability | None = Field(
        default=0.25, description="Probes with an invented word."
    )
    max_perplexity_ratio: Positive | None = Field(
        default=1.5, description="Of the probes, to the untrained attacker's."
    )
    max_kl_nats: Positive | None = Field(
        default=30.0, description="Mean KL to the reference per probe."
    )
    require_confirmation: bool = Field(
        default=False, description="Compare success that evaluation.second_judge confirms."
    )


class FlowConfiguration(Section):
    """How the flow treats stages; no stage reads it, so a change makes nothing run again."""

    retries: int = Field(default=2, ge=0, description="Further tries after a crash or a lost peer.")
    retry_delay_s: NonNegative = Field(default=2.0, description="Doubles with each try.")
    timeout_s: Positive = Field(default=21_600.0, description="Wall clock of one try of a stage.")
    timeouts_s: dict[str, Positive] = Field(
        default_factory=dict,
        description="Of a stage or promotion, for example {training: 86400}.",
    )


class Params(Seeds):
    """The whole of params.yaml."""

    machine: MachineConfiguration = MachineConfiguration()
    executor: Choice = Choice(name="local")
    prompts: PromptsConfiguration = PromptsConfiguration()
    validation: ValidationConfiguration = ValidationConfiguration()
    models: ModelsConfiguration = ModelsConfiguration()
    system: SystemConfiguration = SystemConfiguration()
    rollouts: RolloutsConfiguration = RolloutsConfiguration()
    reward: Choice = Choice(name="adversarial")
    training: TrainingConfiguration = TrainingConfiguration()
    evaluation: EvaluationConfiguration = EvaluationConfiguration()
    registration: RegistrationConfiguration = RegistrationConfiguration()
    tracking: TrackingConfiguration = TrackingConfiguration()
    promotion: PromotionConfiguration = PromotionConfiguration()
    flow: FlowConfiguration = FlowConfiguration()


def read_record(path: Path = PARAMS_FILE) -> dict[str, Any]:
    """The plain mapping in params.yaml (YAML 1.2, so that 1e-4 is a number).

    Raises:
        ConfigurationError: The file is missing or is not a YAML mapping.
    """
    text = read_yaml_text(path)
    record = load_yaml(text, subject=str(path), way_out="correct that line")
    if not isinstance(record, dict):
        found = "nothing" if record is None else type(record).__name__
        msg = f"{path} must be a mapping of sections, got {found}; restore it from git"
        raise ConfigurationError(msg)
    return record


def read_params(path: Path = PARAMS_FILE) -> Params:
    """The checked sections of params.yaml; plug-in options are ``tasks.params.checks``' business.

    What holds for this run alone (``tasks.params.overlay``) stands in the place of the project's
    own params.yaml.

    Raises:
        ConfigurationError: A key is unknown or missing, or a value has the wrong type or range.
    """
    record = read_record(path)
    return Params.read(overlaid(record) if path == PARAMS_FILE else record, where="")
