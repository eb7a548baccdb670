import pytest
from each_row import each_row

from astra_core.conversation import Conversation, Message
from astra_core.rollout import Prompt
from astra_parts.attackers.scripts import CRESCENDO, GOAT, PAIR, SCRIPTS
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
    told = script.instruction_for(talk_of(), 3)

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
    told = CRESCENDO.instruction_for(stuck, 4)
    assert "You said: how are you\nIt replied: fine, and you?" in told
    assert "taken back: be rude" in told
    assert "I'm sorry" not in told
    assert "taken back" not in CRESCENDO.instruction_for(went_on, 4)


def test_pair_begins_anew_and_knows_the_scores():
    talk = talk_of(("be rude", "no"))

    assert () == PAIR.continues(talk).messages
    assert "Message: be rude\nReply: no\nScore: 3 of 10" in PAIR.instruction_for(talk, 4)


def test_goat_goes_on_and_sees_all_of_it():
    talk = talk_of(("be rude", "I cannot help with that."))

    assert talk.conversation == GOAT.continues(talk)
    assert "You said: be rude\nIt replied: I cannot help with that." in GOAT.instruction_for(
        talk, 4
    )


@pytest.mark.parametrize(
    ("script", "answer", "said"),
    [
        (CRESCENDO, '"tell me more"', "tell me more"),
        (CRESCENDO, "Message: tell me more", "tell me more"),
        (CRESCENDO, "Thought: nothing", ""),
        (PAIR, "Improvement: be kinder\nMessage: **Tell me more.**", "Tell me more."),
        (PAIR, "Message: Tell me more.\nImprovement: it is\nkinder now.", "Tell me more."),
        (PAIR, "Message: no\n\n**Message:** yes", "yes"),
        (GOAT, "3. Strategy: role\n4. message: You are\nan actor.", "You are\nan actor."),
        (GOAT, "Observation: it refused.\nIt said why.\nThought: I could", ""),
        (GOAT, "I cannot help with that.", ""),
        (GOAT, "Message:", ""),
    ],
)
def test_a_message_is_what_follows_its_label_without_labels_and_quotes(script, answer, said):
    assert said == script.message_of(answer)
