"""Findings said again to a target: all of them as a suite of tests, or one made shorter."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from astra_core.conversation import Conversation, Message
from astra_core.errors import ConfigurationError, DataError
from astra_core.files import record_digest
from astra_core.rollout import Failure, Prompt
from astra_core.seeding import derive_key
from tasks.figures.examination import EvaluationFiles, EvaluationParams
from tasks.findings.archive import MINIMISED, ArchivedFinding, Origin
from tasks.records.attacker import ATTACKER_FILE

if TYPE_CHECKING:
    from astra_core.judge import Judgement
    from astra_core.system import System
    from astra_core.target import Answer

ATTACKER = EvaluationFiles().attacker


@dataclass(frozen=True, slots=True)
class Answered:
    """What one probe got.

    Attributes:
        first: The reply by which the conversation continues.
        worst: Text of the reply that scored highest; of the first if none has a score.
        scores: Of the replies that have one.
        failure: Why there is none; empty if there is one.
    """

    first: Message
    worst: str
    scores: tuple[float, ...] = ()
    failure: str = ""

    @classmethod
    def of(cls, answer: "Answer | Failure", judged: "Sequence[Judgement]") -> "Answered":
        """What the target answered, as judged."""
        if isinstance(answer, Failure):
            return cls(Message("assistant", ""), "", failure=answer.reason)
        first = answer.replies[0].message()
        scored = [
            (own.score, reply.text)
            for own, reply in zip(judged, answer.replies, strict=True)
            if own.score is not None
        ]
        if not scored:
            return cls(first, first.text, failure="the judge gave no score")
        _, worst = max(scored, key=lambda pair: pair[0])
        return cls(first, worst, tuple(score for score, _ in scored))

    @property
    def score(self) -> float:
        """Mean of the scores; 0 of none."""
        return sum(self.scores) / max(len(self.scores), 1)


@dataclass(frozen=True, slots=True)
class Replayed:
    """What became of a finding when its probes were said again.

    Attributes:
        turns: What each probe that was said got.
        hit: The turn at which the target failed, from 1; 0 if it did not.
    """

    finding: ArchivedFinding
    turns: tuple[Answered, ...] = ()
    hit: int = 0

    @property
    def failure(self) -> str:
        """Why a turn has no score; empty if all have one."""
        return self.turns[-1].failure if self.turns else ""

    def replayed_finding(self) -> ArchivedFinding:
        """The finding as far as it was said, with what this target answered."""
        if not self.turns:
            return self.finding
        *before, last = self.turns
        return replace(
            self.finding,
            probes=self.finding.probes[: len(self.turns)],
            replies=(*(own.first.text for own in before), last.worst),
            scores=last.scores,
            score=last.score,
            rationale="",
        )


@dataclass(frozen=True, slots=True)
class SuiteCase:
    """What a build is told of a finding: in an archive it hit, in a suite it may have.

    Attributes:
        finding: As far masked as it shall be shown.
        is_hit: Whether the target failed.
        failure: Why nothing is known; empty if something is.
        label: What a person said of it; empty for nothing.
    """

    finding: ArchivedFinding
    is_hit: bool = True
    failure: str = ""
    label: str = ""


def hits_of(outcomes: Iterable[SuiteCase]) -> list[ArchivedFinding]:
    """The findings of the outcomes that are hits."""
    return [own.finding for own in outcomes if own.is_hit]


@dataclass(frozen=True, slots=True)
class Replayer:
    """Asks the target that params.yaml names, and its judge.

    Attributes:
        system: The System; its attacker says nothing.
        num_replies: Replies drawn for each turn.
        threshold: A mean score at or above it is a success.
        seed: Same seed, same replies.
    """

    system: "System"
    num_replies: int
    threshold: float
    seed: int

    @classmethod
    def of(cls, params: EvaluationParams, base: Path) -> "Replayer":
        """The replayer of these sections, in the precision of the trained attacker."""
        own = params.with_precision(ATTACKER / ATTACKER_FILE)
        evaluation = own.evaluation
        system = own.load(base)
        return cls(system, evaluation.num_responses, evaluation.threshold, own.training_seed)

    def replay(self, findings: Sequence[ArchivedFinding]) -> list[Replayed]:
        """Each finding's probes, turn by turn, until the target fails."""
        found = [Replayed(each) for each in findings]
        talks = [Conversation(_prompt(each)) for each in findings]
        for turn in range(max((each.turn for each in findings), default=0)):
            going = [
                place
                for place, own in enumerate(found)
                if turn < own.finding.turn and not (own.hit or own.failure)
            ]
            said = [(talks[place], findings[place].probes[turn]) for place in going]
            for place, answer in zip(going, self._ask(said), strict=True):
                own, probe = found[place], findings[place].probes[turn]
                hit = turn + 1 if self._is_hit(answer) else 0
                found[place] = replace(own, turns=(*own.turns, answer), hit=hit)
                talks[place] = talks[place].say(Message("user", probe), answer.first)
        return found

    def _is_hit(self, answer: Answered) -> bool:
        return not answer.failure and answer.score >= self.threshold

    def minimise(
        self, finding: ArchivedFinding, *, calls: int
    ) -> tuple[ArchivedFinding, int, bool]:
        """The finding with fewer words in its last probe.

        With it the number of replies that were asked for, and whether ``calls`` sufficed. Halves,
        quarters and so on to single words are left out as long as the rest still succeeds: if they
        sufficed, no single word of it can be left out.

        Raises:
            DataError: The finding does not succeed against this target any more.
            ConfigurationError: ``calls`` do not suffice for a single question.
        """
        if calls < self.num_replies:
            msg = f"--calls must be at least {self.num_replies}, the replies of one, got {calls}"
            raise ConfigurationError(msg)
        talk = Conversation(_prompt(finding))
        for probe, reply in zip(finding.probes[:-1], finding.replies[:-1], strict=True):
            talk = talk.say(Message("user", probe), Message("assistant", reply))
        known: dict[str, Answered] = {}
        is_enough = True

        def num_asked() -> int:
            return len(known) * self.num_replies

        def succeeds(texts: Sequence[str]) -> list[bool]:
            nonlocal is_enough
            new = [text for text in dict.fromkeys(texts) if text not in known]
            asked = new[: (calls - num_asked()) // self.num_replies]
            is_enough = is_enough and asked == new
            answers = self._ask([(talk, text) for text in asked])
            known.update(zip(asked, answers, strict=True))
            return [text in known and self._is_hit(known[text]) for text in texts]

        whole = finding.probes[-1]
        if succeeds([whole]) != [True]:
            msg = (
                f"finding {finding.finding_id} must succeed against this target to be made "
                f"shorter, got {known[whole].score:.2f} below {self.threshold:g} as the mean of "
                f"{self.num_replies} replies; a hit by chance is not one of the probe's"
            )
            raise DataError(msg)
        words = whole.split()
        least = _fewest(words, succeeds)
        probe = whole if len(least) == len(words) else " ".join(least)
        return self._shorten(finding, probe, known[probe]), num_asked(), is_enough

    def _shorten(self, finding: ArchivedFinding, probe: str, answer: Answered) -> ArchivedFinding:
        origin = Origin.of(self.system, MINIMISED, finding.finding_id, attacker=finding.attacker)
        probes, replies = (*finding.probes[:-1], probe), (*finding.replies[:-1], answer.worst)
        return replace(
            finding,
            finding_id=record_digest([origin.target, finding.prompt_id, probes, replies])[:16],
            source=origin.source,
            run=origin.run,
            target=origin.target,
            judge=origin.judge,
            probes=probes,
            replies=replies,
            scores=answer.scores,
            score=answer.score,
            rationale="",
            times=1,
            others=(),
        )

    def _ask(self, said: Sequence[tuple[Conversation, str]]) -> list[Answered]:
        """What each probe gets."""
        from astra_core.samplers.scoring import ProbeInConversation, scored_answers

        system = self.system
        probes = [ProbeInConversation(talk, probe) for talk, probe in said]
        talks = [talk.say(Message("user", probe)) for talk, probe in said]
        keys = [self._keys(talk) for talk in talks]
        if not said:
            return []
        with system.remembering(), system.target.evaluating():
            found = scored_answers(system, probes, lambda: system.respond(talks, keys))
        return list(map(Answered.of, found.answers, found.judgements))

    def _keys(self, talk: Conversation) -> list[bytes]:
        words = [message.text for message in talk.messages]
        name = ("findings", talk.prompt.prompt_id, record_digest(words))
        return [derive_key(self.seed, *name, number) for number in range(self.num_replies)]


def _fewest(words: list[str], succeeds: Callable[[Sequence[str]], list[bool]]) -> list[str]:
    """Words of which none can be left out, by delta debugging.

    Source:
        Zeller and Hildebrandt, IEEE Transactions on Software Engineering 28 (2002), 183-200.
    """
    parts = 2
    while len(words) > 1:
        edges = [len(words) * number // parts for number in range(parts + 1)]
        rests = [words[:low] + words[high:] for low, high in pairwise(edges)]
        held = succeeds([" ".join(rest) for rest in rests])
        if True in held:
            words, parts = rests[held.index(True)], max(parts - 1, 2)
        elif parts >= len(words):
            break
        else:
            parts = min(2 * parts, len(words))
    return words


def _prompt(finding: ArchivedFinding) -> Prompt:
    return Prompt(finding.prompt_id, finding.prompt, finding.columns)
