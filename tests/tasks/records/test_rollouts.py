import math
import tracemalloc
from dataclasses import fields
from itertools import chain

import pyarrow.parquet as pq
import pytest

from astra_core.assembly import build_sampler
from astra_core.errors import DataError
from astra_core.rollout import Context, Failure, Probe, Replies
from astra_core.testing import tiny_graph, tiny_node, tiny_prompts, tiny_system
from tasks.params.schema import Params
from tasks.records.rollouts import (
    COLUMNS,
    PARTS,
    read_rollouts,
    rollout_schema,
    rollout_tables,
    stream_rollouts,
    write_rollouts,
)


@pytest.fixture(scope="module")
def graphs():
    prompts = tiny_prompts(5)
    params = Params()
    sampler = build_sampler(
        params.rollouts, params.reward, system=tiny_system(), prompts=prompts, seed=0
    )
    return sampler.reward.assign(sampler.roll_out(prompts, iteration=2))


def test_rollouts_survive_the_file_bit_for_bit(graphs, tmp_path):
    write_rollouts(graphs, tmp_path / "r.parquet", graphs_per_group=2)

    assert graphs == read_rollouts(tmp_path / "r.parquet")


def test_a_failed_turn_survives_the_file(tmp_path):
    failed = tiny_node(0.0, failure="TargetError: gone", score=math.nan)
    write_rollouts([tiny_graph(failed, tiny_node(1.0))], tmp_path / "r.parquet")
    (graph,) = read_rollouts(tmp_path / "r.parquet")

    assert graph.children[0].has_failed
    assert math.isnan(graph.children[0].score)


def test_rollouts_are_streamed_in_row_groups(graphs, tmp_path):
    write_rollouts(graphs, tmp_path / "r.parquet", graphs_per_group=2)

    assert 3 == pq.ParquetFile(tmp_path / "r.parquet").num_row_groups


def test_a_row_group_holds_whole_graphs_in_order(graphs, tmp_path):
    write_rollouts(graphs, tmp_path / "r.parquet", graphs_per_group=2)
    groups = [
        table["prompt_id"].unique().to_pylist() for table in rollout_tables(tmp_path / "r.parquet")
    ]

    assert [2, 2, 1] == [len(prompts) for prompts in groups]
    assert [graph.prompt.prompt_id for graph in graphs] == list(chain.from_iterable(groups))


def test_no_rollouts_are_a_table_without_rows(tmp_path):
    assert 0 == write_rollouts([], tmp_path / "r.parquet")

    assert [0] == [table.num_rows for table in rollout_tables(tmp_path / "r.parquet")]
    assert [] == read_rollouts(tmp_path / "r.parquet")


def test_ten_times_the_rollouts_take_no_more_memory_to_stream(graphs, tmp_path):
    peaks = []
    for times in (10, 100):
        write_rollouts(graphs * times, tmp_path / "r.parquet", graphs_per_group=2)
        tracemalloc.start()
        num_graphs = sum(1 for _ in stream_rollouts(tmp_path / "r.parquet"))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert len(graphs) * times == num_graphs

    assert peaks[1] < 1.5 * peaks[0]


def test_row_ids_are_unique_and_stable(graphs, tmp_path):
    for name in ("a", "b"):
        write_rollouts(graphs, tmp_path / name)
    first = pq.read_table(tmp_path / "a")["row_id"].to_pylist()

    assert first == pq.read_table(tmp_path / "b")["row_id"].to_pylist()
    assert len(first) == len(set(first))


# What a row of a tree of one turn holds, column by column, as it was first written.
ROW = {
    "row_id": "string",
    "prompt_id": "string",
    "prompt_text": "string",
    "iteration": "int32",
    "path": "string",
    "parent": "string",
    "depth": "int32",
    "context_ids": "list<element: int32>",
    "truncated_tokens": "int32",
    "probe_text": "string",
    "probe_ids": "list<element: int32>",
    "probe_logprobs": "list<element: double>",
    "probe_mask": "list<element: bool>",
    "reference_logprobs": "list<element: double>",
    "target_logprobs": "list<element: double>",
    "response_texts": "list<element: string>",
    "response_ids": "list<element: list<element: int32>>",
    "response_scores": "list<element: double>",
    "score": "double",
    "probe_score": "double",
    "novelty": "double",
    "reward": "double",
    "failure": "string",
}


def test_the_columns_in_the_file_are_those_that_were_first_written(graphs, tmp_path):
    write_rollouts(graphs, tmp_path / "r.parquet")
    written = pq.read_schema(tmp_path / "r.parquet")

    assert ROW == {field.name: str(field.type) for field in written}
    assert rollout_schema().names == list(ROW)


@pytest.mark.parametrize(
    ("part", "kind"),
    [("context", Context), ("probe", Probe), ("replies", Replies), ("failure", Failure)],
)
def test_every_field_of_a_part_is_read_from_one_column(part, kind):
    read = [field for _, field in PARTS[part]]

    assert sorted(field.name for field in fields(kind)) == sorted(read)


def test_a_row_says_where_its_turn_is():
    graph = tiny_graph(tiny_node(0.0), tiny_node(0.0, tiny_node(1.0)))
    deep = graph.children[1].children[0]
    row = {column.name: column.value(graph, deep) for column in COLUMNS}

    assert ("1.0", "1", 2) == (row["path"], row["parent"], row["depth"])
    assert graph.prompt.prompt_id == row["prompt_id"]


@pytest.mark.parametrize("content", [None, b"no parquet"])
def test_a_file_that_is_no_table_is_a_data_error(tmp_path, content):
    if content is not None:
        (tmp_path / "r.parquet").write_bytes(content)

    with pytest.raises(DataError, match="must be a table of rollouts"):
        read_rollouts(tmp_path / "r.parquet")
