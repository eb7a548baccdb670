import sys

import pytest

from astra_core.config import GenerationConfiguration, SystemConfiguration
from astra_core.conversation import Conversation, Message
from astra_core.errors import ConfigurationError
from astra_core.rollout import Prompt
from astra_core.seeding import derive_key
from astra_core.target import Answer, Surroundings
from astra_parts.targets.command import Command
from astra_parts.testing import check_target

SHORT = GenerationConfiguration(max_new_tokens=6)
BOT = """
import json, os, sys, time
for line in sys.stdin:
    asked = json.loads(line)
    probe = asked["messages"][-1]["content"]
    with open("asked", "a") as log:
        log.write(f"{os.getpid()} {probe}\\n")
    if probe == "die" and not os.path.exists("died"):
        open("died", "w").close()
        sys.exit(1)
    if probe == "sleep":
        time.sleep(60)
    if probe == "long":
        print("x" * 100_000, flush=True)
    if probe == "garbage":
        print("you are bad", flush=True)
    elif probe == "error":
        print(json.dumps({"error": "you are bad"}), flush=True)
    elif probe == "nothing":
        print(json.dumps({}), flush=True)
    else:
        told = {"text": f"{probe} {asked['seed'] % 1000}", "finish_reason": "length"}
        print(json.dumps({**told, "tokens_in": 3}), flush=True)
"""


@pytest.fixture
def bot(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bot.py").write_text(BOT)
    made = []

    def make(**options):
        given = {"program": [sys.executable, "bot.py"], "backoff_s": 0.0, "retries": 1, **options}
        made.append(
            Command(
                Command.Options.read(given, where="options"),
                surroundings=Surroundings(SystemConfiguration()),
            )
        )
        return made[-1]

    yield make
    for each in made:
        each.close()


def ask(target, *probes):
    said = [Conversation(Prompt.of("late")).say(Message("user", text)) for text in probes]
    return target.respond(said, [[derive_key(1, text)] for text in probes], SHORT)


def log(tmp_path):
    return [line.split(" ", 1) for line in (tmp_path / "asked").read_text().splitlines()]


@pytest.mark.real
def test_it_keeps_the_contract(bot):
    check_target(bot())


@pytest.mark.real
def test_a_line_is_answered_by_a_line_and_kept(bot, tmp_path):
    seed = (int.from_bytes(derive_key(1, "one")[:4], "big") >> 1) % 1000
    first, again = ask(bot(), "one", "two"), ask(bot(), "one", "two")

    assert f"one {seed}" == first[0].replies[0].text
    assert ("length", 3) == (first[0].replies[0].finish_reason, first[0].usage.tokens_in)
    assert first == again
    assert 2 == len(log(tmp_path))


@pytest.mark.real
def test_each_worker_has_a_process_that_stays(bot, tmp_path):
    target = bot(concurrency=3)
    ask(target, *[f"a{n}" for n in range(12)])
    ask(target, *[f"b{n}" for n in range(12)])

    assert 24 == len(log(tmp_path))
    assert 1 <= len({pid for pid, _ in log(tmp_path)}) <= 3


@pytest.mark.real
def test_a_program_that_ends_is_started_again(bot):
    assert all(isinstance(each, Answer) for each in ask(bot(concurrency=1), "one", "die", "two"))


@pytest.mark.real
@pytest.mark.parametrize(
    ("probe", "kind", "words"),
    [
        ("sleep", "timeout", "no answer within 3 s"),
        ("garbage", "malformed", "no line of JSON"),
        ("error", "server", "'y·· a·· b··'"),
        ("nothing", "empty", "no text"),
        ("long", "too_large", "longer than 5000 bytes"),
    ],
)
def test_a_program_that_misbehaves_fails_one_turn(bot, probe, kind, words):
    target = bot(timeout_s=3.0, max_reply_bytes=5000, retries=0, concurrency=2)
    outcomes = ask(target, "one", probe, "two")

    assert [True, False, True] == [isinstance(each, Answer) for each in outcomes]
    assert kind == outcomes[1].kind
    assert words in outcomes[1].reason
    assert isinstance(ask(target, "three")[0], Answer)


def test_a_program_that_cannot_be_started_is_one_line(bot):
    with pytest.raises(ConfigurationError, match="must name a program that starts"):
        ask(bot(program=["./none"]), "one")


def test_an_edited_program_and_another_version_are_other_targets(bot, tmp_path):
    digests = [bot().digest(), bot(version="2").digest(), bot(system_prompt="be kind").digest()]
    (tmp_path / "bot.py").write_text(BOT + "# edited")
    digests.append(bot().digest())

    assert 4 == len(set(digests))
    assert digests[3] == bot(concurrency=1, timeout_s=1.0).digest()
