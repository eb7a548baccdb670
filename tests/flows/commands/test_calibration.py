import json
import shutil
from pathlib import Path

import pytest

from astra_core.config import Choice
from astra_core.errors import ConfigurationError
from flows.cli import run_command
from flows.commands.calibration import chosen_judge, named_columns
from tasks.params.schema import read_params

ROOT = Path(__file__).parents[3]


@pytest.fixture
def project(tmp_path, monkeypatch, restored):
    shutil.copy(ROOT / "params.yaml", tmp_path)
    monkeypatch.chdir(tmp_path)
    rows = [("damn fool", 1), ("you stupid ass", 1), ("nice day", 0), ("a damn train", 0)]
    lines = [json.dumps({"answer": text, "label": label}) for text, label in rows]
    (tmp_path / "labelled.jsonl").write_text("\n".join(lines))
    return tmp_path


COMMAND = (
    "judge-check",
    "labelled.jsonl",
    "--judge",
    "profanity",
    "--column",
    "reply=answer",
    "--json",
)


@pytest.mark.real
def test_the_command_calibrates_the_judge_at_the_threshold_of_params(project, capsys):
    assert 0 == run_command(COMMAND)
    found = json.loads(capsys.readouterr().out)

    assert (0.5, 0.95) == (found["threshold"], found["confidence"])
    assert {"true_positives": 2, "false_negatives": 0} | {
        "true_negatives": 1,
        "false_positives": 1,
    } == found["confusion"]
    assert Path(found["report"]).is_file()


@pytest.mark.real
def test_labels_and_groups_are_those_of_the_file(project, capsys):
    rows = [("damn fool", "bad", "a"), ("nice", "worse", "b"), ("nice day", "fine", "b")]
    lines = [f"{text},{label},{model}" for text, label, model in rows]
    Path("labelled.csv").write_text("\n".join(["reply,label,model", *lines]))
    labels = ("--bad", "bad", "--bad", "worse", "--by", "model", "--json")
    assert 0 == run_command(("judge-check", "labelled.csv", "--judge", "profanity", *labels))
    found = json.loads(capsys.readouterr().out)

    assert (2, ["model"]) == (found["labelled"]["num_bad"], found["by"])
    # Of one label there is no agreement beyond chance.
    assert {"model: a": (1.0, 1.0, None), "model: b": (0.5, 0.0, 0.0)} == {
        name: tuple(own[figure]["value"] for figure in ("accuracy", "sensitivity", "kappa"))
        for name, own in found["categories"].items()
    }


@pytest.mark.real
def test_another_threshold_may_be_asked_for(project, capsys):
    assert 0 == run_command((*COMMAND, "--threshold", "1"))
    found = json.loads(capsys.readouterr().out)

    assert 1.0 == found["threshold"]
    assert 0 == found["confusion"]["true_positives"]


@pytest.mark.real
def test_mistakes_are_masked_unless_they_are_asked_for(project, capsys):
    said = {}
    for option in ((), ("--reveal",)):
        assert 0 == run_command((*COMMAND[:-1], *option))
        said[option] = capsys.readouterr().out

    assert "a damn train" in said[("--reveal",)]
    assert "damn" not in said[()]


def test_a_mistake_in_the_file_is_one_line_with_its_number(project, capfd):
    with (project / "labelled.jsonl").open("a") as file:
        file.write('\n{"answer": "secret", "label": "maybe"}')
    assert 2 == run_command(COMMAND)
    (told,) = capfd.readouterr().err.splitlines()

    assert told.startswith("error: labelled.jsonl line 5 must hold 0, 1, true or false in 'label'")
    assert "secret" not in told


def test_the_judge_is_a_name_a_file_or_that_of_params(project):
    Path("judge.yaml").write_text("name: phrases\noptions: {phrases: [damn]}\n")
    params = read_params()

    assert params.system.scorer == chosen_judge("null", params)
    assert Choice(name="phrases") == chosen_judge("phrases", params)
    assert Choice(name="phrases", options={"phrases": ["damn"]}) == chosen_judge(
        "judge.yaml", params
    )
    assert "plugins/mine.py:Judge" == chosen_judge("plugins/mine.py:Judge", params).name
    Path("judge.yaml").write_text("title: phrases\n")
    with pytest.raises(ConfigurationError, match=r"judge\.yaml"):
        chosen_judge("judge.yaml", params)


def test_columns_are_named_one_by_one():
    found = named_columns(["reply=answer", "label=is bad"])

    assert ("answer", "is bad", "probe") == (found.reply, found.label, found.probe)
    for wrong in ("reply", "reply=", "answer=reply"):
        with pytest.raises(ConfigurationError, match="--column must read NAME=COLUMN"):
            named_columns([wrong])
