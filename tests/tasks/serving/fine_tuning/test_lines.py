import json

import pytest
from each_row import each_row
from job_service import ASKED, SAID, WORSE, preferences, supervised

from tasks.serving.fine_tuning.lines import FileError, examples_of


def lines(*records):
    return "\n".join(json.dumps(record) for record in records).encode()


def says(*turns, **last):
    roles = ["user", "assistant"] * len(turns)
    own = [{"role": role, "content": text} for role, text in zip(roles, turns, strict=False)]
    own[-1] |= last
    return {"messages": own}


def test_examples_to_imitate():
    (found,) = examples_of(supervised(1), "supervised")

    assert ({"role": "user", "content": ASKED},) == found.context
    assert (SAID, None) == (found.answer["content"], found.worse)


def test_every_answer_of_a_conversation_that_has_a_weight():
    content = lines(says("a", "b", "c", "d"), says("a", "b", "c", "d", weight=0))
    found = examples_of(content, "supervised")

    assert [(1, 1, "b"), (1, 3, "d"), (2, 1, "b")] == [
        (own.line, len(own.context), own.answer["content"]) for own in found
    ]


def test_preferences():
    (found,) = examples_of(preferences(1), "dpo")

    assert (SAID, WORSE) == (found.answer["content"], found.worse["content"])


@each_row(
    ("content", "method", "words"),
    [
        (b"", "supervised", "at least one example"),
        (b"{", "supervised", "line 1"),
        (b"\n\xff", "supervised", "line 2"),
        (lines(says("a")), "supervised", "line 1"),
        (lines(says("a", "b", weight=0)), "supervised", "answer of the assistant"),
        (lines({**says("a", "b"), "tools": []}), "supervised", "tools"),
        (supervised(1), "dpo", "line 1"),
        (preferences(1), "supervised", "line 1"),
        (preferences(1).replace(WORSE.encode(), SAID.encode()), "dpo", "must differ"),
    ],
)
def test_a_wrong_line_is_named_and_not_quoted(content, method, words):
    with pytest.raises(FileError, match=words) as refused:
        examples_of(content, method)

    assert SAID not in str(refused.value)
