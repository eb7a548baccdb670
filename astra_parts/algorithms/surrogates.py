"""Surrogates that bound how far an update moves a token or a probe from the sampling policy."""

from collections.abc import Mapping
from typing import Literal, Self

from jaxtyping import Float
from pydantic import Field, model_validator
from torch import Tensor

from astra_core.algorithms.functional import importance_ratios
from astra_core.config import Positive, Section
from astra_core.settings.sections import refuse_unread
from astra_parts.algorithms.functional import (
    clipped_surrogate,
    is_clipped,
    is_dual_clipped,
    soft_surrogate,
    truncated_surrogate,
)
from astra_parts.algorithms.policy import RatioLevel, Surrogate, log_ratios, mean_of
from astra_parts.algorithms.policy_batch import PolicyBatch


class ClipOptions(Section):
    """How far an update may move what it learns from."""

    clip_low: float = Field(0.2, gt=0.0, lt=1.0)
    clip_high: Positive = 0.2


# What each surrogate reads; the rest must stay as it is.
_READ = {
    "clip": {"clip_low", "clip_high", "dual_clip"},
    "cispo": {"max_ratio"},
    "sapo": {"temperature_good", "temperature_bad"},
}


class SurrogateOptions(ClipOptions):
    """The surrogate, and what bounds it."""

    surrogate: Literal["clip", "cispo", "sapo"] = Field(
        "clip",
        description="The clipped ratio, REINFORCE with a capped ratio, or a gate that closes "
        "smoothly.",
    )
    dual_clip: float | None = Field(
        None, gt=1.0, description="Bounds the loss of a bad token (clip); 3 is usual."
    )
    max_ratio: Positive = Field(5.0, description="The cap of cispo, absolute.")
    temperature_good: Positive = Field(
        1.0, description="Of sapo for good tokens: a larger one closes sooner."
    )
    temperature_bad: Positive = Field(1.05, description="The same for the others.")

    @model_validator(mode="after")
    def _every_bound_has_an_effect(self) -> Self:
        unread = sorted(set().union(*_READ.values()) - _READ[self.surrogate])
        refuse_unread(self, *unread, when=f"surrogate is '{self.surrogate}'")
        return self


def surrogate_of(options: SurrogateOptions, *, level: RatioLevel) -> Surrogate:
    """The surrogate that the options name; ``level`` is read by ``clip`` alone."""
    if options.surrogate == "cispo":
        return surrogate_with_cap(options.max_ratio)
    if options.surrogate == "sapo":
        return surrogate_with_gate(good=options.temperature_good, bad=options.temperature_bad)
    return surrogate_with_clips(options, level=level, dual_clip=options.dual_clip)


def surrogate_with_clips(
    clips: ClipOptions, *, level: RatioLevel, dual_clip: float | None = None
) -> Surrogate:
    """The clipped surrogate over ratios of this level, with the shares of tokens held back."""
    bounds = {"clip_low": clips.clip_low, "clip_high": clips.clip_high}

    def surrogate(
        logprobs: Float[Tensor, "B T"], batch: PolicyBatch
    ) -> tuple[Float[Tensor, "B #T"], Mapping[str, float]]:
        ratios = log_ratios(logprobs, batch, level=level)
        losses = clipped_surrogate(ratios, batch.advantages, **bounds, dual_clip=dual_clip)
        is_held = is_clipped(ratios, batch.advantages, **bounds)
        figures = {"clipped": mean_of(is_held, batch)}
        if dual_clip is not None:
            is_bounded = is_dual_clipped(ratios, batch.advantages, dual_clip=dual_clip)
            figures["dual_clipped"] = mean_of(is_bounded, batch)
        return losses, figures

    return surrogate


def surrogate_with_cap(max_ratio: float) -> Surrogate:
    """REINFORCE weighted by the capped ratio of each token, with the share of capped tokens."""

    def surrogate(
        logprobs: Float[Tensor, "B T"], batch: PolicyBatch
    ) -> tuple[Float[Tensor, "B T"], Mapping[str, float]]:
        ratios = log_ratios(logprobs, batch, level="token")
        losses = truncated_surrogate(logprobs, ratios, batch.advantages, max_ratio=max_ratio)
        is_capped = importance_ratios(ratios.detach()) > max_ratio
        return losses, {"capped": mean_of(is_capped, batch)}

    return surrogate


def surrogate_with_gate(*, good: float, bad: float) -> Surrogate:
    """The smooth gate over the ratio of each token."""

    def surrogate(
        logprobs: Float[Tensor, "B T"], batch: PolicyBatch
    ) -> tuple[Float[Tensor, "B T"], Mapping[str, float]]:
        ratios = log_ratios(logprobs, batch, level="token")
        losses = soft_surrogate(
            ratios, batch.advantages, temperature_good=good, temperature_bad=bad
        )
        return losses, {}

    return surrogate
