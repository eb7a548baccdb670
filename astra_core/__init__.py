"""The core: rollouts, rewards, algorithms, the Trainer and the evaluation of attackers.

Public names load on first use: importing this package, or its configuration, loads no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from astra_core.algorithm import Algorithm
    from astra_core.config import (
        EvaluationConfiguration,
        SystemConfiguration,
        TrainingConfiguration,
    )
    from astra_core.errors import AstraError
    from astra_core.evaluator import Evaluator
    from astra_core.models.language_model import LanguageModel
    from astra_core.reward import Reward
    from astra_core.rollout import Graph, Node, Prompt
    from astra_core.sampler import Sampler
    from astra_core.samplers.tree import TreeSampler
    from astra_core.scorer import Scorer
    from astra_core.system import System
    from astra_core.training.checkpoint import CheckpointStore
    from astra_core.training.harness import Harness
    from astra_core.training.progress import StepReport
    from astra_core.training.trainer import Trainer

__version__ = "0.2.0"
__all__ = [
    "Algorithm",
    "AstraError",
    "CheckpointStore",
    "EvaluationConfiguration",
    "Evaluator",
    "Graph",
    "Harness",
    "LanguageModel",
    "Node",
    "Prompt",
    "Reward",
    "Sampler",
    "Scorer",
    "StepReport",
    "System",
    "SystemConfiguration",
    "Trainer",
    "TrainingConfiguration",
    "TreeSampler",
    "__version__",
]

_PUBLIC = {
    "Algorithm": "astra_core.algorithm",
    "AstraError": "astra_core.errors",
    "CheckpointStore": "astra_core.training.checkpoint",
    "Evaluator": "astra_core.evaluator",
    "EvaluationConfiguration": "astra_core.config",
    "Graph": "astra_core.rollout",
    "Harness": "astra_core.training.harness",
    "LanguageModel": "astra_core.models.language_model",
    "Node": "astra_core.rollout",
    "Prompt": "astra_core.rollout",
    "Reward": "astra_core.reward",
    "Sampler": "astra_core.sampler",
    "Scorer": "astra_core.scorer",
    "StepReport": "astra_core.training.progress",
    "System": "astra_core.system",
    "SystemConfiguration": "astra_core.config",
    "Trainer": "astra_core.training.trainer",
    "TrainingConfiguration": "astra_core.config",
    "TreeSampler": "astra_core.samplers.tree",
}


def __getattr__(name: str) -> Any:
    """The public name, imported now."""
    if name not in _PUBLIC:
        msg = f"module 'astra_core' has no attribute '{name}'"
        raise AttributeError(msg)
    return getattr(import_module(_PUBLIC[name]), name)


def __dir__() -> list[str]:
    """The public names."""
    return sorted(_PUBLIC)
