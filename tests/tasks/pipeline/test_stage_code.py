import subprocess
import sys
from pathlib import Path

import pytest
from each_row import each_row

from tasks.pipeline.names import STAGE_NAMES
from tasks.pipeline.order import find_stage
from tasks.pipeline.stage_code import ROOT, _is_data, code_of
from tasks.pipeline.workspace import copy_project

RUN_KEY = """\
from pathlib import Path
from tasks.pipeline.training_run import code_digests
print(code_digests({"training": {}}))
"""


def is_watched(stage, path):
    return any(Path(path).is_relative_to(code) for code in find_stage(stage).code)


@each_row(
    "path, watching",
    [
        ("astra_parts/testing/tiny.py", []),
        ("astra_parts/testing/contracts/judge.py", []),
        ("astra_parts/executors/on_ray.py", []),
        ("astra_parts/sinks/csv_file.py", []),
        ("tasks/machine/console.py", []),
        ("tasks/tracking/sinks.py", []),
        ("tasks/pipeline/reproduction.py", []),
        ("tasks/serving/fine_tuning/worker.py", []),
        ("tasks/params/yaml_files.py", STAGE_NAMES),
        ("astra_core/files.py", STAGE_NAMES),
        ("tasks/sources/text_files.py", ["prompts", "evaluation"]),
        ("astra_core/models/lora.py", ["validation", "rollouts", "training", "evaluation"]),
        ("tasks/expectations/templates/collapse.j2", ["validation", "rollouts", "evaluation"]),
        # By name, where a section that decides the result names this kind.
        ("astra_parts/judges/regex.py", ["validation", "rollouts", "training", "evaluation"]),
        ("astra_core/rewards/known_words.py", ["rollouts", "training", "evaluation"]),
        ("astra_parts/algorithms/trajectory_balance.py", ["training"]),
        ("astra_parts/services/text_trainer.py", ["training"]),
        ("plugins/lessons.py", ["validation", "rollouts", "training", "evaluation"]),
        # Inside of a function, of the stage or of what it imports.
        ("astra_core/training/driving.py", ["training"]),
        ("tasks/report/templates/report.md.j2", ["registration"]),
        ("tasks/serving/attacker_pyfunc.py", ["models", "registration"]),
        *((f"tasks/stages/{name}.py", [name]) for name in ("prompts", "training", "evaluation")),
    ],
)
def test_an_edit_makes_the_stages_run_again_that_execute_the_file_and_no_other(path, watching):
    assert (ROOT / path).is_file()
    found = [name for name in STAGE_NAMES if is_watched(name, path)]

    assert set(watching) == set(found)


def test_a_folder_stands_for_all_of_its_sources_and_a_bare_package_is_none():
    code = code_of("tasks.stages.prompts", ())

    assert "astra_core/settings" in code
    assert "tasks/stages/prompts.py" in code
    assert "tasks/__init__.py" not in code


def test_a_folder_that_only_compiled_modules_are_left_in_is_no_code(tmp_path):
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "gone.cpython-311.pyc").touch()

    assert not _is_data(tmp_path)
    (tmp_path / "page.j2").touch()
    assert _is_data(tmp_path)


def test_a_module_outside_of_the_packages_has_no_code():
    assert not code_of("json.decoder", ("system",))


@pytest.mark.real
def test_a_run_is_another_one_after_an_edit_of_what_the_training_executes(tmp_path):
    copy_project(ROOT, tmp_path)
    found = []
    for path in (None, "astra_parts/testing/tiny.py", "astra_core/algorithms/dpo.py"):
        if path:
            file = tmp_path / path
            file.write_text(file.read_text("utf-8") + "# edited\n", "utf-8")
        command = [sys.executable, "-c", RUN_KEY]
        found.append(subprocess.check_output(command, cwd=tmp_path, text=True))

    assert found[0] == found[1] != found[2]
