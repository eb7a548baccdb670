"""A user's own class is found by ``astra`` and by the stages of ``dvc repro`` alike."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from project import environment, make_project, run_in, set_params
from shared import PREPARED, finished_project

MINE = """\
from astra_core.training.trainer import Trainer

class Mine(Trainer):
    def examine(self, evaluator):
        return {**super().examine(evaluator), "eval/mine": float(self.progress.training_step)}
"""


@pytest.mark.real
@pytest.mark.timeout(1800)
def test_a_trainer_of_ones_own_passes_astra_check_and_trains_under_dvc_repro(
    tmp_path, tmp_path_factory
):
    folder = finished_project(tmp_path_factory).copy_after(tmp_path / "project", *PREPARED)
    (folder / "plugins" / "only_here.py").write_text(MINE, encoding="utf-8")
    set_params(folder, "training.trainer.name=plugins.only_here:Mine")
    # As a user starts them: nothing but the working folder leads to plugins/.
    bare = {name: text for name, text in environment(folder).items() if name != "PYTHONPATH"}

    check = (str(Path(sys.executable).with_name("astra")), "check")
    train = (sys.executable, "-m", "dvc", "repro", "--single-item", "training")
    for command in (check, train):
        subprocess.run(command, cwd=folder, env=bare, check=True, capture_output=True, timeout=600)
    trained = json.loads((folder / "reports" / "training.json").read_text("utf-8"))

    assert [0.0, 3.0, 6.0] == [point["eval/mine"] for point in trained["evaluations"]]


SCORER = """\
from astra_core.scorer import Scorer
from . import words

class Mine(Scorer):
    version = "mine"
    def score(self, texts):
        return [float(any(word in text.split() for word in words.BAD)) for text in texts]
"""


@pytest.mark.wide
def test_an_edit_of_a_plug_in_in_any_folder_is_seen_by_a_plain_dvc_repro(tmp_path):
    folder = make_project(tmp_path / "project")
    lab = tmp_path / "lab"
    lab.mkdir()
    (lab / "mine.py").write_text(SCORER, encoding="utf-8")
    words = lab / "words.py"
    words.write_text("BAD = ['zzz']", encoding="utf-8")
    set_params(folder, "system.scorer.name=../lab/mine.py:Mine", "validation.max_prompt_score=1.0")

    def dvc(*arguments):
        return run_in(folder, "-m", "dvc", *arguments).stdout

    dvc("repro", "validation")
    assert "up to date" in dvc("status", "validation")
    words.write_text("BAD = ['zzzz']", encoding="utf-8")
    assert "words.py" in dvc("status", "validation")
    assert "tasks/stage.sh validation" in dvc("repro", "validation")
    assert "up to date" in dvc("status", "validation")

    # A new neighbour of which DVC does not know yet is asked for, with the way out.
    (lab / "more.py").write_text("", encoding="utf-8")
    words.write_text("from . import more; BAD = ['zzzz']", encoding="utf-8")
    refused = run_in(folder, "-m", "dvc", "repro", "validation", check=False)
    assert f"dvc.yaml must name {lab}/more.py, which params.yaml reads" in refused.stderr
    run_in(folder, "-m", "tasks", "--render")
    dvc("repro", "validation")
