import math
import tracemalloc
from dataclasses import replace
from itertools import chain

import pyarrow.parquet as pq
import pytest
from each_row import each_row

from astra_core.errors import DataError
from astra_core.rollout import Failure
from astra_core.rollout.metadata import Metadata
from astra_parts.assembly import build_sampler
from astra_parts.testing import tiny_graph, tiny_node, tiny_prompts, tiny_system
from tasks.params.schema import Params
from tasks.records.rollout_columns import COLUMNS
from tasks.records.rollouts import (
    StoredRollouts,
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


def test_the_kind_of_a_failure_is_read_again_and_has_a_column_where_one_is_known(tmp_path):
    plain = tiny_graph(tiny_node(0.5), replace(tiny_node(0.0), outcome=Failure("gone")))
    known = tiny_graph(tiny_node(0.5), replace(tiny_node(0.0), outcome=Failure("gone", "down")))
    for graph, there in ((plain, False), (known, True)):
        write_rollouts([graph], tmp_path / "r.parquet")

        assert there == ("failure_kind" in pq.read_schema(tmp_path / "r.parquet").names)
        (read,) = read_rollouts(tmp_path / "r.parquet")
        assert [node.outcome for node in graph.children] == [node.outcome for node in read.children]


@pytest.mark.wide
def test_a_hundred_times_the_rollouts_take_no_hundred_times_the_memory_to_stream(graphs, tmp_path):
    peaks = []
    for times in (1, 100):
        write_rollouts(graphs * times, tmp_path / "r.parquet", graphs_per_group=2)
        tracemalloc.start()
        num_graphs = sum(1 for _ in stream_rollouts(tmp_path / "r.parquet"))
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert len(graphs) * times == num_graphs

    # Held whole, they would take 50 times as much; when garbage is collected moves it by half.
    assert peaks[1] < 10 * peaks[0]


def test_row_ids_are_unique_and_stable(graphs, tmp_path):
    for name in ("a", "b"):
        write_rollouts(graphs, tmp_path / name)
    first = pq.read_table(tmp_path / "a")["row_id"].to_pylist()

    assert first == pq.read_table(tmp_path / "b")["row_id"].to_pylist()
    assert len(first) == len(set(first))


@each_row("content", [None, b"no parquet"])
def test_a_file_that_is_no_table_is_a_data_error(tmp_path, content):
    if content is not None:
        (tmp_path / "r.parquet").write_bytes(content)

    with pytest.raises(DataError, match="must be a table of rollouts"):
        read_rollouts(tmp_path / "r.parquet")


def runs_with(metadata):
    prompts = [replace(prompt, metadata=metadata) for prompt in tiny_prompts(2)]
    return [
        tiny_graph(tiny_node(0.25 * run, tiny_node(0.5)), prompt=replace(prompt, run_id=run))
        for prompt in prompts
        for run in range(3)
    ]


def test_runs_and_metadata_survive_the_file(tmp_path):
    graphs = runs_with({"category": "fraud", "difficulty": 3, "share": 1.0, "note": None})
    write_rollouts(graphs, tmp_path / "r.parquet", graphs_per_group=4)
    found = read_rollouts(tmp_path / "r.parquet")

    assert graphs == found
    assert [0, 1, 2] * 2 == [graph.run_id for graph in found]
    kinds = {type(graph.prompt.metadata["share"]) for graph in found}
    assert {float} == kinds
    ids = pq.read_table(tmp_path / "r.parquet")["row_id"].to_pylist()
    assert len(ids) == len(set(ids))


def test_only_what_there_is_gets_a_column(tmp_path):
    always, columns = {column.name for column in COLUMNS}, {}
    kinds = {
        "runs": runs_with({}),
        "both": runs_with({"a": 1}),
        "metadata": runs_with({"a": 1})[:1],
    }
    for name, graphs in kinds.items():
        write_rollouts(graphs, tmp_path / name)
        columns[name] = set(pq.read_schema(tmp_path / name).names) - always
        assert graphs == read_rollouts(tmp_path / name)

    assert {
        "runs": {"run_id"},
        "both": {"run_id", "prompt_metadata"},
        "metadata": {"prompt_metadata"},
    } == columns


def test_the_first_run_has_the_row_ids_of_a_single_one(tmp_path):
    graphs = runs_with({})
    write_rollouts(graphs, tmp_path / "all")
    write_rollouts(graphs[:1], tmp_path / "first")
    ids = [pq.read_table(tmp_path / name)["row_id"].to_pylist() for name in ("all", "first")]

    assert ids[1] == ids[0][: len(ids[1])]


def test_metadata_that_is_broken_is_a_data_error(tmp_path):
    write_rollouts(runs_with({"a": 1}), tmp_path / "r.parquet")
    table = pq.read_table(tmp_path / "r.parquet")
    place = table.column_names.index("prompt_metadata")
    broken = table.set_column(place, "prompt_metadata", [["{"] * len(table)])
    pq.write_table(broken, tmp_path / "r.parquet")

    with pytest.raises(DataError, match="must hold whole trees"):
        read_rollouts(tmp_path / "r.parquet")


def test_what_a_judge_said_survives_the_file(tmp_path):
    told = tiny_node(
        0.4,
        response_texts=("a", "b"),
        response_scores=(0.5, None),
        response_unjudged=("", "empty"),
        response_labels=({"violence": 0.25}, {}),
        response_rationales=("rude", ""),
        response_finish_reasons=("stop", "filter"),
        response_ids=((1,), (2,)),
    )
    other = tiny_graph(tiny_node(1.0), prompt=tiny_prompts(2)[1])
    graphs = [tiny_graph(told, tiny_node(0.4, failure="gone")), other]
    write_rollouts(graphs, tmp_path / "r.parquet")
    first, second = read_rollouts(tmp_path / "r.parquet")

    assert graphs[0].children[0] == first.children[0]
    assert graphs[1] == second
    assert math.isnan(tiny_node(0.0, response_scores=(None,)).score)


@each_row("name", ["unjudged", "labels", "rationales", "finish_reasons"])
def test_a_judge_that_said_no_more_leaves_no_column(name, tmp_path):
    given = {
        "unjudged": ("empty",),
        "labels": ({"a": 0.5},),
        "rationales": ("so",),
        "finish_reasons": ("length",),
    }[name]
    write_rollouts([tiny_graph(tiny_node(0.4))], tmp_path / "plain.parquet")
    told = tiny_node(0.4, **{f"response_{name}": given})
    write_rollouts([tiny_graph(told)], tmp_path / "told.parquet")
    plain, more = (
        set(pq.read_schema(tmp_path / f"{each}.parquet").names) for each in ("plain", "told")
    )

    assert {f"response_{name}"} == more - plain


def test_equal_trees_give_equal_files_however_late_a_column_is_needed(tmp_path):
    plain = [tiny_graph(tiny_node(0.1 * at), iteration=at) for at in range(5)]
    late = replace(plain[3], prompt=replace(plain[3].prompt, metadata=Metadata({"a": 1})))
    graphs = [*plain[:3], late, plain[4]]
    write_rollouts(iter(graphs), tmp_path / "late.parquet", graphs_per_group=2)

    assert graphs == read_rollouts(tmp_path / "late.parquet")
    file = pq.ParquetFile(tmp_path / "late.parquet")
    assert 3 == file.num_row_groups
    assert "prompt_metadata" in file.schema_arrow.names
    assert ["late.parquet"] == [path.name for path in tmp_path.iterdir()]


def test_a_row_group_is_written_as_soon_as_its_trees_are_there(tmp_path):
    sizes = []

    def coming():
        for number in range(6):
            sizes.append(sum(path.stat().st_size for path in tmp_path.rglob("0")))
            yield tiny_graph(tiny_node(0.1 * number), iteration=number)

    assert 6 == write_rollouts(coming(), tmp_path / "r.parquet", graphs_per_group=2)
    # A part is begun with its first group; each further one makes it longer.
    assert [0, 0] == sizes[:2]
    assert 0 < sizes[3] < sizes[5]


@pytest.fixture
def kept(tmp_path):
    made = [tiny_graph(tiny_node(0.1 * number), iteration=number) for number in range(5)]
    write_rollouts(made, tmp_path / "r.parquet", graphs_per_group=2)
    return made


def test_it_is_the_sequence_that_was_written_each_time(kept, tmp_path):
    stored = StoredRollouts(tmp_path / "r.parquet")

    assert kept == list(stored) == list(stored)
    assert 5 == len(stored)
    assert (kept[3], kept[-1], kept[1:3]) == (stored[3], stored[-1], stored[1:3])
    with pytest.raises(IndexError):
        stored[5]


def test_a_broken_file_is_reported_before_a_tree_is_asked_for(tmp_path):
    (tmp_path / "r.parquet").write_text("no table")

    with pytest.raises(DataError, match="must be a table of rollouts"):
        StoredRollouts(tmp_path / "r.parquet")


def test_no_tree_is_read_before_it_is_asked_for_and_none_is_kept(kept, tmp_path):
    stored = StoredRollouts(tmp_path / "r.parquet")
    (tmp_path / "r.parquet").unlink()

    assert len(kept) == len(stored)
    with pytest.raises(DataError):
        list(stored)
