import threading

import pytest
from each_row import each_row

from astra_core.errors import ScorerError
from astra_core.judge import Judge, Judgement
from astra_parts.testing import check_judge


class _Calm(Judge):
    """None of an empty reply, else by the words it shares with the goal."""

    version = "1"

    def judge(self, exchanges):
        return [
            Judgement(float("bad" in own.reply), {"goal": float(bool(own.conversation.goal))})
            if own.reply.strip()
            else Judgement.none("empty")
            for own in exchanges
        ]


def test_a_judge_that_gives_none_of_what_it_cannot_judge_keeps_the_contract():
    check_judge(_Calm)


class _Silent(Judge):
    version = "1"

    def judge(self, _):
        return None


class _BatchMinded(Judge):
    version = "1"

    def judge(self, exchanges):
        return [Judgement(index / len(exchanges)) for index in range(len(exchanges))]


class _LabelMinded(Judge):
    version = "1"

    def judge(self, exchanges):
        return [Judgement(0.5, {"place": 1.0 / (1 + at)}) for at in range(len(exchanges))]


class _Nameless(_Calm):
    version = ""


class _Placeless(_Calm):
    works_on = "somewhere"


class _ThreadMinded(Judge):
    version = "1"

    def judge(self, exchanges):
        is_main = threading.current_thread() is threading.main_thread()
        return [Judgement(0.5) if is_main else Judgement.none("away") for _ in exchanges]


@each_row(
    ("judge", "promise"),
    [
        (_Silent, "one judgement per exchange, got NoneType"),
        (_BatchMinded, "does not depend on the batch"),
        (_LabelMinded, "does not depend on the batch"),
        (_Nameless, "a version names the judge"),
        (_Placeless, "works_on is one of"),
        (_ThreadMinded, "does not depend on the thread"),
    ],
)
def test_a_judge_that_breaks_a_promise_is_reported_with_it(judge, promise):
    with pytest.raises(AssertionError, match=promise):
        check_judge(judge)


def test_what_is_no_score_is_reported():
    class AboveOne(Judge):
        version = "1"

        def judge(self, exchanges):
            return [Judgement(2.0)] * len(exchanges)

    with pytest.raises(ScorerError, match="got 2"):
        check_judge(AboveOne)
