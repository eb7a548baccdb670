"""Pairs that a target learns from: of each finding, and of harmless requests.

They are written before the training begins, since the archive grows meanwhile: a killed round goes
on with the same ones.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from astra_core.conversation import Conversation, Message
from astra_core.errors import DataError
from astra_core.files import read_json, record_digest, write_text
from astra_core.models.pretrained import weights_digest
from astra_core.rollout import Failure, Prompt
from astra_core.seeding import derive_key, generator
from tasks.figures.crossing import BASE
from tasks.figures.over_refusal import questions_of, refusals
from tasks.findings.archive import ArchivedFinding, read_archive
from tasks.findings.exports import REFUSAL
from tasks.findings.labels import read_labels, without_false
from tasks.findings.listing import Choosing
from tasks.hardening.places import FINDINGS, VALID, HardeningPlace, check_can_harden, requests_of
from tasks.params.schema import Params
from tasks.records.models import read_model_paths
from tasks.records.prompt_table import read_metadata, spelled_metadata
from tasks.records.prompts import read_prompts
from tasks.sources.requests import read_requests

if TYPE_CHECKING:
    from astra_core.system import System
    from astra_core.targets.causal_lm import CausalLM

REFUSALS = (
    REFUSAL,
    "I'm not able to help with that, but I'm glad to talk about something else.",
    "I won't answer that. Let's talk about something else.",
    "I'm sorry, but I can't go on in that tone.",
)
"""What the judge of refusals takes for one, or over-refusal would miss what was learned."""
BENIGN = "benign"
_TRIES = 8
"""Own replies among which the safest is chosen."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Two answers after one conversation.

    Attributes:
        source: ID of the finding, or ``benign``.
        prompt: The prompt that opened it.
        metadata: The prompt's other columns, as JSON.
        said: Probes and replies in turn, a probe at the end.
        answer: The better answer.
        worse: The other one.
    """

    source: str
    prompt: str
    metadata: str | None
    said: tuple[str, ...]
    answer: str
    worse: str

    @property
    def conversation(self) -> Conversation:
        """What is answered."""
        talk = Conversation(Prompt.of(self.prompt, read_metadata(self.metadata)))
        return talk.say(
            *(
                Message("assistant" if place % 2 else "user", text)
                for place, text in enumerate(self.said)
            )
        )


@dataclass(frozen=True, slots=True)
class AnsweredRequest:
    """A harmless request and what the first target answered it.

    Attributes:
        metadata: Columns of the prompt that it stands for, as JSON.
        reply: None where it refused, failed or was harmful.
        is_held: Whether it is never learned from.
    """

    text: str
    metadata: str | None
    reply: str | None
    is_held: bool

    @property
    def question(self) -> tuple[Prompt, str]:
        """As a first turn."""
        return Prompt.of("", read_metadata(self.metadata)), self.text


def read_pairs(path: Path) -> list[Pair]:
    """The pairs of a file, in order; none if there is no file."""
    return [Pair(**{**row, "said": tuple(row["said"])}) for row in _rows(path)]


def answered_requests(place: HardeningPlace) -> list[AnsweredRequest]:
    """All harmless requests, of which every second is held back.

    Raises DataError if the target answers none of those, or none of the others.
    """
    path = place.file("benign.jsonl")
    if not path.is_file():
        _write([asdict(own) for own in _answer_requests(place)], path)
    return [AnsweredRequest(**row) for row in _rows(path)]


def write_pairs(number: int, place: HardeningPlace) -> list[Pair]:
    """The pairs of a round, written once; none if nothing was found against the target before it.

    Raises DataError if the archive is empty.
    """
    path = place.file(f"pairs_{number}.jsonl")
    # None is no end: the next command may find one.
    if not path.is_file() and (made := _make_pairs(number, place)):
        _write([asdict(own) for own in made], path)
    return read_pairs(path)


def first_findings(params: Params) -> list[str]:
    """The IDs of the findings that the first round would learn from now.

    Raises DataError if the archive is empty, ConfigurationError if the target cannot be hardened.
    """
    from astra_core.targets.causal_lm import CausalLM

    check_can_harden(params)
    options = CausalLM.Options.model_validate(params.system.target.options)
    target = CausalLM.digest_of(weights_digest(read_model_paths(BASE)["target"]), options)
    found = _learnable(target, params.hardening.num_findings, is_first=True)
    return [each.finding_id for each in found]


def _make_pairs(number: int, place: HardeningPlace) -> list[Pair]:
    params, system = place.params, place.system(number - 1)
    own, most = params.hardening, params.hardening.num_findings
    if number == 1 and place.file(FINDINGS).is_file():
        # Those that name the folder, whatever was found or labelled meanwhile.
        ids = read_json(place.file(FINDINGS))
        found = read_archive(choose=lambda rows: [each for each in rows if each.finding_id in ids])
    else:
        found = _learnable(system.target_digest, most, is_first=number == 1)
    new = _with_a_difference(_pairs_of(found, system, params), system)
    if not new:
        return []
    # What was learned once is repeated, or the next round would forget it.
    before = read_pairs(place.file(f"pairs_{number - 1}.jsonl"))
    new += [each for each in before if each.source != BENIGN][: most - len(new)]
    share = own.benign_share / (1.0 - own.benign_share)
    requests = [each for each in answered_requests(place) if not each.is_held]
    benign = [_benign(each, seed=params.training_seed) for each in requests if each.reply]
    return new + list(islice(cycle(_with_a_difference(benign, system)), round(share * len(new))))


def _with_a_difference(pairs: Sequence[Pair], system: "System") -> list[Pair]:
    """The pairs whose answers still differ where both are cut at the limit of a reply.

    Of equal ones there is nothing to prefer, and the harmful beginning would be imitated.
    """
    target, limit = cast("CausalLM", system.target), system.config.response
    return [
        own for own in pairs if target.spoken(own.answer, limit) != target.spoken(own.worse, limit)
    ]


def _learnable(target: str, most: int, *, is_first: bool) -> list[ArchivedFinding]:
    """Findings against a target, but for false positives and those on measured prompts."""
    labels = read_labels()
    measured = {prompt.prompt_id for prompt in read_prompts(VALID / "test.parquet")}

    def choose(rows: Sequence[ArchivedFinding]) -> list[ArchivedFinding]:
        return [each for each in Choosing(target=target).of(rows) if each.prompt_id not in measured]

    try:
        found = read_archive(choose=choose)
    except DataError:
        if is_first:
            raise
        return []
    return without_false(found, labels)[:most]


def _pairs_of(found: Sequence[ArchivedFinding], system: "System", params: Params) -> list[Pair]:
    """The finding's reply against the target's own safest one, or a refusal."""
    own = [
        Pair(
            each.finding_id,
            each.prompt,
            each.metadata,
            _turns(each),
            _refusal(each.finding_id, seed=params.training_seed),
            each.replies[-1],
        )
        for each in found
    ]
    if params.hardening.answer == "refusal":
        return own
    safe = _safe_replies(system, [each.conversation for each in own], _TRIES, params=params)
    return [
        replace(each, answer=reply or each.answer) for each, reply in zip(own, safe, strict=True)
    ]


def _turns(found: ArchivedFinding) -> tuple[str, ...]:
    """Probes, which the archive has as the target read them, and replies, in turn."""
    pairs = zip(found.probes, found.replies, strict=True)
    return tuple(text for pair in pairs for text in pair)[:-1]


def _benign(own: AnsweredRequest, *, seed: int) -> Pair:
    refusal = _refusal(own.text, seed=seed)
    return Pair(BENIGN, "", own.metadata, (own.text,), own.reply or "", refusal)


def _refusal(name: str, *, seed: int) -> str:
    return REFUSALS[int(generator(derive_key(seed, "refusal", name)).integers(len(REFUSALS)))]


def _answer_requests(place: HardeningPlace) -> list[AnsweredRequest]:
    params, system = place.params, place.system(0)
    requests = [own.text for own in read_requests(requests_of(params)) if own.is_safe]
    prompts = read_prompts(VALID / "test.parquet", limit=params.evaluation.num_prompts)
    asked = questions_of(requests, prompts)
    talks = [Conversation(prompt).say(Message("user", text)) for prompt, text in asked]
    replies = _safe_replies(system, talks, 1, params=params)
    refused, _ = refusals([reply or "" for reply in replies])
    found = [
        AnsweredRequest(
            text,
            spelled_metadata(prompt.metadata),
            None if is_refused else reply,
            is_held=bool(place % 2),
        )
        for place, ((prompt, text), reply, is_refused) in enumerate(
            zip(asked, replies, refused, strict=True)
        )
    ]
    if len({own.is_held for own in found if own.reply}) < 2:
        msg = (
            f"the target must answer two harmless requests of {requests_of(params)}, one at an odd "
            f"place and one at an even, got {sum(bool(own.reply) for own in found)} answers of "
            f"{len(requests)} that neither refuse nor count as harmful"
        )
        raise DataError(msg)
    return found


def _safe_replies(
    system: "System", talks: Sequence[Conversation], count: int, *, params: Params
) -> list[str | None]:
    """The safest of so many replies to each conversation; None where all are harmful."""
    from astra_core.samplers.scoring import ProbeInConversation, scored_answers

    threshold = params.evaluation.threshold
    said = [
        ProbeInConversation(Conversation(talk.prompt, talk.messages[:-1]), talk.messages[-1].text)
        for talk in talks
    ]
    keys = [
        [
            derive_key(params.training_seed, "hardening", _digest(talk), number)
            for number in range(count)
        ]
        for talk in talks
    ]
    with system.remembering(), system.target.evaluating():
        found = scored_answers(system, said, lambda: system.respond(talks, keys))
    safest: list[str | None] = []
    for answer, judged in zip(found.answers, found.judgements, strict=True):
        replies = () if isinstance(answer, Failure) else answer.replies
        # Of equally safe ones, one that was not cut at its limit.
        scored = [
            (own.score, reply.finish_reason == "length", reply.text)
            for own, reply in zip(judged, replies, strict=True)
            if own.score is not None and own.score < threshold and reply.text.strip()
        ]
        safest.append(min(scored, key=lambda own: own[:2])[2] if scored else None)
    return safest


def _digest(talk: Conversation) -> str:
    return record_digest([talk.prompt.text, *(message.text for message in talk.messages)])


def _rows(path: Path) -> list[dict[str, Any]]:
    if not path.is_file():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def _write(rows: Sequence[dict[str, Any]], path: Path) -> None:
    write_text("".join(f"{json.dumps(row)}\n" for row in rows), path)
