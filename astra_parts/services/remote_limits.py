"""Settings of a training that a service would drop silently: each is refused in one line."""

from typing import Any, NoReturn

import torch

from astra_core.config import Section, TrainingConfiguration
from astra_core.errors import ConfigurationError
from astra_parts.services.training_service import AdamStep

_DROPPED = (
    *("lora", "parts", "agents", "gradient_checkpointing", "dump_steps", "compile"),
    *("staleness", "sharding"),
)


def check_settings(config: TrainingConfiguration, *, clips: bool) -> None:
    """Checks that a service does all that the configuration asks.

    Args:
        config: Of the training.
        clips: Whether the service clips gradients.

    Raises:
        ConfigurationError: It would drop a setting.
    """
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
    """Returns unless poor probes are sampled again where a draw may fail, which looks the same.

    Raises:
        ConfigurationError: They are.
    """
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
