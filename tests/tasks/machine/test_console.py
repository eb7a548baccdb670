import io
import logging
import os
import subprocess
import sys
from pathlib import Path

import pytest

from astra_core.errors import AstraError
from tasks.machine.console import complain, libraries_to, progress, quiet_libraries, say


def test_say_and_complain_print_one_line_each(capfd):
    say("done")
    complain("not done")

    assert ("done\n", "not done\n") == tuple(capfd.readouterr())


def test_progress_is_silent_where_nobody_looks(capfd):
    with progress("training", 3) as advance:
        advance()
        advance(2)

    assert ("", "") == tuple(capfd.readouterr())


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_draws_on_a_terminal(monkeypatch):
    terminal = _Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setenv("TERM", "xterm")
    with progress("training", 2) as advance:
        advance(1)
        advance(1, note="success 62%")

    assert "training" in terminal.getvalue()
    assert "success 62%, about 0 s left" in terminal.getvalue()
    assert "100%" in terminal.getvalue()


def test_there_is_one_bar_at_a_time(monkeypatch):
    screen = _Terminal()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    with progress("training", 2), progress("rollouts", 3) as advance:
        advance()

    assert "training" in screen.getvalue()
    assert "rollouts" not in screen.getvalue()
    with progress("evaluation", 2):
        pass
    assert "evaluation" in screen.getvalue()


def test_progress_lets_an_exception_through():
    with pytest.raises(KeyError), progress("training", 1):
        raise KeyError


@pytest.mark.real
def test_what_libraries_write_lands_in_the_log(tmp_path, capfd):
    log = tmp_path / "logs" / "training.log"
    with libraries_to(log):
        os.write(2, b"compiled code\n")
        subprocess.run([sys.executable, "-c", "print('a child')"], check=True)
        say("the one line")
        complain("a word of warning")

    assert ("the one line\n", "a word of warning\n") == tuple(capfd.readouterr())
    assert ["a child", "compiled code"] == sorted(log.read_text().splitlines())


def test_the_screen_comes_back_after_an_exception(tmp_path, capfd):
    with pytest.raises(KeyError), libraries_to(tmp_path / "x.log"):
        raise KeyError
    os.write(1, b"back\n")
    say("here")

    assert "back\nhere\n" == capfd.readouterr().out


def test_quiet_libraries_leaves_errors_alone():
    loggers = [logging.getLogger(name) for name in ("alembic", "mlflow")]
    levels = [logger.level for logger in loggers]
    try:
        quiet_libraries()

        assert not any(logger.isEnabledFor(logging.WARNING) for logger in loggers)
        assert all(logger.isEnabledFor(logging.ERROR) for logger in loggers)
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)


def test_letters_that_the_encoding_lacks_are_escaped(monkeypatch):
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr("sys.stdout", stream)
    say("caf\u00e9 \u4e2d")

    assert b"caf\\xe9 \\u4e2d\n" == stream.buffer.getvalue()


def test_output_that_nobody_takes_is_one_line(monkeypatch):
    with Path("/dev/full").open("w") as full:
        monkeypatch.setattr("sys.stdout", full)
        with pytest.raises(AstraError, match="must be taken to its end, got: No space left"):
            say("a line")
        say("what follows goes nowhere")
