import pytest

from astra_core.errors import DataError
from astra_core.testing import tiny_graph, tiny_node
from tasks.records.rollouts import write_rollouts
from tasks.records.stored_rollouts import StoredRollouts


@pytest.fixture
def graphs(tmp_path):
    made = [tiny_graph(tiny_node(0.1 * number), iteration=number) for number in range(5)]
    write_rollouts(made, tmp_path / "r.parquet", graphs_per_group=2)
    return made


def test_it_is_the_sequence_that_was_written_each_time(graphs, tmp_path):
    stored = StoredRollouts(tmp_path / "r.parquet")

    assert graphs == list(stored) == list(stored)
    assert 5 == len(stored)
    assert (graphs[3], graphs[-1], graphs[1:3]) == (stored[3], stored[-1], stored[1:3])
    with pytest.raises(IndexError):
        stored[5]


def test_a_broken_file_is_reported_before_a_tree_is_asked_for(tmp_path):
    (tmp_path / "r.parquet").write_text("no table")

    with pytest.raises(DataError, match="must be a table of rollouts"):
        StoredRollouts(tmp_path / "r.parquet")


def test_no_tree_is_read_before_it_is_asked_for_and_none_is_kept(graphs, tmp_path):
    stored = StoredRollouts(tmp_path / "r.parquet")
    (tmp_path / "r.parquet").unlink()

    assert len(graphs) == len(stored)
    with pytest.raises(DataError):
        list(stored)
