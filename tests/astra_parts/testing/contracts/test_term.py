import pytest
import torch
from each_row import each_row

from astra_core.registry import BUILT_INS
from astra_parts.rewards.novelty_terms import NgramNovelty
from astra_parts.rewards.score_terms import ProbeScore
from astra_parts.testing import check_term

VARIANTS = {
    "reply": {"of": "k_of_n", "k": 2},
    "likelihood": {"under": "reference", "floor": "relative", "nats": 0.1},
    "goal": {"by": "embeddings"},
    "embedding_novelty": {"num_neighbours": 3, "memory_size": 5},
}


@pytest.mark.real
@each_row("name", BUILT_INS["term"])
def test_every_built_in_term_keeps_the_contract(name):
    check_term(name)


@each_row("name", VARIANTS)
def test_a_term_keeps_the_contract_under_other_options(name):
    check_term(name, **VARIANTS[name])


class _Remembering(NgramNovelty):
    def values(self, turns):
        found = super().values(turns)
        self.remember(turns)
        return found


class _Forgetful(NgramNovelty):
    def load_state(self, state):
        pass


class _Endless(ProbeScore):
    def values(self, turns):
        return [float("inf") for _ in turns]


class _Wishful(ProbeScore):
    needs = frozenset({"mind"})


class _Overjoyed(NgramNovelty):
    def values(self, turns):
        return [2.0 for _ in turns]

    def state(self):
        return {"counts": torch.zeros(1)}


@each_row(
    ("term", "promise"),
    [
        (_Remembering, "values remembers nothing"),
        (_Forgetful, "all of the memory"),
        (_Endless, "a value is finite"),
        (_Wishful, "needs are signals"),
        (_Overjoyed, "a novelty is in"),
    ],
)
def test_a_term_that_breaks_a_promise_is_reported_with_it(term, promise):
    with pytest.raises(AssertionError, match=promise):
        check_term(term)
