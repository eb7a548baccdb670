"""The seeds of params.yaml: one root, and what follows it.

The data seed follows nothing. If it did, ``seed: 1`` would change the split of a file, and would
train on prompts that the attacker of ``seed: 0`` is examined on.
"""

from typing import Annotated, Any

from pydantic import Field, ValidationInfo, field_validator

from astra_core.config import Section

ROOT = "seed"
# A seed that is null in params.yaml has the value of the root.
FOLLOWERS = ("model_seed", "training_seed")

Seed = Annotated[int, Field(ge=0)]


def _null() -> Any:
    return None


class Seeds(Section):
    """The seeds at the top of params.yaml, each resolved."""

    seed: Seed = Field(0, description="The root, which those below follow while null.")
    data_seed: Seed = Field(
        0, description="For the built-in openers and every split; follows nothing."
    )
    model_seed: Seed = Field(
        default_factory=_null, validate_default=True, description="For the built-in language model."
    )
    training_seed: Seed = Field(
        default_factory=_null,
        validate_default=True,
        description="For rollouts, training and examinations.",
    )

    @field_validator(*FOLLOWERS, mode="before")
    @classmethod
    def _null_is_the_root(cls, value: Any, info: ValidationInfo) -> Any:
        # A wrong root is missing here: it is reported once, under its own name.
        return info.data.get(ROOT, 0) if value is None else value


def with_root(sections: tuple[str, ...]) -> tuple[str, ...]:
    """The keys of params.yaml that decide these sections; a seed that may follow the root adds it.

    >>> with_root(("model_seed", "models"))
    ('seed', 'model_seed', 'models')
    """
    brings_root = any(name in FOLLOWERS for name in sections)
    return (ROOT, *sections) if brings_root and ROOT not in sections else sections
