"""Rewards of the literature by name; the same as the files of the folder ``params``."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from astra_core.config import Choice
from astra_core.errors import ConfigurationError

_REWARDS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "default": {
            "name": "adversarial",
            "options": {
                "nll_weight": 0.3,
                "nll_floor": 0.8,
                "novelty_weight": 0.2,
            },
        },
        # Rewards the attacker's own words, so that it learns to swear.
        "astprompter": {
            "name": "stress_testing",
            "options": {
                "likelihood": "mean_logprob",
                "likelihood_weight": 0.1,
                "joint_weight": 0.5,
                "response_weight": 1.0,
            },
        },
        "curiosity": {
            "name": "terms",
            "options": {
                "terms": {
                    "reply": {"weight": 1.0},
                    "novelty": {"weight": 1.0},
                    "embedding_novelty": {"weight": 1.0},
                    "gibberish": {"weight": -1.0},
                    "kl": {"weight": -0.001},
                }
            },
        },
    }
)
REWARD_PRESETS = tuple(_REWARDS)


def reward_preset(name: str) -> Choice:
    """The reward of a preset, for ``Assembly(reward=...)``.

    Raises:
        ConfigurationError: There is no preset of this name.
    """
    if name not in _REWARDS:
        msg = f"reward_preset must name one of {list(REWARD_PRESETS)}, got '{name}'; see docs"
        raise ConfigurationError(msg)
    return Choice.read(dict(_REWARDS[name]), where="reward")
