import json

import pytest

from tasks.machine.console import complain, say
from tasks.machine.telling import (
    ERROR,
    INFO,
    MAX_TAIL,
    VARIABLE,
    WARNING,
    tell,
    tell_crash,
    tell_tail,
)


@pytest.fixture
def told(tmp_path, monkeypatch):
    """What was told to the file that the environment names."""
    place = tmp_path / "told"
    monkeypatch.setenv(VARIABLE, str(place))
    return lambda: [json.loads(line) for line in place.read_text().splitlines()]


def test_what_is_said_is_reported_as_it_is_meant(told, capsys):
    say("training     done\x1b[31m")
    complain("warning: a small step")
    complain("error: a mistake")
    complain("bug in stage training: no")

    assert [
        [INFO, "training     done\\x1b[31m"],
        [WARNING, "warning: a small step"],
        [ERROR, "error: a mistake"],
        [ERROR, "bug in stage training: no"],
    ] == told()
    assert 4 == sum(map(len, map(str.splitlines, capsys.readouterr())))


def test_without_a_follower_nothing_is_reported(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(VARIABLE, raising=False)
    tell("nobody hears")

    assert [] == list(tmp_path.iterdir())


def test_a_file_that_is_gone_stops_nobody(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, str(tmp_path / "gone" / "told"))

    assert tell("x") is None


def test_a_tail_is_the_end_of_a_trace_and_one_message(told):
    tell_tail("\n".join(map(str, range(MAX_TAIL + 5))) + "\n")
    ((level, text),) = told()

    assert ERROR == level
    assert ["5", str(MAX_TAIL + 4)] == [text.splitlines()[0], text.splitlines()[-1]]


def test_of_a_crash_only_places_are_reported(told, tmp_path):
    log = tmp_path / "training.log"
    log.write_text('you idiot\nFatal Python error: Aborted\n  File "x.py", line 1 in f\nidiot\n')
    tell_crash(log)
    tell_crash(tmp_path / "none.log")

    assert [[ERROR, 'Fatal Python error: Aborted\n  File "x.py", line 1 in f']] == told()
