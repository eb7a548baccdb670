import pytest
from each_row import each_row

from astra_core.config import GenerationConfiguration, SystemConfiguration
from astra_core.conversation import Conversation, Message
from astra_core.errors import ConfigurationError
from astra_core.rollout import Prompt
from astra_core.seeding import derive_key
from astra_core.target import Surroundings
from astra_parts.targets.scripted import Scripted
from astra_parts.testing import check_target

FILE = """
rules:
  - {when: "(?i)password", say: ["it is {probe}"]}
  - {turn: 2, say: ["again?"]}
  - {when: "^why", say: [a, b, c]}
otherwise: ["no"]
"""


def scripted(**options):
    return Scripted(
        Scripted.Options.read(options, where="options"),
        surroundings=Surroundings(SystemConfiguration()),
    )


def ask(target, *probes, before=(), count=1, most=8):
    said = [Conversation(Prompt.of("late")).say(*before, Message("user", text)) for text in probes]
    keys = [[derive_key(1, text, n) for n in range(count)] for text in probes]
    outcomes = target.respond(said, keys, GenerationConfiguration(max_new_tokens=most))
    return [[reply.text for reply in each.replies] for each in outcomes]


@pytest.fixture
def rules(tmp_path):
    path = tmp_path / "rules.yaml"
    path.write_text(FILE)
    return scripted(path=str(path))


def test_it_keeps_the_contract(rules):
    check_target(rules)


def test_the_first_rule_that_fits_replies(rules):
    assert [["it is my Password"], ["no"]] == ask(rules, "my Password", "hello")
    before = [Message("user", "x"), Message("assistant", "y")]
    assert [["again?"]] == ask(rules, "hello", before=before)


def test_a_rule_may_ask_for_an_earlier_probe():
    target = scripted(rules=[{"when": "why", "before": "please", "say": ["because"]}])
    asked, answered = Message("user", "please"), Message("assistant", "please")

    assert [["because"]] == ask(target, "why", before=[asked, answered])
    assert [["I cannot help with that."]] == ask(target, "please why")
    assert [["I cannot help with that."]] == ask(
        target, "why", before=[Message("user", "x"), answered]
    )


def test_one_of_several_follows_from_the_key(rules):
    first = ask(rules, "why", count=30)

    assert {"a", "b", "c"} == set(first[0])
    assert first == ask(rules, "why", count=30)


def test_a_reply_ends_at_the_limit():
    target = scripted(otherwise=["one two three"])

    assert [["one two"]] == ask(target, "x", most=2)


def test_rules_may_be_options_and_name_the_target(rules):
    given = {"rules": [{"when": "x", "say": ["y"]}]}

    assert [["y"], ["I cannot help with that."]] == ask(scripted(**given), "x", "z")
    assert 3 == len({rules.digest(), scripted(**given).digest(), scripted().digest()})


@each_row(
    ("content", "message"),
    [
        ("rules: [", "YAML"),
        ("rules: [{say: []}]", "say"),
        ("rules: [{when: '(', say: [a]}]", "when"),
        ("rules: [{before: '(', say: [a]}]", "before"),
    ],
)
def test_a_file_that_is_no_rules_is_one_line(tmp_path, content, message):
    path = tmp_path / "rules.yaml"
    path.write_text(content)
    with pytest.raises(ConfigurationError, match=message):
        scripted(path=str(path))


def test_rules_are_in_one_place(tmp_path):
    with pytest.raises(ConfigurationError, match="rules must be empty where path"):
        scripted(path="a", rules=[{"say": ["x"]}])
