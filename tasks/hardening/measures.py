"""What a round has changed: attack success, over-refusal, and perplexity on harmless text."""

import math
from statistics import fmean
from typing import TYPE_CHECKING, cast

from astra_core.conversation import Conversation, Message
from astra_core.files import read_json, write_json
from astra_core.metrics.statistics import Interval, paired_gain
from astra_core.models.folders import attacker_digest
from astra_core.models.pretrained import weights_digest
from astra_parts.metrics.detection import proportion
from tasks.figures.over_refusal import refusals
from tasks.hardening.pairs import BENIGN, AnsweredRequest, answered_requests, read_pairs
from tasks.hardening.places import ATTACKER, HardeningPlace
from tasks.params.schema import Params
from tasks.records.evaluation import RATE
from tasks.records.hardening import Hardening, HardeningRound
from tasks.records.reports import read_record, write_record
from tasks.stages.evaluation import evaluate_checkpoint

if TYPE_CHECKING:
    from astra_core.system import System
    from astra_core.targets.causal_lm import CausalLM


def measure(number: int, place: HardeningPlace) -> Hardening:
    """The hardening up to this round; each figure is measured once, whatever is killed."""
    for target in range(number + 1):
        for attacker in place.attackers(number):
            _meet(attacker, target, place)
    path = place.file(f"round_{number}.json")
    if not path.is_file():
        write_record(_round(number, place), path)
    return gather(number, place)


def gather(number: int, place: HardeningPlace) -> Hardening:
    """What was measured up to this round."""
    success = {
        target: {
            attacker: Interval.read(read_json(place.file(_cell(attacker, target)))["rate"])
            for attacker in place.attackers(number)
        }
        for target in range(number + 1)
    }
    paths = [place.file(f"round_{own}.json") for own in range(number + 1)]
    return Hardening(
        key=place.key,
        attacker=attacker_digest(ATTACKER),
        num_prompts=read_json(place.file(_cell(0, 0)))["num_prompts"],
        confidence=place.params.evaluation.confidence,
        rounds=tuple(read_record(path, HardeningRound) for path in paths),
        success=success,
    )


def _cell(attacker: int, target: int) -> str:
    return f"success_{attacker}_{target}.json"


def _meet(attacker: int, target: int, place: HardeningPlace) -> None:
    """Examines an attacker against a target, unless it was done."""
    path = place.file(_cell(attacker, target))
    if path.is_file():
        return
    base = place.base(target)
    found, _ = evaluate_checkpoint(place.attacker(attacker), place.params, base=base)
    write_json({"rate": found["attacker"][RATE], "num_prompts": found["num_prompts"]}, path)


def _round(number: int, place: HardeningPlace) -> HardeningRound:
    held = [own for own in answered_requests(place) if own.is_held]
    params, system = place.params, place.system(number)
    told, _ = refusals(_replies(system, held, seed=params.training_seed))
    confidence = params.evaluation.confidence
    nats, path = _nats(system, held), place.file(f"nats_{number}.json")
    write_json({"nats": nats}, path)
    first = read_json(place.file("nats_0.json"))["nats"]
    pairs = read_pairs(place.file(f"pairs_{number}.jsonl"))
    num_benign = sum(own.source == BENIGN for own in pairs)
    gains = [own - before for own, before in zip(nats, first, strict=True)]
    return HardeningRound(
        number=number,
        target=weights_digest(place.target(number)),
        num_findings=len(pairs) - num_benign,
        num_benign=num_benign,
        num_requests=len(held),
        over_refusal=proportion(sum(told), len(told), confidence=confidence),
        perplexity=_exponential(nats, params),
        perplexity_ratio=_exponential(gains, params),
    )


def _replies(system: "System", held: list[AnsweredRequest], *, seed: int) -> list[str]:
    """What the target answers; nothing, which counts as a refusal, where it fails."""
    from astra_parts.samplers.rewording import first_replies

    with system.target.evaluating():
        found = first_replies(system, [own.question for own in held], seed=seed)
    return [reply or "" for reply in found]


def _nats(system: "System", held: list[AnsweredRequest]) -> list[float]:
    """For each request the mean over tokens of the first target's answer, under this one."""
    target = cast("CausalLM", system.target)
    contexts, answers = [], []
    for own in held:
        if own.reply is None:
            continue
        prompt, text = own.question
        talk = Conversation(prompt).say(Message("user", text))
        contexts.append(target.heard(talk, system.config.response).token_ids)
        answers.append(target.spoken(own.reply, system.config.response))
    found = target.language_model.continuation_logprobs(contexts, answers)
    return [-fmean(own) for own in found]


def _exponential(nats: list[float], params: Params) -> Interval:
    """The exponential of the mean over requests, with its interval."""
    own = params.evaluation
    found = paired_gain(
        [f"{place:06d}" for place in range(len(nats))],
        nats,
        num_resamples=own.num_resamples,
        confidence=own.confidence,
        seed=params.training_seed,
    )
    return Interval(*(math.exp(end) for end in (found.value, found.low, found.high)))
