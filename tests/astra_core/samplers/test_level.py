from dataclasses import replace

import pytest

from astra_core.conversation import Conversation
from astra_core.errors import TargetError
from astra_core.models.language_model import Utterance
from astra_core.rollout import Context, Failure, Replies
from astra_core.samplers.level import (
    Asked,
    Growth,
    Place,
    grown_level,
    opening,
    probed,
    reference_logprobs,
    responded,
)
from astra_core.testing import tiny_language_model, tiny_prompts, tiny_system

PROMPTS = tiny_prompts(2)


def growth(system=None, *, num_responses=2):
    return Growth(system or tiny_system(), 1, "training", 0, num_responses)


def places(own):
    return [opening(own.system, prompt) for prompt in PROMPTS]


class Silent:
    """A target that never answers."""

    def __init__(self, model):
        self.model = model

    def __getattr__(self, name):
        return getattr(self.model, name)

    def continuations(self, *_, **__):
        msg = "http 503"
        raise TargetError(msg)


def test_both_sides_open_with_the_prompt_each_in_its_own_ids():
    shared, apart = tiny_system(), tiny_system(target=tiny_language_model(9, vocabulary=None))
    same, other = opening(shared, PROMPTS[0]), opening(apart, PROMPTS[0])

    assert same.attacker_ids == same.target_ids == other.attacker_ids
    target = apart.target
    assert other.target_ids == target.opening_ids + target.closed(target.encode(PROMPTS[0].text))


def test_a_level_is_probed_without_a_word_to_the_target():
    own = growth()
    own = replace(own, system=replace(own.system, target=Silent(own.system.target)))
    asked = probed(own, places(own), 3)

    assert [(0,), (1,), (2,)] * 2 == [found.path for found in asked]
    assert [PROMPTS[0]] * 3 + [PROMPTS[1]] * 3 == [found.place.prompt for found in asked]
    for found in asked:
        assert found.place.attacker_ids == found.context.token_ids
        assert found.place.target_ids + found.heard_ids == found.target_context


def test_what_came_of_a_probe_is_replies_or_a_failure():
    own = growth()
    asked = probed(own, places(own), 2)
    outcomes, scores, _ = responded(own, asked)
    silent = replace(own, system=replace(own.system, target=Silent(own.system.target)))

    assert [2] * 4 == [len(found.texts) for found in outcomes]
    assert own.system.scorer.score([found.utterance.text for found in asked]) == scores
    failure = Failure("TargetError: http 503")
    assert ([failure] * 4, [0.0] * 4, 0.0) == responded(silent, asked)


def test_a_turn_is_whole_and_leads_on_unless_it_failed():
    own = growth()
    level = grown_level(own, places(own), 2)
    silent = replace(own, system=replace(own.system, target=Silent(own.system.target)))

    for turn in level.turns:
        assert turn.after.path == turn.node.path
        assert turn.after.attacker_ids[: len(turn.node.context_ids)] == turn.node.context_ids
        assert len(turn.node.reference_logprobs) == len(turn.node.probe_ids)
    failed = grown_level(silent, places(silent), 2).turns
    assert [None] * 4 == [turn.after for turn in failed]
    assert [turn.node.probe_ids for turn in level.turns] == [t.node.probe_ids for t in failed]


def test_a_level_grows_from_values_to_values():
    own = growth()
    again = [grown_level(own, places(own), 2).turns for _ in range(2)]

    assert again[0] == again[1]


@pytest.mark.parametrize(
    ("change", "is_known"),
    [
        ({}, True),
        ({"context": Context((4, 5), 1)}, False),
        ({"target_context": (5, 7, 0)}, False),
        ({"heard_ids": (8, 0)}, False),
    ],
)
def test_the_target_speaks_for_the_reference_only_where_it_read_the_same(change, is_known):
    said = Utterance("you", (7, 0), (-1.0, -1.0), has_ended=True)
    place = Place(PROMPTS[0], (), (4, 5), (4, 5), Conversation(PROMPTS[0]))
    asked = replace(Asked(place, (0,), Context((4, 5)), said, (7, 0), (4, 5, 7, 0)), **change)
    outcome = Replies(("so",), (0.0,), ((3, 0),), (9.0, 9.0))
    (found,) = reference_logprobs(tiny_system(), [asked], [outcome])

    assert is_known == ((9.0, 9.0) == found)
    assert len(found) == 2
