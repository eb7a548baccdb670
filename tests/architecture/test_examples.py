"""The notebooks in ``examples/``: they run, they were run, and they show what they may."""

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from each_row import each_row

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "examples").glob("*.ipynb"))
# The first one reads what a run of the project has left; tests/end_to_end/test_pipeline.py runs it.
ALONE = [path for path in NOTEBOOKS if path.name[0] != "1"]


def cells(path):
    return json.loads(path.read_text())["cells"]


def code_of(path):
    """The code of a notebook as one script."""
    return "\n".join("".join(cell["source"]) for cell in cells(path) if cell["cell_type"] == "code")


def test_the_pages_begin_with_a_first_run():
    assert ["1_first_run", "2_a_plugin", "3_two_attackers"] == [path.stem for path in NOTEBOOKS]


@each_row("path", NOTEBOOKS)
def test_a_notebook_was_run_from_top_to_bottom(path):
    code = [cell for cell in cells(path) if cell["cell_type"] == "code"]

    assert list(range(1, len(code) + 1)) == [cell["execution_count"] for cell in code]
    assert all(cell["outputs"] for cell in code if "print(" in "".join(cell["source"]))
    for output in (own for cell in code for own in cell["outputs"]):
        assert output["output_type"] != "error"
        assert output.get("name") != "stderr"


@each_row("path", NOTEBOOKS)
def test_a_notebook_names_no_folder_of_a_machine(path):
    text = path.read_text()

    assert not re.search(r"(?<![\w.])/(home|root|tmp|work|Users|var)/", text)
    ast.parse(code_of(path))


@pytest.mark.wide
@pytest.mark.parametrize("path", ALONE, ids=lambda path: path.stem)
def test_a_notebook_runs_from_top_to_bottom(path, tmp_path):
    script = tmp_path / "notebook.py"
    script.write_text(code_of(path))
    done = subprocess.run(
        [sys.executable, script],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "MPLBACKEND": "Agg"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert 0 == done.returncode, done.stderr
    assert done.stdout
