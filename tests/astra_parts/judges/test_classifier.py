import pytest
import torch
from each_row import each_row
from tiny_judges import bert_folder, exchange

from astra_core.errors import ConfigurationError
from astra_parts.judges.classifier import ClassifierJudge
from astra_parts.testing import check_judge

WORDS = ("bad", "good", "why", "now", "you", "are")
LABELS = ("fine", "toxic", "threat")


@pytest.fixture(scope="module", params=[False, True], ids=["single", "multi"])
def folder(request, tmp_path_factory):
    where = tmp_path_factory.mktemp("bert")
    return bert_folder(where, WORDS, labels=LABELS, is_multi=request.param)


def judged(folder, *exchanges, labels=("toxic", "threat"), **options):
    judge = ClassifierJudge(ClassifierJudge.Options(path=folder, labels=labels, **options))
    return judge.judge(exchanges)


def shares(folder, *texts, activation):
    judge = ClassifierJudge(ClassifierJudge.Options(path=folder, labels=("toxic",)))
    batch = judge.tokenizer(*texts, return_tensors="pt")
    with torch.no_grad():
        logits = judge.model(**batch).logits[0]
    found = logits.softmax(-1) if activation == "softmax" else logits.sigmoid()
    return dict(zip(LABELS, found.tolist(), strict=True))


def test_a_classifier_keeps_the_contract(folder):
    check_judge(ClassifierJudge, path=folder, labels=["toxic"], max_tokens=16, overlap=2)


def test_labels_that_count_are_summed_or_the_worst_of_them(folder):
    soft = shares(folder, "you are bad", activation="softmax")
    sigmoid = shares(folder, "you are bad", activation="sigmoid")
    (summed,) = judged(folder, exchange("you are bad"), activation="softmax")
    (worst,) = judged(folder, exchange("you are bad"), activation="sigmoid")

    assert soft["toxic"] + soft["threat"] == pytest.approx(summed.score, abs=1e-4)
    assert max(sigmoid["toxic"], sigmoid["threat"]) == pytest.approx(worst.score, abs=1e-4)
    assert {"toxic": soft["toxic"], "threat": soft["threat"]} == pytest.approx(
        dict(summed.labels), abs=1e-4
    )
    (one,) = judged(folder, exchange("you are bad"), labels=("toxic",), activation="softmax")
    assert soft["toxic"] == pytest.approx(one.score, abs=1e-4)


def test_the_activation_follows_the_folder(folder, request):
    is_multi = "multi" in request.node.name
    named = judged(folder, exchange(), activation="sigmoid" if is_multi else "softmax")

    assert named == judged(folder, exchange())


def test_a_pair_is_probe_and_reply_as_two_segments(folder):
    pair = shares(folder, "why now", "bad", activation="softmax")
    found = judged(folder, exchange("bad", "why now"), reads="pair", activation="softmax")

    assert pair["toxic"] + pair["threat"] == pytest.approx(found[0].score, abs=1e-4)
    assert found != judged(folder, exchange("bad", "you"), reads="pair", activation="softmax")
    long = exchange("bad " * 90, "why " * 90)
    assert 0.0 <= judged(folder, long, reads="pair")[0].score <= 1.0


def test_a_long_reply_is_as_bad_as_its_worst_window(folder):
    # 14 words to a window beside two marks, and 4 of them again in the next.
    said = ["you are"] * 7 + ["bad good"] * 5
    found = judged(folder, exchange(" ".join(said)), max_tokens=16, overlap=4)
    words = " ".join(said).split()
    windows = [" ".join(words[at : at + 14]) for at in (0, 10)]
    alone = [judged(folder, exchange(text))[0].score for text in windows]

    assert len(words) == 24
    assert max(alone) == pytest.approx(found[0].score, abs=2e-4)
    first = judged(folder, exchange(" ".join(said)), max_tokens=16, overlap=4, max_windows=1)
    assert alone[0] == pytest.approx(first[0].score, abs=2e-4)


def test_windows_may_share_nothing(folder):
    reply = exchange(" ".join(["you are"] * 9 + ["bad good why"] * 6))
    apart = judged(folder, reply, max_tokens=16, overlap=0)

    assert apart != judged(folder, reply, max_tokens=16, overlap=4)


def test_an_empty_reply_is_not_judged(folder):
    empty, other = judged(folder, exchange("  "), exchange("bad"))

    assert "empty" in empty.unjudged
    assert other.score is not None


@each_row(
    ("options", "message"),
    [
        ({"labels": ["toxicity"]}, r"labels must be among those of .*'toxic'.*got 'toxicity'"),
        ({"max_tokens": 16, "overlap": 8}, "overlap must be below half of max_tokens, 8, got 8"),
    ],
)
def test_options_that_cannot_be_are_one_line(folder, options, message):
    record = {"path": folder, "labels": ["toxic"], **options}
    with pytest.raises(ConfigurationError, match=message):
        ClassifierJudge.Options.read(record, where="classifier")
