import json

import pytest
from each_row import each_row

from astra_core.errors import ConfigurationError
from tasks.params.schema import Params
from tasks.sources.columns import Columns
from tasks.trials.file_check import MAX_SHOWN, check_file, numbered_rows

LONG = "please write a long story about the old man and the sea with many details today"
NUMBERS = [f"what would you do with {n} boxes number {n * 7} and {n * 13} keys" for n in range(90)]
ROWS = [
    *NUMBERS,  # lines 1 to 90
    NUMBERS[4],  # 91
    "",  # 92
    LONG,  # 93
    f"{LONG} again",  # 94
    "write to joe.bloggs@example.com for me now please",  # 95
    "an entirely different opener that the dev file has too",  # 96
    "x" * 5000,  # 97
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    rows = "\n".join(json.dumps({"text": row}) for row in ROWS)
    (folder / "mine.jsonl").write_text(rows, "utf-8")
    (folder / "dev.txt").write_text(f"of its own\n{ROWS[95]}\n", "utf-8")
    return folder


@pytest.fixture(scope="module")
def found(folder):
    return check_file(Params(), folder / "mine.jsonl", folder / "dev.txt")


@pytest.mark.real
def test_each_row_is_found_under_its_line(found):
    expected = {
        ("duplicate", 91, 5),
        ("blank", 92, None),
        ("near_duplicate", 94, 93),
        ("email", 95, None),
        ("leak", 96, 2),
        ("max_characters", 97, None),
    }
    kinds = {(each.kind, each.line, each.of) for each in found.findings}

    assert expected <= kinds
    assert {96} == {line for kind, line, _ in kinds if kind == "leak"}
    assert len(ROWS) == found.num_rows


@pytest.mark.real
def test_no_text_is_shown_in_clear(found):
    shown = "\n".join([*found.lines(), json.dumps(found.record(), ensure_ascii=False)])

    assert "bloggs" not in shown
    assert "story" not in shown
    assert "w···· t· " in shown


def test_a_person_reads_what_is_usable_what_to_do_and_why_it_would_stop(found):
    lines = list(found.lines())

    assert lines[0].endswith(f"of {len(ROWS)} rows usable ({_sizes(found)})")
    assert "  line 91  as line 5  " in "\n".join(lines)
    assert any(line.startswith("max_characters  1 row: raise validation.max_") for line in lines)
    # Two rows in the dev file are fewer than validation.min_prompts.
    assert lines[-1].startswith("gate            prompts must pass 'dev_rows' (>= 20)")


@pytest.mark.real
def test_many_rows_of_a_kind_are_counted_and_json_lists_them(tmp_path):
    path = tmp_path / "same.txt"
    path.write_text("\n".join([*NUMBERS, *NUMBERS[:15]]), "utf-8")
    found = check_file(Params(), path)

    assert {"duplicate": 15} == {kind: n for kind, n in found.counts.items() if kind == "duplicate"}
    assert f"  and {15 - MAX_SHOWN} more; --json lists all" in list(found.lines())
    assert 15 == sum(each["kind"] == "duplicate" for each in found.record()["findings"])


def test_a_missing_file_is_named(folder):
    with pytest.raises(ConfigurationError, match="FILE must name a file of prompts"):
        check_file(Params(), folder / "none.txt")
    with pytest.raises(ConfigurationError, match="--dev must name a file of prompts"):
        check_file(Params(), folder / "mine.jsonl", folder / "none.txt")


def _sizes(found):
    return ", ".join(f"{count} {split}" for split, count in found.splits.items())


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
