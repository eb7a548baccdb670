import math
import tracemalloc
from itertools import chain

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from astra_core.assembly import build_sampler
from astra_core.errors import ConfigurationError, DataError
from astra_core.files import write_json
from astra_core.testing import tiny_graph, tiny_node, tiny_prompts, tiny_system
from tasks.params.schema import Params
from tasks.records.tables import (
    finite,
    read_model_paths,
    read_prompts,
    read_rollouts,
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


def test_prompts_are_read_in_file_order_up_to_the_limit(tmp_path):
    rows = [{"prompt_id": str(i), "text": f"t{i}"} for i in (3, 1, 2)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "p.parquet")

    assert ["3", "1"] == [p.prompt_id for p in read_prompts(tmp_path / "p.parquet", limit=2)]


@pytest.mark.parametrize("content", [None, b"no parquet"])
def test_a_file_that_is_no_table_is_a_data_error(tmp_path, content):
    if content is not None:
        (tmp_path / "p.parquet").write_bytes(content)

    with pytest.raises(DataError, match="must be a table of"):
        read_prompts(tmp_path / "p.parquet")
    with pytest.raises(DataError, match="must be a table of"):
        read_rollouts(tmp_path / "p.parquet")


def test_a_table_without_a_prompt_is_a_data_error(tmp_path):
    schema = pa.schema({"prompt_id": pa.string(), "text": pa.string()})
    pq.write_table(schema.empty_table(), tmp_path / "p.parquet")

    with pytest.raises(DataError, match="at least one prompt"):
        read_prompts(tmp_path / "p.parquet")


def test_a_missing_manifest_or_model_is_one_clear_line(tmp_path):
    with pytest.raises(ConfigurationError, match="run the models stage"):
        read_model_paths(tmp_path)
    entry = {"path": "gone", "is_outside": False}
    write_json(
        dict.fromkeys(("attacker", "target", "reference"), entry), tmp_path / "manifest.json"
    )
    with pytest.raises(ConfigurationError, match="attacker's folder must hold a model"):
        read_model_paths(tmp_path)


def test_finite_turns_what_json_cannot_hold_into_null():
    assert {"a": None, "b": [1.0, None]} == finite({"a": math.nan, "b": [1.0, math.inf]})
