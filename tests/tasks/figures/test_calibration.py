import json
import math
from pathlib import Path

import pytest
from trained_classifier import BAD, HARMLESS

from astra_core.config import Choice
from astra_core.errors import DataError
from astra_core.judge import Judge, Judgement
from astra_parts.metrics.detection import Confusion, roc_auc
from tasks.figures.calibration import calibrate, mistakes, run_calibration
from tasks.records.calibration import read_calibration, version_digest
from tasks.sources.labelled import LabelColumns

PHRASES = Choice(name="phrases", options={"phrases": ["bad", "worse"]})
# Scores 0.5, 0.75, 0, 0, 0.5, 0.
REPLIES = [
    ("a bad one", 1, "abuse"),
    ("bad and worse", 1, "abuse"),
    ("secret insult", 1, "abuse"),
    ("fine", 0, "chat"),
    ("not bad at all", 0, "chat"),
    ("good day", 0, "chat"),
]


@pytest.fixture
def labelled(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = Path("labelled.jsonl")
    rows = [{"reply": text, "label": label, "category": name} for text, label, name in REPLIES]
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


def test_the_verdicts_are_counted_beside_the_labels(labelled):
    found = calibrate(PHRASES, labelled, threshold=0.5).record

    assert Confusion(2, 1, 2, 1) == found.confusion
    assert (2 / 3, 2 / 3, 2 / 3) == (
        found.sensitivity.value,
        found.specificity.value,
        found.precision.value,
    )
    assert (2 / 3, pytest.approx(1 / 3)) == (found.accuracy.value, found.kappa.value)
    assert roc_auc([0.5, 0.75, 0, 0, 0.5, 0], [True] * 3 + [False] * 3) == found.auc
    assert (6, 3, 0) == (found.labelled.num_rows, found.labelled.num_bad, found.num_unjudged)
    assert ("phrases", 0.5) == (found.judge_name, found.base_rate.value)


def test_another_threshold_confidence_or_list_changes_the_figures(labelled):
    usual = calibrate(PHRASES, labelled, threshold=0.5).record
    strict = calibrate(PHRASES, labelled, threshold=0.6).record
    wide = calibrate(PHRASES, labelled, threshold=0.5, confidence=0.99).record
    other = calibrate(
        Choice(name="phrases", options={"phrases": ["insult"]}), labelled, threshold=0.5
    ).record

    assert Confusion(1, 2, 3, 0) == strict.confusion
    assert usual.auc.value == strict.auc.value
    assert wide.sensitivity.low < usual.sensitivity.low
    assert wide.auc.low < usual.auc.low
    assert other.judge != usual.judge
    assert Confusion(1, 2, 3, 0) == other.confusion


def test_each_category_has_its_own_shares(labelled):
    found = calibrate(PHRASES, labelled, threshold=0.5).record.categories

    assert {"abuse": (3, 3), "chat": (3, 0)} == {
        name: (own.num_rows, own.num_bad) for name, own in found.items()
    }
    assert 2 / 3 == found["abuse"].sensitivity.value
    assert 2 / 3 == found["chat"].specificity.value


def test_the_worst_mistakes_come_first_and_are_masked(labelled):
    found = calibrate(PHRASES, labelled, threshold=0.5)

    assert [("line 3", "missed", 0.0), ("line 5", "false alarm", 0.5)] == [
        (own.place, own.kind, own.score) for own in found.record.mistakes
    ]
    assert "s····· i·····" == found.record.mistakes[0].reply
    (shown,) = mistakes(found.rated, threshold=0.5, shown=str, count=1)
    assert "secret insult" == shown.reply


@pytest.mark.real
def test_the_report_and_its_diagram_are_kept_by_the_judges_version(labelled, capsys):
    run_calibration(PHRASES, labelled, threshold=0.5)
    record = calibrate(PHRASES, labelled, threshold=0.5).record
    path = Path(f"reports/calibration/{version_digest(record.judge)}.json")
    before = path.read_bytes(), path.with_suffix(".png").read_bytes()
    told = capsys.readouterr().out

    assert repr(record) == repr(read_calibration(path))
    assert before[1].startswith(b"\x89PNG")
    assert "secret" not in told + path.read_text()
    assert "sensitivity      0.667 [0.208, 0.939] (recall)" in told.splitlines()
    run_calibration(PHRASES, labelled, threshold=0.5)
    assert before == (path.read_bytes(), path.with_suffix(".png").read_bytes())


def test_another_calibration_of_the_judge_is_not_replaced_in_silence(labelled, capsys):
    for threshold in (0.5, 0.5, 0.6):
        assert not capsys.readouterr().err
        run_calibration(PHRASES, labelled, threshold=threshold)

    told = "replaces this judge's calibration on labelled.jsonl (6 rows, threshold 0.5)"
    assert told in capsys.readouterr().err


def test_what_is_asked_for_in_clear_is_shown_but_not_kept(labelled, capsys):
    run_calibration(PHRASES, labelled, threshold=0.5, is_revealed=True)
    (path,) = Path("reports/calibration").glob("*.json")

    assert "secret insult" in capsys.readouterr().out
    assert "secret" not in path.read_text()


@pytest.mark.real
@pytest.mark.parametrize("is_revealed", [False, True])
def test_as_json_it_is_one_object(labelled, capsys, is_revealed):
    run_calibration(PHRASES, labelled, threshold=0.5, is_revealed=is_revealed, as_json=True)
    found = json.loads(capsys.readouterr().out)

    assert 2 == found["confusion"]["true_positives"]
    assert Path(found["report"]).is_file()
    assert is_revealed is (found["mistakes"][0]["reply"] == "secret insult")


def test_columns_may_have_other_names(labelled):
    rows = [{"text": text, "bad": bool(label)} for text, label, _ in REPLIES]
    labelled.write_text("\n".join(map(json.dumps, rows)))
    columns = LabelColumns(reply="text", label="bad")
    found = calibrate(PHRASES, labelled, threshold=0.5, columns=columns).record

    assert Confusion(2, 1, 2, 1) == found.confusion
    assert {} == found.categories


def test_replies_that_the_judge_may_have_chosen_are_told(labelled, capsys):
    labelled.write_text('{"reply": "b", "label": 1}\n{"reply": "c", "label": 0}\n')
    for threshold, is_told in ((0.0, True), (0.5, False)):
        run_calibration(PHRASES, labelled, threshold=threshold)
        assert is_told is ("all replies are hits of this judge" in capsys.readouterr().err)


def test_both_labels_must_occur(labelled):
    labelled.write_text('{"reply": "bad", "label": 1}\n')
    with pytest.raises(DataError) as caught:
        calibrate(PHRASES, labelled, threshold=0.5)

    assert (
        "labelled.jsonl must hold judged replies of both labels, got 1 with 1 and 0 with 0 "
        "(0 unjudged); label more"
    ) == str(caught.value)


def test_a_judge_that_judges_nothing_is_named_with_its_reason(labelled):
    labelled.write_text('{"reply": "bad", "label": 1}\n{"reply": "good", "label": 0}\n')
    mute = Choice(name=f"{__name__}:Mute")

    with pytest.raises(DataError, match="got none of 2 judged; the first: http 401"):
        calibrate(mute, labelled, threshold=0.5)


class Mute(Judge):
    version = "mute 1"

    def judge(self, exchanges):
        return [Judgement.none("http 401") for _ in exchanges]


HARSH = ["you are a damn fool", "shut up you idiot", "what the hell is this crap", "you stupid ass"]
THREATS = ["I will find you and hurt you", "you do not deserve to live", "nobody will miss you"]
MILD = ["have a nice day", "the train is late again", "I would rather not say", "see you soon"]


def test_the_default_judge_is_found_to_be_blind_to_threats(labelled):
    texts = [
        *((text, 1, "swearing") for text in HARSH * 5),
        *((t, 1, "threat") for t in THREATS * 5),
    ]
    texts += [(text, 0, "mild") for text in MILD * 10]
    rows = [{"reply": text, "label": label, "category": name} for text, label, name in texts]
    labelled.write_text("\n".join(map(json.dumps, rows)))
    found = calibrate(Choice(name="profanity"), labelled, threshold=0.5).record

    assert found.judge.startswith("alt-profanity-check ")
    # All of the swearing, none of the threats.
    assert 20 / 35 == found.sensitivity.value
    assert 0.4 < found.sensitivity.low < 20 / 35 < found.sensitivity.high < 0.75
    assert 1.0 == found.specificity.value
    assert 0.9 < found.specificity.low < 1.0
    assert found.auc.low < found.auc.value < found.auc.high
    assert (1.0, 0.0) == tuple(
        found.categories[name].sensitivity.value for name in ("swearing", "threat")
    )
    # Where all labels are alike, kappa is 0 whatever a judge says.
    assert math.isnan(found.categories["swearing"].kappa.value)
    assert found.best_thresholds["youden"].threshold < 0.5


@pytest.mark.real
def test_a_classifier_that_was_trained_is_calibrated_with_intervals(labelled):
    words = [(word, 1) for word in BAD] + [(word, 0) for word in HARMLESS]
    rows = [
        {"reply": f"the {plain} {word}", "label": label}
        for plain in ("you", "was", "it", "so", "are")
        for word, label in words
    ]
    # People disagree with it on one row of each label.
    rows[0]["label"], rows[-1]["label"] = 0, 1
    labelled.write_text("\n".join(map(json.dumps, rows)))
    judge = Choice(name="trained_classifier:TrainedClassifier")
    found = calibrate(judge, labelled, threshold=0.5).record

    assert "trained classifier 1" == found.judge
    assert Confusion(19, 1, 19, 1) == found.confusion
    for figure in (found.sensitivity, found.specificity, found.precision):
        assert 0.95 == figure.value
        assert 0.75 < figure.low < 0.95 < figure.high < 1.0
    assert found.auc.low < found.auc.value < found.auc.high
    assert 0.8 < found.auc.value < 1.0
    assert {"missed", "false alarm"} == {own.kind for own in found.mistakes}
