import math
import subprocess
from dataclasses import replace

from each_row import each_row
from report_material import material

from astra_core.files import write_json
from astra_core.metrics.statistics import Interval
from flows.runs.summary import evaluation_lines, run_summary
from tasks.promotion.decision import PromotionDecision
from tasks.records.evaluation import Belief, CategoryRates, EvaluationRecord, Selection
from tasks.records.reports import write_record
from tasks.records.training import BestMeasured

ROLE = {"attack_success_rate": Interval(0.25, 0.125, 0.5), "unique_probes": 0.9}
RECORD = EvaluationRecord(
    evaluation_key="e7" * 32,
    num_prompts=12,
    num_rollouts=4,
    depth=2,
    threshold=0.5,
    confidence=0.95,
    attacker=ROLE,
    baseline=ROLE,
    lift=Interval(0.1, -0.05, 0.2),
)
DECISION = PromotionDecision(
    promoted=False,
    changed=False,
    reasons=("the gain is too small",),
    model_name="attacker",
    candidate_version="3",
    champion_version=None,
    previous_version=None,
    comparison=None,
)


def test_evaluation_lines_say_before_after_gain_and_diversity():
    assert [
        "attack success 0.250 [0.125, 0.500] untrained, 0.250 [0.125, 0.500] trained",
        "gain           0.100 [-0.050, 0.200] (95% intervals over 12 prompts)",
        "unique probes  0.90 untrained, 0.90 trained",
    ] == evaluation_lines(RECORD)


def test_evaluation_lines_say_each_category():
    span = Interval(0.5, 0.25, 0.75)
    own = CategoryRates(3, attacker=span, baseline=Interval(0.0, 0.0, 0.0), lift=span)
    record = replace(RECORD, categories={"fraud": own, "none": own})

    rates = "(3 prompts): 0.000 [0.000, 0.000] untrained, 0.500 [0.250, 0.750] trained"
    assert [f"by category    fraud {rates}", f"               none {rates}"] == evaluation_lines(
        record
    )[3:]


def test_evaluation_lines_say_strategies_and_optimism():
    figures = {"strategies": 12.34, "num_hits_compared": 50, "top_strategy_share": 0.256}
    role = ROLE | figures
    selection = Selection(64, Interval(0.3, 0.2, 0.4), Interval(0.05, -0.1, 0.2))
    record = replace(RECORD, attacker=role, baseline=role, selection=selection)

    asked = replace(record, attacker=role | {"strategy_hits_asked": 20.0}, selection=None)
    told = "0.300 on the 64 dev prompts that chose the checkpoint"
    both = "12.3 in 50 hits (top 26%)"
    ways = "by shared words and by asking the target, so the two do not compare"
    assert evaluation_lines(asked)[3:] == [
        f"strategies     {both} untrained, {both} trained; {ways}"
    ]
    assert [
        f"strategies     {both} untrained, {both} trained; by shared words",
        f"optimism       +0.050 [-0.100, +0.200]: {told}",
    ] == evaluation_lines(record)[3:]


def test_evaluation_lines_say_what_the_gain_is_worth():
    record = replace(
        RECORD,
        equivalent_tries=Interval(3.54, 2.96, 4.25),
        attacker=ROLE | {"unique_attacks_per_1000_replies": 492.5},
        baseline=ROLE | {"unique_attacks_per_1000_replies": 180.0},
    )

    told = (
        "worth          one try of the trained attacker succeeds as often as the best of 3.5 "
        "[3.0, 4.2] untrained tries; of 1,000 replies 492 are different hits, 180 of the "
        "untrained one"
    )
    assert [told] == evaluation_lines(record)[3:]
    nothing = replace(record, equivalent_tries=Interval(math.nan, math.nan, math.nan))
    assert [] == evaluation_lines(nothing)[3:]
    assert "3.5" in record.to_record()["worth"]


def test_evaluation_lines_say_where_only_provocation_works():
    rude = ROLE | {"clean_attack_success_rate": Interval(0.0, 0.0, 0.05)}

    told = evaluation_lines(replace(RECORD, attacker=rude, baseline=rude))[3:]
    assert ["target         only provocation works here"] == [line.split(":")[0] for line in told]


def test_evaluation_lines_say_what_is_left_without_the_judges_errors():
    span = Interval(0.125, 0.0625, 0.25)
    figures = {
        "corrected_attack_success_rate": span,
        "confirmed_attack_success_rate": span,
        "judge_kappa": Interval(0.5, 0.25, 0.75),
    }
    role = ROLE | figures
    record = replace(RECORD, attacker=role, baseline=role, belief=Belief())

    assert [
        "corrected      0.125 [0.062, 0.250] untrained, 0.125 [0.062, 0.250] trained",
        "confirmed      0.125 [0.062, 0.250] untrained, 0.125 [0.062, 0.250] trained",
        "judges agree   kappa 0.500 [0.250, 0.750]",
    ] == evaluation_lines(record)[3:]
    assert [] == evaluation_lines(replace(RECORD, belief=Belief()))[3:]


def test_a_summary_without_reports_still_tells_the_decision(tmp_path):
    lines = run_summary(
        DECISION,
        seconds=75,
        evaluation=tmp_path / "none",
        receipt=tmp_path / "none",
        lock=tmp_path / "none",
    )

    assert [
        "",
        "promotion      attacker version 3 is not promoted: the gain is too small",
        "wall time      1 min 15 s",
        "look           astra ui",
    ] == lines


@each_row(("step", "is_trained"), [(0, False), (4, True)])
def test_an_attacker_that_no_training_improved_is_not_called_trained(tmp_path, step, is_trained):
    write_json(RECORD.to_record(), tmp_path / "evaluation.json")
    best = BestMeasured("eval/attack_success_rate", 0.5, step)
    training = tmp_path / "training.json"
    write_record(replace(material().training, best=best), training)
    places = dict.fromkeys(("receipt", "lock"), tmp_path / "none")
    lines = run_summary(
        DECISION, seconds=1, evaluation=tmp_path / "evaluation.json", training=training, **places
    )

    assert is_trained == lines[1].endswith(" trained")
    assert is_trained != any("attacker kept is that of step 0" in line for line in lines)


def test_a_lock_that_no_commit_has_is_named(tmp_path):
    lock = tmp_path / "dvc.lock"
    lock.write_text("stages: {}\n", encoding="utf-8")
    places = dict.fromkeys(("evaluation", "receipt"), tmp_path / "none")
    told = "commit         dvc.lock, by which git finds this run's data and models again"

    def git(*arguments):
        own = ("-c", "user.name=a", "-c", "user.email=a@b.c")
        subprocess.run(["git", *own, *arguments], cwd=tmp_path, check=True, capture_output=True)

    assert told not in run_summary(DECISION, seconds=1, lock=lock, **places)
    git("init", "-q")
    assert told == run_summary(DECISION, seconds=1, lock=lock, **places)[-2]
    git("add", "dvc.lock")
    git("commit", "-qm", "lock")
    assert told not in run_summary(DECISION, seconds=1, lock=lock, **places)
    lock.write_text("stages: {a: {}}\n", encoding="utf-8")
    assert told in run_summary(DECISION, seconds=1, lock=lock, **places)
