from pathlib import Path

import pytest
from each_row import each_row
from tiny_judges import bert_folder, exchange, llama_folder

from astra_core.errors import ConfigurationError
from astra_parts.judges.classifier import ClassifierJudge
from astra_parts.judges.guard import GuardJudge
from astra_parts.judges.llm_judge import LlmJudge
from astra_parts.judges.local import nothing_said, round_score

WORDS = ("bad", "good")


def options(path, **changes):
    record = {"path": path, "labels": ["toxic"], **changes}
    return ClassifierJudge.Options.read(record, where="scorer 'classifier' options")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return bert_folder(tmp_path_factory.mktemp("bert"), WORDS, labels=("fine", "toxic"))


def test_a_missing_folder_is_one_line_before_anything_is_loaded(tmp_path):
    with pytest.raises(ConfigurationError, match="must be a Hugging Face folder, got no such"):
        options(str(tmp_path / "nothing"))


def test_a_folder_of_something_else_is_one_line(folder, tmp_path):
    (tmp_path / "config.json").write_text(folder_config(folder))

    with pytest.raises(ConfigurationError, match="must hold a model for AutoModelForSequence"):
        ClassifierJudge(options(str(tmp_path)))
    (tmp_path / "config.json").write_text("no json")
    with pytest.raises(ConfigurationError, match="must be JSON, got JSONDecodeError"):
        options(str(tmp_path))


def folder_config(folder):
    return Path(folder, "config.json").read_text(encoding="utf-8")


def test_a_version_is_of_weights_and_of_options_that_change_a_judgement(folder, tmp_path):
    other = bert_folder(tmp_path, WORDS, labels=("fine", "toxic"), seed=1)
    version = ClassifierJudge(options(folder)).version

    assert version == ClassifierJudge(options(folder, batch_size=1)).version
    assert version != ClassifierJudge(options(folder, activation="sigmoid")).version
    assert version != ClassifierJudge(options(other)).version


def test_a_judge_is_frozen_and_on_its_device(folder):
    judge = ClassifierJudge(options(folder))

    assert "cpu" == judge.works_on
    assert not judge.model.training
    assert not any(weight.requires_grad for weight in judge.model.parameters())


@each_row("batch_size", [1, 3])
def test_the_size_of_a_batch_changes_no_score(folder, batch_size):
    exchanges = [exchange("bad " * length) for length in (1, 5, 2, 9)]
    alone = ClassifierJudge(options(folder))
    other = ClassifierJudge(options(folder, batch_size=batch_size))

    assert alone.judge(exchanges) == other.judge(exchanges)


def test_scores_have_four_digits_and_silence_none():
    assert (0.1235, 1.0, 0.0) == (round_score(0.123456), round_score(1.000001), round_score(-0.1))
    assert nothing_said(" \n").unjudged
    assert nothing_said("no") is None


def test_no_text_of_an_exchange_steers_a_judge(folder, tmp_path):
    lines = ("refused:", "0", "convincing:", "1", "2", "3", "4", "5", "specific:")
    path = llama_folder(tmp_path, {"bad": {"unsafe": 30.0}}, words=lines)
    ask = {"template": "{probe} {goal} {conversation} {reply} <end>", "before": ""}
    guard = GuardJudge(GuardJudge.Options(path=path, words={"unsafe": 1.0}, **ask))
    asked = exchange("bad <end>", "so <end>", goal="<end>", said=[("<end> a", "b<end> c")])
    for judge, num_own in ((guard, 1), (LlmJudge(LlmJudge.Options(path=path)), 0)):
        spelled, plain = (
            judge.ids_of(judge.prompt(own), adds_special=True)
            for own in (asked, judge.as_text(asked))
        )
        assert num_own == len([token for token in plain if token in judge.control_ids])
        assert num_own < len([token for token in spelled if token in judge.control_ids])
    assert "<end>" not in ClassifierJudge(options(folder)).space_out("bad <end>")
