from dataclasses import fields

import pyarrow.parquet as pq
from each_row import each_row

from astra_core.rollout import Context, Failure, Probe, Replies
from astra_parts.testing import tiny_graph, tiny_node
from tasks.records.rollout_columns import COLUMNS, PARTS, rollout_schema
from tasks.records.rollouts import write_rollouts

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


def test_the_columns_in_the_file_are_those_that_were_first_written(tmp_path):
    write_rollouts([tiny_graph(tiny_node(0.0))], tmp_path / "r.parquet")
    written = pq.read_schema(tmp_path / "r.parquet")

    assert ROW == {field.name: str(field.type) for field in written}
    assert rollout_schema().names == list(ROW)


@each_row(
    ("part", "kind"),
    [("context", Context), ("probe", Probe), ("replies", Replies), ("failure", Failure)],
)
def test_every_field_of_a_part_is_read_from_one_column(part, kind):
    read = [field for _, field in PARTS[part]]
    # Training alone weighs tokens, after the rollouts were written.
    kept = {field.name for field in fields(kind)} - {"weights"}

    assert sorted(kept) == sorted(read)


def test_a_row_says_where_its_turn_is():
    graph = tiny_graph(tiny_node(0.0), tiny_node(0.0, tiny_node(1.0)))
    deep = graph.children[1].children[0]
    row = {column.name: column.value(graph, deep) for column in COLUMNS}

    assert ("1.0", "1", 2) == (row["path"], row["parent"], row["depth"])
    assert graph.prompt.prompt_id == row["prompt_id"]
