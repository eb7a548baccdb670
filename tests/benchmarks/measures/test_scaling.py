import pytest

pytest.importorskip("simpy", reason="needs simpy, of the extra scaling")

from benchmarks.measures.scaling import Round, compared, costs_table, curve, main
from benchmarks.simulation import Costs


@pytest.mark.wide
def test_the_curve_falls_where_the_driver_is_busy():
    costs = Costs(shard_s=1.0, hand_over_s=0.01)
    rows = [row.split("|") for row in curve(costs, prompts_per_shard=8).splitlines()[2:]]
    efficiency = {int(row[1]): int(row[2].strip().rstrip("%")) for row in rows}

    assert 99 == efficiency[1]
    assert efficiency[1000] < 15
    assert efficiency[32] > 85
    assert "1.0000 s" in costs_table(costs)


def test_slow_shards_are_the_machines_and_idle_workers_the_models():
    costs = Costs(shard_s=1.0)
    crowded = Round(6 * 1.5, (1.5,) * 12)
    idle = Round(6 * 1.5, (1.0,) * 12)

    for own, model, forecast, off in (
        (crowded, "+0.0%", "-33.3%", 0.0),
        (idle, "-33.3%", "-33.3%", 1 / 3),
    ):
        text, most_off = compared(costs, {2: [own] * 3})
        row = [cell.strip() for cell in text.splitlines()[2].split("|")]
        assert [model, forecast] == row[3:5]
        assert off == pytest.approx(most_off, abs=0.01)


@pytest.mark.wide
def test_both_runs_are_measured_and_compared(capsys):
    status = main(["--shards", "6", "--prompts", "2", "--rounds", "1"])
    text = capsys.readouterr().out

    assert status in {0, 1}  # a busy machine is no mistake
    assert "| 2 | " in text
    assert "| 1000 | " in text
