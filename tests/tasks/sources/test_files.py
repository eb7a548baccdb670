import json

import pandas as pd
import pytest

from astra_core.errors import AstraError, ConfigurationError, DataError
from tasks.sources.files import file_suffixes, read_texts

TEXTS = ["first, with a comma", 'second "quoted"', "dritte Zeile äöü 😀"]


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


@pytest.mark.parametrize("suffix", file_suffixes())
def test_read_texts_gives_the_same_texts_from_every_format(tmp_path, suffix):
    path = write_source(tmp_path, suffix)

    assert TEXTS == [text.strip() for text in read_texts(path, text_column="text")]


@pytest.mark.parametrize("suffix", [".json", ".jsonl", ".csv", ".txt"])
def test_read_texts_skips_a_byte_order_mark(tmp_path, suffix):
    path = write_source(tmp_path, suffix)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())

    assert TEXTS[0] == next(read_texts(path, text_column="text")).strip()


def test_read_texts_reads_a_json_list_of_objects(tmp_path):
    path = tmp_path / "prompts.json"
    path.write_text(json.dumps([{"prompt": "one"}, {"prompt": None}]))

    assert ["one", None] == list(read_texts(path, text_column="prompt"))


def test_read_texts_reads_a_csv_cell_that_no_context_could_hold(tmp_path):
    path = tmp_path / "prompts.csv"
    path.write_text("text\n" + "word " * 100_000 + "\n")

    assert 500_000 == len(next(read_texts(path, text_column="text")))


@pytest.mark.parametrize("suffix", file_suffixes())
def test_read_texts_refuses_an_empty_file(tmp_path, suffix):
    path = tmp_path / f"prompts{suffix}"
    path.touch()

    with pytest.raises(DataError, match="empty file"):
        list(read_texts(path, text_column="text"))


@pytest.mark.parametrize("suffix", [".json", ".jsonl", ".csv", ".parquet"])
def test_read_texts_names_the_columns_when_one_is_missing(tmp_path, suffix):
    path = write_source(tmp_path, suffix)
    if suffix == ".json":
        path.write_text(json.dumps([{"number": 1, "text": "secret words"}]))

    with pytest.raises(ConfigurationError, match=r"'prompt', got \['number', 'text'\]") as caught:
        list(read_texts(path, text_column="prompt"))
    assert "secret" not in str(caught.value)


def test_read_texts_does_not_quote_the_first_prompt_of_a_file_without_header(tmp_path):
    path = tmp_path / "prompts.csv"
    path.write_text("a secret prompt\nanother\n")

    with pytest.raises(ConfigurationError, match="must have the column 'text'") as caught:
        list(read_texts(path, text_column="text"))
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("suffix", [".json", ".jsonl", ".csv", ".txt"])
def test_read_texts_names_the_byte_that_is_not_utf_8(tmp_path, suffix):
    path = tmp_path / f"prompts{suffix}"
    path.write_bytes(b"text\ncaf\xe9\n")

    with pytest.raises(DataError, match="must be UTF-8, got the byte 0xe9"):
        list(read_texts(path, text_column="text"))


@pytest.mark.parametrize(
    ("name", "content", "place"),
    [
        ("p.json", '["one", "two"', r"p\.json must be JSON.*line 1 column 14"),
        ("p.json", '{"text": "one"}', r"p\.json must be a JSON list of prompts, got dict"),
        ("p.json", '["one", 2]', r"row 2 must hold text, got int"),
        ("p.json", "[" * 100_000, "RecursionError"),
        ("p.json", "[" + "1" * 5000 + "]", "must be JSON of texts, got ValueError"),
        ("p.jsonl", '"one"\n\n{"text": \n', r"line 3 must be JSON"),
        ("p.csv", 'text\n"one\n', r"line 2 must be CSV"),
        ("p.csv", "text\none, two\n", r"line 2 must have 1 fields, got more"),
        ("p.parquet", "no parquet at all", r"must be a parquet file"),
    ],
)
def test_read_texts_names_the_place_that_is_broken(tmp_path, name, content, place):
    path = tmp_path / name
    path.write_text(content)

    with pytest.raises(DataError, match=place):
        list(read_texts(path, text_column="text"))


def test_read_texts_refuses_numbers_in_parquet(tmp_path):
    path = tmp_path / "prompts.parquet"
    pd.DataFrame({"text": [1, 2]}).to_parquet(path)

    with pytest.raises(DataError, match="row 1 must hold text, got int"):
        list(read_texts(path, text_column="text"))


@pytest.mark.parametrize(("name", "reason"), [("p.docx", "one of"), ("none.csv", "nothing there")])
def test_read_texts_refuses_what_it_cannot_open(tmp_path, name, reason):
    with pytest.raises(AstraError, match=reason):
        list(read_texts(tmp_path / name, text_column="text"))
