import pyarrow.parquet as pq
from each_row import each_row

from tasks.records.prompt_table import prompt_id_of
from tasks.sources.distinct_rows import DistinctRows, normalised
from tasks.sources.families import FamilyFinder
from tasks.sources.rows import SourceRow


@each_row(
    ("text", "expected"),
    [
        ("  cafe\u0301 \n", "caf\u00e9"),
        ("half \ud83d a pair", "half \ufffd a pair"),
        ("whole \ud83d\ude00 pair", "whole 😀 pair"),
        (None, ""),
    ],
)
def test_normalised_gives_text_that_utf_8_can_hold(text, expected):
    assert expected == normalised(text)
    assert 16 == len(prompt_id_of(normalised(text)))


def test_a_text_is_kept_where_it_is_first_and_counted_where_it_is_not(tmp_path):
    told = [("one", 1), (" one", 1), ("one", 2), ("", 1), ("two", 1)]
    rows = [SourceRow(text, "a file", "unknown", metadata={"level": n}) for text, n in told]
    found = DistinctRows(FamilyFinder(tmp_path))
    found.take(rows, tmp_path / "rows.parquet")
    written = pq.read_table(tmp_path / "rows.parquet")

    assert ["one", "two"] == written["text"].to_pylist()
    assert [int(prompt_id_of(text), 16) for text in ("one", "two")] == list(found.ids)
    assert (5, 1, 2, 1) == (
        found.num_read,
        found.num_blank,
        found.num_duplicates,
        found.num_differing,
    )
    assert found.has_metadata
