from dataclasses import replace
from pathlib import Path

import pytest
from small_world import PARAMS, write_world

from astra_core.testing import tiny_language_model, tiny_prompts
from tasks.pipeline.stage import sections_for
from tasks.reporting.examination import EvaluationParams, Places, bootstrap_options, examined, rates

OWN = sections_for(EvaluationParams, PARAMS)


@pytest.fixture
def places(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_world(tmp_path)
    return Places(Path("models/base"), frozenset({"why"}))


def test_the_key_is_of_the_examination_and_not_of_who_is_examined(places):
    tiny_language_model(seed=11).save("models/attacker")
    prompts = tiny_prompts(2)
    untrained, key = examined(None, prompts, OWN, places=places)
    trained, same_key = examined(Path("models/attacker"), prompts, OWN, places=places)
    other = replace(OWN, training_seed=OWN.training_seed + 1)
    _, other_key = examined(None, prompts, other, places=places)

    assert key == same_key != other_key
    assert untrained.figures["kl_nats"] != trained.figures["kl_nats"]
    assert [outcome.success_rate for outcome in trained.outcomes] == rates(trained)
    assert 2 == len(rates(trained))


def test_intervals_are_drawn_as_params_say():
    evaluation = OWN.evaluation.model_copy(update={"num_resamples": 77, "confidence": 0.9})
    other = replace(OWN, evaluation=evaluation, training_seed=5)

    assert {"num_resamples": 77, "confidence": 0.9, "seed": 5} == bootstrap_options(other)
