import math

from each_row import each_row

from astra_core.config import EarlyStopping
from astra_core.training.selection import stopping
from astra_core.training.selection.stopping import Best, Stopping


def offered(values, *, mode="max", min_delta=0.0):
    best = Best(metric="eval/x", mode=mode)
    taken = [
        best.offer({"eval/x": value}, step, f"best_{step}", min_delta=min_delta)
        for step, value in enumerate(values)
    ]
    return best, taken


@each_row(
    ("values", "mode", "min_delta", "taken"),
    [
        ([0.1, 0.2, 0.15, 0.3], "max", 0.0, [True, True, False, True]),
        ([0.3, 0.2, 0.25, 0.1], "min", 0.0, [True, True, False, True]),
        ([0.1, 0.1], "max", 0.0, [True, False]),
        ([0.0, 0.05, 0.2], "max", 0.1, [True, False, True]),
        ([0.0, 0.06, 0.12], "max", 0.1, [True, False, True]),
        ([0.12, 0.06, 0.0], "min", 0.1, [True, False, True]),
        ([math.nan, 0.1, math.nan], "max", 0.0, [False, True, False]),
        ([-1.0, 0.0], "min", 0.0, [True, False]),
        ([math.inf, math.inf], "min", 0.0, [True, False]),
        ([-math.inf, -math.inf, 0.0], "max", 0.0, [True, False, True]),
        ([math.inf, math.inf, math.nan], "max", 0.1, [True, False, False]),
    ],
)
def test_an_evaluation_is_the_best_if_it_gains_more_than_the_least_that_counts(
    values, mode, min_delta, taken
):
    best, found = offered(values, mode=mode, min_delta=min_delta)

    assert taken == found
    last = max(index for index, flag in enumerate(taken) if flag)
    assert (last, f"best_{last}", values[last]) == (best.training_step, best.model, best.value)
    assert len(values) - 1 - last == best.num_since


def test_a_record_says_the_mean_score_and_the_processes_where_there_are_several():
    best = Best(metric="eval/x", mode="max")
    best.num_processes = 2
    best.offer({"eval/x": 0.5, "eval/score_mean": 0.25}, 3, "best_3", min_delta=0.0)
    alone, _ = offered([0.5])

    assert (2, 0.25) == (best.record()["num_processes"], best.record()["score_mean"])
    assert not {"num_processes", "score_mean"} & alone.record().keys()


@each_row(
    ("scores", "mode", "min_delta", "last"),
    [
        ([0.20, 0.21], "max", 0.0, 1),
        ([0.21, 0.20, 0.22], "max", 0.0, 2),
        ([0.20, 0.20], "max", 0.0, 0),
        ([0.20, 0.21], "max", 0.1, 0),
        ([0.20, 0.21], "min", 0.0, 0),
        ([math.nan, 0.21], "max", 0.0, 0),
    ],
)
def test_among_equals_the_higher_mean_score_is_the_best(scores, mode, min_delta, last):
    best = Best(metric="eval/x", mode=mode)
    for step, score in enumerate(scores):
        found = {"eval/x": 0.18, "eval/score_mean": score}
        best.offer(found, step, f"best_{step}", min_delta=min_delta)
    again = Best(metric="eval/x", mode=mode)
    again.load(best.record())

    assert (last, f"best_{last}") == (best.training_step, best.model)
    assert len(scores) - 1 == best.num_since
    assert again.record() == best.record()


@each_row("last", [0.1, 0.9, math.nan])
def test_the_last_evaluation_can_be_taken_back(last):
    before, _ = offered([0.3, 0.2])
    best, _ = offered([0.3, 0.2, last])
    again = Best(metric="eval/x", mode="max")
    again.load(best.record())
    again.forget_last()

    assert {**before.record(), "before": None} == again.record()
    assert ({"best_0", "best_2"} if last == 0.9 else {"best_0"}) == best.models
    assert {"best_0"} == again.models


@each_row("values", [[], [0.1, 0.4, 0.2], [math.nan]])
def test_the_best_survives_a_checkpoint(values):
    best, _ = offered(values)
    best.num_processes = 3
    again = Best(metric="eval/x", mode="max")
    again.load(best.record())

    assert best.record() == again.record()
    assert best.offer({"eval/x": 0.3}, 9, "b", min_delta=0.0) == again.offer(
        {"eval/x": 0.3}, 9, "b", min_delta=0.0
    )


def test_a_checkpoint_holds_the_best_by_name():
    fresh, (best, _) = Best(metric="eval/x", mode="max"), offered([0.1, 0.4, 0.2])
    names = ("metric", "value", "training_step", "model", "num_since", "before")

    assert dict(zip(names, ("eval/x", None, 0, "", 0, None), strict=True)) == fresh.record()
    # Before the third.
    before = dict(zip(names[:-1], ("eval/x", 0.4, 1, "best_1", 0), strict=True))
    assert dict(zip(names, ("eval/x", 0.4, 1, "best_1", 1, before), strict=True)) == best.record()


def test_before_any_experience_there_is_no_drift():
    own = Stopping(EarlyStopping(max_kl_nats=0.5))
    best, _ = offered([0.5])

    assert {"kl_nats": 0.0} == own.record()
    own.note({"rollout/score": 9.0})
    assert own.reason(1, best) == ""


def reason(*, step=1, num_since=0, kl_nats=0.0, **rules):
    best, _ = offered([0.5] * (num_since + 1))
    own = Stopping(EarlyStopping(**rules))
    own.start()
    own.note({"rollout/kl_nats": kl_nats})
    return own.reason(step, best)


def test_without_a_rule_training_continues():
    assert reason(max_kl_nats=None, step=10**6, num_since=10**3, kl_nats=1e6) == ""


@each_row(("num_since", "expected"), [(2, ""), (3, "did not improve for 3 eval")])
def test_patience_counts_evaluations_without_improvement(num_since, expected):
    assert expected in reason(patience=3, num_since=num_since)
    assert bool(expected) == bool(reason(patience=3, num_since=num_since))


@each_row(("kl_nats", "stops"), [(4.9, False), (5.0, False), (5.1, True)])
def test_drifting_away_from_the_reference_ends_training(kl_nats, stops):
    assert stops == ("KL to the reference" in reason(max_kl_nats=5.0, kl_nats=kl_nats))


@each_row(("step", "stops"), [(9, False), (10, True), (11, True)])
def test_updates_can_be_limited(step, stops):
    assert stops == ("optimiser steps are done" in reason(max_optimizer_steps=10, step=step))


def test_budgets_are_asked_for_without_patience():
    own = Stopping(EarlyStopping(patience=1, max_optimizer_steps=4))

    assert ["", "4 optimiser steps are done"] == [own.spent_budget(step) for step in (3, 4)]


@each_row("start", [100.0, 130.0])
def test_time_can_be_limited(start, monkeypatch):
    clock = [100.0]
    monkeypatch.setattr(stopping.time, "monotonic", lambda: clock[0])
    own = Stopping(EarlyStopping(max_seconds=60.0))
    best, _ = offered([0.5])
    # Counted from the construction on, until it is started.
    if start > clock[0]:
        clock[0] = start
        own.start()

    clock[0] = start + 60.0
    assert own.reason(1, best) == ""
    clock[0] = start + 60.5
    assert own.reason(1, best) == "60 seconds have passed"


def test_the_last_drift_survives_a_checkpoint():
    first, again = (Stopping(EarlyStopping(max_kl_nats=1.0)) for _ in range(2))
    first.note({"rollout/kl_nats": 3.0})
    again.load(first.record())

    best, _ = offered([0.5])
    assert again.reason(1, best) == first.reason(1, best) != ""
