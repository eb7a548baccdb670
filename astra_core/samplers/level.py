"""One level of all trees in phases, each a function of values: probe, respond, score, expand.

A ``Place`` is a conversation that may continue. ``grow_level`` samples a number of probes at each
place and returns complete turns, each with the place that it leads to.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from astra_core.conversation import Conversation, Message
from astra_core.errors import TargetError
from astra_core.errors.exception_text import shorten
from astra_core.judge import Judgement
from astra_core.models.chat_format import ChatFormat
from astra_core.models.spelling import as_read
from astra_core.models.utterances import Utterance
from astra_core.rollout import Context, Failure, Node, Path, Probe, Prompt, Replies
from astra_core.samplers.scoring import ProbeInConversation, ScoredAnswers, scored_answers, verdicts
from astra_core.seeding import derive_key
from astra_core.system import System
from astra_core.target import Answer, Outcome


@dataclass(frozen=True, slots=True)
class Growth:
    """The values that all levels of one rollout share."""

    system: System
    seed: int
    purpose: str
    iteration: int
    num_responses: int

    def key(self, role: str, prompt: Prompt, path: Path) -> bytes:
        """The key of one utterance's random numbers."""
        name = (self.purpose, role, self.iteration, prompt.prompt_id, path)
        # The first run has the same numbers as a prompt that is run only once.
        run = ("run", prompt.run_id) if prompt.run_id else ()
        return derive_key(self.seed, *name, *run)


@dataclass(frozen=True, slots=True)
class Place:
    """A conversation that may continue, and its place in the tree."""

    path: Path
    conversation: Conversation

    @property
    def prompt(self) -> Prompt:
        """The prompt from which the tree grows."""
        return self.conversation.prompt


@dataclass(frozen=True, slots=True)
class SampledProbe:
    """A probe sampled at a place."""

    place: Place
    path: Path
    context: Context
    utterance: Utterance
    conversation: Conversation

    @property
    def heard(self) -> str:
        """The probe's text without any reasoning."""
        return self.conversation.messages[-1].text


@dataclass(frozen=True, slots=True)
class LevelTurn:
    """A complete turn without children, and the place it leads to; None if it failed."""

    node: Node
    after: Place | None


@dataclass(frozen=True, slots=True)
class Level:
    """The turns of one level, siblings together, and the seconds spent waiting for the scorer."""

    turns: tuple[LevelTurn, ...]
    waited_s: float


def opening(prompt: Prompt) -> Place:
    """The place before the first turn."""
    return Place((), Conversation(prompt))


def grow_level(growth: Growth, places: Sequence[Place], width: int, *, refills: int = 0) -> Level:
    """``width`` turns after each place, in the order of the places; see ``sample_probes``."""
    asked = sample_probes(growth, places, width, refills=refills)
    found = scored_replies(growth, asked)
    references = reference_logprobs(growth.system, asked, found.answers)
    columns = (asked, found.answers, found.judgements, references, found.probe_scores)
    turns = tuple(
        LevelTurn(
            _node(own, record_of(answer, judged), reference=reference, probe_score=score),
            None if isinstance(answer, Failure) else after(own, answer),
        )
        for own, answer, judged, reference, score in zip(*columns, strict=True)
    )
    return Level(turns, found.waited_s)


def sample_probes(
    growth: Growth, places: Sequence[Place], width: int, *, refills: int = 0
) -> list[SampledProbe]:
    """``width`` probes at each place.

    ``refills``: how often the poor ones are sampled again, with random numbers of their own; see
    ``poor_probes``. What is poor after the last time stays.
    """
    paths = [[(*place.path, index) for index in range(width)] for place in places]
    asked = _sample(growth, list(zip(places, paths, strict=True)), role="probe")
    poor = poor_probes(asked, range(len(asked)))
    for number in range(1, refills + 1):
        if not poor:
            break
        wanted = [
            (places[at], [asked[index].path for index in own])
            for at, own in groupby(poor, key=lambda index: index // width)
        ]
        again = _sample(growth, wanted, role=f"probe, refill {number}")
        for index, new in zip(poor, again, strict=True):
            asked[index] = new
        poor = poor_probes(asked, poor)
    return asked


def poor_probes(asked: Sequence[SampledProbe], among: Sequence[int]) -> list[int]:
    """Which of these probes teach nothing: empty ones, cut ones, and repetitions of a sibling.

    ``among``: indices that are looked at. The first of equal siblings among them is a repetition
    only if a sibling outside says the same.
    """
    looked_at = {*among}
    said = {(id(own.place), _words(own)) for at, own in enumerate(asked) if at not in looked_at}
    poor = []
    for index in among:
        own = asked[index]
        words = (id(own.place), _words(own))
        if not own.utterance.has_ended or not words[1] or words in said:
            poor.append(index)
        else:
            said.add(words)
    return poor


def _words(own: SampledProbe) -> str:
    """What is compared: words, whatever their case."""
    return " ".join(own.heard.casefold().split())


def _sample(
    growth: Growth, wanted: Sequence[tuple[Place, Sequence[Path]]], *, role: str
) -> list[SampledProbe]:
    """A probe for each path, place by place."""
    system, generation = growth.system, growth.system.config.probe
    places = [place for place, _ in wanted]
    # All places of a level belong to the same turn, so one agent speaks at all of them.
    player = system.player(len(places[0].path) if places else 0)
    limit = system.context_limit(player.model, generation.max_new_tokens)
    contexts = player.contexts([place.conversation for place in places], limit)
    sampled = player.model.continuations(
        [context.token_ids for context in contexts],
        [[growth.key(role, place.prompt, path) for path in paths] for place, paths in wanted],
        generation,
        tokens_per_batch=system.config.tokens_per_batch,
    )
    return [
        _probe_at(player.format, place, path, context=context, utterance=utterance)
        for (place, paths), context, found in zip(wanted, contexts, sampled, strict=True)
        for path, utterance in zip(paths, found.utterances, strict=True)
    ]


def scored_replies(growth: Growth, asked: Sequence[SampledProbe]) -> ScoredAnswers:
    """The target's replies to the probes, scored, or why it failed."""
    said = [ProbeInConversation(own.place.conversation, own.heard) for own in asked]
    try:
        return scored_answers(growth.system, said, lambda: answers(growth, asked))
    except TargetError as error:
        # The target's boundary: any other error is a bug of ours and must not be caught.
        failures = (Failure(shorten(f"{type(error).__name__}: {error}")),) * len(asked)
        return ScoredAnswers(failures, ((),) * len(asked), (0.0,) * len(asked), 0.0)


def answers(growth: Growth, asked: Sequence[SampledProbe]) -> list[Outcome]:
    """The replies of the target, with its log-probabilities of the probe if it has any.

    Under a spelling there are none, since they would be of other tokens than the attacker's.

    Raises TargetError if no call could be made.
    """
    system = growth.system
    roles = [f"response {reply}" for reply in range(growth.num_responses)]
    found = system.respond(
        [as_read(own.conversation, system.config.spelling) for own in asked],
        [[growth.key(role, own.place.prompt, own.path) for role in roles] for own in asked],
    )
    if system.config.spelling is None:
        return found
    return [own if isinstance(own, Failure) else replace(own, probe_logprobs=()) for own in found]


def reference_logprobs(
    system: System, asked: Sequence[SampledProbe], outcomes: Sequence[Outcome]
) -> list[tuple[float, ...]]:
    """Those of each probe, nats; most are known if reference and target are the same model."""
    player = system.player(len(asked[0].place.path) if asked else 0)
    if player.reference is player.model:  # of another tokenizer than the reference here
        return [()] * len(asked)
    is_target = system.seen_by(player).reference_is_target
    found = [
        _known_reference(own, outcome) if is_target else ()
        for own, outcome in zip(asked, outcomes, strict=True)
    ]
    missing = [own for own, known in zip(asked, found, strict=True) if not known]
    read = player.reference.continuation_logprobs(
        [own.context.token_ids for own in missing],
        [own.utterance.token_ids for own in missing],
        tokens_per_batch=system.config.tokens_per_batch,
    )
    rest = iter(read)
    return [known or next(rest) for known in found]


def _probe_at(
    spoken: ChatFormat, place: Place, path: Path, *, context: Context, utterance: Utterance
) -> SampledProbe:
    heard = spoken.thought(utterance.token_ids)
    probe = Message("user", heard.text, heard.visible_ids, spoken.model.vocabulary)
    return SampledProbe(place, path, context, utterance, place.conversation.say(probe))


def record_of(outcome: Outcome, judgements: Sequence[Judgement]) -> Replies | Failure:
    """The outcome of a probe, as it stands in its turn."""
    if isinstance(outcome, Failure):
        return outcome
    reasons = tuple(reply.finish_reason for reply in outcome.replies)
    return Replies(
        tuple(reply.text for reply in outcome.replies),
        token_ids=tuple(reply.token_ids for reply in outcome.replies),
        probe_logprobs=outcome.probe_logprobs,
        finish_reasons=reasons if {*reasons} - {"stop"} else (),
        **verdicts(judgements),
    )


def _known_reference(own: SampledProbe, outcome: Outcome) -> tuple[float, ...]:
    """The target's log-probabilities, if it read the same tokens as the attacker."""
    if isinstance(outcome, Failure) or outcome.heard is None or own.context.truncated_tokens:
        return ()
    heard = outcome.heard
    is_same = (heard.context_ids, heard.probe_ids) == (
        own.context.token_ids,
        own.utterance.token_ids,
    )
    return outcome.probe_logprobs if is_same else ()


def _node(
    own: SampledProbe,
    outcome: Replies | Failure,
    *,
    reference: tuple[float, ...],
    probe_score: float,
) -> Node:
    said = own.utterance
    mask = (True,) * len(said.token_ids)
    probe = Probe(own.heard, said.token_ids, said.logprobs, mask, reference, probe_score)
    return Node(own.path, own.context, probe, outcome)


def after(own: SampledProbe, answer: Answer) -> Place:
    """The conversation with this turn; it continues with the first reply."""
    return Place(own.path, own.conversation.say(answer.replies[0].message()))
