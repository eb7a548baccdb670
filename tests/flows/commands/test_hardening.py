import pytest

from flows.cli import run_command


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--rounds", "0"], "--rounds: input should be greater than or equal to 1"),
        (["--rounds", "many"], "--rounds: input should be a valid integer"),
    ],
)
def test_a_number_of_rounds_that_is_none_is_refused(capsys, words, told):
    assert 2 == run_command(["harden", *words])
    assert told in capsys.readouterr().err
