"""The section ``prompts`` of params.yaml; imports no torch."""

import re
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from astra_core.config import Count, Section
from astra_core.rollout.metadata import CONTEXT
from astra_parts.judges.secret import CODE_WORDS

FIRST_DUEL, FOLLOWING_DUELS = 357, 398
"""Test prompts with which a duel sees a gain of 10 points in four of five cases, by the rules that
params.yaml has at first (``promotion.power``)."""
TEST_SHARES = (0.1, 0.15, 0.2, 0.25, 0.3)
"""In steps, so that a file that grows is hardly ever shared out anew."""

ColumnName = Annotated[str, Field(pattern=r"^[A-Za-z_]\w{0,63}$")]


class DrawnColumn(Section):
    """A column whose values are drawn by ``data_seed``."""

    values: tuple[Annotated[str, Field(pattern=r"\S")], ...] = Field(
        tuple(CODE_WORDS), min_length=1, description="One of them; left out: code words."
    )
    per: Literal["prompt", "run"] = Field("prompt", description="run: one value for all prompts.")


class PromptsConfiguration(Section):
    """Where seed prompts come from and how they are split."""

    source: Literal["builtin", "file", "hub"] = Field(
        "builtin", description="Where the seed prompts come from."
    )
    num_builtin: Count = Field(5000, description="Openers that the built-in grammar makes.")
    path: Path | None = Field(None, description="json, jsonl, csv, tsv, txt, yaml or parquet file.")
    dev_path: Path | None = Field(None, description="A separate file for the dev split.")
    text_column: str = Field("text", description="Column or key that holds the prompt.")
    metadata_columns: Literal["all"] | tuple[str, ...] = Field(
        "all", description="Columns kept as Prompt.metadata beside the prompt: all, or these names."
    )
    goal_column: str | None = Field(
        None, description="Column kept as goal; it is the prompt too where there is no text_column."
    )
    category_column: str | None = Field(None, description="Column kept as category.")
    context_column: str | None = Field(
        None, description="Kept as context, which makes the same text another prompt."
    )
    reference_column: str | None = Field(None, description="Kept as reference_reply.")
    drawn_columns: dict[ColumnName, DrawnColumn] = Field(
        default_factory=dict,
        description="Columns filled by data_seed where a row has none, such as a secret.",
    )
    dataset: str | None = Field(None, description="The data set's id on the hub.")
    revision: str | None = Field(None, description="Commit hash the hub id is pinned to.")
    hub_split: str = Field("train", description="The data set's split that is read.")
    licence: str = Field("unknown", description="Licence of a file or hub source.")
    dev_fraction: float = Field(
        0.1, gt=0.0, lt=0.5, description="For the evaluations during training."
    )
    test_fraction: float | None = Field(
        None,
        gt=0.0,
        lt=0.5,
        description="null: 0.1 to 0.3, as much as the first and the following duels need; 0.1 of "
        "the built-in prompts, whose duels have fresh ones.",
    )

    def test_share(self, num_prompts: int) -> float:
        """The share of the test split in so many prompts.

        It falls as prompts are added, so that none that was trained on becomes a test prompt.
        """
        if self.test_fraction is not None:
            return self.test_fraction
        wanted = 0 if self.source == "builtin" else FIRST_DUEL + FOLLOWING_DUELS
        enough = (share for share in TEST_SHARES if share * num_prompts >= wanted)
        return next(enough, TEST_SHARES[-1])

    @property
    def told_columns(self) -> dict[str, str]:
        """What each named column of the file is kept as, by column."""
        named = {
            self.goal_column: "goal",
            self.category_column: "category",
            self.context_column: CONTEXT,
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
            msg = (
                "metadata_columns must be 'all' when source is 'builtin', whose column is the mood"
            )
            raise ValueError(msg)
        names = ("goal_column", "category_column", "context_column", "reference_column", "dev_path")
        given = [name for name in names if getattr(self, name) is not None]
        if len(given) > len({getattr(self, name) for name in given}):
            msg = "goal_column, category_column, context_column and reference_column must differ"
            raise ValueError(msg)
        if self.path is not None and self.source != "file":
            msg = f"source must be 'file' with path, got '{self.source}'"
            raise ValueError(msg)
        if self.source == "builtin" and given:
            msg = f"source must be 'file' or 'hub' with {given[0]}, got 'builtin'"
            raise ValueError(msg)
        return self
