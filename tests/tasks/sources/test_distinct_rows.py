import numpy as np
import pyarrow.parquet as pq
from each_row import each_row

from astra_core.rollout import Prompt
from astra_core.rollout.metadata import prompt_id_of
from tasks.expectations.facts import prompt_facts
from tasks.sources.distinct_rows import DistinctRows, KnownNumbers, normalise
from tasks.sources.families import FamilyFinder
from tasks.sources.rows import SourceRow


@each_row(
    ("text", "expected"),
    [
        ("  cafe\u0301 \n", "caf\u00e9"),
        ("half \ud83d a pair", "half \ufffd a pair"),
        ("whole \ud83d\ude00 pair", "whole 😀 pair"),
        ("\ufeffa mark \ufeff", "a mark"),
        (None, ""),
    ],
)
def test_normalise_gives_text_that_utf_8_can_hold(text, expected):
    assert expected == normalise(text)
    assert 16 == len(prompt_id_of(normalise(text)))


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


def test_a_text_in_another_context_is_another_prompt(tmp_path):
    contexts = ["a recipe", "a letter", "a recipe", None, ""]
    rows = [SourceRow("sum it up", "a file", "MIT", metadata={"context": c}) for c in contexts]
    found = DistinctRows(FamilyFinder(tmp_path))
    found.take(rows, tmp_path / "rows.parquet")
    facts = prompt_facts(pq.read_table(tmp_path / "rows.parquet").to_pandas())

    assert 3 == len(set(facts["prompt_id"])) == len(found.ids)
    assert facts["id_matches"].all()
    assert prompt_id_of("sum it up") in set(facts["prompt_id"])
    assert Prompt.of("sum it up", {"context": "a letter"}).prompt_id in set(facts["prompt_id"])
    assert [0, 0, 0] == found.finder.roots().tolist()


def known_after(batches):
    known, first = KnownNumbers(), 0
    for batch in batches:
        numbers = np.array(batch, np.uint64)
        known.add(numbers, np.arange(first, first + numbers.size))
        first += numbers.size
    return known


@each_row("size", [1, 7, 300])
def test_a_number_is_found_in_its_row_whatever_the_batches(size):
    numbers = np.random.default_rng(0).permutation(np.arange(1000, dtype=np.uint64) * 2**50)
    known = known_after(numbers[first : first + size] for first in range(0, 1000, size))

    assert list(range(1000)) == known.rows(numbers).tolist()
    assert [-1, -1] == known.rows(np.array([1, 2**64 - 1], np.uint64)).tolist()


def test_nothing_is_known_at_first():
    known = known_after([[]])

    assert [-1] == known.rows(np.array([3], np.uint64)).tolist()
    assert [] == known.rows(np.array([], np.uint64)).tolist()
