import json

import pytest

from astra_core.errors import DataError
from tasks.sources.columns import Columns
from tasks.sources.files import read_rows

TALK = {
    "turns": [
        {"role": "user", "content": {"text": "first", "lang": "en"}},
        {"role": "assistant", "content": {"text": "no"}},
        {"role": "user", "content": {"text": "again"}},
    ],
    "notes": {},
}


def rows_of(tmp_path, name, text):
    path = tmp_path / name
    path.write_text(text)
    return [
        (row.text, dict(row.metadata)) for row in read_rows(path, Columns("text", wanted="all"))
    ]


def test_garaks_hit_log_gives_the_last_words_of_the_user(tmp_path):
    hits = [
        {"goal": "swear", "prompt": TALK, "probe": "dan.Dan_11_0", "score": 1.0, "output": {}},
        {"goal": None, "prompt": {"text": "older", "lang": "*"}, "probe": "x.Y"},
        {"prompt": {"turns": 3}},
    ]
    found = rows_of(tmp_path, "a.hitlog.jsonl", "\n".join(map(json.dumps, hits)))

    assert [
        ("again", {"goal": "swear", "category": "dan.Dan_11_0"}),
        ("older", {"category": "x.Y"}),
        (None, {}),
    ] == found


def test_promptfoos_results_give_the_prompt_of_each_test(tmp_path):
    raw = {
        "prompt": {"raw": "as sent", "label": "l"},
        "vars": {"x": 1},
        "response": {"output": "o"},
    }
    own = {**raw, "vars": {"prompt": "as meant"}, "metadata": {"pluginId": "harmful:hate"}}
    record = {"evalId": "e", "results": {"version": 3, "results": [raw, own], "stats": {}}}

    assert [("as sent", {}), ("as meant", {"category": "harmful:hate"})] == rows_of(
        tmp_path, "results.json", json.dumps(record)
    )


def test_a_prompt_that_is_no_text_is_told_by_its_line(tmp_path):
    bad = {"prompt": {"turns": [{"role": "user", "content": {"text": 4}}]}}
    with pytest.raises(DataError, match="line 1 must hold text, got int"):
        rows_of(tmp_path, "a.jsonl", json.dumps(bad))
