import pytest
from each_row import each_row

from tasks.serving.fine_tuning.requests import JobBody
from tasks.serving.wire import RefusalError, read_body

OWN = {"model": "tiny", "training_file": "file-1"}


def of(**more):
    return read_body({**OWN, **more}, JobBody)


def method(kind, **hyper):
    return {"type": kind, kind: {"hyperparameters": hyper}}


def test_auto_is_settled_by_the_method_and_the_number_of_examples():
    assert {"n_epochs": 3, "batch_size": 5, "learning_rate_multiplier": 1.0} == of().settle(5)
    preferences = of(method={"type": "dpo"}).settle(100)
    assert (1, 8, 0.1) == tuple(preferences[name] for name in ("n_epochs", "batch_size", "beta"))


def test_what_is_asked_is_kept():
    asked = {"n_epochs": 2, "batch_size": 4, "learning_rate_multiplier": 0.5, "beta": 0.3}

    assert asked == of(method=method("dpo", **asked)).settle(100)
    assert 7 == of(hyperparameters={"n_epochs": 7}).settle(100)["n_epochs"]


def test_the_key_is_of_the_metadata():
    assert "k" == of(metadata={"idempotency_key": "k"}).key
    assert of().key is None


@each_row(
    "more",
    [
        {"method": {"type": "reinforcement"}},
        {"method": {"type": "supervised", "dpo": {}}},
        {"method": method("supervised", beta=0.1)},
        {"method": {"type": "dpo"}, "hyperparameters": {}},
        {"validation_file": "file-2"},
        {"integrations": [{"type": "wandb"}]},
        {"suffix": "a/b"},
        {"suffix": "a" * 65},
        {"metadata": {"key": 1}},
        {"metadata": {str(n): "" for n in range(17)}},
        {"hyperparameters": {"n_epochs": 0}},
        {"hyperparameters": {"warmup": 1}},
        {"hyperparameters": {"learning_rate_multiplier": 1e300}},
        {"hyperparameters": {"learning_rate_multiplier": 1e-300}},
        {"method": method("dpo", beta=1e300)},
        {"seed": -1},
        {"unknown": 1},
    ],
)
def test_what_is_not_offered_is_refused(more):
    with pytest.raises(RefusalError):
        of(**more)


def test_nothing_is_accepted_where_nothing_is_offered():
    assert of(validation_file=None, integrations=None, suffix="a.b-c_1") is not None
