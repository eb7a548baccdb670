"""Tokens used at a training service, and their cost."""

from dataclasses import asdict, dataclass

from pydantic import Field

from astra_core.config import NonNegative, Section
from astra_core.services.trainer_state import Intent, Result, TrainerState


class ServicePrices(Section):
    """Prices of a million tokens, in the currency of ``max_cost``."""

    prefill: NonNegative = Field(default=0.0, description="Contexts, and scored sequences.")
    sampled: NonNegative = 0.0
    trained: NonNegative = 0.0


@dataclass(frozen=True, slots=True)
class TokensUsed:
    """Tokens of a run so far.

    Attributes:
        prefill: Contexts of draws, and sequences that were scored.
        sampled: Of probes, those of evaluations included.
        trained: Of records sent, each epoch counted.
    """

    prefill: int
    sampled: int
    trained: int

    def cost(self, prices: ServicePrices | None) -> float:
        """Of these tokens; 0 without prices."""
        own = prices or ServicePrices()
        total = own.prefill * self.prefill + own.sampled * self.sampled + own.trained * self.trained
        return total / 1e6

    def figures(self, prices: ServicePrices | None) -> dict[str, float]:
        """The tokens as metrics of a training step; the cost only if prices are known."""
        found = {f"remote_{kind}_tokens": float(count) for kind, count in asdict(self).items()}
        return found | ({"remote_cost": self.cost(prices)} if prices else {})


def counted(state: TrainerState, spoken: tuple[int, int]) -> TokensUsed:
    """What was used until the present stage, as it was counted first: a restart finds that count.

    Args:
        state: Of the run, whose effects tell what they trained.
        spoken: Tokens read and sampled so far.
    """

    def count(intent: Intent) -> Result:
        del intent
        results = [each.result or {} for each in state.effects.values()]
        trained = sum(result.get("tokens", 0) for result in results)
        return {"prefill": spoken[0], "sampled": spoken[1], "trained": trained}

    return TokensUsed(**state.once("tokens", {}, do=count))
