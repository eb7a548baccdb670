import json

from each_row import each_row

from tasks.reporting.file_lines import numbered_rows
from tasks.sources.columns import Columns


@each_row(
    ("name", "content", "expected"),
    [
        ("p.txt", "one\n\nthree\n", [(1, "one\n"), (2, "\n"), (3, "three\n")]),
        ("p.jsonl", '{"text": "a"}\n\n{"text": "b"}\n', [(1, "a"), (3, "b")]),
        ("p.csv", 'text,n\n"two\nlines",1\n\nlast,2\n', [(2, "two\nlines"), (5, "last")]),
        ("p.json", json.dumps(["a", None]), [(1, "a"), (2, None)]),
    ],
)
def test_rows_have_the_numbers_that_an_editor_shows(tmp_path, name, content, expected):
    (tmp_path / name).write_text(content, "utf-8")

    found = numbered_rows(tmp_path / name, Columns("text"))

    assert expected == [(number, row.text) for number, row in found]
