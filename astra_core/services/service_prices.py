"""What a training service was used for, in tokens, and what that costs."""

from dataclasses import asdict, dataclass

from pydantic import Field

from astra_core.config import NonNegative, Section


class ServicePrices(Section):
    """Of a million tokens, in the currency of ``max_cost``."""

    prefill: NonNegative = Field(default=0.0, description="Contexts, and what is scored.")
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
        """As metrics of a training step; the cost only where prices are known."""
        found = {f"remote_{kind}_tokens": float(count) for kind, count in asdict(self).items()}
        return found | ({"remote_cost": self.cost(prices)} if prices else {})
