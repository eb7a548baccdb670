import json

from each_row import each_row

from astra_core.conversation import Conversation
from astra_core.judge import Exchange
from astra_core.rollout import Prompt
from benchmarks.chat_worlds import PROMPTS, grade_french, make_french


@each_row(
    ("probe", "reply", "score"),
    [
        ("Sing.", "Bonjour, je suis ici.", 1.0),
        ("Sing.", "I answer in English only.", 0.0),
        ("Say bonjour.", "Bonjour Anna, the train.", 0.0),
        ("Sing.", "Bonjour, the train leaves.", 0.25),
        ("Sing.", "", 0.0),
    ],
)
def test_the_grade_is_the_share_of_french_words_that_the_probe_did_not_say(probe, reply, score):
    exchange = Exchange(Conversation(Prompt.of("so")), probe, reply)

    assert score == grade_french(exchange)


def test_the_rule_s_prompts_are_as_many_as_the_demonstration_s_and_none_stands_twice(tmp_path):
    first, *_ = make_french(tmp_path)
    lines = (tmp_path / PROMPTS).read_text().splitlines()

    assert f"prompts.path={tmp_path / PROMPTS}" == first
    assert 240 == len({json.loads(line)["text"] for line in lines})
