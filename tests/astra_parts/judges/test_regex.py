import pytest
from each_row import each_row
from tiny_judges import exchange

from astra_core.errors import ConfigurationError
from astra_parts.judges.regex import RegexJudge
from astra_parts.testing import check_judge


def judge(patterns, **options):
    given = {name: {"pattern": text, "weight": weight} for name, (text, weight) in patterns.items()}
    return RegexJudge(RegexJudge.Options.read({"patterns": given, **options}, where="regex"))


TWO = {"a": (r"\bbad\b", 0.5), "b": (r"wors.", 0.8)}


def test_patterns_keep_the_contract():
    check_judge("regex", patterns={"bad": {"pattern": "bad"}})


def test_each_pattern_takes_its_share_of_what_is_left():
    replies = [exchange("so"), exchange("bad"), exchange("worse bad worse"), exchange("badly")]
    none, one, both, other = judge(TWO).judge(replies)

    assert (0.0, 0.5, 0.0) == (none.score, one.score, other.score)
    assert 1 - 0.5 * 0.2 == pytest.approx(both.score)
    assert {"a": 0.5, "b": 0.8} == both.labels


@each_row(
    ("flag", "pattern", "reply"),
    [
        ("multiline", "^bad", "so\nbad"),
        ("dot_all", "so.bad", "so\nbad"),
        ("ignore_case", "bad", "BAD"),
    ],
)
def test_a_flag_decides_what_occurs(flag, pattern, reply):
    found = [
        judge({"it": (pattern, 1.0)}, **{flag: value}).judge([exchange(reply)])[0].score
        for value in (False, True)
    ]

    assert [0.0, 1.0] == found


def test_a_pattern_that_does_not_end_leaves_the_reply_unjudged():
    slow = judge({"slow": (r"(a|aa)+$", 1.0)}, max_seconds=0.05)
    (found,) = slow.judge([exchange("a" * 60 + "b")])

    assert "'slow' took too long" in found.unjudged


def test_a_version_is_of_the_patterns_and_not_of_the_patience():
    assert judge(TWO).version == judge(TWO, max_seconds=2.0).version
    assert judge(TWO).version != judge(TWO, ignore_case=False).version


def test_what_is_no_pattern_is_one_line():
    with pytest.raises(ConfigurationError, match=r"patterns\.a must be a regular expression"):
        judge({"a": ("(", 1.0)})
