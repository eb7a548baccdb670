import csv
import io
import json
import math
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from memory_store import ADDRESS, emptied, enter_memory_project
from small_world import PARAMS, write_world

from astra_core.config import TrainingConfiguration
from astra_core.engine.logprobs import token_logprobs
from astra_core.errors import GateError
from astra_core.files import file_digest
from astra_core.models.language_model import LanguageModel
from astra_core.models.rows import pad_rows
from astra_core.training.selection.stopping import Best
from astra_core.training.trainer import Trainer
from tasks.params.schema import RegistrationConfiguration, TrackingConfiguration
from tasks.pipeline.stage import sections_for, stage_of
from tasks.stages import rollouts, training

pytestmark = pytest.mark.real  # a stage, or what one serves, on files

HERE = Path(__file__).parents[1]


class Terminal(io.StringIO):
    def isatty(self):
        return True


def run(module, function, params=PARAMS):
    return stage_of(getattr(module, function)).run(params)


@pytest.fixture(scope="module")
def world(memory_folder):
    """Rollouts and training called as plain functions, one after the other."""
    with pytest.MonkeyPatch.context() as patch:
        folder = enter_memory_project(emptied(memory_folder), patch)
        write_world(folder)
        screen = Terminal()
        patch.setattr(sys, "stderr", screen)
        patch.setenv("TERM", "xterm")
        reports = [run(rollouts, "collect_rollouts"), run(training, "train_attacker")]
    (folder / "screen.txt").write_text(screen.getvalue(), "utf-8")
    return folder, reports


def test_the_bar_shows_success_so_far(world):
    folder, _ = world
    shown = (folder / "screen.txt").read_text("utf-8")

    assert re.search(r"training.*success \d+%, about \d+ s left", shown)


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

    client = MlflowClient(ADDRESS)
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
    client = MlflowClient(ADDRESS)
    experiment = client.get_experiment_by_name("red-team-training")
    (found,) = client.search_runs([experiment.experiment_id])
    line = json.loads((folder / "reports/training.json").read_text())["engine"]

    assert line == found.data.tags["astra.engine"]
    assert "reads packed trees; " in line
    assert line.endswith((" thread", " threads"))


def test_another_sink_gets_the_whole_run_and_trains_nothing_again(world, monkeypatch):
    folder, _ = world
    monkeypatch.chdir(folder)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", ADDRESS)
    key = json.loads((folder / "reports/training.json").read_text())["run_key"]
    tracking = TrackingConfiguration.read({"sinks": ["csv"]}, where="tracking")
    params = PARAMS.model_copy(update={"tracking": tracking})
    # The run is over: its figures come from the journal.
    for _ in range(2):
        run(training, "train_attacker", params)
    with (folder / "tracking/csv" / key[:16] / "figures.csv").open() as file:
        rows = list(csv.DictReader(file))
    with (folder / "reports/training_steps.csv").open() as file:
        steps = list(csv.DictReader(file))
    found = {(row["name"], row["step"]): float(row["value"]) for row in rows}

    assert len(rows) == len(found)
    assert key == json.loads((folder / "reports/training.json").read_text())["run_key"]
    for step in steps:
        for name, value in step.items():
            if "/" in name and value:
                assert float(value) == found[name, step["step"]]


def test_another_experiment_is_the_same_run(world, monkeypatch):
    folder, _ = world
    monkeypatch.chdir(folder)
    elsewhere = PARAMS.model_copy(
        update={
            "registration": RegistrationConfiguration(experiment="elsewhere"),
            "tracking": TrackingConfiguration(sinks=()),
        }
    )
    files = training.TrainingFiles()
    one, other = (
        training._run(
            sections_for(training.TrainingParams, params), files, device="cpu", num_processes=1
        )
        for params in (PARAMS, elsewhere)
    )

    assert one.key == other.key == json.loads(files.report.read_text())["run_key"]
    assert not {"registration", "tracking"} & set(stage_of(training.train_attacker).params)


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
        experience = self.harness.experience(0)
        for window in self.windows(experience):
            yield self.update(window, experience)
        self.progress.training_step += 1
        self.progress.stopped_because = "one is enough"


def trained(folder, monkeypatch, **changes):
    """What the training stage returns and reports under other settings, and the weights' digest."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{folder}/mlflow.db")
    settings = {**PARAMS.training.model_dump(), **changes}
    read = TrainingConfiguration.read(settings, where="training")
    summary = run(training, "train_attacker", PARAMS.model_copy(update={"training": read}))
    report = json.loads((folder / "reports/training.json").read_text())
    note = json.loads((folder / "models/attacker/astra.json").read_text())
    assert report["checkpoint_digest"] == note["digest"]
    assert (note["value"], note["kept"]) == (summary.value, report["kept"])
    return summary.summary(), report


def test_a_trainer_of_ones_own_that_never_evaluates_exports_its_last_weights(world, monkeypatch):
    mine = {"name": f"{__name__}:Unexamined", "options": {}}
    line, report = trained(world[0], monkeypatch, trainer=mine)

    assert "the attacker as it was last, not evaluated (step 1 of 1; one is enough)" == line
    assert (None, None, "last", []) == tuple(
        report[name] for name in ("first", "best", "kept", "evaluations")
    )


def test_without_evaluation_the_weights_are_those_that_training_ends_with(world, monkeypatch):
    never, silent = trained(world[0], monkeypatch, evaluate="none")
    _, last = trained(world[0], monkeypatch, keep="last")

    assert "the attacker as it was last, not evaluated (step 3 of 3; all training" in never
    assert ("last", None) == (silent["kept"], silent["best"])
    assert 3 == len(last["evaluations"])
    assert last["checkpoint_digest"] == silent["checkpoint_digest"]


def test_what_is_kept_decides_what_is_exported(world, monkeypatch):
    nearest = {"metric": "eval/kl_nats", "mode": "min"}
    first, best = trained(world[0], monkeypatch, **nearest)
    second, last = trained(world[0], monkeypatch, keep="last", **nearest)

    assert "(step 0 of 3; all training steps are done" in first
    assert "(step 3 of 3; all training steps are done" in second
    assert ("best", "last") == (best["kept"], last["kept"])
    assert best["best"] == last["best"]
    assert best["checkpoint_digest"] != last["checkpoint_digest"]


def test_the_untrained_alone_is_evaluated_and_the_trained_kept(world, monkeypatch):
    line, report = trained(world[0], monkeypatch, evaluate="first")

    assert line.startswith("the attacker as it was last, not evaluated (step 3 of 3; ")
    assert [0] == [point["training_step"] for point in report["evaluations"]]
    assert report["first"]["value"] is not None


def test_a_supervised_trainer_exports_what_it_learned(world, monkeypatch):
    folder, _ = world
    lessons = folder / "lessons.jsonl"
    lessons.write_text('{"prompt": "so they said", "probe": "why now"}\n' * 4)
    solo = {"name": "plugins.lessons:LessonsTrainer", "options": {"path": str(lessons)}}
    changes = {"trainer": solo, "algorithm": {"name": "sft"}, "lr": 1e-2}
    changes["kl"] = {
        "max_per_experience_nats": None
    }  # it leaves its own untrained words far behind
    _, report = trained(folder, monkeypatch, evaluate="none", **changes)
    context = "so they said"
    attackers = [
        LanguageModel.load(folder / name) for name in ("models/base/tiny", "models/attacker")
    ]
    learned = [_nll(attacker, context, "why now") for attacker in attackers]

    assert 3 == report["training_steps"]
    assert learned[1] < learned[0]


def _nll(attacker, prompt, probe):
    """Nats of a written probe after a prompt."""
    context = attacker.opening_ids + attacker.closed_ids(attacker.encode(prompt))
    rows = pad_rows(
        [context], [attacker.closed_ids(attacker.encode(probe))], pad_id=0, device="cpu"
    )
    return -float(token_logprobs(attacker.model, rows).sum())


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


@pytest.mark.wide
def test_a_stage_may_be_killed_at_any_moment_at_which_it_writes(tmp_path):
    found = _killed(tmp_path, stride=37)

    assert 3 <= len(found["signals"])
    # Every output that DVC keeps of the stage, with what lies in its folders.
    owed = {str(path) for path in stage_of(training.train_attacker).products}
    assert owed <= {place for name in found["outputs"] for place in (name, str(Path(name).parent))}
    assert {signal.SIGKILL} == set(found["signals"])
    assert {} == found["wrong"]


def test_no_best_checkpoint_is_written_as_null():
    assert Best(metric="eval/x", mode="max").record()["value"] is None


def test_without_a_signal_no_training_begins(world, monkeypatch):
    folder, _ = world
    monkeypatch.chdir(folder)
    before = file_digest(folder / "models/attacker/model.safetensors")
    asked = PARAMS.training.model_copy(update={"require_signal": True})
    harsh = PARAMS.evaluation.model_copy(update={"threshold": 1.0})
    params = PARAMS.model_copy(update={"training": asked, "evaluation": harsh})

    with pytest.raises(GateError, match=r"that have a signal, got .*; training.require_signal"):
        run(training, "train_attacker", params)
    assert before == file_digest(folder / "models/attacker/model.safetensors")
