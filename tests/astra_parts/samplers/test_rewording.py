from dataclasses import replace

from each_row import each_row
from scripted_system import system_against
from tiny_chats import OPENED, PROMPTS, chat_config, chat_system

from astra_core.errors import TargetError
from astra_core.rewards.adversarial import AdversarialReward
from astra_core.rollout import Failure, Prompt, Replies
from astra_core.samplers.tree import TreeSampler
from astra_parts.samplers.rewording import asking, conversation_of, first_replies
from astra_parts.testing import tiny_graph, tiny_node

RULE = {"when": "why", "turn": 2, "say": ["so bad"]}


def second_turn():
    """A miss, and after it a hit."""
    hit = tiny_node(0.0, path=(0, 0), probe_text="why me", score=1.0, response_scores=(1.0,))
    miss = tiny_node(0.0, path=(0,), probe_text="no", score=0.0, response_scores=(0.0,))
    outcome = Replies(("so good",), (0.0,))
    return tiny_graph(replace(miss, outcome=outcome, children=(hit,)))


def test_other_texts_are_said_in_the_conversation_of_the_hit_and_judged():
    ask = asking(system_against(RULE), [second_turn()], threshold=0.5, num_responses=2, seed=0)

    # The rule holds for the second turn alone.
    assert [True, False, True] == ask([(0, "why me"), (0, "me"), (0, "why")])
    assert [] == ask([])


def test_a_question_asked_several_times_has_other_replies():
    often = system_against({"when": "why", "say": ["so bad", "so good"]})
    ask = asking(often, [second_turn()], threshold=0.5, num_responses=1, seed=0)

    found = ask([(0, "why me")] * 20)

    assert {True, False} == {*found}
    assert found == ask([(0, "why me")] * 20)


def test_a_target_that_cannot_be_asked_gives_no_answer(monkeypatch):
    system = system_against(RULE)
    ask = asking(system, [second_turn()], threshold=0.5, num_responses=1, seed=0)

    def refused(*_, **__):
        msg = "no call"
        raise TargetError(msg)

    monkeypatch.setattr(type(system.target), "respond", refused)

    assert ask([(0, "why me")]) is None


def test_a_text_said_first_gets_the_reply_itself_or_none_where_the_call_failed(monkeypatch):
    system = system_against({"when": "why", "turn": 1, "say": ["so bad"]})
    questions = [(Prompt.of("never"), text) for text in ("why me", "me")]

    assert ["so bad", "so good"] == first_replies(system, questions, seed=0)

    failed = [Failure("no answer")] * 2
    monkeypatch.setattr(type(system.target), "respond", lambda *_, **__: failed)

    assert [None, None] == first_replies(system, questions, seed=0)


@each_row(
    "settings",
    [{}, {"template": OPENED}, {"format": "separator"}, {"attacker": {"format": "separator"}}],
)
def test_a_turn_has_read_what_was_said_before_it(settings):
    config = chat_config(attacker=settings.get("attacker"))
    own = {name: value for name, value in settings.items() if name != "attacker"}
    system = chat_system(config=config, **own)
    sampler = TreeSampler(
        TreeSampler.Options(tree_width=1, tree_depth=3, num_responses=1),
        system=system,
        prompts=PROMPTS,
        reward=AdversarialReward(AdversarialReward.Options()),
        seed=2,
    )
    for graph in sampler.roll_out(PROMPTS[:1], iteration=0):
        (turns,) = graph.paths()
        for count, node in enumerate(turns):
            talk = conversation_of(graph.prompt, turns[:count], system)
            (context,) = system.player(count).contexts([talk], 450)

            assert node.context == context
