from astra_core.conversation import Conversation, Message
from astra_core.rollout import Prompt


def test_columns_of_the_prompt_are_read_by_name():
    columns = {"goal": "a recipe", "category": 7, "reference_reply": None}
    conversation = Conversation(Prompt.of("hello", columns))

    assert "a recipe" == conversation.goal
    assert "7" == conversation.category
    assert "" == conversation.reference_reply


def test_what_is_said_comes_last():
    start = Conversation(Prompt.of("hello"))
    after = start.say(Message("user", "one"), Message("assistant", "two"))

    assert () == start.messages
    assert ["one", "two"] == [message.text for message in after.messages]
    assert [0, 1] == [start.num_turns, after.num_turns]


def test_ids_pass_only_to_the_same_tokenizer():
    message = Message("user", "one", (4, 5), "mine")

    assert (4, 5) == message.ids_for("mine")
    assert () == message.ids_for("another")
