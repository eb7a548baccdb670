import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from each_row import each_row

from astra_core.errors import ConfigurationError
from tasks.params.overlay import VARIABLE, laid_over, overlaid, overrides, owner_of
from tasks.params.schema import read_params

ROOT = Path(__file__).parents[3]


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A folder with params.yaml."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(ROOT / "params.yaml", tmp_path)


def test_the_values_hold_within_the_block_and_the_file_stays_as_it_is(project):
    before = Path("params.yaml").read_bytes()
    with laid_over({"training.lr": 0.5, "models.reference.source": "builtin"}):
        params = read_params()
        with laid_over({"seed": 7}):
            assert (0.5, 7) == (read_params().training.lr, read_params().seed)

    assert 0.5 == params.training.lr
    assert params.models.reference is not None
    assert (0.5, 0) != (read_params().training.lr, read_params().seed)
    assert read_params().models.reference is None
    assert VARIABLE not in os.environ
    assert before == Path("params.yaml").read_bytes()


@pytest.mark.real
def test_a_process_started_within_sees_them(project):
    code = "from tasks.params.schema import read_params; print(read_params().training.lr)"
    with laid_over({"training.lr": 0.25}):
        done = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=True,
        )

    assert "0.25\n" == done.stdout


def test_another_file_is_read_as_it_is(project, tmp_path):
    shutil.copy("params.yaml", "mine.yaml")
    with laid_over({"seed": 7}):
        assert 0 == read_params(tmp_path / "mine.yaml").seed


def test_none_leave_everything_as_it_was():
    with laid_over({}):
        assert VARIABLE not in os.environ
        assert {"a": 1} == overlaid({"a": 1})


def test_the_record_itself_does_not_change():
    record = {"a": {"b": 1}}
    with laid_over({"a.b": 2}):
        assert {"a": {"b": 2}} == overlaid(record)
    assert {"a": {"b": 1}} == record


@each_row("written", ["[1]", "seed=1", "7"])
def test_another_variable_of_that_name_is_reported(monkeypatch, written):
    monkeypatch.setenv(VARIABLE, written)
    with pytest.raises(ConfigurationError, match="ASTRA_OVERRIDES must be a JSON object of keys"):
        overrides()


def test_a_key_through_a_value_is_reported():
    with pytest.raises(
        ConfigurationError, match=r"a\.b must lead to a value, got one value at 'a'"
    ):
        owner_of({"a": 1}, "a.b")
    with pytest.raises(ConfigurationError, match=r"a key must read section.key, got 'a\.'"):
        owner_of({}, "a.")
