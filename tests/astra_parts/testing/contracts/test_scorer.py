import threading

import pytest
from each_row import each_row
from pydantic import ConfigDict

from astra_core.config import Section
from astra_core.registry import BUILT_INS, resolve
from astra_core.scorer import Scorer
from astra_parts.testing import check_scorer


def _reads_texts(name):
    return issubclass(resolve("scorer", name), Scorer)


SCORER_OPTIONS = {"phrases": {"phrases": ["bad", "worse"]}}


@each_row("name", [n for n in BUILT_INS["scorer"] if _reads_texts(n)])
def test_every_built_in_scorer_keeps_the_contract(name):
    check_scorer(name, **SCORER_OPTIONS.get(name, {}))


class _ForgivingOptions(Scorer):
    class Options(Section):
        model_config = ConfigDict(extra="ignore")

    version = "1"

    def score(self, texts):
        return [0.5] * len(texts)


class _AboveOne(Scorer):
    version = "1"

    def score(self, texts):
        return [2.0] * len(texts)


class _BatchMinded(Scorer):
    version = "1"

    def score(self, texts):
        return [index / max(len(texts), 1) for index in range(len(texts))]


class _Nameless(Scorer):
    version = ""

    def score(self, texts):
        return [0.5] * len(texts)


class _Silent(Scorer):
    version = "1"

    def score(self, _):
        return None


class _Placeless(Scorer):
    version = "1"
    works_on = "somewhere"

    def score(self, texts):
        return [0.5] * len(texts)


class _ThreadMinded(Scorer):
    version = "1"

    def score(self, texts):
        is_main = threading.current_thread() is threading.main_thread()
        return [0.5 if is_main else 0.6] * len(texts)


@each_row(
    ("scorer", "promise"),
    [
        (_ForgivingOptions, "refuses an unknown option"),
        (_AboveOne, r"in \[0, 1\]"),
        (_Silent, "one score per text, got NoneType"),
        (_BatchMinded, "does not depend on the batch"),
        (_Nameless, "a version names the scorer"),
        (_Placeless, "works_on is one of"),
        (_ThreadMinded, "does not depend on the thread"),
    ],
)
def test_a_scorer_that_breaks_a_promise_is_reported_with_it(scorer, promise):
    with pytest.raises(AssertionError, match=promise):
        check_scorer(scorer)
