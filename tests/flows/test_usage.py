import os
from pathlib import Path
from types import SimpleNamespace

import pytest
from each_row import each_row

from astra_core.errors import ConfigurationError
from flows.usage import read_from, usage_line, working_folder


class WrongError(Exception):
    param = SimpleNamespace(opts=["--port"])


@each_row("arguments", [["ui", "--port", "99999"], ["ui", "--port=99999"]])
def test_the_option_and_its_value_are_named(arguments):
    expected = "error: --port: must be small, got '99999'. See 'astra --help'."

    assert expected == usage_line(WrongError(), "Must be small.", arguments)


def test_an_option_without_its_value_breaks_nothing():
    assert "--port: needs one, got ''" in usage_line(WrongError(), "Needs one", ["ui", "--port"])


def test_the_help_stays_as_it_is():
    assert "a\nb" == usage_line(WrongError(), "a\nb", [])


def test_a_path_is_read_from_the_folder_of_the_call(tmp_path, monkeypatch):
    below = tmp_path / "my"
    (below / "model").mkdir(parents=True)
    (below / "3").mkdir()
    monkeypatch.chdir(tmp_path)
    meant = {
        Path("new.csv"): Path("my/new.csv"),
        Path("../new.csv"): Path("new.csv"),
        "./model": "my/model",
        "mine=./model": "mine=my/model",
        "my/model": "my/model",  # of the project, as there is none in the folder
        "3": "3",  # a version
        "champion": "champion",
        "seed=" + "1" * 5000: "seed=" + "1" * 5000,  # longer than a name may be
        "a\0b": "a\0b",
        f"{tmp_path}/a": f"{tmp_path}/a",
        7: 7,
        None: None,
    }

    assert meant == {value: read_from(below, value) for value in meant}
    assert ["my/model", "1"] == read_from(below, ["./model", "1"])
    assert Path("a") == read_from(tmp_path, Path("a"))


def test_a_folder_that_was_removed_is_one_line(tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(ConfigurationError, match="astra must run in a folder, got none"):
        working_folder()

    os.chdir(tmp_path)
