import subprocess
import sys

import pytest

from flows import start


def test_what_is_missing_is_one_line(monkeypatch, capfd):
    monkeypatch.setattr(start, "NEEDED", ("typer", "no_such_package"))
    with pytest.raises(SystemExit) as end:
        start.main()

    assert 2 == end.value.code
    assert (
        "error: astra must have the package no_such_package, got none; install it with "
        "python -m pip install 'astra-red-team[ops]'\n"
    ) == capfd.readouterr().err


@pytest.mark.real
def test_with_all_of_them_it_is_the_command_line():
    command = [sys.executable, "-c", "from flows.start import main; main()", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)

    assert done.stdout.startswith("astra ")
