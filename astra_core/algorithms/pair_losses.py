"""Which loss over pairs of siblings: one, or a weighted sum of several."""

from collections.abc import Callable, Mapping
from functools import partial
from importlib import import_module
from typing import Annotated, Any, Literal, Self

from jaxtyping import Float
from pydantic import Discriminator, Field, Tag, model_validator
from torch import Tensor

from astra_core.algorithms.functional import Divergence, dpo_losses
from astra_core.algorithms.pairs import PairLosses, PairOptions
from astra_core.config import Positive

PairLoss = Literal[
    "sigmoid",
    "conservative",
    "robust",
    "hinge",
    "ipo",
    "exo",
    "discopop",
    "nca",
    "bco",
    "sppo",
    "apo_zero",
    "apo_down",
    "aot",
]
PairTerm = Literal[PairLoss, "sft"]
_FURTHER = "astra_parts.algorithms.functional"
"""Where the losses and divergences are that are only named; like all parts, it is text here."""


def _one_or_several(given: Any) -> str:
    """Which of the two was meant, so that an error names only its rules."""
    return "several" if isinstance(given, dict) else "one"


PairLossChoice = Annotated[
    Annotated[PairLoss, Tag("one")] | Annotated[dict[PairTerm, Positive], Tag("several")],
    Discriminator(_one_or_several),
]
"""One loss, or the weights of several."""
# The first three read label_smoothing; of these and the others below the score may be another.
_SMOOTHED = frozenset({"conservative", "robust", "exo"})
_OF_A_MARGIN = _SMOOTHED | {"sigmoid", "hinge", "discopop", "sft"}


class PairLossOptions(PairOptions):
    """Which pairs, and which loss over them."""

    loss: PairLossChoice = Field(
        "sigmoid",
        description="One loss, or the weights of several; sft is the chosen probe's negative "
        "log-likelihood per token.",
    )
    label_smoothing: float = Field(
        0.0, ge=0.0, lt=0.5, description="Share of pairs believed to be the wrong way round."
    )
    divergence: Divergence = Field(
        "reverse_kl", description="From the reference; what margins are measured by."
    )
    divergence_alpha: float = Field(
        0.5, gt=0.0, lt=1.0, description="Of alpha: from reverse_kl at 0 to forward_kl."
    )
    on_policy_weights: bool = Field(
        False,
        description="Weights a pair by how likely the present attacker finds both probes (WPO).",
    )

    @property
    def terms(self) -> Mapping[str, float]:
        """The weight of every loss."""
        if isinstance(self.loss, str):
            return {self.loss: 1.0}
        return {str(name): weight for name, weight in self.loss.items()}

    @model_validator(mode="after")
    def _there_is_a_loss_over_pairs(self) -> Self:
        if not set(self.terms) - {"sft"}:
            msg = "loss must name a loss over pairs; to imitate alone, choose the algorithm sft"
            raise ValueError(msg)
        return self

    @model_validator(mode="after")
    def _a_weight_has_its_pair(self) -> Self:
        if self.on_policy_weights and "aot" in self.terms:
            msg = "on_policy_weights must be false when loss has aot, which takes pairs apart"
            raise ValueError(msg)
        return self

    @model_validator(mode="after")
    def _a_turn_has_its_pair(self) -> Self:
        if self.turn_weights != "equal" and "aot" in self.terms:
            msg = "turn_weights must be 'equal' when loss has aot, which takes pairs apart"
            raise ValueError(msg)
        return self

    @model_validator(mode="after")
    def _smoothing_has_an_effect(self) -> Self:
        if self.label_smoothing and not _SMOOTHED & set(self.terms):
            msg = "label_smoothing must be 0 unless loss is conservative, robust or exo"
            raise ValueError(msg)
        if not self.label_smoothing and "exo" in self.terms:
            msg = "label_smoothing must be above 0 when loss is exo; 0.001 is usual"
            raise ValueError(msg)
        return self

    @model_validator(mode="after")
    def _a_divergence_has_margins(self) -> Self:
        if self.divergence != "alpha" and self.divergence_alpha != 0.5:
            msg = "divergence_alpha must be left out unless divergence is 'alpha'"
            raise ValueError(msg)
        others = sorted(set(self.terms) - _OF_A_MARGIN)
        if self.divergence != "reverse_kl" and (others or self.length_normalised):
            subject = f"loss is '{others[0]}'" if others else "length_normalised is true"
            msg = f"divergence must be 'reverse_kl' when {subject}"
            raise ValueError(msg)
        return self


def pair_losses(options: PairLossOptions) -> PairLosses:
    """The losses over pairs, summed with their weights; ``sft`` is not among them."""
    terms = [
        (_loss(name, options), weight) for name, weight in options.terms.items() if name != "sft"
    ]
    of_one = terms[0][0] if isinstance(options.loss, str) else _sum_of(terms)
    if options.divergence == "reverse_kl":
        return of_one
    score = partial(
        _further("divergence_scores"), divergence=options.divergence, alpha=options.divergence_alpha
    )
    return lambda chosen, rejected: of_one(score(chosen), score(rejected))


def _sum_of(terms: list[tuple[PairLosses, float]]) -> PairLosses:
    def losses(chosen: Float[Tensor, " N"], rejected: Float[Tensor, " N"]) -> Float[Tensor, " N"]:
        total = chosen.new_zeros(chosen.shape)
        for loss, weight in terms:
            total = total + weight * loss(chosen, rejected)
        return total

    return losses


def _loss(name: str, options: PairLossOptions) -> PairLosses:
    beta = options.beta
    own = {"conservative": "cdpo", "robust": "robust_dpo"}.get(name, name)
    losses: Callable[..., Any] = dpo_losses if name == "sigmoid" else _further(f"{own}_losses")
    if name in _SMOOTHED:
        return partial(losses, beta=beta, label_smoothing=options.label_smoothing)
    return partial(losses, beta=beta)


def _further(function: str) -> Callable[..., Any]:
    found: Callable[..., Any] = getattr(import_module(_FURTHER), function)
    return found
