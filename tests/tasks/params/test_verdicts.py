import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from each_row import each_row

from astra_core.errors import ConfigurationError
from tasks.params import checks
from tasks.params.checks import check_params
from tasks.params.overlay import owner_of
from tasks.params.schema import Params, read_record
from tasks.params.verdicts import FILE, _code_digest, is_known, remember, verdict_key

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def _project(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    shutil.copy(ROOT / "params.yaml", tmp_path)


def params_with(**changes):
    record = read_record()
    for key, value in changes.items():
        owner, last = owner_of(record, key)
        owner[last] = value
    return Params.read(record, where="")


def test_what_passed_is_not_checked_again(monkeypatch):
    check_params(params_with(), is_kept=True)
    monkeypatch.setattr(checks, "_check_all", lambda _: pytest.fail("checked again"))

    check_params(params_with())
    with pytest.raises(pytest.fail.Exception, match="checked again"):
        check_params(params_with(**{"training.lr": 1e-5}))


def test_who_only_asks_changes_nothing():
    check_params(params_with())

    assert not FILE.exists()


@pytest.mark.real
def test_a_second_check_loads_no_torch():
    program = (
        "import sys; from tasks.params.checks import check_params as check; "
        "from tasks.params.schema import read_params as read; check(read(), is_kept=True); "
        "print('torch' in sys.modules)"
    )
    loaded = [
        subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for _ in range(2)
    ]

    assert ["True", "False"] == loaded


def test_what_is_refused_is_not_remembered():
    wrong = params_with(**{"system.scorer.name": "profanty"})
    for _ in range(2):
        with pytest.raises(ConfigurationError, match="did you mean"):
            check_params(wrong, is_kept=True)

    assert not FILE.exists()


@each_row(
    "changes",
    [
        {"system.scorer.name": "plugins.example_scorer:OwnScorer"},
        {"system.scorer.name": "my plugins/scorer.py:OwnScorer"},
        {"models.reference": {"source": "version", "version": "champion"}},
        {"system.target": {"name": "scripted", "options": {}}},
        {"machine.device": "cuda"},
        {"tracking.sinks": ["mlflow", "csv"]},
        {"system.target.options": {"base_url": "http://127.0.0.1:8001/v1"}},
    ],
)
def test_where_more_than_the_parameters_decides_all_is_checked(changes):
    assert verdict_key(params_with(**changes)) is None


def test_a_named_file_that_changed_is_looked_at():
    params = params_with(
        **{
            "prompts": {"source": "file", "path": "mine.txt"},
            "models.attacker": {"source": "folder", "path": "my/attacker"},
            "system.target.options": {"system_prompt": "User: what is it?"},
        }
    )
    keys = [verdict_key(params)]
    folder = Path("my/attacker")
    folder.mkdir(parents=True)
    for file in (Path("mine.txt"), folder / "config.json"):
        file.touch()
        keys.append(verdict_key(params))
    os.utime(file, ns=(1, 1))

    assert verdict_key(params) is not None
    assert len({*keys, verdict_key(params)}) == 4


def test_other_code_checks_again(monkeypatch, tmp_path):
    before = verdict_key(params_with())
    code = tmp_path / "code"
    for name in ("astra_core", "astra_parts", "tasks"):
        shutil.copytree(ROOT / name, code / name, ignore=shutil.ignore_patterns("*.pyc", "*.sa*"))
    monkeypatch.setattr("tasks.params.verdicts._CODE", code)
    assert before == verdict_key(params_with())
    with (code / "tasks" / "params" / "checks.py").open("a") as file:
        file.write("# changed\n")
    _code_digest.cache_clear()  # as in another process

    assert before != verdict_key(params_with())


def test_the_file_stays_small_and_may_be_damaged():
    for number in range(60):
        remember(str(number))
    remember("20")

    assert is_known("20")
    assert is_known("59")
    assert not is_known("0")
    for text in ("{", "[1, 2]", '{"a": 1}'):
        FILE.write_text(text)
        assert not is_known("59")
    remember("a")
    assert is_known("a")


def test_where_nothing_can_be_written_nothing_is_lost():
    FILE.parent.write_text("a file in its place")
    check_params(params_with(), is_kept=True)

    assert FILE.parent.is_file()
