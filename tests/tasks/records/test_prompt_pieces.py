import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from astra_core.errors import DataError
from tasks.records import prompt_pieces
from tasks.records.prompt_table import COLUMNS, SPLITS, prompt_schema


def write_splits(folder, sizes):
    for split, size in zip(SPLITS, sizes, strict=True):
        rows = [dict.fromkeys(COLUMNS, f"{split} {n}") for n in range(size)]
        pq.write_table(pa.Table.from_pylist(rows, prompt_schema()), folder / f"{split}.parquet")


def test_the_pieces_are_all_rows_in_order(tmp_path, monkeypatch):
    monkeypatch.setattr(prompt_pieces, "ROWS_PER_PIECE", 4)
    monkeypatch.setattr(prompt_pieces, "_READ_AT_ONCE", 2)
    write_splits(tmp_path, (5, 0, 3))
    pieces = [piece["text"].to_pylist() for piece in prompt_pieces.prompt_pieces(tmp_path)]

    assert [4, 4] == [len(piece) for piece in pieces]
    texts = [text for piece in pieces for text in piece]
    assert [f"train {n}" for n in range(5)] + [f"test {n}" for n in range(3)] == texts
    assert 5 == prompt_pieces.num_rows_in(tmp_path / "train.parquet")
    assert COLUMNS == prompt_pieces.columns_in(tmp_path)


def test_a_split_that_is_missing_is_a_data_error(tmp_path):
    write_splits(tmp_path, (1, 1, 1))
    (tmp_path / "test.parquet").unlink()

    with pytest.raises(DataError, match=r"test\.parquet must be a parquet file with the columns"):
        list(prompt_pieces.prompt_pieces(tmp_path))
