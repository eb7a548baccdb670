import json
import math

import pytest
from each_row import each_row

from astra_core.errors import ConfigurationError, DataError
from tasks.sources.columns import MAX_CHARACTERS, Columns, shown_names
from tasks.sources.files import read_rows


def test_the_prompt_itself_is_no_metadata():
    assert {"level": 1} == Columns("text").pick({"text": "a", "level": 1}, place="row 1")


def test_columns_named_like_ours_are_kept():
    row = {"prompt_id": "x7", "family": "f", "split": "dev", "metadata": "m", "text_": "t"}

    assert row == Columns("text").pick(row, place="row 1")


@each_row(
    ("value", "reason"),
    [
        ([1], "list"),
        (math.inf, "a number that is not finite"),
        ("half \ud83d", "half of a character (a lone surrogate)"),
        ("x" * (MAX_CHARACTERS + 1), "a text of 20,001 characters (at most 20,000)"),
    ],
)
def test_what_is_not_kept_is_noted_or_refused_where_it_is_named(value, reason):
    every, named = Columns("text"), Columns("text", ("note",))

    assert {} == every.pick({"note": value}, place="row 1")
    assert {"note": reason} == every.left_out
    assert f"note ({reason})" == every.summary()
    with pytest.raises(DataError) as refusal:
        named.pick({"note": value}, place="p.json row 1")
    assert f"in 'note', got {reason}; leave it out of prompts.metadata_columns" in str(
        refusal.value
    )
    assert "half \ud83d" not in str(refusal.value)


def test_a_value_that_is_missing_is_null():
    assert {"share": None} == Columns("text").pick({"share": math.nan}, place="row 1")


def test_a_long_text_up_to_the_limit_is_kept():
    goal = "x" * MAX_CHARACTERS

    assert {"goal": goal} == Columns("text").pick({"goal": goal}, place="row 1")


def test_names_that_could_be_prompts_are_counted_or_masked():
    columns = Columns("text")
    columns.pick({"a secret prompt": [1], **{f"tag{n}": [1] for n in range(6)}}, place="row 1")

    assert "secret" not in columns.summary()
    assert columns.summary().endswith("tag4 (list), 2 more")
    assert ["level", "a s····· p·····"] == shown_names(["level", "a secret prompt"])


def test_a_header_is_asked_for_names():
    with pytest.raises(ConfigurationError, match=r"must have one column 'level', got \['goal'\]"):
        Columns("text", ("level",)).of_header(["goal"], place="p.csv")
    assert ["b", "a"] == Columns("text", ("a", "b")).of_header(["b", "text", "a"], place="p.csv")
    assert ["a"] == Columns("text").of_header(["", "text", "__index_level_0__", "a"], place="p.csv")


TOLD = {"Behavior": "goal", "SemanticCategory": "category"}


def test_a_column_is_kept_under_another_name_and_takes_the_place_of_one_of_that_name():
    columns = Columns("text", told=TOLD)
    row = {"text": "why", "Behavior": "a", "SemanticCategory": "b", "goal": "old", "more": 1}

    assert {"goal": "a", "category": "b", "more": 1} == columns.pick(row, place="p")
    only = Columns("text", ("more",), told=TOLD)
    assert {"goal": "a", "category": "b", "more": 1} == only.pick(row, place="p")
    assert ["Behavior", "SemanticCategory"] == Columns("text", (), told=TOLD).of_header(
        ["text", "Behavior", "SemanticCategory", "more"], place="p"
    )


def test_the_goal_is_the_prompt_where_there_is_no_other():
    columns = Columns("text", told=TOLD)

    assert "Behavior" == columns.text_of(["Behavior", "SemanticCategory"])
    assert "text" == columns.text_of(["Behavior", "text"])
    assert "text" == Columns("text").text_of(["Behavior"])
    both = Columns("Behavior", told=TOLD)
    assert {"goal": "a", "category": "b"} == both.pick(
        {"Behavior": "a", "SemanticCategory": "b"}, place="p"
    )


def test_a_told_column_that_is_not_there_is_named_with_its_key():
    columns = Columns("text", told=TOLD)
    with pytest.raises(ConfigurationError, match=r"column 'SemanticCategory', .*category_column"):
        columns.of_header(["text", "Behavior"], place="p.csv")
    with pytest.raises(ConfigurationError, match=r"the key 'Behavior', .* see prompts.goal_column"):
        columns.pick({"text": "why"}, place="p")
    with pytest.raises(DataError, match=r"in 'Behavior', got list; leave it out of prompts.goal_c"):
        columns.pick({"text": "why", "Behavior": [], "SemanticCategory": "b"}, place="p")


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
