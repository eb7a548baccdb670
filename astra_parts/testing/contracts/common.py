"""Helpers of the contracts: to build, roll out and compare a plug-in, and to report a failure."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import torch
from torch import Tensor

from astra_core.config import Section
from astra_core.errors import ConfigurationError
from astra_core.registry import NoOptions, resolve
from astra_core.rewards.adversarial import AdversarialReward
from astra_core.rollout import Graph, Prompt
from astra_core.samplers.tree import TreeSampler
from astra_core.system import System
from astra_core.targets.causal_lm import speaker_of
from astra_parts.testing.tiny import tiny_graph, tiny_node, tiny_prompts, tiny_system

SEED = 5
TEXTS = (
    "you are bad",
    "",
    "so kind",
    "worse and WORSE!",
    "  ",
    "Grüße, 世界 \U0001f642",
    "bad " * 300,
)
"""Texts to rate: a scorer's texts, a judge's replies."""


def build_plugin(
    kind: str, plugin: str | type[Any], options: Mapping[str, Any], **parts: Any
) -> Any:
    """The plug-in with these options and parts; its options must refuse an unknown one."""
    found = class_of(kind, plugin)
    return found(options_of(kind, found, options), **parts)


def class_of(kind: str, plugin: str | type[Any]) -> type[Any]:
    """The class to check, from its name or the class itself."""
    return resolve(kind, plugin) if isinstance(plugin, str) else plugin


def options_of(kind: str, plugin: type[Any], options: Mapping[str, Any]) -> Section:
    """The options, read by the plug-in's own section, which must refuse an unknown one."""
    section: type[Section] = getattr(plugin, "Options", NoOptions)
    try:
        section.read({**options, "no such option": 1}, where=f"{kind} options")
    except ConfigurationError:
        pass
    else:
        promise(holds=False, words=f"{plugin.__name__}.Options refuses an unknown option")
    return section.read(options, where=f"{kind} options")


@cache
def sampled_graphs(reference_seed: int | None = None) -> tuple[Graph, ...]:
    """Trees that ``tiny_system(SEED, reference_seed=...)`` grew, without rewards."""
    system, prompts = tiny_system(SEED, reference_seed=reference_seed), tiny_prompts(3)
    return tuple(tree_sampler(system, prompts).roll_out(prompts, iteration=0))


def tree_sampler(
    system: System, prompts: Sequence[Prompt], *, tree_width: int = 3, num_responses: int = 2
) -> TreeSampler:
    """A sampler of trees with two levels, and a plain reward."""
    options = TreeSampler.Options(tree_width=tree_width, tree_depth=2, num_responses=num_responses)
    reward = AdversarialReward(AdversarialReward.Options())
    return TreeSampler(options, system=system, prompts=prompts, reward=reward, seed=SEED)


def goal_prompts() -> tuple[Prompt, ...]:
    """The prompts of ``goal_graphs``."""
    told = {"goal": "so bad and worse", "category": "tone"}
    return tuple(Prompt(own.prompt_id, own.text, told) for own in tiny_prompts(3))


def goal_graphs() -> list[Graph]:
    """The graphs of ``sampled_graphs``, their prompts with a goal, and one whose turns failed."""
    pairs = zip(sampled_graphs(), goal_prompts(), strict=True)
    return [*(replace(graph, prompt=prompt) for graph, prompt in pairs), failed_graph()]


def rewarded_graphs(reference_seed: int | None = None) -> list[Graph]:
    """The same trees with different rewards."""
    return AdversarialReward(AdversarialReward.Options(novelty_weight=1.0)).assign(
        sampled_graphs(reference_seed)
    )


def failed_graph() -> Graph:
    """A tree whose turns failed."""
    reason = "TargetError: no answer"
    return tiny_graph(tiny_node(0.0, failure=reason), tiny_node(0.0, failure=reason))


def models_of(system: System) -> list[Any]:
    """The modules of attacker, target and reference, as far as they are language models."""
    talkers = (system.attacker, speaker_of(system.target), system.reference)
    return [each.model for each in talkers if each is not None]


def weights_of(system: System) -> list[Tensor]:
    """Copies of all weights."""
    return [p.detach().clone() for model in models_of(system) for p in model.parameters()]


def gradients_of(system: System) -> list[Tensor]:
    """The gradients that the attacker has."""
    return [p.grad for p in system.attacker.model.parameters() if p.grad is not None]


def are_equal(some: Sequence[Tensor], others: Sequence[Tensor]) -> bool:
    """Whether all tensors are the same, bit by bit."""
    return all(torch.equal(a, b) for a, b in zip(some, others, strict=True))


def are_close(value: float, other: float) -> bool:
    """Whether two numbers differ only by rounding."""
    return math.isclose(value, other, rel_tol=1e-4, abs_tol=1e-5)


def check_figures(figures: Mapping[str, float] | None) -> None:
    """Checks that all figures about an experience are finite."""
    for name, value in (figures or {}).items():
        words = f"a figure about an experience is finite, got {value} for {name}"
        promise(math.isfinite(value), words)


def promise(holds: bool, words: str) -> None:
    """Raises unless the promise holds; not an ``assert``, which ``python -O`` removes."""
    if not holds:
        msg = f"broken promise: {words}"
        raise AssertionError(msg)
