"""Which loss of a service equals an algorithm's; what a service cannot compute is refused."""

import math
from collections.abc import Sequence
from typing import Any, NoReturn

import torch

from astra_core.algorithm import Algorithm
from astra_core.errors import ConfigurationError
from astra_parts.algorithms.expert_iteration import ExpertIteration
from astra_parts.algorithms.grpo import GRPO
from astra_parts.algorithms.reinforce import REINFORCE
from astra_parts.algorithms.sft import SFT
from astra_parts.services.records import Record
from astra_parts.services.training_service import ServiceLoss

_COPY = ServiceLoss("cross_entropy", {})


def service_loss(algorithm: Algorithm) -> ServiceLoss:
    """The loss of a service that equals this algorithm's, summed over tokens."""
    options: Any = algorithm.options
    if isinstance(algorithm, SFT | ExpertIteration):
        return _COPY
    if isinstance(algorithm, GRPO | REINFORCE):
        if options.kl == "loss":
            _refuse("kl must be 'none' or 'reward'", "loss")
        if options.entropy_coefficient:
            _refuse("entropy_coefficient must be 0", options.entropy_coefficient)
        return _grpo(options) if isinstance(algorithm, GRPO) else _reinforce(options)
    name = type(algorithm).__name__
    msg = (
        "training.algorithm must be grpo, reinforce, sft or expert_iteration for trainer 'remote', "
        f"got {name}: a service computes no loss of pairs or values; name one of these"
    )
    raise ConfigurationError(msg)


def loss_on_record(loss: ServiceLoss, record: Record, logprobs: Sequence[float]) -> float:
    """The part of a service's loss that a record adds.

    ``logprobs``: of the record's targets under the weights that learn, nats.
    """
    now = torch.tensor(logprobs, dtype=torch.float64)
    before = torch.tensor(record.logprobs, dtype=torch.float64)
    advantages = torch.tensor(record.advantages, dtype=torch.float64)
    ratios = (now - before).exp()
    bounds = loss.options
    low = bounds.get("clip_low_threshold", 0.0)
    held = ratios.clamp(low, bounds.get("clip_high_threshold", math.inf))
    gains = {
        "cross_entropy": now * advantages,
        "importance_sampling": ratios * advantages,
        "ppo": torch.minimum(ratios * advantages, held * advantages),
        "cispo": held * now * advantages,
    }
    return -float(gains[loss.name].sum())


def _grpo(options: Any) -> ServiceLoss:
    if options.ratio != "token":
        _refuse("ratio must be 'token'", options.ratio)
    if options.surrogate == "cispo":
        return _cispo_loss(options.max_ratio)
    if options.surrogate != "clip":
        _refuse("surrogate must be 'clip' or 'cispo'", options.surrogate)
    if options.dual_clip is not None:
        _refuse("dual_clip must be null", options.dual_clip)
    low, high = 1.0 - options.clip_low, 1.0 + options.clip_high
    return ServiceLoss("ppo", {"clip_low_threshold": low, "clip_high_threshold": high})


def _reinforce(options: Any) -> ServiceLoss:
    if options.importance == "none":
        return _COPY
    if options.importance == "full":
        return ServiceLoss("importance_sampling", {})
    return _cispo_loss(options.max_ratio)


def _cispo_loss(max_ratio: float) -> ServiceLoss:
    bounds = {"clip_low_threshold": 0.0, "clip_high_threshold": max_ratio}
    return ServiceLoss("cispo", bounds)


def _refuse(rule: str, value: object) -> NoReturn:
    msg = (
        f"training.algorithm.options.{rule} for trainer 'remote', got {value!r}: a service drops "
        "the rest silently"
    )
    raise ConfigurationError(msg)
