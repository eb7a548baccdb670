"""Options of the trainer ``remote``, and the tokens and cost that they limit."""

from dataclasses import asdict, dataclass
from typing import Any, Literal, NoReturn, Self

import torch
from pydantic import Field, model_validator

from astra_core.config import Count, NonNegative, Positive, Seconds, Section, TrainingConfiguration
from astra_core.errors import ConfigurationError
from astra_parts.services.trainer_state import TrainerState
from astra_parts.services.training_service import AdamStep
from astra_parts.targets.authorization import Authorization


class ServicePrices(Section):
    """Prices of a million tokens, in the currency of ``max_cost``."""

    prefill: NonNegative = Field(0.0, description="Contexts, and scored sequences.")
    sampled: NonNegative = 0.0
    trained: NonNegative = 0.0


class RemoteOptions(Section):
    """Which service, which model there, and what is done when it fails."""

    address: str = Field(description="Such as http://127.0.0.1:8000, without a key.")
    base_model: str = Field(min_length=1, description="The service's name of the weights.")
    authorization: Authorization | None = Field(
        None, description="For a host beyond this machine: owner, note, hosts."
    )
    key_env: str | None = Field(None, description="Variable that holds the key.")
    rank: Count = Field(8, description="Rank of the adapters that the service trains.")
    on_error: Literal["fail_fast", "retry", "min_group"] = Field(
        "retry",
        description="A draw that fails ends the run; is asked for again; or, after that, is "
        "left out where enough of its group succeeded.",
    )
    retries: Count = Field(3, description="Times a failed draw is asked for again.")
    min_group: Count = Field(2, description="Draws of a context that must succeed.")
    limit_s: Seconds = Field(600.0, description="The longest wait for what is asked at once.")
    stream_minibatches: Count | None = Field(
        None,
        description="Parts that an experience is divided into, each trained on at the service "
        "while the next is sampled; null samples all before anything is trained on.",
    )
    clips_gradients: bool = Field(
        False, description="Whether the service honours training.max_grad_norm; skyrl does not."
    )
    max_tokens: Count | None = Field(
        None, description="Sent to be trained, in all; then the run ends."
    )
    prices: ServicePrices | None = Field(None, description="For the reported cost.")
    max_cost: Positive | None = Field(
        None, description="By prices, which must be given; then the run ends."
    )
    export: bool = Field(True, description="Downloads the trained weights at the end, if it may.")

    @model_validator(mode="after")
    def _check_prices(self) -> Self:
        if self.max_cost is not None and self.prices is None:
            msg = "prices must be given where max_cost is"
            raise ValueError(msg)
        return self


@dataclass(frozen=True, slots=True)
class TokensUsed:
    """Tokens of a run so far."""

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


def count_tokens(state: TrainerState, spoken: tuple[int, int]) -> TokensUsed:
    """What was used until the present stage, as first counted: a restart finds that count."""
    results = [each.result or {} for each in state.effects.values()]
    trained = sum(result.get("tokens", 0) for result in results)
    now = {"prefill": spoken[0], "sampled": spoken[1], "trained": trained}
    return TokensUsed(**state.once("tokens", {}, do=lambda _: now))


_DROPPED = (
    *("lora", "parts", "agents", "gradient_checkpointing", "dump_steps", "compile"),
    *("staleness", "sharding"),
)


def check_settings(config: TrainingConfiguration, *, clips: bool) -> None:
    """Raises ConfigurationError unless a service does all that the configuration asks."""
    wanted: dict[str, Any] = {
        name: TrainingConfiguration.model_fields[name].get_default(call_default_factory=True)
        for name in _DROPPED
    }
    for name, value in wanted.items():
        if getattr(config, name) != value:
            _refuse(name, value, getattr(config, name))
    if config.precision not in {"device", "fp32"}:
        _refuse("precision", "fp32", config.precision)
    if config.optimizer.name not in {"adam", "adamw"}:
        _refuse("optimizer.name", "adamw", config.optimizer.name)
    if config.kl.max_per_experience_nats is not None:
        _refuse("kl.max_per_experience_nats", None, config.kl.max_per_experience_nats)
    if config.max_grad_norm is not None and not clips:
        _refuse("max_grad_norm", None, config.max_grad_norm)


def adam_of(
    optimizer: torch.optim.Optimizer, *, lr: float, config: TrainingConfiguration
) -> AdamStep:
    """The service's step that equals the configured optimiser's, with this learning rate.

    Adapters are matrices, so the decay is that of matrices.
    """
    group = optimizer.param_groups[0]
    beta1, beta2 = group["betas"]
    decay = float(group["weight_decay"])
    if decay and config.optimizer.name != "adamw":
        _refuse("optimizer.options.weight_decay", 0.0, decay)
    return AdamStep(lr, beta1, beta2, group["eps"], decay, config.max_grad_norm or 0.0)


def check_refills(sampler_options: Section, *, on_error: str) -> None:
    """Raises ConfigurationError if refills meet draws that may fail and look like poor probes."""
    refills = getattr(sampler_options, "refills", 0)
    if refills and on_error == "min_group":
        msg = (
            "rollouts.sampler.options.refills must be 0 for trainer 'remote' with on_error "
            f"'min_group', got {refills}: a draw that failed would be refilled"
        )
        raise ConfigurationError(msg)


def _refuse(name: str, wanted: object, value: object) -> NoReturn:
    shown = "null" if wanted is None else wanted
    msg = (
        f"training.{name} must be {shown} for trainer 'remote', got {value}: the service would "
        "drop it silently"
    )
    raise ConfigurationError(msg)
