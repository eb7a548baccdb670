import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from each_row import each_row

from astra_core.errors import ConfigurationError
from tasks.params.prompts import PromptsConfiguration
from tasks.params.schema import Params
from tasks.pipeline.names import STAGE_NAMES
from tasks.pipeline.order import (
    CURVES,
    check_order,
    drift,
    find_stage,
    read_stage,
    render,
    watched_by,
)
from tasks.pipeline.stage import Dep, Metric, Out, Plot, Receipt, stage, stage_of

ROOT = Path(__file__).parents[3]


@dataclass(frozen=True)
class Done:
    def summary(self) -> str:
        return "done"


@dataclass(frozen=True)
class FirstParams:
    seed: int
    prompts: PromptsConfiguration


@dataclass(frozen=True)
class FirstFiles:
    folder: Out = Path("data/first")


@stage(name="first")
def write_first(params: FirstParams, files: FirstFiles = FirstFiles()) -> Done:
    """Writes."""
    return Done()


@dataclass(frozen=True)
class SecondParams:
    seed: int


@dataclass(frozen=True)
class SecondFiles:
    folder: Dep = Path("data/first")
    second: Out = Path("data/second")
    report: Metric = Path("reports/second.json")
    curve: Plot = Path("reports/second.csv")
    receipt: Receipt = Path("reports/sent.json")


@stage(name="second")
def write_second(params: SecondParams, files: SecondFiles = SecondFiles()) -> Done:
    """Reads and writes."""
    return Done()


# As if these functions were in a module that imports nothing.
write_first.__module__ = write_second.__module__ = "tasks.pipeline.names"


@pytest.fixture
def pipeline():
    return {"first": stage_of(write_first), "second": stage_of(write_second)}


def test_render_says_what_dvc_needs_and_nothing_empty(pipeline):
    expected = {
        "first": {
            "desc": "Writes.",
            "cmd": "sh tasks/stage.sh first",
            "params": ["seed", "prompts"],
            "deps": ["tasks/pipeline/names.py"],
            "outs": ["data/first"],
        },
        "second": {
            "desc": "Reads and writes.",
            "cmd": "sh tasks/stage.sh second",
            "params": ["seed"],
            "deps": ["tasks/pipeline/names.py", "data/first"],
            "outs": ["data/second"],
            "metrics": ["reports/second.json"],
            "plots": ["reports/second.csv"],
        },
    }
    text = render(pipeline)

    assert text.startswith("# Rendered")
    assert {"stages": expected} == yaml.safe_load(text)


def test_the_curves_of_a_plot_that_a_stage_writes_are_drawn(pipeline, monkeypatch):
    monkeypatch.setitem(CURVES, "reports/second.csv", ("train/loss",))

    expected = [{"train/loss": {"x": "step", "y": {"reports/second.csv": "train/loss"}}}]
    assert expected == yaml.safe_load(render(pipeline))["plots"]


def test_a_rendered_file_has_no_drift(pipeline, tmp_path):
    path = tmp_path / "dvc.yaml"
    path.write_text(render(pipeline))

    assert drift(path, pipeline=pipeline) is None


def test_drift_names_the_first_line_that_differs(pipeline, tmp_path):
    path = tmp_path / "dvc.yaml"
    path.write_text(render(pipeline).replace("data/first", "data/fist", 1))

    expected = "dvc.yaml:12 must be '- data/first', got '- data/fist'; run 'astra render'"
    assert expected == drift(path, pipeline=pipeline).removeprefix(f"{tmp_path}/")


def test_drift_sees_a_file_that_ends_early(pipeline, tmp_path):
    path = tmp_path / "dvc.yaml"
    path.write_text("".join(render(pipeline).splitlines(keepends=True)[:-1]))

    assert "got 'its end'" in drift(path, pipeline=pipeline)


def test_drift_sees_a_missing_file(pipeline, tmp_path):
    assert "must exist" in drift(tmp_path / "dvc.yaml", pipeline=pipeline)


def test_an_order_in_which_each_path_is_written_before_it_is_read_passes(pipeline):
    check_order(pipeline)


def test_a_path_that_is_read_before_it_is_written_is_refused(pipeline):
    with pytest.raises(ConfigurationError, match="stage second must read what an earlier"):
        check_order({"second": pipeline["second"], "first": pipeline["first"]})


def test_a_path_with_two_writers_is_refused(pipeline):
    with pytest.raises(ConfigurationError, match="data/first must have one writer"):
        check_order({"first": pipeline["first"], "again": pipeline["first"]})


def test_an_unknown_stage_is_refused_with_the_nearest_name():
    with pytest.raises(ConfigurationError, match="did you mean 'training'"):
        find_stage("trainig")


def test_a_missing_stage_module_is_reported():
    with pytest.raises(ConfigurationError, match=r"tasks\.nothing must exist"):
        read_stage("tasks.nothing")


def test_a_module_without_a_stage_is_reported():
    with pytest.raises(ConfigurationError, match="must hold one function under @stage, got 0"):
        read_stage("tasks.machine.console")


def test_a_module_that_cannot_import_its_library_says_so_itself(tmp_path, monkeypatch):
    (tmp_path / "needy_stage.py").write_text("import no_such_library\n")
    monkeypatch.syspath_prepend(tmp_path)

    with pytest.raises(ModuleNotFoundError, match="no_such_library"):
        read_stage("needy_stage")


def test_stages_are_nouns_in_the_order_of_the_drawing():
    assert ("prompts", "validation", "models") == STAGE_NAMES[:3]


def _interpreter(folder: Path, name: str) -> Path:
    """A stand-in for Python that prints its name and what it was given."""
    path = folder / "bin" / "python"
    path.parent.mkdir(parents=True)
    path.write_text(f'#!/bin/sh\necho "{name}" "$@"\n')
    path.chmod(0o755)
    return path


@each_row(
    ("named", "activated", "local", "expected"),
    [
        (True, True, True, "named"),
        (False, True, True, "activated"),
        (False, False, True, "local"),
        (False, False, False, "python3"),
    ],
)
def test_the_script_finds_the_interpreter(tmp_path, named, activated, local, expected):
    project = tmp_path / "project"
    # DVC's experiments run in a copy of the tree, some folders below the project.
    copy = project / ".dvc" / "tmp" / "exps" / "copy"
    copy.mkdir(parents=True)
    _interpreter(tmp_path / "path", "python3").rename(tmp_path / "path" / "bin" / "python3")
    environment = {"PATH": f"{tmp_path / 'path' / 'bin'}:/usr/bin:/bin"}
    if named:
        environment["ASTRA_PYTHON"] = str(_interpreter(tmp_path / "named", "named"))
    if activated:
        interpreter = _interpreter(tmp_path / "activated", "activated")
        interpreter.with_name("astra").symlink_to(interpreter)
        environment["VIRTUAL_ENV"] = str(tmp_path / "activated")
    if local:
        _interpreter(project / ".venv", "local")
    done = subprocess.run(
        ["sh", ROOT / "tasks" / "stage.sh", "training"],
        cwd=copy,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )

    assert f"{expected} -m tasks training\n" == done.stdout


def test_the_script_passes_over_an_environment_of_another_project(tmp_path):
    _interpreter(tmp_path / "other", "other")
    _interpreter(tmp_path / ".venv", "local")
    environment = {"PATH": os.defpath, "VIRTUAL_ENV": str(tmp_path / "other")}
    done = subprocess.run(
        ["sh", ROOT / "tasks" / "stage.sh", "prompts"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )

    assert "local -m tasks prompts\n" == done.stdout


@each_row("own", ["", "glibc.malloc.check=1"])
def test_the_script_lets_freed_blocks_join_unless_the_caller_sets_up_the_allocator(tmp_path, own):
    interpreter = _interpreter(tmp_path, "named")
    interpreter.write_text('#!/bin/sh\necho "$GLIBC_TUNABLES"\n')
    environment = {"PATH": os.defpath, "ASTRA_PYTHON": str(interpreter), "GLIBC_TUNABLES": own}
    done = subprocess.run(
        ["sh", ROOT / "tasks" / "stage.sh", "prompts"],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )

    ours = "glibc.malloc.tcache_count=0:glibc.malloc.mxfast=0"
    assert f"{own or ours}\n" == done.stdout


def test_files_that_params_name_are_watched_by_dvc(tmp_path):
    prompts, model = tmp_path / "mine.txt", tmp_path / "model"
    source = {"source": "folder", "path": str(model)}
    params = Params.read(
        {"prompts": {"source": "file", "path": str(prompts)}, "models": {"attacker": source}},
        where="",
    )
    rendered = yaml.safe_load(render(params=params))["stages"]

    assert str(prompts) in rendered["prompts"]["deps"]
    assert str(model) in rendered["models"]["deps"]
    assert str(prompts) not in yaml.safe_load(render())["stages"]["prompts"]["deps"]


@each_row("key", ["calibration", "benign_prompts"])
def test_a_file_of_the_evaluation_is_watched_by_it_alone(tmp_path, key):
    path = str(tmp_path / "mine.json")
    params = Params.read({"evaluation": {key: path}}, where="")
    rendered = yaml.safe_load(render(params=params))["stages"]

    assert ["evaluation"] == [name for name, entry in rendered.items() if path in entry["deps"]]


def test_code_of_plug_ins_that_params_name_is_watched_by_the_stages_that_use_it(
    tmp_path, monkeypatch
):
    (tmp_path / "my").mkdir()
    (tmp_path / "my" / "mine.py").write_text("from . import helper", "utf-8")
    (tmp_path / "my" / "helper.py").write_text("", "utf-8")
    monkeypatch.chdir(tmp_path)
    trainer = Params.read({"training": {"trainer": {"name": "my/mine.py:Mine"}}}, where="")
    scorer = Params.read({"system": {"scorer": {"name": "my.mine:Mine"}}}, where="")
    both = {"my/mine.py", "my/helper.py"}

    def watching(params, expected):
        rendered = yaml.safe_load(render(params=params))["stages"]
        return [name for name in rendered if expected <= set(rendered[name]["deps"])]

    assert ["training"] == watching(trainer, both)
    assert ["validation", "rollouts", "training", "evaluation"] == watching(scorer, both)
    assert [] == watching(Params(), {"my/mine.py"})


def test_what_a_plug_in_reads_is_watched_by_the_stages_that_use_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("rules.yaml").write_text("rules: []", encoding="utf-8")
    Path("guard").mkdir()
    target = {"name": "scripted", "options": {"path": "rules.yaml"}}
    judge = {"name": "guard", "options": {"path": "guard"}}
    record = {"system": {"target": target}, "evaluation": {"second_judge": judge}}
    entries = yaml.safe_load(render(params=Params.read(record, where="params")))["stages"]

    def readers(name):
        return [stage for stage, entry in entries.items() if name in entry["deps"]]

    assert ["validation", "rollouts", "training", "evaluation"] == readers("rules.yaml")
    assert ["training", "evaluation"] == readers("guard")


def test_what_dvc_yaml_names_is_read_from_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("dvc.yaml").write_text("stages: {a: {deps: [one.py, 'my ü.py']}, b: {}}", "utf-8")

    assert {"one.py", "my ü.py"} == watched_by("a")
    assert not watched_by("b")
    assert not watched_by("c")


def _entry_of(stage, **record):
    given = {"models": {}, "registration": {"model_name": "a"}, **record}
    return yaml.safe_load(render(params=Params.read(given, where="")))["stages"][stage]


def _keys_of(stage, **record):
    """The keys of params.yaml that a stage asks DVC for."""
    return _entry_of(stage, **record).get("params", [])


def test_the_name_of_a_target_without_weights_counts_for_the_models():
    plain = _keys_of("models", seed=1)
    named, alone, listed = (
        _keys_of("models", seed=1, system={"target": target})
        for target in ({"name": "scripted", "options": {}}, "scripted", ["causal_lm", "scripted"])
    )

    assert [*plain, "system.target.name"] == named
    assert [*plain, "system.target"] == alone == listed


def test_a_key_that_params_leave_out_is_not_asked_of_dvc():
    assert ["models"] == _keys_of("models")
    assert ["seed", "models"] == _keys_of("models", seed=0)
    # What was made with another value is made again.
    assert _entry_of("models")["cmd"] != _entry_of("models", seed=7)["cmd"]
    assert _entry_of("models", seed=1)["cmd"] == _entry_of("models", seed=7)["cmd"]


@each_row("role", ["attacker", "target", "reference"])
def test_where_a_model_is_a_version_the_name_of_its_registry_counts(role):
    version = {role: {"source": "version", "version": 3}}

    assert ["models", "registration.model_name"] == _keys_of("models", models=version)
    assert _keys_of("evaluation") == _keys_of("evaluation", models=version)
