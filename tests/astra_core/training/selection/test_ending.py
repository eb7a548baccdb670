import pytest

from astra_core.config import EarlyStopping
from astra_core.errors import BudgetError, TrainingError
from astra_core.training.distribution.distributed import World
from astra_core.training.progress import Progress
from astra_core.training.selection.ending import Ending
from astra_core.training.selection.stopping import Best

BEST = Best(metric="eval/x", mode="max")


def ending(**rules):
    return Ending(EarlyStopping(**rules), world=World())


def reason(rules, progress):
    return rules.reason(progress, BEST, training_steps=3)


def test_a_run_continues_until_all_its_steps_are_done():
    rules = ending()

    assert "" == reason(rules, Progress(training_step=2))
    assert "all training steps are done" == reason(rules, Progress(training_step=3))


def test_a_budget_of_updates_is_spent_in_mid_step():
    rules = ending(max_optimizer_steps=4)

    assert "" == rules.spent_budget(Progress(step=3))
    assert "4 optimiser steps are done" == rules.spent_budget(Progress(step=4))
    assert rules.spent_budget(Progress(step=4)) == reason(rules, Progress(step=4))


def test_a_budget_of_seconds_counts_from_the_start():
    rules = ending(max_seconds=1e-9)
    rules.stopping.start()

    assert "seconds have passed" in rules.spent_budget(Progress())


def test_what_cannot_be_paid_ends_the_run_and_keeps_what_was_reported():
    rules = ending()

    def reports():
        yield "first"
        message = "100 of 100 calls made"
        raise BudgetError(message)

    assert ["first"] == list(rules.within_budget(reports()))
    assert "100 of 100 calls made" == reason(rules, Progress(training_step=3))


def test_other_errors_are_not_a_matter_of_budgets():
    def reports():
        raise TrainingError
        yield

    with pytest.raises(TrainingError):
        list(ending().within_budget(reports()))
