import datetime as dt
import gzip
import json
import math

import pandas as pd
import pytest
from each_row import each_row

from astra_core.errors import AstraError, ConfigurationError, DataError
from tasks.sources.columns import Columns
from tasks.sources.files import FileRow, read_rows
from tasks.sources.hub import SUFFIXES

TEXTS = ["first, with a comma", 'second "quoted"', "dritte Zeile äöü 😀"]


def texts(path, column="text"):
    return (row.text for row in read_rows(path, Columns(column)))


def write_source(folder, suffix):
    path = folder / f"prompts{suffix}"
    frame = pd.DataFrame({"number": range(len(TEXTS)), "text": TEXTS})
    match suffix:
        case ".json":
            path.write_text(json.dumps(TEXTS), encoding="utf-8")
        case ".jsonl":
            path.write_text(frame.to_json(orient="records", lines=True), encoding="utf-8")
        case ".csv":
            frame.to_csv(path, index=False)
        case ".parquet":
            frame.to_parquet(path)
        case ".txt":
            path.write_text("\n".join(TEXTS) + "\n", encoding="utf-8")
    return path


@each_row("suffix", SUFFIXES)
def test_read_rows_gives_the_same_texts_from_every_format(tmp_path, suffix):
    path = write_source(tmp_path, suffix)

    assert TEXTS == [text.strip() for text in texts(path)]


@each_row("suffix", [".json", ".jsonl", ".csv", ".txt"])
def test_read_rows_skips_a_byte_order_mark(tmp_path, suffix):
    path = write_source(tmp_path, suffix)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())

    assert TEXTS[0] == next(texts(path)).strip()


def test_read_rows_reads_a_json_list_of_objects(tmp_path):
    path = tmp_path / "prompts.json"
    path.write_text(json.dumps([{"prompt": "one"}, {"prompt": None}]))

    assert ["one", None] == list(texts(path, "prompt"))


def test_read_rows_reads_a_csv_cell_that_no_context_could_hold(tmp_path):
    path = tmp_path / "prompts.csv"
    path.write_text("text\n" + "word " * 100_000 + "\n")

    assert 500_000 == len(next(texts(path)))


@each_row("suffix", SUFFIXES)
def test_read_rows_refuses_an_empty_file(tmp_path, suffix):
    path = tmp_path / f"prompts{suffix}"
    path.touch()

    with pytest.raises(DataError, match="empty file"):
        list(texts(path))


@each_row("suffix", [".json", ".jsonl", ".csv", ".parquet"])
def test_read_rows_names_the_columns_when_one_is_missing(tmp_path, suffix):
    path = write_source(tmp_path, suffix)
    if suffix == ".json":
        path.write_text(json.dumps([{"number": 1, "text": "secret words"}]))

    with pytest.raises(ConfigurationError, match=r"'prompt', got \['number', 'text'\]") as caught:
        list(texts(path, "prompt"))
    assert "secret" not in str(caught.value)


def test_read_rows_does_not_quote_the_first_prompt_of_a_file_without_header(tmp_path):
    path = tmp_path / "prompts.csv"
    path.write_text("a secret prompt\nanother\n")

    with pytest.raises(ConfigurationError, match="must have the column 'text'") as caught:
        list(texts(path))
    assert "secret" not in str(caught.value)


@each_row("suffix", [".json", ".jsonl", ".csv", ".txt"])
def test_read_rows_names_the_byte_that_is_not_utf_8(tmp_path, suffix):
    path = tmp_path / f"prompts{suffix}"
    path.write_bytes(b"text\ncaf\xe9\n")

    with pytest.raises(DataError, match="must be UTF-8, got the byte 0xe9"):
        list(texts(path))


@each_row(
    ("name", "content", "place"),
    [
        ("p.json", '["one", "two"', r"p\.json must be JSON.*line 1 column 14"),
        ("p.json", '["one", 2]', r"row 2 must hold text, got int"),
        ("p.json", "[" * 100_000, "RecursionError"),
        ("p.json", "[" + "1" * 5000 + "]", "must be JSON of texts, got ValueError"),
        ("p.jsonl", '"one"\n\n{"text": \n', r"line 3 must be JSON"),
        ("p.csv", 'text\n"one\n', r"line 2 must be CSV"),
        ("p.csv", "text\none, two\n", r"line 2 must have 1 fields, got 2"),
        ("p.parquet", "no parquet at all", r"must be a parquet file"),
    ],
)
def test_read_rows_names_the_place_that_is_broken(tmp_path, name, content, place):
    path = tmp_path / name
    path.write_text(content)

    with pytest.raises(DataError, match=place):
        list(texts(path))


TABLE = [{"text": "one, two", "category": "a"}, {"text": "three", "category": "b"}]
LISTS = {"a": ["one, two"], "b": [{"text": "three"}]}


@each_row(
    ("name", "content"),
    [
        ("p.json", json.dumps(LISTS)),
        ("p.json", json.dumps({"text": ["one, two", "three"], "category": ["a", "b"]})),
        ("p.json", json.dumps({"prompts": TABLE})),
        ("p.yaml", "a:\n- one, two\nb:\n- text: three\n"),
        ("p.yml", "- {text: 'one, two', category: a}\n- {text: three, category: b}\n"),
        ("p.yaml.gz", "a: ['one, two']\nb: [three]\n"),
        ("p.csv", "text;category\none, two;a\nthree;b\n"),
        ("p.csv", "category\ttext\na\tone, two\nb\tthree\n"),
        ("p.tsv", "text\tcategory\none, two\ta\nthree\tb\n"),
        ("p.jsonl.gz", "\n".join(map(json.dumps, TABLE))),
        ("p.jsonl", "\n".join("\ufeff" + json.dumps(row) for row in TABLE)),
        ("p.csv.gz", 'text,category\n"one, two",a\nthree,b\n'),
    ],
)
def test_read_rows_reads_files_as_people_write_them(tmp_path, name, content):
    path, own = tmp_path / name, content.encode()
    path.write_bytes(gzip.compress(own) if name.endswith(".gz") else own)
    found = [(row.text, row.metadata) for row in read_rows(path, Columns("text"))]

    assert [(row["text"], {"category": row["category"]}) for row in TABLE] == found


@each_row("suffix", [".jsonl", ".json", ".parquet"])
@each_row("column", ["kinds", "category"])
def test_read_rows_joins_a_category_that_is_a_list(tmp_path, suffix, column):
    path = write_rows(tmp_path, suffix, [{"text": "a", column: ["fraud", "theft"]}])
    told = {} if column == "category" else {column: "category"}

    assert [{"category": "fraud, theft"}] == kept(path, Columns("text", told=told))


@each_row(
    ("name", "content", "said"),
    [
        ("p.txt", "id,text\n1,one\n", r"must hold a prompt in each line, got a table; rename it"),
        ("p.txt", "text\tid\none\t1\n", "got a table"),
        ("p.txt", "Prompt,category\na,b\n", "got a table"),
        ("p.txt", '{"question": "one"}\n', "got JSON; rename it to end in .jsonl"),
        ("p.json", '{"text": "one"}', "must be a list of prompts, or such lists by category"),
        ("p.json", '{"text": ["one"], "id": [1, 2]}', "got lists of several lengths"),
        ("p.jsonl", "x" * 101, "line 1 must have at most .* characters, got more"),
        ("p.txt", "good\n" + "x" * 101, "line 2 must have at most .* characters, got more"),
        ("p.csv", "text\n" + "x" * 101, "line 2 must have at most .* characters, got more"),
        ("p.json", "x" * 201, "must be at most .* characters, got more"),
        ("p.txt.gz", "no gzip", "must be packed by gzip, got BadGzipFile"),
    ],
)
def test_read_rows_ends_in_one_line(tmp_path, monkeypatch, name, content, said):
    monkeypatch.setattr("tasks.sources.text_files.LONGEST_LINE", 100)
    monkeypatch.setattr("tasks.sources.text_files.LONGEST_TEXT", 200)
    path = tmp_path / name
    path.write_text(content)

    with pytest.raises(DataError, match=said):
        list(texts(path))


@each_row("content", ["- one\n" * 20_001, f"- {'x' * 300_000}\n"])
def test_read_rows_says_how_to_write_what_is_too_long_for_yaml(tmp_path, content):
    path = tmp_path / "p.yaml"
    path.write_text(content)

    with pytest.raises(AstraError, match="write it as jsonl"):
        list(texts(path))


def test_read_rows_refuses_numbers_in_parquet(tmp_path):
    path = tmp_path / "prompts.parquet"
    pd.DataFrame({"text": [1, 2]}).to_parquet(path)

    with pytest.raises(DataError, match="row 1 must hold text, got int"):
        list(texts(path))


@each_row(("name", "reason"), [("p.docx", "one of"), ("none.csv", "nothing there")])
def test_read_rows_refuses_what_it_cannot_open(tmp_path, name, reason):
    with pytest.raises(AstraError, match=reason):
        list(texts(tmp_path / name))


ROWS = [
    {"goal": "a, b", "category": "fraud", "difficulty": 3, "share": 0.5, "is_new": True},
    {"goal": "c", "category": None, "difficulty": 12, "share": 2.0, "is_new": False},
]


def write_rows(folder, suffix, rows):
    path = folder / f"rows{suffix}"
    match suffix:
        case ".json":
            path.write_text(json.dumps(rows))
        case ".jsonl":
            path.write_text("\n".join(map(json.dumps, rows)))
        case ".csv":
            pd.DataFrame(rows).to_csv(path, index=False)
        case ".parquet":
            pd.DataFrame(rows).to_parquet(path)
    return path


def kept(path, columns):
    return [dict(row.metadata) for row in read_rows(path, columns)]


@each_row("suffix", [".json", ".jsonl", ".parquet"])
def test_read_rows_keeps_the_other_columns_with_their_types(tmp_path, suffix):
    found = list(read_rows(write_rows(tmp_path, suffix, ROWS), Columns("goal")))

    assert ["a, b", "c"] == [row.text for row in found]
    for row, expected in zip(found, ROWS, strict=True):
        rest = {name: value for name, value in expected.items() if name != "goal"}
        assert rest == row.metadata
        assert list(map(type, rest.values())) == list(map(type, row.metadata.values()))


def test_read_rows_finds_the_numbers_of_a_csv_by_column(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("goal,level,share,code,empty\na,3,0.5,007,\nb,12,2,12,\nc,,,x,\n")

    assert [
        {"level": 3, "share": 0.5, "code": "007", "empty": ""},
        {"level": 12, "share": 2.0, "code": "12", "empty": ""},
        {"level": None, "share": None, "code": "x", "empty": ""},
    ] == kept(path, Columns("goal"))


@each_row("suffix", [".json", ".jsonl", ".csv", ".parquet"])
def test_read_rows_keeps_only_the_columns_that_are_named(tmp_path, suffix):
    path = write_rows(tmp_path, suffix, ROWS)

    assert [{"difficulty": 3}, {"difficulty": 12}] == kept(path, Columns("goal", ("difficulty",)))
    assert [{}, {}] == kept(path, Columns("goal", ()))


@each_row("suffix", [".json", ".jsonl", ".csv", ".parquet"])
def test_read_rows_asks_for_the_columns_that_are_named(tmp_path, suffix):
    path = write_rows(tmp_path, suffix, ROWS)

    with pytest.raises(
        ConfigurationError, match=r"'level', got \['goal', 'category'.*metadata_col"
    ):
        kept(path, Columns("goal", ("level",)))


def test_read_rows_finds_no_column_in_a_text_file(tmp_path):
    path = write_source(tmp_path, ".txt")

    with pytest.raises(ConfigurationError, match="must have one column 'level'"):
        kept(path, Columns("text", ("level",)))


def test_read_rows_leaves_out_what_is_not_plain_and_notes_it(tmp_path):
    rows = [{"goal": "a", "tags": ["x"], "at": {"b": 1}, "share": math.nan}]
    for suffix in (".json", ".parquet"):
        columns = Columns("goal")
        path = write_rows(tmp_path, suffix, rows)

        assert [{"share": None}] == kept(path, columns)
        assert {"tags", "at"} == set(columns.left_out)


def test_read_rows_refuses_what_is_not_plain_in_a_column_that_is_named(tmp_path):
    for suffix in (".json", ".parquet"):
        path = write_rows(tmp_path, suffix, [{"goal": "a", "tags": ["x"]}])

        with pytest.raises(DataError, match=r"row 1 must hold .* in 'tags', got list; leave"):
            kept(path, Columns("goal", ("tags",)))


def test_read_rows_has_no_date_and_no_index_of_pandas(tmp_path):
    frame = pd.DataFrame({"goal": ["a"], "day": [dt.date(2020, 1, 2)]}, index=[7])
    frame.to_parquet(tmp_path / "p.parquet")
    columns = Columns("goal")

    assert [{}] == kept(tmp_path / "p.parquet", columns)
    assert {"day": "date"} == columns.left_out


def test_read_rows_keeps_neither_of_two_columns_of_one_name(tmp_path):
    path = tmp_path / "p.csv"
    path.write_text("goal,level,level,kind\na,1,2,x\n")
    columns = Columns("goal")

    assert [{"kind": "x"}] == kept(path, columns)
    assert {"level": "several columns"} == columns.left_out
    with pytest.raises(ConfigurationError, match="must have one column 'level', got several"):
        kept(path, Columns("goal", ("level",)))


def test_a_bare_text_has_no_metadata(tmp_path):
    path = tmp_path / "p.json"
    path.write_text(json.dumps(["one", {"text": "two", "level": 1}]))

    assert [FileRow("one"), FileRow("two", {"level": 1})] == list(read_rows(path, Columns("text")))
    with pytest.raises(ConfigurationError, match="row 1 must have the key 'level'"):
        kept(path, Columns("text", ("level",)))


@each_row(
    ("name", "content", "places"),
    [
        ("a.jsonl", '"one"\n\n{"text": "two"}\n', ["line 1", "line 3"]),
        ("a.txt", "one\ntwo\n", ["line 1", "line 2"]),
        ("a.csv", 'text\n"one\nlong"\ntwo\n', ["line 2", "line 4"]),
        ("a.json", '["one", "two"]', ["row 1", "row 2"]),
    ],
)
def test_each_row_has_its_place_in_the_file(tmp_path, name, content, places):
    path = tmp_path / name
    path.write_text(content)

    assert places == [row.place for row in read_rows(path, Columns("text"))]
