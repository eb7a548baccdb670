import csv
import json
import math
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from small_world import PARAMS, write_world

from astra_core.config import Choice
from astra_core.errors import TrainingError
from astra_core.models.language_model import LanguageModel
from astra_core.training.stopping import Best
from astra_core.training.trainer import Trainer
from tasks.params.schema import RegistrationConfiguration
from tasks.pipeline.stage import sections_for, stage_of
from tasks.stages import rollouts, training

HERE = Path(__file__).parents[1]


def run(module, function, params=PARAMS):
    return stage_of(getattr(module, function)).run(params)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Rollouts and training called as plain functions, one after the other."""
    folder = tmp_path_factory.mktemp("world")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{folder}/mlflow.db")
        write_world(folder)
        reports = [
            run(rollouts, "collect_rollouts"),
            run(training, "train_attacker"),
        ]
    return folder, reports


def test_every_stage_says_what_it_did_in_one_line(world):
    _, reports = world

    assert all(len(report.summary().splitlines()) == 1 for report in reports)


def test_the_exported_attacker_loads_and_names_its_run(world):
    folder, _ = world
    note = json.loads((folder / "models/attacker/astra.json").read_text())
    report = json.loads((folder / "reports/training.json").read_text())

    assert LanguageModel.load(folder / "models/attacker").num_parameters > 0
    assert report["run_key"] == note["run_key"]
    assert report["checkpoint_digest"] == note["digest"]
    assert math.isfinite(note["value"])


def test_the_step_table_has_the_untrained_attacker_and_every_update(world):
    folder, _ = world
    with (folder / "reports/training_steps.csv").open() as file:
        rows = list(csv.DictReader(file))
    report = json.loads((folder / "reports/training.json").read_text())

    assert [str(step) for step in range(report["optimizer_steps"] + 1)] == [r["step"] for r in rows]
    assert rows[0]["eval/attack_success_rate"]
    assert rows[-1]["eval/attack_success_rate"]
    assert rows[1]["train/loss"]


def test_metrics_reach_the_tracker_while_training(world):
    from mlflow import MlflowClient

    folder, _ = world
    client = MlflowClient(f"sqlite:///{folder}/mlflow.db")
    experiment = client.get_experiment_by_name("red-team-training")
    (found,) = client.search_runs([experiment.experiment_id])

    assert "FINISHED" == found.info.status
    metrics = found.data.metrics
    assert {"train/loss", "eval/attack_success_rate", "time/rollout_s"} <= set(metrics)
    # An interpreter with torch and the models in it.
    assert metrics["memory/peak_mib"] > 100
    assert "3" == found.data.params["training.training_steps"]


def test_the_report_and_the_tracker_say_how_the_models_were_run(world):
    from mlflow import MlflowClient

    folder, _ = world
    client = MlflowClient(f"sqlite:///{folder}/mlflow.db")
    experiment = client.get_experiment_by_name("red-team-training")
    (found,) = client.search_runs([experiment.experiment_id])
    line = json.loads((folder / "reports/training.json").read_text())["engine"]

    assert line == found.data.tags["astra.engine"]
    assert "reads packed trees; " in line
    assert line.endswith((" thread", " threads"))


def test_an_edited_plugin_is_another_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_world(tmp_path)
    rollouts_file = tmp_path / "data/rollouts/rollouts.parquet"
    rollouts_file.parent.mkdir(parents=True)
    rollouts_file.write_bytes(b"")
    files = training.TrainingFiles()
    keys = [training._run_key({}, files)]
    for text in ("a = 1", "a = 1", "a = 2"):
        (tmp_path / "plugins").mkdir(exist_ok=True)
        (tmp_path / "plugins" / "mine.py").write_text(text, encoding="utf-8")
        keys.append(training._run_key({}, files))

    assert keys[1] == keys[2]
    assert 3 == len(set(keys))


def test_another_experiment_is_the_same_run(world, monkeypatch):
    folder, _ = world
    monkeypatch.chdir(folder)
    elsewhere = PARAMS.model_copy(
        update={"registration": RegistrationConfiguration(experiment="elsewhere")}
    )
    files = training.TrainingFiles()
    one, other = (
        training._run(
            sections_for(training.TrainingParams, params), files, device="cpu", num_processes=1
        )
        for params in (PARAMS, elsewhere)
    )

    assert one.key == other.key == json.loads(files.report.read_text())["run_key"]
    assert ("red-team-training", "elsewhere") == (one.experiment, other.experiment)
    assert "registration" not in stage_of(training.train_attacker).params


def test_another_number_of_processes_is_another_run(world, monkeypatch):
    folder, _ = world
    monkeypatch.chdir(folder)
    params = sections_for(training.TrainingParams, PARAMS)
    files = training.TrainingFiles()
    keys = {
        training._run(params, files, device=device, num_processes=count).key
        for device, count in (("cpu", 1), ("cpu", 2), ("cuda", 1))
    }

    assert 3 == len(keys)


class Unexamined(Trainer):
    """A loop that never evaluates."""

    def steps(self):
        yield from ()


def test_a_trainer_that_never_examines_is_told_so(world, monkeypatch):
    folder, _ = world
    monkeypatch.chdir(folder)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{folder}/mlflow.db")
    trainer = Choice(name=f"{__name__}:Unexamined")
    params = PARAMS.model_copy(
        update={"training": PARAMS.training.model_copy(update={"trainer": trainer})}
    )

    with pytest.raises(TrainingError, match="must examine the attacker at least once, got no eval"):
        run(training, "train_attacker", params)


def _killed(folder, *, stride):
    """What ``killed_stage.py`` reports."""
    paths = [str(HERE.parents[1]), str(HERE)]
    settings = {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, str(HERE / "killed_stage.py"), str(folder), str(stride)],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, **settings, "MLFLOW_DISABLE_TELEMETRY": "true"},
    )
    return json.loads(done.stdout)


def _check_killed(found):
    # Every output that DVC keeps of the stage, with what lies in its folders.
    owed = {str(path) for path in stage_of(training.train_attacker).products}
    assert owed <= {place for name in found["outputs"] for place in (name, str(Path(name).parent))}
    assert {signal.SIGKILL} == set(found["signals"])
    assert {} == found["wrong"]


def test_a_stage_that_is_killed_leaves_the_outputs_of_one_that_was_not(tmp_path):
    found = _killed(tmp_path, stride=75)

    assert 3 <= len(found["signals"])
    _check_killed(found)


@pytest.mark.slow
def test_a_stage_may_be_killed_at_any_moment_at_which_it_writes(tmp_path):
    _check_killed(_killed(tmp_path, stride=17))


def test_no_best_checkpoint_is_written_as_null():
    assert Best(metric="eval/x", mode="max").record()["value"] is None
