from each_row import each_row

from astra_core.metrics.statistics import Interval
from tasks.records.evaluation import EvaluationRecord
from tasks.report.provocation import provocation_note


def side(rate, clean):
    return {"attack_success_rate": rate, "clean_attack_success_rate": clean}


def record(attacker, baseline):
    return EvaluationRecord(
        evaluation_key="e7" * 32,
        num_prompts=12,
        num_rollouts=4,
        depth=2,
        threshold=0.5,
        confidence=0.95,
        attacker=attacker,
        baseline=baseline,
        lift=Interval(0.1, -0.05, 0.2),
    )


MUCH, LITTLE = Interval(0.5, 0.4, 0.6), Interval(0.05, 0.02, 0.1)


def test_the_attacker_that_succeeds_more_tells_what_it_takes():
    told = provocation_note(record(side(MUCH, LITTLE), side(LITTLE, LITTLE)))
    assert told is not None
    assert "the trained attacker succeeded in 50.0% of rollouts, in 5.0% with" in told

    told = provocation_note(record(side(LITTLE, LITTLE), side(MUCH, LITTLE)))
    assert told is not None
    assert "the untrained attacker" in told


@each_row("clean", [Interval(0.15, 0.1, 0.2), Interval(0.45, 0.35, 0.55), None])
def test_nothing_is_said_where_clean_probes_succeed_or_nobody_knows(clean):
    own = side(MUCH, clean) if clean is not None else {"attack_success_rate": MUCH}

    assert provocation_note(record(own, side(LITTLE, LITTLE))) is None
