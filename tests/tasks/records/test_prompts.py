import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from each_row import each_row

from astra_core.errors import DataError
from tasks.records.prompt_table import spelled_metadata
from tasks.records.prompts import read_prompts


def test_prompts_are_read_in_file_order_up_to_the_limit(tmp_path):
    rows = [{"prompt_id": str(i), "text": f"t{i}"} for i in (3, 1, 2)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "p.parquet")

    assert ["3", "1"] == [p.prompt_id for p in read_prompts(tmp_path / "p.parquet", limit=2)]


@each_row("content", [None, b"no parquet"])
def test_a_file_that_is_no_table_is_a_data_error(tmp_path, content):
    if content is not None:
        (tmp_path / "p.parquet").write_bytes(content)

    with pytest.raises(DataError, match="must be a table of prompts"):
        read_prompts(tmp_path / "p.parquet")


def test_a_table_without_a_prompt_is_a_data_error(tmp_path):
    schema = pa.schema({"prompt_id": pa.string(), "text": pa.string()})
    pq.write_table(schema.empty_table(), tmp_path / "p.parquet")

    with pytest.raises(DataError, match="at least one prompt"):
        read_prompts(tmp_path / "p.parquet")


VALUES = {"category": "fraud", "difficulty": 3, "share": 0.5, "is_new": True, "note": None}


def test_metadata_is_read_with_its_types(tmp_path):
    rows = [
        {"prompt_id": "1", "text": "a", "metadata": spelled_metadata(VALUES)},
        {"prompt_id": "2", "text": "b", "metadata": None},
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "p.parquet")
    first, second = read_prompts(tmp_path / "p.parquet")

    assert VALUES == first.metadata
    assert list(map(type, VALUES.values())) == list(map(type, first.metadata.values()))
    assert {} == second.metadata


@each_row("metadata", ["{", "[1]", '{"a": [1]}', "[" * 100_000])
def test_metadata_that_is_no_mapping_of_plain_values_is_a_data_error(metadata, tmp_path):
    rows = [{"prompt_id": "1", "text": "a", "metadata": metadata}]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "p.parquet")

    with pytest.raises(DataError, match="mapping of plain values as metadata") as refusal:
        read_prompts(tmp_path / "p.parquet")
    assert 1 == len(str(refusal.value).splitlines())
