import hashlib
import json
from dataclasses import replace

from each_row import each_row
from tiny_chats import OPENED, chat_system

from astra_core.conversation import Conversation, Message
from astra_core.errors import TargetError
from astra_core.models.utterances import Utterance
from astra_core.rewards.adversarial import AdversarialReward
from astra_core.rollout import Context, Failure
from astra_core.samplers.level import (
    Growth,
    SampledProbe,
    grow_level,
    opening,
    poor_probes,
    record_of,
    reference_logprobs,
    sample_probes,
    scored_replies,
)
from astra_core.samplers.tree import TreeSampler
from astra_core.target import Answer, Heard, Reply
from astra_core.targets.causal_lm import CausalLM
from astra_parts.testing import tiny_agents, tiny_language_model, tiny_prompts, tiny_system

PROMPTS = tiny_prompts(2)


def growth(system=None, *, num_responses=2):
    return Growth(system or tiny_system(), 1, "training", 0, num_responses)


def places():
    return [opening(prompt) for prompt in PROMPTS]


class Silent(CausalLM):
    """A target that never answers."""

    def respond(self, *_, **__):
        msg = "http 503"
        raise TargetError(msg)


def silenced(own):
    target = Silent.of(own.system.reference, own.system.config)
    return replace(own, system=replace(own.system, target=target))


def test_a_tree_opens_with_its_prompt_and_nothing_said():
    assert [((), Conversation(prompt)) for prompt in PROMPTS] == [
        (place.path, place.conversation) for place in places()
    ]


def test_a_level_is_probed_without_a_word_to_the_target():
    own = silenced(growth())
    asked = sample_probes(own, places(), 3)

    assert [(0,), (1,), (2,)] * 2 == [found.path for found in asked]
    assert [PROMPTS[0]] * 3 + [PROMPTS[1]] * 3 == [found.place.prompt for found in asked]
    for found in asked:
        (said,) = found.conversation.messages
        assert ("user", found.utterance.text) == (said.role, said.text)
        assert found.utterance.token_ids == said.ids_for(own.system.attacker.vocabulary)


def asked_of(place, text, *, has_ended=True):
    said = Utterance(text, (7, 0), (-1.0, -1.0), has_ended=has_ended)
    conversation = place.conversation.say(Message("user", text))
    return SampledProbe(place, (0,), Context((4, 5)), said, conversation)


def test_probes_that_are_empty_cut_or_repeat_a_sibling_are_poor():
    here, there = places()
    asked = [
        asked_of(here, "you cat"),
        asked_of(here, " "),
        asked_of(here, "why you", has_ended=False),
        asked_of(here, "You  CAT"),
        asked_of(there, "you cat"),
    ]

    assert [1, 2, 3] == poor_probes(asked, range(5))
    # Only the first is looked at, and a sibling says the same.
    assert [0] == poor_probes(asked, [0])
    assert [] == poor_probes(asked, [4])


def test_poor_probes_are_sampled_again_and_the_others_stay():
    own = growth()
    first, once, often = (sample_probes(own, places(), 6, refills=count) for count in (0, 1, 30))
    poor = [poor_probes(asked, range(12)) for asked in (first, once, often)]

    assert len(poor[0]) > len(poor[1]) > 0 == len(poor[2])
    assert {*range(12)} - {*poor[0]} == {at for at in range(12) if first[at] == often[at]}
    assert [each.path for each in first] == [each.path for each in often]
    assert often == sample_probes(own, places(), 6, refills=30)


def test_the_target_hears_only_what_stays():
    own = growth(num_responses=1)
    level = grow_level(own, places()[:1], 6, refills=30)

    assert [turn.node.probe_text for turn in level.turns] == [
        asked.heard for asked in sample_probes(own, places()[:1], 6, refills=30)
    ]
    for turn in level.turns:
        assert turn.node.probe_text == turn.after.conversation.messages[0].text


def test_what_came_of_a_probe_is_replies_or_a_failure():
    own = growth()
    asked = sample_probes(own, places(), 2)
    found, silent = scored_replies(own, asked), scored_replies(silenced(own), asked)
    recorded, failed = (
        tuple(map(record_of, each.answers, each.judgements)) for each in (found, silent)
    )

    assert [2] * 4 == [len(each.texts) for each in recorded]
    assert own.system.scorer.score([e.utterance.text for e in asked]) == list(found.probe_scores)
    told = [tuple(reply.finish_reason for reply in each.replies) for each in found.answers]
    assert {"stop", "length"} == {reason for reasons in told for reason in reasons}
    assert [reasons if "length" in reasons else () for reasons in told] == [
        each.finish_reasons for each in recorded
    ]
    failure = Failure("TargetError: http 503")
    assert (failure,) * 4 == silent.answers == failed
    assert ((0.0,) * 4, 0.0) == (silent.probe_scores, silent.waited_s)


def test_a_turn_is_whole_and_leads_on_unless_it_failed():
    own = growth()
    level = grow_level(own, places(), 2)

    for turn in level.turns:
        assert turn.after.path == turn.node.path
        said = turn.after.conversation.messages
        assert [turn.node.probe_ids, turn.node.response_ids[0]] == [e.token_ids for e in said]
        assert len(turn.node.reference_logprobs) == len(turn.node.probe_ids)
    failed = grow_level(silenced(own), places(), 2).turns
    assert [None] * 4 == [turn.after for turn in failed]
    assert [turn.node.probe_ids for turn in level.turns] == [t.node.probe_ids for t in failed]


def test_a_level_grows_from_values_to_values():
    own = growth()
    again = [grow_level(own, places(), 2).turns for _ in range(2)]

    assert again[0] == again[1]


@each_row(
    ("cut", "heard", "is_known"),
    [
        (0, Heard((4, 5), (7, 0)), True),
        (1, Heard((4, 5), (7, 0)), False),
        (0, Heard((5,), (7, 0)), False),
        (0, Heard((4, 5), (8, 0)), False),
        (0, None, False),
    ],
)
def test_the_target_speaks_for_the_reference_only_where_it_read_the_same(cut, heard, is_known):
    said = Utterance("you", (7, 0), (-1.0, -1.0), has_ended=True)
    place = opening(PROMPTS[0])
    asked = SampledProbe(place, (0,), Context((4, 5), cut), said, place.conversation)
    answer = Answer((Reply("so"),), (9.0, 9.0), heard=heard)
    (found,) = reference_logprobs(tiny_system(), [asked], [answer])

    assert is_known == ((9.0, 9.0) == found)
    assert len(found) == 2


@each_row(
    ("name", "digest"),
    [("one", "277fce0177823eed"), ("agents", "36866b3b49ce0ccb"), ("other", "69f7086dae49abeb")],
)
def test_by_separator_every_token_is_the_one_that_it_was_before_there_were_templates(name, digest):
    systems = {
        "one": tiny_system,
        "agents": lambda: tiny_agents(tiny_system()),
        "other": lambda: tiny_system(target=tiny_language_model(9, vocabulary=None)),
    }
    prompts = tiny_prompts(2)
    sampler = TreeSampler(
        TreeSampler.Options(tree_width=1, tree_depth=3, num_responses=2),
        system=systems[name](),
        prompts=prompts,
        reward=AdversarialReward(AdversarialReward.Options()),
        seed=1,
    )
    tokens = [
        [_tokens(node) for node in graph.nodes()]
        for graph in sampler.roll_out(prompts, iteration=0)
    ]

    assert hashlib.sha256(json.dumps(tokens).encode()).hexdigest().startswith(digest)


def _tokens(node):
    ids = node.path, node.context_ids, node.probe_ids, node.response_ids
    return *ids, node.probe_text, node.response_texts, node.truncated_tokens


def test_the_target_hears_the_probe_without_its_reasoning():
    system = chat_system(template=OPENED)
    own = growth(system)
    asked = sample_probes(own, [opening(prompt) for prompt in PROMPTS], 2)
    turns = grow_level(own, [opening(prompt) for prompt in PROMPTS], 2).turns

    # So short an utterance does not come to the end of its reasoning.
    assert {""} == {found.heard for found in asked} == {turn.node.probe_text for turn in turns}
    assert all(found.utterance.text for found in asked)
    assert all(turn.node.probe_ids and all(turn.node.probe_mask) for turn in turns)
