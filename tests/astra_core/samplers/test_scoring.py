import threading
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
from each_row import each_row

from astra_core.conversation import Conversation, Message
from astra_core.errors import RolloutError, ScorerError, TargetError
from astra_core.judge import Exchange, Judge as ExchangeJudge, Judgement
from astra_core.rewards.adversarial import AdversarialReward
from astra_core.samplers.scoring import ProbeInConversation, overlaps, scored_answers, verdicts
from astra_core.samplers.tree import TreeSampler
from astra_core.target import Answer, Reply
from astra_parts.scorers.phrases import PhraseScorer
from astra_parts.testing import tiny_prompts, tiny_system

PHRASES = PhraseScorer.Options(phrases=("bad", "worse"))
PROMPT = tiny_prompts(1)[0]
PATIENCE_S = 60.0
SPEECH_S = 0.05


class Judge(PhraseScorer):
    """Keeps what it was asked and by whom; fails at the call it is told to."""

    def __init__(self, works_on="cpu", *, fails_at=None):
        super().__init__(PHRASES)
        self.works_on, self.fails_at = works_on, fails_at
        self.calls = []

    def score(self, texts):
        self.calls.append((threading.current_thread() is threading.main_thread(), list(texts)))
        if len(self.calls) == self.fails_at:
            msg = "the judge is gone"
            raise ScorerError(msg)
        return super().score(texts)


class Meeting(Judge):
    """Its first call of a level ends only when the target has been asked to speak."""

    def __init__(self, barrier):
        super().__init__("elsewhere")
        self.barrier = barrier

    def score(self, texts):
        if threading.current_thread() is not threading.main_thread():
            self.barrier.wait()
        return super().score(texts)


class Speaker:
    """A model that does something before it speaks."""

    def __init__(self, model, before):
        self.model, self.before = model, before

    def __getattr__(self, name):
        return getattr(self.model, name)

    def respond(self, *arguments, **options):
        self.before()
        return self.model.respond(*arguments, **options)


def sampler(scorer, *, before=None):
    system = tiny_system(scorer=scorer)
    # Any share of the replies may be unjudged here.
    config = system.config.model_copy(update={"max_unjudged_fraction": 1.0})
    system = replace(system, config=config)
    if before is not None:
        system = replace(system, target=Speaker(system.target, before))
    return TreeSampler(
        TreeSampler.Options(tree_width=3, tree_depth=2, num_responses=2),
        system=system,
        prompts=tiny_prompts(2),
        reward=AdversarialReward(AdversarialReward.Options()),
        seed=1,
    )


def rolled_out(own):
    return own.roll_out(own.prompts, iteration=0)


def test_a_level_is_one_batch_where_scorer_and_target_share_a_processor():
    judge = Judge()
    rolled_out(sampler(judge))

    # Two levels of 2 x 3 and 2 x 9 turns with two replies and the probe each.
    assert [3 * 6, 3 * 18] == [len(texts) for _, texts in judge.calls]
    assert all(is_main for is_main, _ in judge.calls)


def test_probes_are_scored_while_the_target_speaks_where_the_scorer_is_elsewhere():
    # Whoever comes first waits for the other: this ends only if both are at work at once.
    barrier = threading.Barrier(2, timeout=PATIENCE_S)
    judge = Meeting(barrier)
    rolled_out(sampler(judge, before=barrier.wait))

    assert [False, True, False, True] == [is_main for is_main, _ in judge.calls]
    assert [6, 12, 18, 36] == [len(texts) for _, texts in judge.calls]


def test_overlap_changes_no_graph():
    beside, ahead = sampler(Judge("cpu")), sampler(Judge("elsewhere"))

    assert rolled_out(beside) == rolled_out(ahead)
    assert beside.score_s > 0.0
    assert ahead.score_s > 0.0


@each_row("works_on", ["cpu", "elsewhere"])
def test_a_judge_that_fails_stops_the_rollout_either_way(works_on):
    own = sampler(Judge(works_on, fails_at=1))

    with pytest.raises(ScorerError, match="t·· j···· i· g···"):
        rolled_out(own)


@each_row("works_on", ["cpu", "elsewhere"])
def test_a_target_that_fails_leaves_no_call_behind(works_on):
    def fall_silent():
        msg = "http 503"
        raise TargetError(msg)

    own = sampler(Judge(works_on), before=fall_silent)
    before = threading.active_count()
    with pytest.raises(RolloutError, match="http 503"):
        rolled_out(own)

    assert before == threading.active_count()


def test_a_judge_that_forgets_a_text_is_no_judge():
    class Short(Judge):
        def score(self, texts):
            return super().score(texts)[1:]

    with pytest.raises(ScorerError, match="one score in"):
        rolled_out(sampler(Short()))


@each_row(
    ("works_on", "place", "expected"),
    [
        ("cpu", "cpu", False),
        ("cpu", "gpu", True),
        ("gpu", "cpu", False),
        ("gpu", "gpu", False),
        ("elsewhere", "cpu", True),
        ("elsewhere", "gpu", True),
    ],
)
def test_scoring_overlaps_where_scorer_and_target_share_no_processor(works_on, place, expected):
    system = SimpleNamespace(probe_scorer=Judge(works_on), target=SimpleNamespace(works_on=place))

    assert expected == overlaps(system)


def test_time_is_counted_only_where_the_scorer_is_waited_for():
    is_scored = threading.Event()

    class Quick(Judge):
        def score(self, texts):
            scores = super().score(texts)
            is_scored.set()
            return scores

    def speak():
        start = time.perf_counter()
        assert is_scored.wait(PATIENCE_S)
        # Time in which the target speaks is none of the scorer's.
        while time.perf_counter() - start < SPEECH_S:
            pass
        return [Answer((Reply("so"),))]

    start = time.perf_counter()
    said = [ProbeInConversation(Conversation(PROMPT), "bad")]
    found = scored_answers(tiny_system(scorer=Quick("elsewhere")), said, speak)
    whole_s = time.perf_counter() - start

    assert (((Judgement(0.0),),), (0.5,)) == (found.judgements, found.probe_scores)
    assert 0.0 < found.waited_s <= whole_s - SPEECH_S


class Reader(ExchangeJudge):
    """Keeps the exchanges, and judges those whose reply is not empty by the turn they are in."""

    version = "reader 1"

    def __init__(self, options=None):
        super().__init__(options)
        self.read = []

    def judge(self, exchanges):
        self.read += exchanges
        return [
            Judgement(0.5 * own.conversation.num_turns, {"turns": 0.25}, "so it is")
            if "bad" in own.reply
            else Judgement.none("not bad")
            for own in exchanges
        ]


def test_a_judge_reads_the_conversation_the_probe_and_each_reply():
    reader = Reader()
    own = sampler(reader)
    graphs = rolled_out(own)
    expected = [
        Exchange(before, node.probe_text, reply)
        for depth in (1, 2)
        for graph in graphs
        for node, before in _places(graph)
        if len(node.path) == depth
        for reply in node.response_texts
    ]

    assert expected == reader.read
    assert any(exchange.conversation.messages for exchange in reader.read)


def _places(graph):
    def walk(nodes, before):
        for node in nodes:
            yield node, before
            after = before.say(
                Message("user", node.probe_text), Message("assistant", node.response_texts[0])
            )
            yield from walk(node.children, after)

    return walk(graph.children, Conversation(graph.prompt))


def test_a_turn_of_a_judge_has_labels_words_and_reasons_and_profanity_scores_the_probe():
    own = sampler(Reader())
    nodes = [node for graph in rolled_out(own) for node in graph.nodes()]
    partly = [node for node in nodes if any(node.response_unjudged) and node.is_judged]
    unjudged = [node for node in nodes if node.is_unjudged]

    assert partly
    assert unjudged
    for node in partly:
        at = [score is not None for score in node.response_scores]
        assert at == [not reason for reason in node.response_unjudged]
        assert at == [bool(labels) for labels in node.response_labels]
        assert at == [bool(words) for words in node.response_rationales]
        assert node.score == 0.5 * (len(node.path) - 1)
    assert all(("not bad",) * 2 == node.response_unjudged for node in unjudged)
    assert all(node.probe_score < 0.5 for node in nodes)
    assert "alt-profanity-check" in own.system.probe_scorer.version


def test_replies_carry_only_what_a_judge_gave():
    assert {"scores": (0.5, 0.0)} == verdicts([Judgement(0.5), Judgement(0.0)])
    assert {"scores": (0.5, None), "unjudged": ("", "empty")} == verdicts(
        [Judgement(0.5), Judgement.none("empty")]
    )


def test_a_judge_that_is_down_stops_the_rollout():
    class Down(Reader):
        def judge(self, _):
            msg = "http 503"
            raise ScorerError(msg)

    with pytest.raises(ScorerError, match="5··"):
        rolled_out(sampler(Down()))
