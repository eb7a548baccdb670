import project
import pytest
from shared import QUICK, finished_project
from tiny_benchmark import SMALL

from benchmarks.copies import STAGES
from benchmarks.measures.default_run import ALL, WATCHED, StageTime, run_time, stage_times, table
from benchmarks.measures.overhead import Spent


def test_the_last_rows_are_the_sum_the_whole_run_and_what_is_around():
    stages = {
        "one": StageTime(Spent(processor=3.0, wall=4.0), work=1.0),
        "two": StageTime(Spent(processor=5.0, wall=6.0), work=4.0),
    }
    rows = table(stages, Spent(processor=12.0, wall=20.0)).splitlines()

    assert ["| one | 4.0 | 3.0 | 1.0 (25%) |", "| two | 6.0 | 5.0 | 4.0 (67%) |"] == rows[2:4]
    assert [
        "| these stages | 10.0 | 8.0 | 5.0 (50%) |",
        "| astra run | 20.0 | 12.0 | 5.0 (25%) |",
        "| around the stages | 10.0 | 4.0 |  |",
    ] == rows[4:]


@pytest.mark.wide
def test_models_work_in_their_own_stages_for_a_part_of_the_time(tmp_path):
    found = stage_times(tmp_path, *SMALL)

    assert list(ALL) == list(found)
    for stage, took in found.items():
        assert (0.0 < took.work < took.spent.wall) == (stage in WATCHED)
        assert 0.0 < took.spent.processor
    assert (tmp_path / "reports/registration.json").exists()


@pytest.mark.wide
@pytest.mark.timeout(1800)
def test_the_whole_run_continues_to_registration(tmp_path, tmp_path_factory):
    # The stages before have run, under the same parameters.
    finished_project(tmp_path_factory).fill(tmp_path, *STAGES)

    assert run_time(tmp_path, *project.SMALL, QUICK).processor > 0.0
    assert (tmp_path / "reports/registration.json").exists()
