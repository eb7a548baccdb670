"""Files of prompts in each format, broken as files break."""

import io
import json

import pyarrow as pa
import pyarrow.parquet as pq
from cases import Case, both, params, write

STAGE = ("tasks", "prompts")
NONE = "must hold at least one prompt"


def _parquet(table: pa.Table) -> bytes:
    buffer = io.BytesIO()
    pq.write_table(table, buffer)
    return buffer.getvalue()


def _case(name, file, content, *words, **section):
    source = params(prompts={"source": "file", "path": file, **section})
    # Of a file without a single prompt the key is told that named it.
    subject = "prompts.path" if words[0] == NONE else file
    says = (subject, *words)
    return Case(f"prompts in {file}: {name}", STAGE, says, both(source, write(file, content)))


WIDE = [f"c{number}" for number in range(1001)]
GOOD = _parquet(pa.table({"text": ["a", "b"]}))
BROKEN = [
    _case("empty", file, b"", "must hold prompts, got an empty file")
    for file in ("p.json", "p.jsonl", "p.csv", "p.txt", "p.parquet")
]
BROKEN += [
    _case("UTF-16", file, "text\n[{}]".encode("utf-16"), "must be UTF-8, got the byte 0xff")
    for file in ("p.json", "p.jsonl", "p.csv", "p.txt")
]
BROKEN += [
    _case("Latin-1", file, text.encode("latin-1"), "must be UTF-8, got the byte 0xfc")
    for file, text in (
        ("p.json", '["für"]'),
        ("p.jsonl", '"für"\n'),
        ("p.csv", "text\nfür\n"),
        ("p.txt", "für\n"),
    )
]
BROKEN += [
    _case("a mark and nothing", file, b"\xef\xbb\xbf", words)
    for file, words in (
        ("p.json", "p.json must be JSON"),
        ("p.jsonl", NONE),
        ("p.csv", "p.csv must have the column 'text'"),
        ("p.txt", NONE),
        ("p.parquet", "p.parquet must be a parquet file"),
    )
]
BROKEN += [_case("only blank lines", file, "\n \n\t\n", NONE) for file in ("p.jsonl", "p.txt")]
CASES = [
    *BROKEN,
    _case("a NUL", "p.txt", "good\nb\0d\n", "row 2 must be text, got a NUL character"),
    _case("a NUL", "p.csv", "text\ngood\nb\0d\n", "NUL"),
    _case("an escaped NUL", "p.jsonl", '{"text": "b\\u0000d"}\n', "row 1 must be text, got a NUL"),
    _case("UTF-16 without a mark", "p.txt", "hello\n".encode("utf-16-le"), "NUL", "UTF-16"),
    _case("half a character", "p.json", '["\\ud83d"]', "row 1 must hold whole characters"),
    _case("half a character", "p.jsonl", '{"text": "\\ude00"}', "row 1 must hold whole characters"),
    _case("cut short", "p.json", '[{"text": "a"}, {"te', "must be JSON", "line 1"),
    _case(
        "an object",
        "p.json",
        '{"text": "a"}',
        "must be a list of prompts, or such lists by category, got dict",
    ),
    _case(
        "a number", "p.json", "5", "must be a list of prompts, or such lists by category, got int"
    ),
    _case(
        "null",
        "p.json",
        "null",
        "must be a list of prompts, or such lists by category, got NoneType",
    ),
    _case("an empty list", "p.json", "[]", NONE),
    _case("numbers", "p.json", "[1, 2]", "row 1 must hold text, got int", "prompts.text_column"),
    _case("nested lists", "p.json", '[["a"]]', "row 1 must hold text, got list"),
    _case("nested objects", "p.json", '[{"text": {"a": 1}}]', "row 1 must hold text, got dict"),
    _case("3,000 levels", "p.json", "[" * 3000, "must be JSON"),
    _case("100,000 levels", "p.json", "[" * 100_000 + "]" * 100_000, "must be JSON of texts"),
    _case("5,000 digits", "p.json", f"[{'9' * 5000}]", "must be JSON of texts"),
    _case(
        "another key", "p.json", '[{"body": "a"}]', "row 1 must have the key 'text', got ['body']"
    ),
    _case(
        "another column",
        "p.json",
        '[{"text": "a"}]',
        "row 1 must have the key 'body'",
        text_column="body",
    ),
    _case("cut short", "p.jsonl", '{"text": "a"}\n{"te', "line 2 must be JSON"),
    _case("a list", "p.jsonl", '["a"]\n', "line 1 must hold text, got list"),
    _case("a number", "p.jsonl", '"a"\n7\n', "line 2 must hold text, got int"),
    _case(
        "another key",
        "p.jsonl",
        '{"text": "a"}\n{"body": "b"}\n',
        "line 2 must have the key 'text'",
    ),
    _case("a JSON list over lines", "p.jsonl", '[\n"a"\n]\n', "line 1 must be JSON"),
    _case("deep", "p.jsonl", "[" * 50_000 + "\n", "line 1 must be JSON"),
    _case("5,000 digits", "p.jsonl", "9" * 5000 + "\n", "line 1 must be JSON of texts"),
    _case("an open quote", "p.csv", 'text\n"a\nb\n', "must be CSV", "correct that row"),
    _case("a field too many", "p.csv", "text,x\na,b,c\n", "line 2 must have 2 fields, got 3"),
    _case("another column", "p.csv", "body\na\n", "must have the column 'text', got ['body']"),
    _case(
        "a column twice", "p.csv", "text,text\na,b\n", "must have one column 'text', got several"
    ),
    _case(
        "no header",
        "p.csv",
        "Hello you fool!\nAnd you?\n",
        "must have the column 'text', got ['H···· y·· f···!']",
    ),
    _case("a header alone", "p.csv", "text\n", NONE),
    _case("a table", "p.txt", "id,text\n1,a\n", "got a table; rename it to end in .csv"),
    _case("text after a quote", "p.csv", 'text\n"a"b\n', "must be CSV"),
    *(
        _case(
            "a column that is not there",
            file,
            content,
            "'level', got ['text']",
            "see prompts.metadata_columns",
            metadata_columns=["level"],
        )
        for file, content in (
            ("p.json", '[{"text": "a"}]'),
            ("p.jsonl", '{"text": "a"}\n'),
            ("p.csv", "text\na\n"),
            ("p.parquet", GOOD),
        )
    ),
    *(
        _case(
            "1,001 columns",
            file,
            content,
            "must have at most 1000 columns that are kept, got 1001",
            "name those that you need as prompts.metadata_columns",
        )
        for file, content in (
            ("p.csv", ",".join(["text", *WIDE]) + "\na\n"),
            ("p.jsonl", json.dumps({"text": "a", **dict.fromkeys(WIDE, 1)})),
            ("p.parquet", _parquet(pa.table({"text": ["a"], **{name: [1] for name in WIDE}}))),
        )
    ),
    _case("no columns", "p.txt", "a\n", "must have one column 'level'", metadata_columns=["level"]),
    _case(
        "a list in a column",
        "p.json",
        '[{"text": "a", "level": [1]}]',
        "row 1 must hold text, a number, true, false or null in 'level', got list",
        "leave it out of prompts.metadata_columns",
        metadata_columns=["level"],
    ),
    _case(
        "infinity in a column",
        "p.jsonl",
        '{"text": "a", "level": Infinity}\n',
        "line 1 must hold text, a number",
        "a number that is not finite",
        metadata_columns=["level"],
    ),
    _case("no parquet", "p.parquet", "PAR1 is not enough", "must be a parquet file"),
    _case("cut short", "p.parquet", GOOD[: len(GOOD) // 2], "must be a parquet file"),
    _case("its head lost", "p.parquet", GOOD[20:], "must be a parquet file"),
    _case(
        "its footer overwritten",
        "p.parquet",
        GOOD[:-30] + bytes(26) + b"PAR1",
        "must be a parquet file",
    ),
    _case(
        "another column",
        "p.parquet",
        GOOD,
        "must have the column 'body', got ['text']",
        text_column="body",
    ),
    _case(
        "numbers",
        "p.parquet",
        _parquet(pa.table({"text": [1, 2]})),
        "row 1 must hold text, got int",
    ),
    _case(
        "lists",
        "p.parquet",
        _parquet(pa.table({"text": [["a"]]})),
        "row 1 must hold text, got list",
    ),
    _case("structs", "p.parquet", _parquet(pa.table({"text": [{"a": 1}]})), "must"),
    _case(
        "bytes",
        "p.parquet",
        _parquet(pa.table({"text": [b"a"]})),
        "row 1 must hold text, got bytes",
    ),
    _case(
        "dates",
        "p.parquet",
        _parquet(pa.table({"text": pa.array([1], pa.date32())})),
        "row 1 must hold text",
    ),
    _case("no row", "p.parquet", _parquet(pa.table({"text": pa.array([], pa.string())})), NONE),
    _case(
        "nulls alone",
        "p.parquet",
        _parquet(pa.table({"text": pa.array([None], pa.string())})),
        NONE,
    ),
    _case("another format", "p.xlsx", b"PK\x03\x04", "prompts must come from one of"),
    _case("no suffix", "p", "a\n", "prompts must come from one of"),
    Case(
        "prompts in a dev file: broken",
        STAGE,
        ("d.jsonl line 1 must be JSON",),
        both(
            write("p.txt", "a\n"),
            write("d.jsonl", "{"),
            params(prompts={"source": "file", "path": "p.txt", "dev_path": "d.jsonl"}),
        ),
    ),
]
