from astra_core.config import TrainingConfiguration
from tasks.params.schema import Params, read_params


def test_what_params_yaml_leaves_out_is_what_its_run_has():
    """One default a key: of the rest of a section too, where some of its keys are given."""
    shipped = read_params().training
    bare = Params.read({}, where="")
    some = Params.read({"training": {"lr": 3e-4, "algorithm": "dpo"}}, where="")

    assert shipped == bare.training == some.training
    assert (6, "turns", 3, 2) == (
        bare.training.training_steps,
        bare.training.algorithm.defaults,
        bare.training.early_stopping.patience,
        bare.training.checkpoint.save_every,
    )
    # The Trainer's interface has those of the library whose guide it follows.
    assert (1024, "published") == (
        TrainingConfiguration().training_steps,
        TrainingConfiguration().algorithm.defaults,
    )


def test_a_key_has_its_rule_and_meaning_beside_another_default():
    theirs = TrainingConfiguration.model_fields["training_steps"]
    own = type(Params().training).model_fields["training_steps"]

    assert theirs.description == own.description
    assert {*map(str, theirs.metadata)} == {*map(str, own.metadata)}
