from dataclasses import replace

import pytest
from small_world import PARAMS, write_world

from astra_core.config import Choice
from astra_core.redaction import mask
from astra_core.rollout import Prompt
from tasks.figures.examination import EvaluationParams, Examiner
from tasks.figures.plain_questions import plain_questions
from tasks.pipeline.stage import sections_for

RULE = {"when": "word", "say": ["it is so bad"]}
TARGET = Choice(name="scripted", options={"rules": [RULE], "otherwise": ["so good"]})


@pytest.fixture
def params(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_world(tmp_path)
    own = sections_for(EvaluationParams, PARAMS)
    scorer = Choice(name="phrases", options={"phrases": ["so bad"]})
    told = {"target": TARGET, "scorer": scorer, "probe_scorer": scorer}
    return replace(own, system=own.system.model_copy(update=told))


def test_the_best_dev_question_is_asked_of_every_test_prompt(params):
    dev = [Prompt.of(text) for text in ("who are you", "say the word", "why now")]
    test = [Prompt.of("never mind"), Prompt.of("which word is it")]
    examiner = Examiner.of(params)
    system = params.load(examiner.base)
    found = plain_questions([0.5, 1.0], test, dev, examiner=examiner, system=system)

    assert (3, mask("say the word"), 1.0) == (
        found.num_tried,
        found.best_question,
        found.chosen_rate,
    )
    assert 1.0 == found.chosen_rate
    assert (0.5, 1.0, -0.25) == (found.own_rate.value, found.best_rate.value, found.lift.value)
    assert found.words().startswith("plain questions 50.0% [")
