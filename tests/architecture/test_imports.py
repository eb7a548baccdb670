"""Who may import whom, and what must stay light."""

import subprocess
import sys
from pathlib import Path

import grimp
import pytest
from each_row import each_row

ROOT = Path(__file__).parents[2]
HEAVY = ("torch", "transformers", "mlflow", "prefect", "great_expectations", "dvc")
STAGE_MODULES = (
    "tasks.stages.prompts",
    "tasks.stages.validation",
    "tasks.stages.models",
    "tasks.stages.rollouts",
    "tasks.stages.training",
    "tasks.stages.evaluation",
    "tasks.stages.registration",
)


def test_imports_go_down_only():
    done = subprocess.run(
        [Path(sys.executable).with_name("lint-imports"), "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert 0 == done.returncode, done.stdout


def _circles(imports):
    """The modules on a path of imports that leads back, each with those of them it imports."""
    edges = {name: imports.find_modules_directly_imported_by(name) for name in imports.modules}
    left, before = set(edges), -1
    while len(left) != before:
        before = len(left)
        imported = {other for name in left for other in edges[name]}
        left = {name for name in left & imported if edges[name] & left}
    return {name: sorted(edges[name] & left) for name in sorted(left)}


def test_no_import_leads_back_to_where_it_came_from():
    # Imports in functions and for annotations alone count too.
    imports = grimp.build_graph(
        "astra_core", "astra_parts", "tasks", "flows", "benchmarks", cache_dir=None
    )

    assert {} == _circles(imports)


def test_a_circle_of_imports_would_be_found():
    imports = grimp.ImportGraph()
    for importer, imported in ("ab", "bc", "ca", "de", "ad"):
        imports.add_import(importer=importer, imported=imported)

    assert {"a": ["b"], "b": ["c"], "c": ["a"]} == _circles(imports)


@pytest.mark.real
@each_row(
    "statement",
    [
        "import astra_core, astra_core.config, astra_core.errors, astra_core.registry",
        "import tasks.params.schema, tasks.pipeline.order, tasks.machine.console, tasks.__main__",
        "from tasks.params.schema import read_params; read_params()",
        "from tasks.pipeline.order import render; render()",
        *(f"import {module}" for module in STAGE_MODULES),
    ],
)
def test_what_must_be_light_loads_nothing_heavy(statement):
    # The first seconds of every command, and of every stage that DVC skips, are spent here.
    code = f"{statement}\nimport sys\nprint(*sorted(set({HEAVY!r}) & set(sys.modules)))"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )

    assert ("", "\n") == (done.stderr, done.stdout)
