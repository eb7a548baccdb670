import project
import pytest
from shared import QUICK, finished_project
from small_run import SMALL

from benchmarks.copies import STAGES
from benchmarks.measures.default_run import WATCHED, run_seconds, stage_seconds, table


def test_the_last_rows_are_the_sum_and_the_whole_run():
    rows = table({"one": (4.0, 1.0), "two": (6.0, 4.0)}, 20.0).splitlines()

    assert ["| one | 4.0 | 1.0 (25%) |", "| two | 6.0 | 4.0 (67%) |"] == rows[2:4]
    assert ["| these stages | 10.0 | 5.0 (50%) |", "| astra run | 20.0 | 5.0 (25%) |"] == rows[4:]


@pytest.mark.slow
def test_models_work_in_their_own_stages_for_a_part_of_the_time(tmp_path):
    spent = stage_seconds(tmp_path, *SMALL)

    assert list(STAGES) == list(spent)
    for stage, (wall, work) in spent.items():
        assert (0.0 < work < wall) == (stage in WATCHED)
    assert (tmp_path / "reports/evaluation.json").exists()


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_whole_run_continues_to_registration(tmp_path, tmp_path_factory):
    # The stages before have run, under the same parameters.
    finished_project(tmp_path_factory).fill(tmp_path, *STAGES)

    assert run_seconds(tmp_path, *project.SMALL, QUICK) > 0.0
    assert (tmp_path / "reports/registration.json").exists()
