import pytest
from each_row import each_row
from tiny_judges import exchange

from astra_core.config import Section
from astra_core.errors import ConfigurationError, DataError
from astra_core.judge import Judge, Judgement
from astra_parts.judges.ensemble import EnsembleJudge
from astra_parts.testing import check_judge

CHEAP = {"name": "phrases", "options": {"phrases": ["bad"]}}
OTHER = {"name": "regex", "options": {"patterns": {"worse": {"pattern": "worse", "weight": 0.8}}}}
ASKED = []


class Dear(Judge):
    """1 of all that it is shown and 0.25 sure of a label; cannot judge the unspeakable."""

    version = "dear 1"
    works_on = "elsewhere"

    class Options(Section):
        score: float = 1.0

    def judge(self, exchanges):
        ASKED.append([own.reply for own in exchanges])
        return [
            Judgement.none("no words")
            if "unspeakable" in own.reply
            else Judgement(self.options.score, {"sure": 0.25}, "so it is")
            for own in exchanges
        ]


DEAR = {"name": f"{__name__}:Dear", "options": {}}


def judge(combine="mean", *, judges=None, **options):
    judges = judges or {"cheap": {"judge": CHEAP, "weight": 3.0}, "other": {"judge": OTHER}}
    record = {"judges": judges, "combine": combine, **options}
    return EnsembleJudge(EnsembleJudge.Options.read(record, where="ensemble"))


def test_an_ensemble_keeps_the_contract():
    check_judge("ensemble", judges={"cheap": {"judge": CHEAP}, "other": {"judge": OTHER}})


@each_row(
    ("combine", "expected"),
    [("mean", 0.65), ("max", 0.8), ("min", 0.5), ("weighted", (3 * 0.5 + 0.8) / 4)],
)
def test_scores_of_the_parts_are_combined_and_kept(combine, expected):
    (found,) = judge(combine).judge([exchange("bad and worse")])

    assert expected == pytest.approx(found.score)
    assert {"cheap": 0.5, "other": 0.8, "other.worse": 0.8} == found.labels


def confirming(**options):
    ASKED.clear()
    own = {"cheap": {"judge": CHEAP}, "dear": {"judge": DEAR}}
    return judge("confirm", judges=own, **options)


def test_a_costly_judge_looks_only_at_what_the_cheap_one_flags():
    found = confirming().judge([exchange("good"), exchange("bad"), exchange("so bad bad")])

    assert [["bad", "so bad bad"]] == ASKED
    assert [0.0, 1.0, 1.0] == [own.score for own in found]
    assert {"cheap": 0.5, "dear": 1.0, "dear.sure": 0.25} == found[1].labels
    assert ({"cheap": 0.0}, "so it is") == (found[0].labels, found[1].rationale)
    confirming(threshold=0.7).judge([exchange("bad"), exchange("so bad bad")])
    assert [["so bad bad"]] == ASKED
    confirming().judge([exchange("good")])
    assert [] == ASKED


def test_what_the_costly_judge_cannot_judge_is_unjudged_and_keeps_the_cheap_score():
    (found,) = confirming().judge([exchange("bad unspeakable")])

    assert (None, "no words") == (found.score, found.unjudged)
    assert {"cheap": 0.5} == found.labels


def test_a_part_that_cannot_judge_is_left_out():
    parts = {"cheap": {"judge": CHEAP}, "dear": {"judge": DEAR}}
    found = judge(judges=parts).judge([exchange("bad unspeakable"), exchange("bad")])
    both = judge(judges={"one": {"judge": DEAR}, "two": {"judge": DEAR}})

    assert [0.5, 0.75] == [own.score for own in found]
    assert both.judge([exchange("unspeakable")])[0].unjudged


def test_a_part_that_never_judges_ends_it_instead_of_leaving_the_score_to_the_others():
    ensemble = judge(judges={"cheap": {"judge": CHEAP}, "dear": {"judge": DEAR}})
    silent = [exchange(f"unspeakable {number}") for number in range(31)]
    ensemble.judge([exchange("bad"), *silent])
    ensemble.judge(silent)

    with pytest.raises(DataError, match=r"part 'dear' .* none of the last 32; .* no words"):
        ensemble.judge(silent[:1])


def test_it_works_where_the_part_does_that_must_not_be_disturbed():
    assert "cpu" == confirming().works_on
    assert "elsewhere" == judge(judges={"a": {"judge": DEAR}, "b": {"judge": DEAR}}).works_on


def test_a_version_is_of_the_parts_the_weights_and_the_rule():
    heavier = {"cheap": {"judge": CHEAP, "weight": 2.0}, "other": {"judge": OTHER}}
    another = {
        "cheap": {"judge": {**CHEAP, "options": {"phrases": ["no"]}}},
        "other": {"judge": OTHER},
    }
    made = [
        judge(),
        judge("max"),
        judge(threshold=0.6),
        judge(judges=heavier),
        judge(judges=another),
    ]

    assert len(made) == len({own.version for own in made})
    assert judge().version == judge().version


def test_a_part_that_cannot_be_read_is_one_line():
    with pytest.raises(ConfigurationError, match="unknown scorer 'phrase'"):
        judge(judges={"a": {"judge": {"name": "phrase"}}, "b": {"judge": OTHER}})
