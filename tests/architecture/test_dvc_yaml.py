"""dvc.yaml says what the signatures say, and a stage runs again when code it runs was edited."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from each_row import each_row

from tasks.params.schema import read_params
from tasks.pipeline.names import STAGE_NAMES
from tasks.pipeline.order import drift, find_stage, stages

ROOT = Path(__file__).parents[2]
# How a stage is run and shown, not what it computes; params.yaml names every value that it reads,
# and a test holds it to that.
PLUMBING = {
    "astra_core",
    "astra_core.config",
    "astra_core.errors",
    "astra_core.errors.exception_text",
    "astra_core.errors.packages",
    "astra_core.extensions.calls",
    "astra_core.extensions.plugin_class",
    "astra_core.files",
    "astra_core.redaction",
    "astra_core.registry",
    "astra_core.settings.agents",
    "astra_core.settings.sections",
    "tasks",
    "tasks.machine.console",
    "tasks.params.models",
    "tasks.params.prompts",
    "tasks.params.schema",
    "tasks.tracking.lineage.provenance",
    "tasks.pipeline.stage",
    "tasks.tracking.errors",
    "tasks.tracking.runs",
    "tasks.tracking.sinks",
    "tasks.tracking.store",
    "tasks.tracking.values",
}
# What the models stage imports only to read a name, to prove that weights load or to find a version
# whose digest it checks: an edit there must not train the built-in model again, the base of all.
LOADED_ONLY = {
    "models": {
        "astra_core.rollout.metadata",
        "astra_core.models.decoding",
        "astra_core.models.rows",
        "astra_core.rollout",
        "astra_core.rollout.graph",
        "astra_core.rollout.prompt",
        "astra_core.rollout.turn",
        "astra_core.seeding",
        "tasks.machine.scratch",
        "tasks.records.receipt",
        "tasks.records.reports",
        "tasks.tracking.registry.registered",
        "tasks.tracking.database.store_check",
        "tasks.tracking.registry.versions",
    }
}


def test_dvc_yaml_is_what_the_signatures_say():
    assert drift(ROOT / "dvc.yaml", params=read_params(ROOT / "params.yaml")) is None


def test_the_stages_are_in_the_order_of_the_drawing():
    assert list(STAGE_NAMES) == list(stages())


@each_row("name", STAGE_NAMES)
def test_the_code_of_a_stage_exists(name):
    missing = [path for path in find_stage(name).code if not (ROOT / path).exists()]

    assert [] == missing


@pytest.fixture(scope="session")
def imports():
    """The import graph of the packages."""
    import grimp

    return grimp.build_graph(
        "astra_core", "tasks", exclude_type_checking_imports=True, cache_dir=None
    )


@each_row("name", STAGE_NAMES)
def test_the_code_of_a_stage_covers_what_it_imports(name, imports):
    listed = tuple(ROOT / path for path in find_stage(name).code)
    reached = set(_reached(name, imports)) - LOADED_ONLY.get(name, set())
    needed = {_file(module) for module in reached}
    unlisted = [path for path in needed if not any(path.is_relative_to(code) for code in listed)]

    assert [] == sorted(str(path.relative_to(ROOT)) for path in unlisted)


@each_row("name", ["training", "rollouts", "models", "prompts", "validation"])
def test_an_edit_of_a_later_stage_does_not_run_an_earlier_one_again(name):
    later = STAGE_NAMES[STAGE_NAMES.index(name) + 1 :]
    listed = find_stage(name).code

    assert [] == [
        f"tasks/stages/{stage}.py" for stage in later if f"tasks/stages/{stage}.py" in listed
    ]
    assert "tasks" not in listed


def _reached(name: str, imports) -> Iterator[str]:
    """The stage's module and what it imports, directly or not.

    Neither through the plumbing, nor through an earlier stage: an edit of that runs it again.
    """
    earlier = {f"tasks.stages.{stage}" for stage in STAGE_NAMES[: STAGE_NAMES.index(name)]}
    seen, waiting = set(), [f"tasks.stages.{name}"]
    while waiting:
        current = waiting.pop()
        if current in seen or current in PLUMBING | earlier:
            continue
        seen.add(current)
        waiting.extend(imports.find_modules_directly_imported_by(current))
    yield from seen


def _file(module: str) -> Path:
    path = ROOT.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


@pytest.mark.real
def test_the_command_finds_no_drift():
    done = subprocess.run(
        [sys.executable, "-m", "tasks", "--render", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )

    assert (0, "") == (done.returncode, done.stderr)
