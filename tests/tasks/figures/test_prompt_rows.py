from dataclasses import replace

from astra_core.config import EvaluationConfiguration
from astra_core.evaluator import Evaluator
from astra_core.rewards.adversarial import AdversarialReward
from astra_parts.metrics.invented_words import InventedWords
from astra_parts.testing import tiny_graph, tiny_node, tiny_prompts
from tasks.figures.prompt_rows import ASKED, STRATEGIES, prompt_rows


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

    found = evaluator.judged(graphs)
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
