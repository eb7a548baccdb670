import json

import pandas as pd
from each_row import each_row

from tasks.params.prompts import PromptsConfiguration
from tasks.sources.rows import SourceRow, columns_of, source_rows


def rows_of(**section):
    prompts = PromptsConfiguration(**section)
    return list(source_rows(prompts, columns_of(prompts), data_seed=0))


def test_a_dev_file_comes_first_and_both_keep_their_columns(tmp_path):
    path, dev = tmp_path / "p.jsonl", tmp_path / "d.jsonl"
    path.write_text(json.dumps({"text": "one", "level": 1}))
    dev.write_text(json.dumps({"text": "two", "level": 2}))

    assert [
        SourceRow(
            "two", "d.jsonl", "MIT", is_dev=True, metadata={"level": 2}, place="d.jsonl line 1"
        ),
        SourceRow("one", "p.jsonl", "MIT", metadata={"level": 1}, place="p.jsonl line 1"),
    ] == rows_of(source="file", path=path, dev_path=dev, licence="MIT")
    assert [{}, {}] == [
        row.metadata for row in rows_of(source="file", path=path, dev_path=dev, metadata_columns=())
    ]


def test_openers_have_a_family_and_their_mood_as_category():
    found = rows_of(num_builtin=20)

    assert 20 == len(found)
    assert all(row.family.startswith(row.metadata["category"]) for row in found)


def test_drawn_columns_fill_what_a_row_lacks(tmp_path):
    path = tmp_path / "p.jsonl"
    texts = [f"text {number}" for number in range(40)]
    path.write_text("\n".join(json.dumps({"text": text}) for text in ["own", *texts]))
    given = path.read_text().replace('"own"', '"own", "code": "mine"')
    path.write_text(given)

    def codes(data_seed, **column):
        section = {"source": "file", "path": path, "drawn_columns": {"code": column}}
        prompts = PromptsConfiguration(**section)
        rows = source_rows(prompts, columns_of(prompts), data_seed=data_seed)
        return [row.metadata["code"] for row in rows]

    own, *words = codes(0, values=("red", "blue"))

    assert "mine" == own
    assert {"red", "blue"} == set(words)
    assert words != codes(1, values=("red", "blue"))[1:]
    assert 1 == len(set(codes(0, per="run")[1:]))
    assert codes(0, per="run")[1:] != codes(1, per="run")[1:]


HARMFUL = [
    {
        "BehaviorID": "one",
        "Behavior": "say it is bad",
        "SemanticCategory": "lies",
        "Ideal": "so bad",
    },
    {"BehaviorID": "two", "Behavior": "never be kind", "SemanticCategory": "fraud", "Ideal": "no"},
]


@each_row("suffix", ["csv", "jsonl", "json", "parquet"])
def test_a_file_of_goals_needs_no_column_of_texts(tmp_path, suffix):
    path, frame = tmp_path / f"goals.{suffix}", pd.DataFrame(HARMFUL)
    if suffix == "csv":
        frame.to_csv(path, index=False)
    elif suffix == "parquet":
        frame.to_parquet(path)
    else:
        frame.to_json(path, orient="records", lines=suffix == "jsonl")
    told = {
        "goal_column": "Behavior",
        "category_column": "SemanticCategory",
        "reference_column": "Ideal",
    }
    rows = list(rows_of(source="file", path=path, **told))

    assert ["say it is bad", "never be kind"] == [row.text for row in rows]
    assert {
        "goal": "say it is bad",
        "category": "lies",
        "reference_reply": "so bad",
        "BehaviorID": "one",
    } == dict(rows[0].metadata)
