from itertools import product
from pathlib import Path

import pytest
from each_row import each_row
from small_world import PARAMS, write_world

from astra_core.config import Choice, TransferConfiguration
from astra_core.registry import BASES
from tasks.params.schema import Params
from tasks.pipeline.order import outside_inputs, stages
from tasks.pipeline.stage import plain_sections, sections_for
from tasks.pipeline.training_run import RUNS, TrainingInputs, TrainingRun, run_key
from tasks.stages.training import TrainingParams

STAGES = stages()
INPUTS = TrainingInputs(Path("data/valid"), Path("models/base"), Path("data/rollouts"))


@pytest.fixture
def project(tmp_path, monkeypatch):
    """What the stages before the training leave; the rollouts are not read here."""
    monkeypatch.chdir(tmp_path)
    write_world(tmp_path)
    rollouts_file = tmp_path / "data/rollouts/rollouts.parquet"
    rollouts_file.parent.mkdir(parents=True)
    rollouts_file.write_bytes(b"")
    return tmp_path


def run_of(params):
    sections = plain_sections(sections_for(TrainingParams, params))
    return TrainingRun.of(sections, INPUTS)


def changed(section, **values):
    """The parameters with other values in one section."""
    own = getattr(PARAMS, section).model_copy(update=values)
    return PARAMS.model_copy(update={section: own})


def test_an_edited_plugin_is_another_run(project):
    keys = [run_key({}, INPUTS)]
    for text in ("a = 1", "a = 1", "a = 2"):
        (project / "plugins").mkdir(exist_ok=True)
        (project / "plugins" / "mine.py").write_text(text, encoding="utf-8")
        keys.append(run_key({}, INPUTS))

    assert keys[1] == keys[2]
    assert 3 == len(set(keys))


def test_a_module_that_is_being_compiled_is_the_same_run(project):
    """Python writes beside and renames: another process may be at it at any time."""
    compiled = project / "plugins" / "__pycache__"
    compiled.mkdir(parents=True)
    keys = [run_key({}, INPUTS)]
    for name in ("mine.cpython-311.pyc.139872", "mine.cpython-311.pyc"):
        (compiled / name).write_bytes(b"half")
        keys.append(run_key({}, INPUTS))

    assert 1 == len(set(keys))


# Where params.yaml names each kind of plug-in, and the stages that use it. An executor and a sink
# change no result, so an edit of theirs makes nothing run again.
PLACES = {
    "algorithm": ("training.algorithm", ["training"]),
    "optimizer": ("training.optimizer", ["training"]),
    "reward": ("reward", ["rollouts", "training"]),
    "sampler": ("rollouts.sampler", ["rollouts", "training"]),
    "schedule": ("training.schedule", ["training"]),
    "scorer": ("system.scorer", ["validation", "rollouts", "training", "evaluation"]),
    "target": ("system.target", ["rollouts", "training", "evaluation"]),
    "term": ("reward.options.terms.own", ["rollouts", "training"]),
    "trainer": ("training.trainer", ["training"]),
}


def naming(name, path):
    """The parameters with a plug-in of one's own at a path of keys."""
    record = PARAMS.model_dump(mode="json")
    own = record
    for key in path.split("."):
        own = own.setdefault(key, {})
    own["name"] = name
    return Params.read(record, where="params.yaml")


@pytest.mark.real
@each_row(
    "kind, name",
    product(sorted(set(BASES) - {"executor", "sink"}), ["my/mine.py:Mine", "my.mine:Mine"]),
)
def test_an_edit_of_a_plugin_of_any_kind_or_its_neighbour_is_another_run(project, kind, name):
    (path, used_by), folder = PLACES[kind], project / "my"
    params = naming(name, path)
    folder.mkdir(exist_ok=True)
    keys = []
    for mine, helper in ((1, 1), (1, 1), (2, 1), (2, 2)):
        (folder / "mine.py").write_text(f"from .helper import a; b = {mine}", "utf-8")
        (folder / "helper.py").write_text(f"a = {helper}", "utf-8")
        keys.append(run_of(params).key)

    assert (keys[0], 3) == (keys[1], len(set(keys)))
    for stage in used_by:
        assert {"my/mine.py", "my/helper.py"} == set(
            map(str, outside_inputs(STAGES[stage], params))
        )


def test_what_only_the_evaluation_asks_is_asked_after_the_training(project):
    asked = {
        "ask_prompts": True,
        "bandit_calls": 7,
        "benign_prompts": Path("my/benign.csv"),
        "calibration": Path("my/calibration.json"),
        "num_examples": 2,
        "num_prompts": 7,
        "rarefied_to": 9,
        "second_judge": Choice(name="profanity"),
        "second_threshold": 0.7,
        "strategy_calls": 8,
        "transfer": {"a number": TransferConfiguration(columns={"secret": "7306"})},
    }
    keys = {run_of(changed("evaluation", **{name: value})).key for name, value in asked.items()}

    assert {run_of(PARAMS).key} == keys


def test_more_steps_are_another_run_of_the_same_updates(project):
    run, longer = run_of(PARAMS), run_of(changed("training", training_steps=99))

    assert run.key != longer.key
    assert run.updates_key == longer.updates_key != run_of(changed("training", lr=0.1)).updates_key
    assert RUNS / run.key[:16] == run.folder
