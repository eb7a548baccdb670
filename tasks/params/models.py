"""The section ``models`` of params.yaml; imports no torch."""

import re
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from astra_core.config import Section
from tasks.builtin.language_model import LanguageModelConfiguration


class ModelSource(Section):
    """One model: the built-in one, a folder, a hub id at a revision, or a registered attacker."""

    source: Literal["builtin", "folder", "hub", "version"] = Field(
        "builtin", description="Where the weights come from."
    )
    path: Path | None = Field(None, description="A Hugging Face folder with safetensors.")
    repository: str | None = Field(None, description="The hub id, such as 'owner/name'.")
    revision: str | None = Field(None, description="Commit hash the hub id is pinned to.")
    version: str | None = Field(
        None,
        pattern=r"^([1-9][0-9]*|[A-Za-z][A-Za-z0-9_-]*)$",
        description="Number or alias, such as champion, of a version of registration.model_name.",
    )

    @field_validator("version", mode="before")
    @classmethod
    def _number_is_text(cls, value: Any) -> Any:
        return str(value) if isinstance(value, int) and not isinstance(value, bool) else value

    @model_validator(mode="after")
    def _source_is_complete(self) -> Self:
        rules = {
            "folder": ("path", "must name a folder"),
            "hub": ("repository", "and revision must be given"),
            "version": ("version", "must be a number or an alias, such as champion,"),
        }
        for source, (key, rule) in rules.items():
            if (self.source == source) != bool(getattr(self, key)):
                msg = f"{key} {rule} when source is '{source}', and only then, got '{self.source}'"
                raise ValueError(msg)
        if self.source != "hub" and self.revision:
            msg = f"source must be 'hub' with revision, got '{self.source}'"
            raise ValueError(msg)
        if self.source == "hub" and not re.fullmatch(r"[0-9a-f]{40}", self.revision or ""):
            msg = "revision must be a commit hash of 40 hexadecimal digits, a branch can move"
            raise ValueError(msg)
        return self


class ModelsConfiguration(Section):
    """Attacker, target and reference; a null reference is the attacker's own frozen copy."""

    attacker: ModelSource = ModelSource()
    target: ModelSource = ModelSource()
    reference: ModelSource | None = Field(
        None, description="null: a frozen copy of the attacker as it begins."
    )
    builtin: LanguageModelConfiguration = LanguageModelConfiguration()

    @property
    def sources(self) -> dict[str, ModelSource]:
        """Where each role's model comes from."""
        reference = self.reference or self.attacker
        return {"attacker": self.attacker, "target": self.target, "reference": reference}
