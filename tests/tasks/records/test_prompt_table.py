import pyarrow as pa

from astra_core.rollout.metadata import Metadata
from tasks.records.prompt_table import (
    COLUMNS,
    METADATA,
    prompt_schema,
    read_metadata,
    rejected_rows,
    rejected_schema,
    spelled_metadata,
)


def test_rejected_rows_are_prompts_with_their_reasons():
    prompts = pa.Table.from_pylist(
        [dict.fromkeys(COLUMNS, name) for name in "ab"], schema=prompt_schema()
    )
    rows = rejected_rows(prompts, [["url"], ["email", "phone"]])

    assert rejected_schema() == rows.schema
    assert [["url"], ["email", "phone"]] == rows["reasons"].to_pylist()
    assert prompts == rows.select(COLUMNS)


def test_metadata_is_json_and_nothing_where_there_is_none():
    metadata = Metadata({"level": 3, "share": 1.0, "name": "\u4e16"})

    assert metadata == read_metadata(spelled_metadata(metadata))
    assert spelled_metadata(Metadata()) is None
    assert Metadata() == read_metadata(None)


def test_rejected_rows_keep_their_metadata():
    columns = (*COLUMNS, METADATA)

    assert [*columns, "reasons"] == rejected_schema(columns).names
