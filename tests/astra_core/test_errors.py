import inspect
import pickle

from each_row import each_row

from astra_core import errors

KINDS = [
    kind
    for _, kind in inspect.getmembers(errors, inspect.isclass)
    if kind.__module__ == errors.__name__
]


@each_row("kind", KINDS)
def test_every_error_has_one_root_and_survives_an_orchestrators_pickling(kind):
    again = pickle.loads(pickle.dumps(kind("system.separator must ...")))  # noqa: S301

    assert isinstance(again, errors.AstraError)
    assert type(again) is kind
    assert str(again) == "system.separator must ..."


@each_row(
    ("kind", "standard"),
    [
        (errors.ConfigurationError, ValueError),
        (errors.DataError, ValueError),
        (errors.ShapeError, ValueError),
        (errors.TargetError, errors.RolloutError),
        (errors.ScorerError, errors.RolloutError),
        (errors.RolloutError, RuntimeError),
        (errors.TrainingError, RuntimeError),
        (errors.CheckpointError, RuntimeError),
        (errors.GateError, RuntimeError),
    ],
)
def test_an_error_is_also_what_a_caller_expects(kind, standard):
    assert issubclass(kind, standard)
