import errno
import os
import signal

import pytest
from each_row import each_row

from astra_core.errors import (
    ConfigurationError,
    DataError,
    DiskFullError,
    GateError,
    LostProcessError,
    RolloutError,
    ScorerError,
    TrainingError,
)
from tasks.pipeline import failures
from tasks.pipeline.failures import (
    StageFailure,
    Stopped,
    claim_failure,
    clear_failure,
    exit_status,
    failure_of,
    leave,
    read_failure,
    stop_on_terminate,
    write_failure,
)


@each_row(
    ("error", "status", "retryable"),
    [
        (ConfigurationError("x"), 2, False),
        (DataError("x"), 2, False),
        (GateError("x"), 3, False),
        (RolloutError("x"), 2, True),
        (ScorerError("x"), 2, True),
        (LostProcessError("x"), 2, True),
        (TrainingError("x"), 2, False),
        (ConnectionResetError("x"), 1, True),
        (FileNotFoundError("x"), 1, False),
        (PermissionError("x"), 1, False),
        (KeyError("x"), 1, False),
        (KeyboardInterrupt(), 130, True),
        (Stopped(signal.SIGTERM), 143, True),
    ],
)
def test_each_kind_of_end_has_its_status_and_its_retry(error, status, retryable):
    assert status == exit_status(error)
    assert retryable is failure_of(error).retryable


def test_a_failure_has_the_class_and_the_words_of_the_error():
    assert StageFailure("DataError", "no rows", retryable=False) == failure_of(DataError("no rows"))


def test_an_error_without_words_still_says_something():
    assert "no message" == failure_of(ValueError()).message


def test_a_stop_says_by_what_and_how_to_continue():
    expected = "stopped by SIGTERM; start again to resume"

    assert expected == failure_of(Stopped(signal.SIGTERM)).message


@pytest.fixture
def project(tmp_path, monkeypatch):
    """An empty project folder."""
    monkeypatch.chdir(tmp_path)


def test_a_written_failure_is_read_back_until_it_is_cleared(project):
    failure = StageFailure("GateError", "Maße: 3 of 4", retryable=False)
    write_failure(failure, "validation")

    assert failure == read_failure("validation")
    clear_failure("validation")
    assert read_failure("validation") is None
    clear_failure("validation")


def test_the_first_failure_since_the_start_is_the_one_that_is_reported(project):
    cause = StageFailure("ScorerError", "no answer", retryable=True)
    result = StageFailure("LostProcessError", "process 1 is gone", retryable=True)

    assert claim_failure(cause, "training")
    assert not claim_failure(result, "training")
    assert cause == read_failure("training")
    clear_failure("training")
    assert claim_failure(result, "training")


def test_a_background_job_of_a_script_stops_on_interrupt_too():
    before = [(number, signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGTERM)]
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # as a shell without job control starts it
        stop_on_terminate()
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
    finally:
        for number, handler in before:
            signal.signal(number, handler)


def test_terminate_unwinds_the_stack_until_the_process_leaves():
    before = [(number, signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGTERM)]
    try:
        stop_on_terminate()
        for _ in range(2):  # the first may be lost in a callback
            with pytest.raises(Stopped):
                os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(SystemExit):
            leave(3)
        os.kill(os.getpid(), signal.SIGTERM)
    finally:
        for number, handler in before:
            signal.signal(number, handler)


def test_a_full_disk_is_reported_by_its_name_and_not_tried_again(tmp_path):
    told = failures.plain(OSError(errno.ENOSPC, "No space left on device", str(tmp_path / "a")))

    assert isinstance(told, DiskFullError)
    assert f"must have room for {tmp_path / 'a'}" in str(told)
    assert failures.EXIT_MISTAKE == failures.exit_status(told)
    assert not failures.failure_of(told).retryable
    bug = ValueError("mine")
    assert bug is failures.plain(bug)


def test_half_a_failure_is_none(tmp_path):
    (tmp_path / "toy.json").write_text('{"error": "Sto')

    assert failures.read_failure("toy", folder=tmp_path) is None


@each_row(
    ("status", "told"),
    [
        (134, "was ended by SIGABRT, most likely for lack of memory"),
        (-9, "was ended by SIGKILL, most likely for lack of memory"),
        (139, "was ended by SIGSEGV"),
        (-15, "was ended by SIGTERM"),
        (5, "was cut off with exit status 5"),
    ],
)
def test_what_left_no_word_is_told_by_its_signal(status, told):
    assert told == failures.cut_off(status)


def test_memory_that_ran_out_is_told_once():
    told = failures.plain(MemoryError("x"))

    assert told is failures.plain(told)
    # As the flow tells it, whose stage has failed.
    again = DataError(str(told))
    assert again is failures.plain(again)
