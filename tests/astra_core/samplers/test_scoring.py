import threading
import time
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from astra_core.errors import RolloutError, ScorerError, TargetError
from astra_core.models.language_model import Continuations, Utterance
from astra_core.rewards.adversarial import AdversarialReward
from astra_core.samplers.scoring import overlaps, scored_answers
from astra_core.samplers.tree import TreeSampler
from astra_core.scorers.phrases import PhraseScorer
from astra_core.testing import tiny_prompts, tiny_system

PHRASES = PhraseScorer.Options(phrases=("bad", "worse"))
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

    def continuations(self, *arguments, **options):
        self.before()
        return self.model.continuations(*arguments, **options)


def sampler(scorer, *, before=None):
    system = tiny_system(scorer=scorer)
    if before is not None:
        system = replace(system, target=Speaker(system.target, before))
    return TreeSampler(
        TreeSampler.Options(tree_width=3, tree_depth=2, num_responses=2),
        system=system,
        prompts=tiny_prompts(4),
        reward=AdversarialReward(AdversarialReward.Options()),
        seed=1,
    )


def rolled_out(own):
    return own.roll_out(own.prompts, iteration=0)


def test_a_level_is_one_batch_where_scorer_and_target_share_a_processor():
    judge = Judge()
    rolled_out(sampler(judge))

    # Two levels of 4 x 3 and 4 x 9 turns with two replies and the probe each.
    assert [3 * 12, 3 * 36] == [len(texts) for _, texts in judge.calls]
    assert all(is_main for is_main, _ in judge.calls)


def test_probes_are_scored_while_the_target_speaks_where_the_scorer_is_elsewhere():
    # Whoever comes first waits for the other: this ends only if both are at work at once.
    barrier = threading.Barrier(2, timeout=PATIENCE_S)
    judge = Meeting(barrier)
    rolled_out(sampler(judge, before=barrier.wait))

    assert [False, True, False, True] == [is_main for is_main, _ in judge.calls]
    assert [12, 24, 36, 72] == [len(texts) for _, texts in judge.calls]


def test_overlap_changes_no_graph():
    beside, ahead = sampler(Judge("cpu")), sampler(Judge("elsewhere"))

    assert rolled_out(beside) == rolled_out(ahead)
    assert beside.score_s > 0.0
    assert ahead.score_s > 0.0


@pytest.mark.parametrize("works_on", ["cpu", "elsewhere"])
def test_a_judge_that_fails_stops_the_rollout_either_way(works_on):
    own = sampler(Judge(works_on, fails_at=1))

    with pytest.raises(ScorerError, match="t·· j···· i· g···"):
        rolled_out(own)


@pytest.mark.parametrize("works_on", ["cpu", "elsewhere"])
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


@pytest.mark.parametrize(
    ("works_on", "device", "expected"),
    [
        ("cpu", "cpu", False),
        ("cpu", "cuda", True),
        ("gpu", "cpu", False),
        ("gpu", "cuda", False),
        ("elsewhere", "cpu", True),
        ("elsewhere", "cuda", True),
    ],
)
def test_scoring_overlaps_where_scorer_and_target_share_no_processor(works_on, device, expected):
    system = SimpleNamespace(
        scorer=Judge(works_on), target=SimpleNamespace(device=torch.device(device))
    )

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
        return [Continuations((Utterance("so", (5,), (-1.0,), has_ended=True),), ())]

    start = time.perf_counter()
    found = scored_answers(tiny_system(scorer=Quick("elsewhere")), ["bad"], speak)
    whole_s = time.perf_counter() - start

    assert (((0.0,),), (0.5,)) == (found.reply_scores, found.probe_scores)
    assert 0.0 < found.waited_s <= whole_s - SPEECH_S
