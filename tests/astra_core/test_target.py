import inspect

from astra_core.target import Reply, Target, Usage
from astra_core.targets.causal_lm import CausalLM

MEMBERS = sorted(name for name in vars(Target) if not name.startswith("_"))


def test_a_local_model_has_every_member_and_takes_the_same_arguments():
    for name in ("digest", "respond", "remembering"):
        own, promised = getattr(CausalLM, name), getattr(Target, name)
        assert list(inspect.signature(own).parameters) == list(
            inspect.signature(promised).parameters
        )


def test_every_method_says_what_it_is_for():
    assert {"respond", "digest"} <= set(MEMBERS)
    assert all(inspect.getdoc(getattr(Target, name)) for name in MEMBERS)


def test_a_reply_is_what_the_assistant_said():
    message = Reply("no", (3, 0), "words", thinking="well").message()

    assert ("assistant", "no", (3, 0)) == (message.role, message.text, message.ids_for("words"))
    assert () == message.ids_for("others")
    assert "well" == message.thinking


def test_usage_adds_up():
    assert Usage(3, 12, 4, 1.5, 0.25) == Usage(1, 5, 4, 1.0, 0.25) + Usage(2, 7, 0, 0.5)
