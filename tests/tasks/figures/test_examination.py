from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from each_row import each_row
from played_service import PlayedService
from small_world import PARAMS, write_world

from astra_core.config import Choice, GenerationConfiguration
from astra_core.errors import BudgetError, ConfigurationError
from astra_core.models.language_model import LanguageModel
from astra_core.rollout import Prompt
from astra_parts.services.pointer import ServicePointer, leave_pointer, parameters_digest
from astra_parts.services.remote_trainer import RemoteTrainer
from astra_parts.testing import tiny_graph, tiny_language_model, tiny_node, tiny_prompts
from tasks.figures.examination import EvaluationParams, Examiner, optimism, rates, was_selected
from tasks.pipeline.stage import sections_for
from tasks.records.attacker import ATTACKER_FILE, AttackerNote
from tasks.records.models import read_model_paths
from tasks.records.reports import write_record

OWN = sections_for(EvaluationParams, PARAMS)


@pytest.fixture
def base(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_world(tmp_path)
    return Path("models/base")


@pytest.mark.usefixtures("base")
def test_the_key_is_of_the_examination_and_not_of_who_is_examined():
    tiny_language_model(seed=11).save("models/attacker")
    prompts = tiny_prompts(2)
    examiner = Examiner.of(OWN)
    untrained, key = examiner.examine(None, prompts)
    trained, same_key = examiner.examine(Path("models/attacker"), prompts)
    other = Examiner.of(replace(OWN, training_seed=OWN.training_seed + 1))
    first = [tiny_graph(tiny_node(0.0))]
    beside, other_key = other.examine(None, prompts, first=first)
    kept = [Prompt.of(prompt.text, {"secret": "OWL"}) for prompt in prompts]
    _, secret_key = examiner.examine(None, kept)

    assert key == same_key != other_key
    assert secret_key not in {key, other_key}
    assert 1.0 == beside.figures["bandit_calls"]
    assert "bandit_calls" not in untrained.figures
    assert untrained.figures["kl_nats"] != trained.figures["kl_nats"]
    assert [outcome.success_rate for outcome in trained.outcomes] == rates(trained)
    assert 2 == len(rates(trained))


@pytest.mark.usefixtures("base")
def test_strategies_are_told_as_those_are_that_they_stand_beside():
    examiner = Examiner.of(OWN)
    found, _ = examiner.examine(None, tiny_prompts(2))
    graphs = tuple(tiny_graph(tiny_node(1.0)) for _ in range(2))
    told = {"num_hits": 2.0, "strategy_hits_asked": 2.0, "strategy_calls": 40.0, "strategies": 2.0}
    asked = replace(found, graphs=graphs, figures=found.figures | told, strategies=((0,), (1,)))
    shared = replace(asked, figures=asked.figures | {"strategy_hits_asked": 0.0})
    other = examiner.match_strategies(shared, asked)

    # The two hits say the same.
    assert ((0,), (0,)) == other.strategies
    names = ("strategy_hits_asked", "strategies", "strategies_found", "strategy_calls")
    assert [0.0, 1.0, 1.0, 40.0] == [other.figures[name] for name in names]
    # What asking explained of the candidate's hits decides about it, whatever the other's are.
    for own, beside in ((asked, asked), (asked, shared), (shared, shared)):
        assert beside is examiner.match_strategies(own, beside)


@pytest.fixture
def pointed(base, monkeypatch):
    """An attacker whose weights are at a service, how it is examined, and what it is asked."""
    service = PlayedService()
    base = LanguageModel.load(read_model_paths(base)["attacker"])
    service.published["a/b"] = base.model.state_dict()
    monkeypatch.setattr(RemoteTrainer, "connected", staticmethod(lambda *_, **__: service))
    folder = Path("models/attacker")
    base.save(folder)
    pointer = ServicePointer(
        trainer="remote",
        options={"address": "http://127.0.0.1:1", "base_model": "tiny"},
        path="a/b",
        state="state",
        base=parameters_digest(base),
    )
    leave_pointer(pointer, folder)
    probe = GenerationConfiguration(max_new_tokens=6, min_new_tokens=0)
    params = replace(OWN, system=OWN.system.model_copy(update={"probe": probe}))
    return folder, params, service


def limited(params, most):
    evaluation = params.evaluation.model_copy(update={"max_service_tokens": most})
    return Examiner.of(replace(params, evaluation=evaluation))


def test_an_attacker_at_a_service_is_examined_within_its_limit(pointed):
    folder, params, service = pointed
    prompts = tiny_prompts(2)
    with pytest.raises(BudgetError, match="max_service_tokens must cover"):
        limited(params, 10).examine(folder, prompts)
    assert 0 == service.asked["draw"]
    whole, key = limited(params, 100_000).examine(folder, prompts)
    asked = service.asked["draw"]
    again, same_key = limited(params, 1).examine(folder, prompts)

    assert asked > 0
    assert asked == service.asked["draw"]
    assert (key, rates(whole)) == (same_key, rates(again))


def test_workers_are_refused_for_an_attacker_at_a_service(pointed):
    folder, params, service = pointed
    params = replace(params, executor=Choice(name="processes"))

    with pytest.raises(ConfigurationError, match=r"executor must be 'local' for an attacker whose"):
        Examiner.of(params).examine(folder, tiny_prompts(2))
    assert not service.asked


OPTIONS = {"num_resamples": 400, "confidence": 0.95, "seed": 0}


@each_row(
    ("kept", "value", "expected"),
    [("best", 0.5, True), ("last", 0.5, False), ("best", None, False)],
)
def test_an_attacker_was_selected_if_a_figure_chose_it(tmp_path, kept, value, expected):
    assert not was_selected(tmp_path)
    write_record(AttackerNote("ab" * 32, kept=kept, value=value), tmp_path / ATTACKER_FILE)

    assert expected == was_selected(tmp_path)


def test_optimism_is_the_difference_with_an_interval_of_both_samples():
    found = optimism([1.0, 0.5] * 32, [0.5, 0.5, 1.0, 0.0] * 50, **OPTIONS)

    assert (64, 0.75) == (found.num_prompts, found.attack_success_rate.value)
    assert found.optimism.value == pytest.approx(0.25)
    assert 0.15 < found.optimism.low < 0.25 < found.optimism.high < 0.35


def test_the_best_of_many_equal_attackers_is_optimistic_by_what_choosing_adds():
    """Of eight equal attackers the best is 1.42 standard errors above the truth on average."""
    rng = np.random.default_rng(0)
    excess = []
    for _ in range(60):
        tries = rng.binomial(2, 0.5, size=(8, 64)) / 2
        best = tries[tries.mean(axis=1).argmax()]
        fresh = rng.binomial(2, 0.5, size=200) / 2
        excess.append(optimism(best.tolist(), fresh.tolist(), **OPTIONS).optimism.value)

    standard_error = np.sqrt(0.5 * 0.5 / 2 / 64)
    assert np.mean(excess) == pytest.approx(1.42 * standard_error, rel=0.25)
