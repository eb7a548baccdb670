"""Tiny models for tests, and the contracts that every plug-in must pass, built-in or your own.

Everything is built in memory in milliseconds, without a download. The ``check_*`` functions check
what the rest of the project relies on, of a built-in name, an import path or a class, with options
as in params.yaml; a broken contract is an ``AssertionError`` that says how:

    from astra_parts.testing import check_scorer
    from plugins.mine import MyScorer

    def test_my_scorer_keeps_the_contract():
        check_scorer(MyScorer, words=["rude"])
"""

from astra_parts.testing.contracts.algorithm import check_algorithm as check_algorithm
from astra_parts.testing.contracts.executor import check_executor as check_executor
from astra_parts.testing.contracts.judge import (
    check_judge as check_judge,
    check_scorer as check_scorer,
)
from astra_parts.testing.contracts.optimizer import (
    check_optimizer as check_optimizer,
    check_schedule as check_schedule,
)
from astra_parts.testing.contracts.reward import (
    check_reward as check_reward,
    check_term as check_term,
)
from astra_parts.testing.contracts.sampler import check_sampler as check_sampler
from astra_parts.testing.contracts.target import check_target as check_target
from astra_parts.testing.contracts.trainer import check_trainer as check_trainer
from astra_parts.testing.sinks import check_sink as check_sink
from astra_parts.testing.tiny import (
    WORDS as WORDS,
    tiny_agents as tiny_agents,
    tiny_graph as tiny_graph,
    tiny_language_model as tiny_language_model,
    tiny_node as tiny_node,
    tiny_prompts as tiny_prompts,
    tiny_system as tiny_system,
)
