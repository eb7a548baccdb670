"""Settings that ``python -m benchmarks method`` compares: presets, with and without one part."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Recipe:
    """Changes of params.yaml.

    Attributes:
        preset: A preset that is laid over it, if any.
        changes: Further changes, each as ``key=value``.
    """

    preset: str | None = None
    changes: tuple[str, ...] = ()


DEFAULT = "default"
_TERMS = "reward.options.terms"
RECIPES: Mapping[str, Recipe] = {
    DEFAULT: Recipe(),
    "published": Recipe(changes=("training.algorithm.defaults=published",)),
    "diverse": Recipe(changes=("reward.options.diversity_weight=0.15",)),
    "refilled": Recipe(changes=("rollouts.sampler.options.refills=4",)),
    "untuned": Recipe("untuned"),
    "three_replies": Recipe("untuned", ("rollouts.sampler.options.num_responses=3",)),
    "rude_costs": Recipe("untuned", (f"{_TERMS}.probe_score={{weight: -0.3}}",)),
    "absolute_floor": Recipe(
        "untuned", (f"{_TERMS}.likelihood.options={{under: target, floor: absolute, nats: 0.8}}",)
    ),
    "no_rudeness_penalty": Recipe(changes=("reward.options.probe_penalty=0.0",)),
    "no_likelihood": Recipe(changes=("reward.options.nll_weight=0.0",)),
    "no_novelty": Recipe(changes=("reward.options.novelty_weight=0.0",)),
    "replies_alone": Recipe(
        changes=(
            "reward.options.probe_penalty=0.0",
            "reward.options.nll_weight=0.0",
            "reward.options.novelty_weight=0.0",
        )
    ),
}
"""``default`` is params.yaml as it is; ``published`` has an algorithm's options as its paper or its
best-known implementation has them; ``diverse`` pays for successes that are rare in wording;
``refilled`` samples poor probes again; the others after ``untuned`` change one part of it, and the
last four leave terms of the default reward out."""
