"""How old the policy may be that sampled what is learned from, and how that is corrected."""

from typing import Literal, Self

from pydantic import Field, model_validator

from astra_core.settings.sections import Positive, Section, refuse_unread

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
