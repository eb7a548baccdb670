"""Parts of the trained weights: the rate of each, and when it moves at all."""

import math
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from torch.nn import Module, Parameter

from astra_core.config import Part
from astra_core.errors import ConfigurationError
from astra_core.settings.patterns import occurs


def is_active(part: Part, training_step: int) -> bool:
    """True when the part's weights move in this training step, counted from 0.

    Two parts that alternate are two periodic ones: ``start: 0, stop: n`` and
    ``start: n, stop: period``.
    """
    if part.active == "periodic":
        return part.start <= training_step % part.period < part.stop
    return part.active == "always" and part.lr_factor > 0.0


def trained_weights(model: Module, extra: Iterable[Parameter]) -> dict[str, Parameter]:
    """Every weight that takes a gradient, once, by name; the algorithm's are ``algorithm.N``."""
    named = dict(model.named_parameters())
    named |= {f"algorithm.{index}": parameter for index, parameter in enumerate(extra)}
    return {name: parameter for name, parameter in named.items() if parameter.requires_grad}


def parameter_groups(
    model: Module,
    extra: Iterable[Parameter],
    *,
    weight_decay: float,
    lr: float = 1.0,
    parts: Mapping[str, Part] | None = None,
    taken: Collection[int] = (),
) -> list[dict[str, Any]]:
    """The trained weights in groups of one rate, one timetable and one decay.

    Matrices decay, vectors (biases, norms) do not. Each group holds ``parts``, the names of the
    parts that all its weights are in, and ``lr``, the base rate times their factors. Weights whose
    ids are ``taken`` are left out: another optimiser moves them.

    Raises:
        ConfigurationError: A part's pattern is found in no weight's name.
    """
    parts = parts or {}
    groups: dict[tuple[tuple[str, ...], bool], list[Parameter]] = {}
    every = trained_weights(model, extra)
    weights = {name: weight for name, weight in every.items() if id(weight) not in taken}
    if not weights:
        msg = "the attacker must have trainable weights, got none; load it with is_trained=True"
        raise ConfigurationError(msg)
    _refuse_empty_parts(parts, weights)
    for name, parameter in weights.items():
        own = tuple(key for key, part in parts.items() if _is_in(key, part, name))
        groups.setdefault((own, parameter.ndim > 1), []).append(parameter)
    # Matrices first, as the learning rate that is reported is the first group's.
    ordered = sorted(groups.items(), key=lambda item: (item[0][0], not item[0][1]))
    return [
        {
            "params": members,
            "weight_decay": weight_decay if decays else 0.0,
            "lr": lr * math.prod(parts[key].lr_factor for key in own),
            "parts": list(own),
        }
        for (own, decays), members in ordered
    ]


def found_parts(parts: Mapping[str, Part], names: Collection[str]) -> dict[str, Part]:
    """The parts whose pattern is found in one of these names of weights."""
    return {
        key: part for key, part in parts.items() if any(_is_in(key, part, name) for name in names)
    }


def _is_in(key: str, part: Part, name: str) -> bool:
    return occurs(part.pattern, name, where=f"training.parts.{key}.pattern")


def _refuse_empty_parts(parts: Mapping[str, Part], weights: Mapping[str, Parameter]) -> None:
    found = found_parts(parts, weights)
    for key, part in parts.items():
        if key not in found:
            msg = (
                f"training.parts.{key}.pattern must be found in the name of a trained weight, "
                f"got '{part.pattern}'; names are such as {sorted(weights)[:3]}"
            )
            raise ConfigurationError(msg)
