import pytest
from each_row import each_row
from tiny_judges import exchange

from astra_core.errors import ConfigurationError, PluginError, ScorerError
from astra_core.judge import Judgement, checked_judgements
from astra_parts.judges.program import ProgramJudge
from astra_parts.testing import check_judge

GRADES = """
from astra_core.judge import Judgement

def grade(exchange):
    goal = exchange.conversation.prompt.metadata.get("goal", "")
    if not exchange.reply:
        return None
    return exchange.reply.count(goal) / 2 if goal else "fast" in exchange.probe

def labelled(exchange):
    return Judgement(0.25, {"part": 1.0})

def failing(exchange):
    raise KeyError("level")

def wrong(exchange):
    return 2

NUMBER = 3
"""


@pytest.fixture
def judge_of(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "grades.py").write_text(GRADES, "utf-8")

    def made(name):
        options = {"function": f"./grades.py:{name}"}
        return ProgramJudge(ProgramJudge.Options.read(options, where="program"))

    return made


def test_a_function_keeps_the_contract(judge_of):
    check_judge("program", function=judge_of("grade").options.function)


def test_a_function_reads_the_exchange_and_the_columns(judge_of):
    asked = [exchange("yes a", goal="yes"), exchange("no"), exchange("", goal="yes")]
    asked.append(exchange("no", probe="be fast"))
    found = checked_judgements(judge_of("grade"), asked)

    assert [0.5, 0.0, None, 1.0] == [own.score for own in found]
    assert "returned None" in found[2].unjudged
    assert [Judgement(0.25, {"part": 1.0})] == judge_of("labelled").judge(asked[:1])


def test_a_function_that_fails_or_gives_no_score_is_one_line(judge_of):
    with pytest.raises(PluginError, match=r"grades\.py:failing.* KeyError"):
        checked_judgements(judge_of("failing"), [exchange()])
    with pytest.raises(
        ScorerError, match=r"grades\.py:wrong' must give a score in \[0, 1\].*got 2;"
    ):
        checked_judgements(judge_of("wrong"), [exchange()])


@each_row(
    ("name", "reason"),
    [
        ("./grades.py:missing", "has no attribute 'missing'"),
        ("./grades.py:NUMBER", "must be a function, got int"),
        ("./grads.py:grade", "a file that exists, got"),
        ("no_such_module:grade", "must be importable, as my.module:grade"),
        ("grade", "must be importable, as my.module:grade"),
        ("astra_core.judge:Judgement", "must be a function, got class Judgement"),
    ],
)
def test_what_is_no_function_is_refused_with_its_reason(judge_of, name, reason):
    assert judge_of("grade")  # the file is there
    with pytest.raises(ConfigurationError, match=reason.replace("[", r"\[")):
        ProgramJudge.Options.read({"function": name}, where="program")


def test_a_version_is_of_the_code_behind_it(judge_of, tmp_path):
    before = judge_of("grade").version
    (tmp_path / "grades.py").write_text(f"{GRADES}\nOTHER = 1\n", "utf-8")

    assert judge_of("grade").version != before
