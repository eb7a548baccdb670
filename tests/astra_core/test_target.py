import inspect

from astra_core.models.language_model import LanguageModel
from astra_core.target import Target

MEMBERS = sorted(name for name in vars(Target) if not name.startswith("_"))


def test_a_language_model_has_every_member_and_takes_the_same_arguments():
    assert {"closed", "continuations", "encode", "remembering"} <= set(MEMBERS)
    for name in MEMBERS:
        own, promised = getattr(LanguageModel, name), getattr(Target, name)
        assert isinstance(own, property) == isinstance(promised, property)
        if not isinstance(own, property):
            assert list(inspect.signature(own).parameters) == list(
                inspect.signature(promised).parameters
            )


def test_every_member_says_what_it_is_for():
    assert all(inspect.getdoc(getattr(Target, name)) for name in MEMBERS)
