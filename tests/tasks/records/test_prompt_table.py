import pyarrow as pa

from tasks.records.prompt_table import COLUMNS, prompt_schema, rejected_rows, rejected_schema


def test_rejected_rows_are_prompts_with_their_reasons():
    prompts = pa.Table.from_pylist(
        [dict.fromkeys(COLUMNS, name) for name in "ab"], schema=prompt_schema()
    )
    rows = rejected_rows(prompts, [["url"], ["email", "phone"]])

    assert rejected_schema() == rows.schema
    assert [["url"], ["email", "phone"]] == rows["reasons"].to_pylist()
    assert prompts == rows.select(COLUMNS)
