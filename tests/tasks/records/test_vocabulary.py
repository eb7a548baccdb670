from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from each_row import each_row

from tasks.records.prompt_table import COLUMNS
from tasks.records.vocabulary import read_vocabulary

GERMAN = "Warum hat der Nachbar heute Abend schon wieder den Zaun gestrichen, Quorfel?"


def vocabulary_of(folder, text):
    row = dict.fromkeys(COLUMNS, "x") | {"text": text}
    pq.write_table(pa.Table.from_pylist([row]), folder / "test.parquet")
    return read_vocabulary(Path(folder))


@each_row(
    ("text", "known", "unknown"),
    [
        ("who did paint the fence, zorkle?", "theatre zorkle t", "gartenzaun quorfel"),
        (GERMAN, "gartenzaun quorfel", "zorkle glorp"),
    ],
)
def test_words_are_known_from_the_prompts_and_their_language(tmp_path, text, known, unknown):
    found = vocabulary_of(tmp_path, text)

    assert {*known.split()} <= found
    assert not {*unknown.split()} & found
