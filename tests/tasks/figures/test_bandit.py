from functools import cache

from each_row import each_row
from scripted_system import system_against

from astra_core.config import EvaluationConfiguration
from astra_core.errors import BudgetError, TargetError
from astra_core.evaluator import Evaluator
from astra_core.rewards.adversarial import AdversarialReward
from astra_parts.testing import tiny_graph, tiny_node, tiny_prompts
from tasks.figures.bandit import with_bandit
from tasks.records.evaluation import BANDIT

RULE = {"when": "why", "say": ["so bad"]}
FIRST = [
    tiny_graph(tiny_node(1.0, probe_text=text), tiny_node(0.0, probe_text="no"))
    for text in ("why", "why so")
]
CONFIG = EvaluationConfiguration(num_resamples=100, bandit_calls=10)
EVALUATOR = Evaluator(
    CONFIG, prompts=tiny_prompts(4), reward=AdversarialReward(AdversarialReward.Options()), seed=0
)


@cache
def untrained():
    return EVALUATOR.evaluation_of(
        [tiny_graph(tiny_node(0.0), prompt=own) for own in tiny_prompts(4)]
    )


def beside(system):
    return with_bandit(
        untrained(), system, EVALUATOR, first=FIRST, vocabulary=frozenset(), seed=0
    ).record()


def test_the_winners_are_measured_on_the_prompts_of_the_evaluation():
    found, before = beside(system_against(RULE)), untrained().record()
    own = {name.removeprefix(f"{BANDIT}_"): found[name] for name in found.keys() - before.keys()}

    assert before == {name: found[name] for name in before}
    # Two of three probes hit, and each rollout says two of the three.
    assert 1.0 == own["success_rate"]["value"]
    # So few need no search: they cost four replies in the first rollouts.
    assert (3.0, 4.0) == (own["probes"], own["calls"])
    # Four prompts, two rollouts of two turns.
    assert 1000 * 2 / 16 == own["unique_attacks_per_1000_replies"]


@each_row("error", [BudgetError, TargetError])
def test_a_target_that_cannot_be_asked_leaves_it_out(error):
    system = system_against(RULE)

    def refused(*_, **__):
        msg = "no call"
        raise error(msg)

    system.target.respond = refused

    assert untrained().record() == beside(system)
