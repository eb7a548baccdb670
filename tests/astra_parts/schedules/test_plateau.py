import math

import pytest
import torch
from each_row import each_row
from tiny_training import assert_same_state, choice, configured, trainer_of, weights_of
from torch.optim.lr_scheduler import MultiStepLR, ReduceLROnPlateau

from astra_core.config import Choice
from astra_core.errors import CheckpointError, ConfigurationError, PluginError
from astra_core.registry import build
from astra_core.training.optimization.optimizers import SchedulePlugin

METRIC = "eval/attack_success_rate"
# Never improves: no turn of the tiny system fails.
STUCK = "eval/failed_rate"
PLATEAU = choice("plateau", metric=STUCK, patience=0, factor=0.5)
RUN = {"training_steps": 4, "eval_every": 1, "metric": "eval/kl_nats", "schedule": PLATEAU}


def rates(values, *, warmup_steps=0, peak=1.0, **options):
    """The rate after each evaluation that gave one of these values."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=peak)
    plugin = build("schedule", Choice(name="plateau", options=options))
    schedule = plugin.schedule(optimizer, warmup_steps=warmup_steps, training_steps=9)
    found = [optimizer.param_groups[0]["lr"]]
    for value in values:
        plugin.move(schedule)
        plugin.move(schedule, {plugin.metric: value})
        found.append(optimizer.param_groups[0]["lr"])
    return found


@each_row(
    ("options", "values", "expected"),
    [
        ({"patience": 0, "factor": 0.5}, [1, 1, 2, 2], [1, 1, 0.5, 0.5, 0.25]),
        ({"patience": 1, "factor": 0.5}, [1, 1, 1, 1, 1], [1, 1, 1, 0.5, 0.5, 0.25]),
        ({"patience": 0, "factor": 0.1, "mode": "min"}, [1, 0.5, 1], [1, 1, 1, 0.1]),
        ({"patience": 0, "factor": 0.5, "threshold": 0.5}, [1, 1.4], [1, 1, 0.5]),
        ({"patience": 0, "factor": 0.5, "threshold": 0.5}, [2, 2.9, 3.1], [1, 1, 0.5, 0.5]),
        (
            {"patience": 0, "factor": 0.5, "threshold": 0.5, "threshold_mode": "abs"},
            [2, 2.9],
            [1, 1, 1],
        ),
        ({"patience": 0, "factor": 0.5, "cooldown": 1}, [1, 1, 1, 1], [1, 1, 0.5, 0.5, 0.25]),
        ({"patience": 0, "factor": 0.1, "min_lr": 0.3}, [1, 1], [1, 1, 0.3]),
    ],
)
def test_the_rate_falls_when_the_figure_stops_improving(options, values, expected):
    assert expected == pytest.approx(rates(values, **options))


def test_a_tiny_rate_falls_too():
    assert [1e-9, 1e-9, 1e-10] == pytest.approx(
        rates([1, 1], peak=1e-9, patience=0, factor=0.1), rel=1e-6
    )


def test_the_rate_rises_first_and_evaluations_before_do_not_count():
    found = rates([1.0] * 6, warmup_steps=4, patience=1, factor=0.5)

    assert [0.25, 0.5, 0.75, 1.0, 1.0, 0.5, 0.5] == pytest.approx(found)


def test_it_is_torchs_own():
    values = [0.1, 0.3, 0.2, 0.2, 0.3, 0.1, 0.5, 0.4, 0.4, 0.4]
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    theirs = ReduceLROnPlateau(optimizer, mode="max", factor=0.3, patience=1)
    expected = [1.0]
    for value in values:
        theirs.step(value)
        expected.append(optimizer.param_groups[0]["lr"])

    assert expected == pytest.approx(rates(values, patience=1, factor=0.3))


def test_a_run_follows_its_evaluations():
    trainer = trainer_of(configured(**{**RUN, "training_steps": 2}))
    found = [report.lr for report in trainer.steps()]

    assert [0.01, 0.005] == pytest.approx(sorted(set(found), reverse=True))


@pytest.mark.real
def test_evaluating_less_often_is_another_course():
    trainer = trainer_of(configured(**{**RUN, "eval_every": 2}))

    assert 2 == len({report.lr for report in trainer.steps()})


@pytest.mark.real
def test_a_run_that_follows_a_figure_resumes(tmp_path):
    changes = {**RUN, "keep": "last"}
    whole = trainer_of(configured(**changes), tmp_path / "whole")
    expected = [report.row() for report in whole.steps()]
    for report in trainer_of(configured(**changes), tmp_path / "cut").steps():
        if report.training_step == 3:
            break
    resumed = trainer_of(configured(**changes), tmp_path / "cut")

    assert resumed.resume()
    done = resumed.progress.step
    assert expected[done:] == [report.row() for report in resumed.steps()]
    assert weights_of(whole) == weights_of(resumed)
    assert_same_state(whole.store.newest(), resumed.store.newest())


def test_an_infinity_in_the_state_is_in_the_checkpoint(tmp_path):
    changes = {**RUN, "eval_first": False, "batch_size": 1}
    trainer = trainer_of(configured(**changes), tmp_path)
    next(trainer.steps())
    assert -math.inf == trainer.updates.schedule.best
    resumed = trainer_of(configured(**changes), tmp_path)

    assert resumed.resume()
    assert -math.inf == resumed.updates.schedule.best


def test_when_to_evaluate_may_not_change_under_a_schedule_that_follows(tmp_path):
    trainer_of(configured(**{**RUN, "training_steps": 1}), tmp_path).train()

    with pytest.raises(CheckpointError, match=r"'eval_every'.* as they were"):
        trainer_of(configured(**{**RUN, "eval_every": 2}), tmp_path).resume()


@each_row("scheme", ["none", "first", "last", "first_and_last"])
def test_without_evaluations_on_the_way_it_is_refused(scheme):
    with pytest.raises(ConfigurationError, match=f"must be 'every' .*{STUCK}, got '{scheme}'"):
        trainer_of(configured(**{**RUN, "evaluate": scheme}))


def test_without_an_evaluator_it_is_refused():
    with pytest.raises(ConfigurationError, match="got a trainer without an evaluator"):
        trainer_of(configured(**RUN), is_evaluated=False)


def test_a_figure_that_no_evaluation_has_is_refused():
    with pytest.raises(ConfigurationError, match=r"training\.schedule must name .*'eval/kl_nats'"):
        trainer_of(configured(schedule=choice("plateau", metric="eval/kl_nat")))


class Halving(SchedulePlugin):
    """A metric-driven schedule of one's own: torch's class as it is."""

    metric = STUCK

    def schedule(self, optimizer, **_):
        return ReduceLROnPlateau(optimizer, factor=0.5, patience=0)


class Nameless(Halving):
    metric = 5


class Lost(Halving):
    metric = "eval/kl_nats"


@pytest.mark.real
def test_torchs_own_class_works_as_a_plug_in(tmp_path):
    changes = {**RUN, "schedule": choice(f"{__name__}:Halving")}
    trainer = trainer_of(configured(**changes), tmp_path)
    rates = sorted({report.lr for report in trainer.steps()}, reverse=True)
    resumed = trainer_of(configured(**changes), tmp_path)

    assert [0.005, 0.0025, 0.00125] == pytest.approx(rates[1:])
    assert resumed.resume()
    assert trainer.updates.schedule.state_dict() == resumed.updates.schedule.state_dict()


def test_a_metric_that_is_no_name_is_refused():
    with pytest.raises(PluginError, match="the name of a figure as metric, or None, got 5"):
        trainer_of(configured(**{**RUN, "schedule": choice(f"{__name__}:Nameless")}))


def test_an_evaluation_of_ones_own_that_lacks_the_figure_is_reported():
    trainer = trainer_of(configured(**{**RUN, "metric": STUCK, "schedule": choice("plateau")}))
    trainer.examine = lambda _: {STUCK: 0.0}

    with pytest.raises(ConfigurationError, match=f"must follow a figure .*got '{METRIC}'; there"):
        trainer.train()


class Stepped(SchedulePlugin):
    """Falls at a step that its state names by number."""

    def schedule(self, optimizer, **_):
        return MultiStepLR(optimizer, [3], gamma=0.5)


@pytest.mark.real
def test_a_schedule_with_a_table_by_step_resumes(tmp_path):
    changes = {"training_steps": 4, "schedule": choice(f"{__name__}:Stepped"), "eval_every": 9}
    for report in trainer_of(configured(**changes), tmp_path).steps():
        if report.training_step == 3:
            break
    resumed = trainer_of(configured(**changes), tmp_path)

    assert resumed.resume()
    assert [0.01, 0.005] == pytest.approx(
        sorted({report.lr for report in resumed.steps()}, reverse=True)
    )
