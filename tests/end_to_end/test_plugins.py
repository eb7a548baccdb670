"""A part of one's own is the same part, whoever starts the stages."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from project import environment, make_project, set_params

MINE = """\
from astra_core.training.trainer import Trainer

class Mine(Trainer):
    def examine(self, evaluator):
        return {**super().examine(evaluator), "eval/mine": float(self.progress.training_step)}
"""


@pytest.mark.slow
def test_a_trainer_of_ones_own_trains_under_astra_run_and_dvc_repro(tmp_path):
    folder = make_project(tmp_path / "project")
    (folder / "plugins" / "only_here.py").write_text(MINE, encoding="utf-8")
    set_params(folder, "training.trainer.name=plugins.only_here:Mine")
    # As a user starts them: nothing but the working folder leads to plugins/.
    bare = {name: text for name, text in environment(folder).items() if name != "PYTHONPATH"}

    def trained(*command):
        subprocess.run(command, cwd=folder, env=bare, check=True, capture_output=True, timeout=600)
        return json.loads((folder / "reports" / "training.json").read_text("utf-8"))

    ran = trained(str(Path(sys.executable).with_name("astra")), "run")
    # Trained anew, from the same prompts, models and rollouts.
    shutil.rmtree(folder / "runs")
    (folder / "reports" / "training.json").unlink()
    reproduced = trained(
        sys.executable, "-m", "dvc", "repro", "--force", "--single-item", "training"
    )

    assert [0.0, 3.0, 6.0] == [point["eval/mine"] for point in ran["evaluations"]]
    assert ran == reproduced
