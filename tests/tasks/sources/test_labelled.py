import json

import pandas as pd
import pytest
from each_row import each_row

from astra_core.errors import AstraError, ConfigurationError, DataError
from tasks.sources.labelled import LabelColumns, read_labelled

ROWS = [
    {
        "reply": "never, fool",
        "label": 1,
        "probe": "will you?",
        "prompt": "a seed",
        "goal": "an insult",
        "category": "abuse",
        "conversation": [
            {"role": "user", "text": "hello"},
            {"role": "assistant", "content": "go away"},
        ],
    },
    {"reply": "of\ncourse", "label": 0, "probe": "", "prompt": "", "conversation": []},
]


def written(folder, suffix, rows=ROWS):
    path = folder / f"labelled{suffix}"
    match suffix:
        case ".jsonl":
            path.write_text("\n\n".join(map(json.dumps, rows)), "utf-8")
        case ".csv":
            texts = [row | {"conversation": json.dumps(row["conversation"])} for row in rows]
            pd.DataFrame(texts).to_csv(path, index=False)
        case ".parquet":
            pd.DataFrame(rows).to_parquet(path)
    return path


@each_row("suffix", [".jsonl", ".csv", ".parquet"])
def test_a_row_is_what_a_judge_reads_and_what_a_person_said(suffix, tmp_path):
    first, second = read_labelled(written(tmp_path, suffix))
    conversation = first.exchange.conversation

    assert (True, False) == (first.is_bad, second.is_bad)
    assert ("never, fool", "will you?") == (first.exchange.reply, first.exchange.probe)
    assert ("an insult", "abuse") == (conversation.goal, conversation.category)
    assert [("user", "hello"), ("assistant", "go away")] == [
        (message.role, message.text) for message in conversation.messages
    ]
    assert "a seed" == conversation.prompt.text
    assert ("of\ncourse", "") == (second.exchange.reply, second.exchange.probe)
    assert () == second.exchange.conversation.messages


@each_row(
    ("suffix", "places"),
    # The second object is on line 3, after an empty line.
    [
        (".jsonl", ["line 1", "line 3"]),
        (".csv", ["line 2", "line 3"]),
        (".parquet", ["row 1", "row 2"]),
    ],
)
def test_a_row_knows_its_place(suffix, places, tmp_path):
    assert places == [row.place for row in read_labelled(written(tmp_path, suffix))]


def test_a_row_after_one_of_several_lines_has_its_own_line(tmp_path):
    path = tmp_path / "labelled.csv"
    path.write_text('reply,label\n"two\nlines",1\nlast,0\n')

    assert ["line 2", "line 4"] == [row.place for row in read_labelled(path)]


@each_row(
    ("text", "is_bad"),
    [("0", False), ("1", True), ("true", True), ("False", False), (" 1 ", True), ("1.0", True)],
)
def test_labels_are_read_as_people_write_them(text, is_bad, tmp_path):
    path = tmp_path / "labelled.csv"
    path.write_text(f"reply,label\nno,{text}\n")

    assert [is_bad] == [row.is_bad for row in read_labelled(path)]


def test_columns_may_have_other_names(tmp_path):
    path = tmp_path / "labelled.jsonl"
    path.write_text('{"answer": "no", "is_harmful": true, "behaviour": "x"}\n')
    columns = LabelColumns(reply="answer", label="is_harmful", category="behaviour")
    (row,) = read_labelled(path, columns)

    assert ("no", True, "x") == (row.exchange.reply, row.is_bad, row.exchange.conversation.category)


GIVEN = '{"reply": "r", "label": 1}\n'


@each_row(
    ("lines", "told"),
    [
        (GIVEN + '{"reply": "secret", "label": 2}', "line 2 must hold 0, 1, true or false in"),
        (GIVEN + '{"reply": "secret", "label": null}', "line 2 must hold 0, 1, true or false in"),
        (GIVEN + '{"reply": "secret"}', "line 2 must have the column 'label', got ['reply']"),
        (GIVEN + '{"reply": null, "label": 1}', "line 2 must hold a reply in 'reply', got nothing"),
        (GIVEN + '{"reply": ["secret"], "label": 1}', "line 2 must hold text in 'reply', got list"),
        (GIVEN + '{"reply": "secret", ', "line 2 must be JSON, got:"),
        (GIVEN + '["secret"]', "line 2 must be a JSON object, got list; name its columns"),
        (
            '{"reply": "r", "label": 1, "conversation": "secret"}',
            "line 1, 'conversation', must be JSON",
        ),
        (
            '{"reply": "r", "label": 1, "conversation": [{"role": "system", "text": "secret"}]}',
            "line 1, 'conversation', must be a list of messages, each with role",
        ),
        ("\n", "must hold labelled replies, got no row; check how it was written"),
        ("\udcff", "must be UTF-8, got the byte 0xff"),
    ],
)
def test_a_mistake_is_one_line_with_its_place_and_without_the_text(lines, told, tmp_path):
    path = tmp_path / "labelled.jsonl"
    path.write_text(lines, "utf-8", errors="surrogateescape")
    with pytest.raises(AstraError) as caught:
        read_labelled(path)

    assert f"{path} {told}" in str(caught.value)
    assert "secret" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_unquoted_comma_in_a_csv_is_named_by_its_line(tmp_path):
    path = tmp_path / "labelled.csv"
    path.write_text("reply,label\nfine,1\nno, never,1\n")
    with pytest.raises(DataError, match="line 3 must have 2 fields, got 3; put texts that hold"):
        read_labelled(path)


@each_row("num_whole", [0, 4, 40])
def test_a_broken_parquet_file_is_reported(num_whole, tmp_path):
    path = written(tmp_path, ".parquet")
    whole = path.read_bytes()
    path.write_bytes(whole[:num_whole] + b"\xff" * 30 + whole[num_whole + 30 :])
    with pytest.raises(DataError, match="must be a parquet file, got:"):
        read_labelled(path)


@each_row(
    ("name", "told"),
    [("none.csv", "got 'none.csv' \\(nothing there\\)"), ("labelled.txt", "FILE must be one of")],
)
def test_a_file_that_cannot_be_read_is_refused(name, told, tmp_path, monkeypatch):
    from pathlib import Path

    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigurationError, match=told):
        read_labelled(Path(name))


@each_row(
    ("named", "told"),
    [
        ({"category": "topic"}, "must have the column 'topic', got"),
        ({"bad": ("1", "bda")}, r"got 'bda', which no row has; labels there are \['1'\]$"),
    ],
)
def test_a_column_or_label_that_the_user_named_must_be_there(named, told, tmp_path):
    path = tmp_path / "labelled.jsonl"
    path.write_text(GIVEN)
    with pytest.raises(ConfigurationError, match=told):
        read_labelled(path, LabelColumns(**named))
