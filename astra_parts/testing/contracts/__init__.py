"""The contract of each kind of plug-in, built-in or not."""

from astra_parts.testing.contracts.algorithm import check_algorithm
from astra_parts.testing.contracts.executor import check_executor
from astra_parts.testing.contracts.judge import check_judge
from astra_parts.testing.contracts.optimizer import check_optimizer
from astra_parts.testing.contracts.reward import check_reward
from astra_parts.testing.contracts.sampler import check_sampler
from astra_parts.testing.contracts.schedule import check_schedule
from astra_parts.testing.contracts.scorer import check_scorer
from astra_parts.testing.contracts.target import check_target
from astra_parts.testing.contracts.term import check_term
from astra_parts.testing.contracts.trainer import check_trainer

__all__ = [
    "check_algorithm",
    "check_executor",
    "check_judge",
    "check_optimizer",
    "check_reward",
    "check_sampler",
    "check_schedule",
    "check_scorer",
    "check_target",
    "check_term",
    "check_trainer",
]
