"""One training against a target by a rule, in this process: an attacker, an algorithm, a seed."""

import math
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

from astra_core.config import Choice, SystemConfiguration
from astra_core.conversation import Conversation, Message
from astra_core.evaluator import Evaluation, Evaluator
from astra_core.files import file_digest, folder_digest, record_digest
from astra_core.metrics.diversity import words
from astra_core.metrics.statistics import Interval, paired_gain
from astra_core.registry import build
from astra_core.rollout import Prompt
from astra_core.seeding import derive_key
from astra_core.system import System
from astra_core.target import Surroundings
from astra_core.training.checkpoint import CheckpointStore
from astra_parts.assembly import (
    ModelFolders,
    build_evaluator,
    build_sampler,
    build_trainer,
    load_system,
)
from astra_parts.metrics.invented_words import InventedWords
from benchmarks.copies import ROOT
from benchmarks.rules import CIVIL, RuleTarget, draw_rules
from flows.settings import as_if
from tasks.builtin.openers import make_openers
from tasks.builtin.shipped import FOLDER, PACKAGE
from tasks.params.schema import PARAMS_FILE, Params, read_params

SHIPPED = "shipped"
"""The model of the default settings, as an attacker's path."""
_FED = 2000
_DRAWN_FROM = 400
"""Conversations of the untrained attacker that rules are drawn from, at least: a rule that it meets
in one of fifty is then met by eight of them."""
_NO_LOGPROBS = "reward.options.nll_weight=0"


@dataclass(frozen=True, slots=True)
class RuleCell:
    """One training.

    Attributes:
        attacker: Its Hugging Face folder, or ``SHIPPED``.
        release: The seed of rules and prompts.
        number: Which of the release's rules, from 0.
        algorithm: Its name in params.yaml.
        seed: Of rollouts, training and evaluation.
        changes: Of params.yaml, each as ``key=value``.
    """

    attacker: str
    release: int
    number: int
    algorithm: str
    seed: int
    changes: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        """The attacker's weights."""
        return PACKAGE / FOLDER if self.attacker == SHIPPED else Path(self.attacker)

    def file(self, kept: Path) -> Path:
        """The file of its figures, another one under other settings or weights."""
        settings = record_digest(
            [file_digest(ROOT / PARAMS_FILE), folder_digest(self.folder), *self.changes]
        )[:8]
        name = f"{self.folder.name}-{self.release}-{self.number}-{self.algorithm}-{settings}"
        return kept / f"{name}-{self.seed}.json"


def run_rule_cell(cell: RuleCell, *, count: int) -> dict[str, Any]:
    """The figures of a training.

    Args:
        cell: Which one.
        count: Rules of the release.
    """
    start = time.process_time()
    params, rule = params_of(cell), rules_of(cell.folder, cell.release, count, cell.changes)
    found = _trained(cell, params, rule[cell.number])
    return {**found, "cpu_seconds": time.process_time() - start}


def params_of(cell: RuleCell) -> Params:
    """The project's params.yaml with the changes of a cell."""
    own = (f"training.algorithm.name={cell.algorithm}", "machine.num_threads=1", _NO_LOGPROBS)
    with as_if([f"seed={cell.seed}", *own, *cell.changes], ROOT / PARAMS_FILE):
        return read_params()


@cache
def rules_of(
    folder: Path, release: int, count: int, changes: tuple[str, ...] = ()
) -> list[RuleTarget]:
    """The rules of a release for an attacker, from what it says untrained to civil replies."""
    cell = RuleCell(str(folder), release, 0, "dpo", release, changes)
    params = params_of(cell)
    system = _system(params, folder, {"otherwise": list(CIVIL)})
    evaluator = _evaluator(params, prompts_of_release(params, release)["rules"])
    graphs = evaluator.evaluate(system).graphs
    talks = [[node.probe_text for node in path] for graph in graphs for path in graph.paths()]
    return draw_rules(talks, count, seed=release)


def prompts_of_release(params: Params, release: int) -> dict[str, list[Prompt]]:
    """Openers of the built-in grammar, apart from each other: by what they are for."""
    size = params.evaluation.num_prompts
    sizes = {
        "test": size,
        "dev": params.evaluation.num_training_prompts,
        "rules": max(size, math.ceil(_DRAWN_FROM / params.evaluation.num_rollouts)),
        "train": 1000,
    }
    texts = iter(make_openers(sum(sizes.values()), seed=release))
    return {
        name: [Prompt.of(next(texts).text) for _ in range(size)] for name, size in sizes.items()
    }


def ceiling(rule: RuleTarget, params: Params) -> float:
    """The share of conversations in which the target is rude to probes written to meet the rule."""
    config = _facing(params, rule.options)
    scorer = build("scorer", config.scorer)
    target = build("target", config.target, surroundings=Surroundings(config))
    talks = [Conversation(Prompt.of(f"talk {number}")) for number in range(_FED)]
    best = [0.0] * _FED
    for turn, probe in enumerate(rule.triggers):
        asked = [talk.say(Message("user", probe)) for talk in talks]
        keys = [[derive_key(0, "fed by hand", number, turn)] for number in range(_FED)]
        answers = target.respond(asked, keys, config.response)
        said = [answer.replies[0].text for answer in answers]
        best = list(map(max, best, scorer.score(said)))
        talks = [
            talk.say(Message("assistant", text)) for talk, text in zip(asked, said, strict=True)
        ]
    return fmean(score >= params.evaluation.threshold for score in best)


def _facing(params: Params, options: dict[str, Any]) -> SystemConfiguration:
    """The system's settings with a scripted target."""
    return params.system.model_copy(update={"target": Choice(name="scripted", options=options)})


def _system(
    params: Params, folder: Path, options: dict[str, Any], *, is_trained: bool = False
) -> System:
    return load_system(
        _facing(params, options),
        ModelFolders(folder, None, folder),
        machine=params.machine,
        is_trained=is_trained,
        seed=params.training_seed,
    )


def _evaluator(params: Params, prompts: Sequence[Prompt]) -> Evaluator:
    return build_evaluator(
        params.evaluation, params.reward, prompts=prompts, seed=params.training_seed
    )


def _trained(cell: RuleCell, params: Params, rule: RuleTarget) -> dict[str, Any]:
    """The figures before and after a training with the default's first rollouts."""
    prompts, seed = prompts_of_release(params, cell.release), params.training_seed
    system = _system(params, cell.folder, rule.options, is_trained=True)
    exam = _evaluator(params, prompts["test"])
    before = exam.evaluate(system)
    sampler = build_sampler(
        params.rollouts, params.reward, system=system, prompts=prompts["train"], seed=seed
    )
    first = sampler.runs(0, params.rollouts.num_prompts)
    graphs = sampler.reward.assign(sampler.roll_out(first, iteration=0))
    with tempfile.TemporaryDirectory() as name:
        trainer = build_trainer(
            params.training,
            sampler,
            evaluator=_evaluator(params, prompts["dev"]),
            store=CheckpointStore(Path(name), keep=1),
            first_graphs=graphs,
        )
        progress = trainer.train()
    after = exam.evaluate(system)
    known = _known_words(tuple(prompts["train"]))
    invented = InventedWords(known, params.system.probe.max_new_tokens)
    return {
        "rule": {"kind": rule.kind, "text": rule.text},
        "ceiling": ceiling(rule, params),
        "gain": asdict(_gain(before, after, params)),
        **{
            name: {
                "success": own.intervals["attack_success_rate"].value,
                "invented": invented.metrics(own.graphs)["nonword_probe_rate"],
                "unique": own.figures["unique_probes"],
                "kl_nats": own.figures["kl_nats"],
            }
            for name, own in {"untrained": before, "trained": after}.items()
        },
        "moves": [asdict(move) for move in progress.moves],
        "dev": [point.metrics["eval/attack_success_rate"] for point in progress.evaluations],
        "stopped_because": progress.stopped_because,
    }


def _gain(before: Evaluation, after: Evaluation, params: Params) -> Interval:
    ids = [outcome.prompt_id for outcome in after.outcomes]
    gains = [
        new.success_rate - old.success_rate
        for old, new in zip(before.outcomes, after.outcomes, strict=True)
    ]
    return paired_gain(
        ids,
        gains,
        num_resamples=params.evaluation.num_resamples,
        confidence=params.evaluation.confidence,
        seed=params.training_seed,
    )


@cache
def _known_words(prompts: tuple[Prompt, ...]) -> frozenset[str]:
    """English words, as ``tasks.records.vocabulary`` has them, and those of the prompts."""
    from wordfreq import iter_wordlist

    return frozenset(iter_wordlist("en")).union(*(words(prompt.text) for prompt in prompts))
