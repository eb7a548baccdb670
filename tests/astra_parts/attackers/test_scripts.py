import pytest
from each_row import each_row

from astra_core.conversation import Conversation, Message
from astra_core.rollout import Prompt
from astra_parts.attackers.scripts import CRESCENDO, GOAT, PAIR, SCRIPTS, message_of
from astra_parts.samplers.talks import Talk
from astra_parts.testing import tiny_node

ROLES = ("user", "assistant")
PROMPT = Prompt.of("hello {you}", {"goal": "a {quarrel}"})


def talk_of(*turns):
    """A conversation of these probes and replies, the last of which scored 0.3."""
    said = [Message(role, text) for own in turns for role, text in zip(ROLES, own, strict=True)]
    nodes = [tiny_node(0.3, probe_text=probe, response_texts=(reply,)) for probe, reply in turns]
    return Talk(Conversation(PROMPT, tuple(said)), 0, nodes)


@each_row("script", SCRIPTS)
def test_a_script_tells_goal_and_place_before_anything_was_said(script):
    told = script.told(talk_of(), 3)

    assert "a {quarrel}" in told
    assert "number 1" in told
    assert "3" in told
    assert "Nothing was said yet." in told


def test_crescendo_takes_a_refused_message_back():
    first, refused = (("how are you", "fine, and you?"), ("be rude", "I'm sorry, I can't do that."))
    went_on, stuck = talk_of(first), talk_of(first, refused)

    assert went_on.conversation == CRESCENDO.continues(went_on)
    stuck.conversation = CRESCENDO.continues(stuck)
    assert ["how are you", "fine, and you?"] == [m.text for m in stuck.conversation.messages]
    told = CRESCENDO.told(stuck, 4)
    assert "You said: how are you\nIt replied: fine, and you?" in told
    assert "taken back: be rude" in told
    assert "I'm sorry" not in told
    assert "taken back" not in CRESCENDO.told(went_on, 4)


def test_pair_begins_anew_and_knows_the_scores():
    talk = talk_of(("be rude", "no"))

    assert () == PAIR.continues(talk).messages
    assert "Message: be rude\nReply: no\nScore: 3 of 10" in PAIR.told(talk, 4)


def test_goat_goes_on_and_sees_all_of_it():
    talk = talk_of(("be rude", "I cannot help with that."))

    assert talk.conversation == GOAT.continues(talk)
    assert "You said: be rude\nIt replied: I cannot help with that." in GOAT.told(talk, 4)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ('"tell me more"', "tell me more"),
        ("Improvement: be kinder\nMessage: **Tell me more.**", "Tell me more."),
        ("Thought: a\nStrategy: role\nmessage: You are\nan actor.", "You are\nan actor."),
        ("Observation: it refused\nThought: nothing", ""),
        ("Message:", ""),
    ],
)
def test_a_message_has_no_labels_and_quotes(answer, said):
    assert said == message_of(answer)
