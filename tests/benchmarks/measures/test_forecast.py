import pytest
from tiny_benchmark import SMALL

from benchmarks.measures import forecast

MIB = 2**20


def test_a_row_has_what_was_foretold_what_was_taken_and_their_ratio():
    foretold = {"run": {"seconds": 60.0, "calls": 200.0}, "peak_bytes": 1000 * MIB}
    taken = {
        "rollouts": {"seconds": 20.0, "replies": 100, "peak_bytes": 1},
        "training": {"seconds": 52.0, "replies": 60, "peak_bytes": 1500 * MIB},
    }

    assert [
        "| minutes | 1.0 | 1.2 | 1.20 |",
        "| replies of the target | 200 | 160 | 0.80 |",
        "| MiB in training | 1,000 | 1,500 | 1.50 |",
    ] == forecast.table(foretold, taken).splitlines()[2:]


@pytest.mark.wide
def test_a_run_asks_for_as_many_replies_as_its_trial_foretold(capsys):
    # What makes hits hit is asked at the most so often.
    changes = (*SMALL, "evaluation.strategy_calls=0")
    assert 0 == forecast.main([part for change in changes for part in ("--set", change)])
    cells = capsys.readouterr().out.splitlines()[3].split("|")

    assert "1.00" == cells[4].strip(), cells
