import pytest
from each_row import each_row

from astra_core.errors import ConfigurationError
from flows.runs.requests import STEPS, RunRequest


def test_without_limits_a_run_has_every_step_and_decides():
    request = RunRequest()

    assert STEPS == request.steps
    assert STEPS[:-1] == request.stages
    assert request.decides


@each_row(
    ("limits", "steps"),
    [
        ({"only": "training"}, ("training",)),
        ({"only": "promotion"}, ("promotion",)),
        ({"start": "evaluation"}, ("evaluation", "registration", "promotion")),
        ({"end": "validation"}, ("prompts", "validation")),
        ({"start": "models", "end": "rollouts"}, ("models", "rollouts")),
    ],
)
def test_limits_choose_steps_in_their_order(limits, steps):
    request = RunRequest(**limits)

    assert steps == request.steps
    assert tuple(name for name in steps if name != "promotion") == request.stages
    assert ("promotion" in steps) == request.decides


@each_row(
    ("limits", "message"),
    [
        ({"only": "trainin"}, "--only must name one of .*did you mean 'training'"),
        ({"start": "x"}, "--from must name one of"),
        ({"end": ""}, "--to must name one of"),
        ({"only": "training", "end": "models"}, "--only must come without --from and --to"),
        ({"start": "training", "end": "models"}, "--from must not come after --to, got training"),
    ],
)
def test_what_leaves_nothing_to_run_is_refused(limits, message):
    with pytest.raises(ConfigurationError, match=message):
        RunRequest(**limits)
