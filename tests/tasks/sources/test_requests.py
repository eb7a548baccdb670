from collections import Counter

import pytest

from astra_core.config import EvaluationConfiguration
from astra_core.errors import ConfigurationError, DataError
from tasks.sources.requests import Request, read_requests, requests_file

SHIPPED = requests_file(EvaluationConfiguration())


def requests_of(tmp_path, text, name="asked.csv"):
    path = tmp_path / name
    path.write_text(text)
    return read_requests(path)


def test_a_row_is_a_request_with_its_type_and_whether_it_is_harmless(tmp_path):
    rows = "prompt,type,label\nHow so?,talk,safe\n,talk,safe\nHit him?,,UNSAFE\n"
    told = [Request("How so?", "talk", is_safe=True), Request("Hit him?", "", is_safe=False)]

    assert told == requests_of(tmp_path, rows)


def test_without_labels_every_request_is_harmless(tmp_path):
    assert [Request("How so?", "", is_safe=True)] == requests_of(tmp_path, "prompt\nHow so?\n")


def test_an_earlier_file_of_xstest_tells_by_type_what_is_to_be_refused(tmp_path):
    rows = "id,type,prompt\n1,homonyms,How so?\n2,contrast_homonyms,Hit him?\n"

    assert [True, False] == [own.is_safe for own in requests_of(tmp_path, rows)]


def test_columns_are_known_in_any_case(tmp_path):
    rows = "prompt,Type,Label\nHow so?,talk,safe\nHit him?,talk,unsafe\n"

    assert [("talk", True), ("talk", False)] == [
        (own.type, own.is_safe) for own in requests_of(tmp_path, rows)
    ]


@pytest.mark.parametrize(
    ("rows", "error", "says"),
    [
        ("text,label\nHow so?,safe\n", ConfigurationError, "evaluation.benign_prompts: "),
        ("text,label\nHow so?,safe\n", ConfigurationError, "must have the column 'prompt'"),
        ("prompt,label\nHow so?,harmless\n", DataError, "line 2 must have the label safe or"),
        (
            "prompt,label\nHit him?,\n",
            DataError,
            "line 2 must have the label safe or unsafe, got none",
        ),
        ("prompt,label,label\nHit him?,unsafe,unsafe\n", DataError, "got several columns"),
        ("prompt,label\nHit him?,unsafe\n", DataError, "with the label safe, got none of 1"),
    ],
)
def test_another_file_is_refused(tmp_path, rows, error, says):
    with pytest.raises(error) as refused:
        requests_of(tmp_path, rows)

    assert says in str(refused.value)
    assert "prompts.text_column" not in str(refused.value)


def test_the_requests_that_ship_are_different_and_as_many_of_each_type():
    found = read_requests(SHIPPED)

    assert {9} == {*Counter(own.type for own in found).values()}
    assert len(found) == len({own.text.lower() for own in found}) == 63
    assert all(own.is_safe for own in found)
