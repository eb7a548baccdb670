"""The core: rollouts, rewards, algorithms, the Trainer and the evaluation of attackers.

Public names load on first use: importing this package, or its configuration, loads no torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from astra_core.algorithm import Algorithm as Algorithm
    from astra_core.config import (
        EvaluationConfiguration as EvaluationConfiguration,
        SystemConfiguration as SystemConfiguration,
        TrainingConfiguration as TrainingConfiguration,
    )
    from astra_core.errors import AstraError as AstraError
    from astra_core.evaluator import Evaluator as Evaluator
    from astra_core.models.language_model import LanguageModel as LanguageModel
    from astra_core.reward import Reward as Reward
    from astra_core.rollout import Graph as Graph, Node as Node, Prompt as Prompt
    from astra_core.sampler import Sampler as Sampler
    from astra_core.samplers.tree import TreeSampler as TreeSampler
    from astra_core.scorer import Scorer as Scorer
    from astra_core.system import System as System
    from astra_core.training.checkpoint import CheckpointStore as CheckpointStore
    from astra_core.training.harness import Harness as Harness
    from astra_core.training.progress import StepReport as StepReport
    from astra_core.training.trainer import Trainer as Trainer

__version__ = "0.2.0"

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
