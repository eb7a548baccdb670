import os
from types import SimpleNamespace

import pytest
from each_row import each_row

from astra_core.errors import ConfigurationError
from flows.usage import usage_line, working_folder


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


def test_a_folder_that_was_removed_is_one_line(tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    with pytest.raises(ConfigurationError, match="astra must run in a folder, got none"):
        working_folder()

    os.chdir(tmp_path)
