"""Tiny models for tests, and the contracts that every plug-in must pass, built-in or your own.

Everything is built in memory in milliseconds, without a download. The ``check_*`` functions check
what the rest of the project relies on; a broken contract is an ``AssertionError`` that says how:

    from astra_parts.testing import check_scorer
    from plugins.mine import MyScorer

    def test_my_scorer_keeps_the_contract():
        check_scorer(MyScorer, words=["rude"])
"""

from astra_parts.testing.contracts import (
    check_algorithm,
    check_executor,
    check_judge,
    check_optimizer,
    check_reward,
    check_sampler,
    check_schedule,
    check_scorer,
    check_target,
    check_term,
    check_trainer,
)
from astra_parts.testing.sinks import check_sink
from astra_parts.testing.tiny import (
    WORDS,
    tiny_agents,
    tiny_graph,
    tiny_language_model,
    tiny_node,
    tiny_prompts,
    tiny_system,
)

__all__ = [
    "WORDS",
    "check_algorithm",
    "check_executor",
    "check_judge",
    "check_optimizer",
    "check_reward",
    "check_sampler",
    "check_schedule",
    "check_scorer",
    "check_sink",
    "check_target",
    "check_term",
    "check_trainer",
    "tiny_agents",
    "tiny_graph",
    "tiny_language_model",
    "tiny_node",
    "tiny_prompts",
    "tiny_system",
]
