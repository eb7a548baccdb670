import math
from dataclasses import replace

import pytest

from astra_core.config import Choice, EvaluationConfiguration, SystemConfiguration
from astra_core.evaluator import Evaluator
from astra_core.rewards.adversarial import AdversarialReward
from astra_parts.metrics.invented_words import InventedWords
from astra_parts.testing import tiny_graph, tiny_node, tiny_prompts
from tasks.figures.prompt_rows import ASKED, STRATEGIES, prompt_rows, target_figures, target_note


def graph(*texts, score=0.9):
    nodes = [
        tiny_node(0.0, probe_text=text, score=score, response_scores=(score,)) for text in texts
    ]
    return tiny_graph(*nodes)


def test_a_row_has_the_outcome_and_the_strategies_of_its_hits_and_no_text():
    config = EvaluationConfiguration(num_resamples=100)
    reward = AdversarialReward(AdversarialReward.Options())
    evaluator = Evaluator(config, prompts=tiny_prompts(1), reward=reward, seed=0)
    graphs = [
        graph("you never listen", "why is that so"),
        graph("you never listen"),
        graph("you never listen", score=0.1),
    ]

    found = evaluator.evaluation_of(graphs)
    figures = {**found.figures, "strategy_hits_asked": 3.0}
    found = replace(found, figures=figures, strategies=((0, 1), (0,), ()))
    invented = InventedWords({"you", "never", "listen"}, max_tokens=24)
    rows = prompt_rows(found, "attacker", invented=invented)

    assert [[0, 1], [0], []] == [row[STRATEGIES] for row in rows]
    assert [1.0, 1.0, 0.0] == [row["success_rate"] for row in rows]
    assert [0.5, 0.0, 0.0] == [row["nonword_probe_rate"] for row in rows]
    assert {True} == {row[ASKED] for row in rows}
    assert {"attacker"} == {row["role"] for row in rows}
    assert "listen" not in str(rows)


class Used:
    """What of a target is asked here."""

    def __init__(self, **figures):
        self.used = figures

    def figures(self):
        return self.used


@pytest.fixture
def examined():
    evaluator = Evaluator(
        EvaluationConfiguration(num_resamples=10),
        prompts=tiny_prompts(1),
        reward=AdversarialReward(AdversarialReward.Options()),
        seed=0,
    )
    two, one = tiny_graph(tiny_node(0.9), tiny_node(0.8)), tiny_graph(tiny_node(0.1))
    return lambda: evaluator.evaluation_of([two, one])


def test_the_cost_of_a_success_is_the_cost_of_all_calls_by_the_successes(examined):
    assert {"target_calls": 5.0, "target_cost": 3.0, "target_cost_per_success": 1.5} == (
        target_figures(Used(calls=5.0, cost=3.0), examined())
    )


def test_without_a_success_it_has_no_cost_and_without_a_price_none_is_reported(examined):
    found = examined()
    none = [replace(each, success_rate=0.0) for each in found.each]
    figures = target_figures(Used(cost=3.0), replace(found, each=tuple(none)))

    assert math.isnan(figures["target_cost_per_success"])
    assert {"target_calls": 5.0} == target_figures(Used(calls=5.0), found)
    assert {} == target_figures(Used(), found)


def test_only_a_target_without_weights_is_noted():
    scripted = SystemConfiguration(target=Choice(name="scripted"))

    assert target_note(SystemConfiguration()) is None
    assert "scripted" == target_note(scripted)["name"]
    assert 64 == len(target_note(scripted)["digest"])
