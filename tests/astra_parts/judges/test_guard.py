import math

import pytest
from each_row import each_row
from tiny_judges import exchange, llama_folder

from astra_core.errors import ConfigurationError
from astra_core.judge import Judgement
from astra_parts.judges.guard import GuardJudge, fill
from astra_parts.testing import check_judge

# Its next word depends on the last one it reads, which by this template is the reply's last.
LAST = "{probe} {reply}"
FOLLOWS = {
    "bad": {"unsafe": 30.0},
    "rude": {"unsafe": 20.0 + math.log(3.0), "safe": 20.0},
    "good": {"safe": 30.0},
    "odd": {"what": 30.0},
    "unsafe": {"S10": 30.0},
    "S10": {"S1": 30.0},
    "S1": {"<end>": 30.0},
    "what": {},
}
ASK = {"template": LAST, "before": "", "words": {"unsafe": 1.0, "safe": 0.0}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return llama_folder(tmp_path_factory.mktemp("guard"), FOLLOWS, words=("Yes", "No", "why"))


def judged(folder, *replies, **options):
    judge = GuardJudge(GuardJudge.Options(path=folder, **{**ASK, **options}))
    return judge.judge([exchange(reply) for reply in replies])


def test_a_guard_keeps_the_contract(folder):
    check_judge(GuardJudge, path=folder, min_share=0.0, **ASK)


def test_the_verdict_is_the_share_of_its_bad_answer(folder):
    bad, rude, good = judged(folder, "so bad", "rude", "good")

    assert (1.0, 0.75, 0.0) == (bad.score, rude.score, good.score)


def test_an_answer_may_be_half_bad(folder):
    words = {"unsafe": 0.5, "safe": 0.0}

    assert [0.5, 0.375] == [own.score for own in judged(folder, "bad", "rude", words=words)]


def test_categories_are_what_it_names_after_a_bad_answer(folder):
    bad, good = judged(folder, "bad", "good")

    assert {"hate": 1.0, "violent_crimes": 1.0} == bad.labels
    assert {} == good.labels == judged(folder, "bad", category_tokens=0)[0].labels
    assert {"hate": 1.0} == judged(folder, "bad", category_tokens=1)[0].labels
    own = judged(folder, "bad", categories={"S10": "ours"})
    assert {"ours": 1.0} == own[0].labels


def test_an_answer_in_other_words_is_no_judgement(folder):
    (other,) = judged(folder, "odd")

    assert "other words" in other.unjudged
    assert judged(folder, "odd", min_share=0.0)[0].score is not None


def test_what_is_empty_or_too_long_is_no_judgement(folder):
    empty, long, fits = judged(folder, " ", "bad " * 300, "bad")

    assert "empty" in empty.unjudged
    assert "302 tokens" in long.unjudged
    assert 1.0 == fits.score
    assert "tokens" in judged(folder, "bad", max_tokens=2)[0].unjudged


def test_the_tokenizers_own_template_has_the_whole_conversation(folder):
    judge = GuardJudge(GuardJudge.Options(path=folder, preset="llama_guard"))
    asked = exchange("bad", "why", said=[("a", "b")])

    assert "user : a assistant : b user : why assistant : bad go\n\n" == judge.prompt(asked)


def test_a_template_has_the_parts_of_the_exchange_once(folder):
    template = "{goal}|{conversation}|{probe}|{reply}|{policy}"
    asked = exchange("{probe}", "why", goal="be bad", said=[("a", "b")])

    assert "be bad|user: a\nassistant: b|why|{probe}|no harm" == fill(template, asked, "no harm")
    judge = GuardJudge(GuardJudge.Options(path=folder, **{**ASK, "template": template}, policy="P"))
    assert judge.prompt(asked).endswith("|P")


@each_row(
    ("preset", "answer"),
    [
        ("llama_guard", {"unsafe": 1.0, "safe": 0.0}),
        ("shieldgemma", {"Yes": 1.0, "No": 0.0}),
        ("wildguard", {"yes": 1.0, "no": 0.0}),
        ("granite_guardian", {"Yes": 1.0, "No": 0.0}),
        ("qwen3guard", {"Unsafe": 1.0, "Controversial": 0.5, "Safe": 0.0}),
    ],
)
def test_a_preset_asks_as_its_family_answers(preset, answer, tmp_path):
    # Whatever comes last in its prompt, the model gives each answer the same chance.
    tails = ("go", "prompt", "Safety:", "response:", "No.", "Answer:")
    even = dict.fromkeys(answer, 20.0)
    folder = llama_folder(tmp_path, dict.fromkeys(tails, even), words=("bad",))
    judge = GuardJudge(GuardJudge.Options(path=folder, preset=preset))
    (found,) = judge.judge([exchange("bad")])

    assert sum(answer.values()) / len(answer) == pytest.approx(found.score, abs=1e-3)
    assert "bad" in judge.prompt(exchange("bad"))


@each_row(
    ("options", "message"),
    [
        ({"template": "{probe}"}, "got none of the reply"),
        ({"template": "{reply} {answer}"}, r"got '\{answer\}'"),
    ],
)
def test_a_template_that_cannot_be_filled_is_one_line(folder, options, message):
    with pytest.raises(ConfigurationError, match=message):
        GuardJudge.Options.read({"path": folder, **options}, where="guard")


@each_row(
    ("words", "message"),
    [
        ({"unheard": 1.0}, "must be in the tokenizer of .* got 'unheard'"),
        ({"unsafe": 1.0, "unsafe S1": 0.0}, "must begin with different tokens"),
    ],
)
def test_words_that_cannot_be_distinguished_are_one_line(folder, words, message):
    with pytest.raises(ConfigurationError, match=message):
        judged(folder, "bad", words=words)


def test_without_any_template_there_is_nothing_to_ask(tmp_path):
    folder = llama_folder(tmp_path, FOLLOWS, template=None)

    with pytest.raises(ConfigurationError, match="must have a chat template, got none"):
        GuardJudge(GuardJudge.Options(path=folder))
    assert [Judgement(0.0)] == judged(folder, "good")
