import json
import math
from dataclasses import replace
from multiprocessing.reduction import ForkingPickler

import pytest
from each_row import each_row

from astra_core.config import EvaluationConfiguration
from astra_core.errors import BudgetError, DataError
from astra_core.evaluator import Evaluator, mean_reward
from astra_core.rewards.adversarial import AdversarialReward
from astra_parts.testing import (
    tiny_graph,
    tiny_language_model,
    tiny_node,
    tiny_prompts,
    tiny_system,
)

CONFIG = EvaluationConfiguration(num_rollouts=2, depth=2, num_responses=2, num_resamples=200)
PROMPTS = tiny_prompts(3)


def reward():
    return AdversarialReward(AdversarialReward.Options())


def evaluator(config=CONFIG, *, prompts=PROMPTS, seed=3, own=None):
    return Evaluator(config, prompts=prompts, reward=own or reward(), seed=seed)


@pytest.fixture(scope="module")
def evaluation():
    return evaluator().evaluate(tiny_system())


def test_the_same_attacker_gets_the_same_figures_from_an_evaluator_that_is_used_again(evaluation):
    own, system = evaluator(), tiny_system()
    own.evaluate(system)
    again = own.evaluate(system)

    assert evaluation.metrics() == again.metrics()
    assert evaluation.outcomes == again.outcomes


def test_every_figure_is_finite_and_as_json_and_another_process_can_have_them(evaluation):
    again = ForkingPickler.loads(ForkingPickler.dumps(evaluator().evaluation_of(evaluation.graphs)))
    assert again.metrics() == evaluation.metrics()
    assert all(math.isfinite(value) for value in evaluation.metrics().values())
    json.dumps(evaluation.record(), allow_nan=False)


def test_metrics_are_named_by_area_with_their_intervals(evaluation):
    metrics = evaluation.metrics()

    assert all(name.startswith("eval/") for name in metrics)
    for name, interval in evaluation.intervals.items():
        assert interval.value == metrics[f"eval/{name}"]
        assert metrics[f"eval/{name}_low"] <= interval.value <= metrics[f"eval/{name}_high"]
    assert {"eval/attack_success_rate", "eval/clean_attack_success_rate"} < metrics.keys()
    assert evaluation.record()["self_bleu"] == metrics["eval/self_bleu"]


def test_figures_are_those_of_the_rollouts(evaluation):
    rates = [outcome.success_rate for outcome in evaluation.outcomes]

    assert [prompt.prompt_id for prompt in PROMPTS] == [o.prompt_id for o in evaluation.outcomes]
    assert sum(rates) / 3 == pytest.approx(evaluation.intervals["attack_success_rate"].value)
    assert mean_reward(evaluation.graphs) == pytest.approx(evaluation.figures["reward_mean"])
    assert evaluation.metrics() == evaluator().evaluation_of(evaluation.graphs).metrics()


def test_every_figure_of_two_prompts_by_hand():
    def turn(score, *children, **changes):
        return tiny_node(score, *children, response_scores=(score,), **changes)

    graphs = [
        # Three rollouts, of which two succeed, one of them by the toxic probe of its first turn.
        tiny_graph(turn(0.9, probe_score=0.6), turn(0.1, turn(0.7), turn(0.2))),
        # One rollout of two replies, whose mean is below the threshold; one that failed.
        tiny_graph(
            tiny_node(0.4, response_scores=(0.8, 0.0)),
            tiny_node(0.0, failure="x", score=math.nan, response_scores=()),
        ),
    ]
    metrics = evaluator().evaluation_of(graphs).metrics()

    expected = {
        "attack_success_rate": (2 / 3 + 0) / 2,
        "clean_attack_success_rate": (1 / 3 + 0) / 2,
        "first_turn_success_rate": (1 / 2 + 0) / 2,
        "attempt_success_rate": (2 / 4 + 1 / 2) / 2,
        "score_mean": (1.9 / 4 + 0.4) / 2,
        # Five turns were answered; the rewards of hand-made turns are their scores.
        "reward_mean": (0.9 + 0.1 + 0.7 + 0.2 + 0.4) / 5,
        "probe_toxicity_rate": 1 / 6,
        "failed_rate": 1 / 6,
        "score_max": 0.9,
        "probe_tokens": 3.0,
        "unique_probes": 1 / 6,
    }
    assert expected == pytest.approx({name: metrics[f"eval/{name}"] for name in expected})
    # Two prompts drawn twice: the means of the outcomes lie between the two, and reach them.
    assert (0.0, 2 / 3) == pytest.approx(
        (metrics["eval/attack_success_rate_low"], metrics["eval/attack_success_rate_high"])
    )


def test_another_attacker_gets_other_figures_by_the_same_keys(evaluation):
    other = evaluator().evaluate(tiny_system(7))

    assert evaluation.metrics() != other.metrics()
    assert [g.prompt for g in evaluation.graphs] == [g.prompt for g in other.graphs]


def test_figures_do_not_depend_on_what_training_has_said(evaluation):
    own = reward()
    examined = evaluator(own=own)
    own.remember(evaluation.graphs)

    assert evaluation.metrics() == examined.evaluate(tiny_system()).metrics()


def test_figures_do_not_depend_on_the_size_of_a_batch(evaluation):
    system = tiny_system()
    config = system.config.model_copy(update={"tokens_per_batch": 10**6})
    other = evaluator().evaluate(replace(system, config=config))

    assert evaluation.outcomes == other.outcomes
    assert evaluation.metrics() == pytest.approx(other.metrics(), abs=1e-5)


@each_row("change", [{"num_rollouts": 3}, {"num_responses": 1}, {"depth": 1}])
def test_every_setting_of_rollouts_changes_the_result(evaluation, change):
    other = evaluator(CONFIG.model_copy(update=change)).evaluate(tiny_system())

    assert evaluation.metrics() != other.metrics()


@each_row("change", [{"threshold": 0.2}, {"num_resamples": 100}, {"confidence": 0.5}])
def test_every_setting_of_the_figures_changes_the_result(evaluation, change):
    other = evaluator(CONFIG.model_copy(update=change)).evaluation_of(evaluation.graphs)

    assert evaluation.metrics() != other.metrics()


def test_the_shape_of_the_examination():
    config = CONFIG.model_copy(update={"num_rollouts": 3, "depth": 4, "num_responses": 2})
    for graph in evaluator(config, prompts=PROMPTS[:2]).evaluate(tiny_system()).graphs:
        assert [3, 1, 1, 1, 1, 1, 1, 1, 1, 1] == [len(group) for group in graph.groups()]
        assert {2} == {len(node.response_texts) for node in graph.nodes()}


def test_another_seed_draws_other_rollouts(evaluation):
    other = evaluator(seed=4).evaluate(tiny_system())

    assert evaluation.graphs != other.graphs


def test_a_target_with_another_tokenizer_can_be_examined():
    system = tiny_system(target=tiny_language_model(1, vocabulary=None))

    metrics = evaluator().evaluate(system).metrics()
    assert all(math.isfinite(value) for value in metrics.values())


def test_there_must_be_a_prompt():
    with pytest.raises(DataError, match="at least one prompt"):
        evaluator(prompts=())


def test_the_mean_reward_leaves_out_turns_that_failed():
    graph = tiny_graph(tiny_node(0.5), tiny_node(0.25), tiny_node(0.0, failure="x"))

    assert mean_reward([graph]) == pytest.approx(0.375)
    assert mean_reward([]) == 0.0


def test_an_evaluation_of_which_nothing_was_judged_is_one_line():
    unjudged = tiny_node(0.0, response_scores=(None,), response_unjudged=("no answer",))

    with pytest.raises(DataError, match="none of 2 turns judged"):
        evaluator().evaluation_of([tiny_graph(unjudged), tiny_graph(unjudged)])
    rest = evaluator().evaluation_of([tiny_graph(unjudged), tiny_graph(tiny_node(0.9))])
    assert 1.0 == rest.intervals["attack_success_rate"].value
    assert 0.5 == rest.figures["unjudged_rate"]


class Second:
    """The second of two processes, of which the first has run and says the same of its budget."""

    def __init__(self, first, spent=""):
        self.first, self.spent = first, spent

    def share(self, values):
        return values[1::2]

    def whole(self, share):
        mixed = [None] * (len(self.first) + len(share))
        mixed[0::2], mixed[1::2] = self.first, share
        return mixed

    def gather(self, value):
        return [self.spent, value]


def test_processes_that_share_the_prompts_all_get_the_whole(evaluation):
    ranks = Second(list(evaluation.graphs[0::2]))
    shared = evaluator().evaluate(tiny_system(), ranks=ranks)

    assert [g.prompt for g in evaluation.graphs] == [g.prompt for g in shared.graphs]
    assert evaluation.metrics() == pytest.approx(shared.metrics(), abs=1e-4)


def test_a_budget_that_is_spent_in_one_process_ends_the_evaluation_of_all():
    with pytest.raises(BudgetError, match="no more replies"):
        evaluator().evaluate(tiny_system(), ranks=Second([], "no more replies"))
