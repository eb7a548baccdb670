import json
import os

import pytest
import torch
from small_world import PARAMS, write_world

from astra_core.config import MachineConfiguration, SystemConfiguration
from tasks.params.schema import Params, RunTraining
from tasks.pipeline.boundary import run_stage
from tasks.pipeline.precision import FILE, KEY, advise, remember, with_remembered
from tasks.pipeline.stage import stage_of
from tasks.stages import evaluation, rollouts, training


@pytest.fixture
def without_units(monkeypatch):
    """A processor that imitates products of bf16, and a process that has said nothing yet."""
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    monkeypatch.setenv("ASTRA_PRECISION_TOLD", "")
    monkeypatch.delenv("ASTRA_PRECISION_TOLD")


def asking(system="fp32", training_precision="fp32", device="cpu"):
    return Params(
        machine=MachineConfiguration(device=device),
        system=SystemConfiguration(precision=system),
        training=RunTraining(precision=training_precision),
    )


@pytest.mark.parametrize(
    ("params", "named"),
    [
        (asking("bf16"), "system.precision should"),
        (asking("fp32", "bf16"), "training.precision should"),
        (asking("bf16", "bf16"), "system.precision and training.precision should"),
    ],
)
def test_bf16_without_units_is_reported_in_one_line_and_once(without_units, capsys, params, named):
    advise(params)
    advise(params)

    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"warning: {named} be fp32 or auto here, got bf16")
    # Processes that are started from here need not say it again.
    assert "1" == os.environ["ASTRA_PRECISION_TOLD"]


@pytest.mark.parametrize("params", [asking(), asking("auto", "auto"), asking("fp32", "auto")])
def test_other_precisions_are_not_worth_a_word(without_units, capsys, params):
    advise(params)

    assert "" == capsys.readouterr().err


def test_with_units_nothing_is_said(without_units, monkeypatch, capsys):
    monkeypatch.delenv("ONEDNN_MAX_CPU_ISA")
    monkeypatch.setattr(torch.cpu, "_is_avx512_supported", lambda: True)
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: True)
    advise(asking("bf16", "bf16"))

    assert "" == capsys.readouterr().err


def test_a_stage_says_it_before_its_models_work(without_units, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "params.yaml").write_text("system: {precision: bf16}\n")
    # The stage ends at once: what it reads is not there.
    assert 2 == run_stage("rollouts")

    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith("warning: system.precision")
    assert second.startswith("error: stage rollouts must find")


def test_what_was_settled_is_remembered(tmp_path):
    auto = SystemConfiguration(precision="auto")
    remember(SystemConfiguration(precision="bf16"), tmp_path)

    assert "bf16" == with_remembered(auto, tmp_path / FILE).precision
    asked = SystemConfiguration(precision="fp32")
    assert "fp32" == with_remembered(asked, tmp_path / FILE).precision
    assert auto == with_remembered(auto, tmp_path / "none.json")


@pytest.mark.real
@pytest.mark.parametrize("settled", ["fp32", "bf16"])
def test_the_stages_of_a_run_share_the_choice_and_record_it(tmp_path, monkeypatch, settled):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    write_world(tmp_path)
    params = PARAMS.model_copy(
        update={
            "system": PARAMS.system.model_copy(update={"precision": "auto"}),
            "training": PARAMS.training.model_copy(
                update={"precision": "auto", "training_steps": 1}
            ),
        }
    )
    stage_of(rollouts.collect_rollouts).run(params)
    report = json.loads((tmp_path / "reports/rollouts.json").read_text())
    note = tmp_path / "data/rollouts" / FILE
    assert json.loads(note.read_text()) == {KEY: report[KEY]}

    # Whatever this machine's trial said, the later stages take what is written.
    note.write_text(json.dumps({KEY: settled}))
    stage_of(training.train_attacker).run(params)
    trained = json.loads((tmp_path / "reports/training.json").read_text())
    attacker = json.loads((tmp_path / "models/attacker/astra.json").read_text())

    assert settled == trained[KEY] == attacker[KEY]
    assert trained["training_precision"] in {"fp32", "bf16"}
    stage_of(evaluation.evaluate_attacker).run(params)
    found = json.loads((tmp_path / "reports/evaluation.json").read_text())
    said = params.model_copy(
        update={"system": params.system.model_copy(update={"precision": settled})}
    )
    record, _ = evaluation.evaluate_checkpoint(tmp_path / "models/attacker", said)
    assert record["evaluation_key"] == found["evaluation_key"]
