"""The System: attacker, target, reference and scorer, and what they may share."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Self

import torch

from astra_core.agents import Agent, load_agents, save_agents, separate_models
from astra_core.config import GenerationConfiguration, SystemConfiguration
from astra_core.engine.machine import Machine
from astra_core.engine.plan import Plan
from astra_core.engine.products.precision import Precision, settled
from astra_core.errors import ConfigurationError
from astra_core.files import record_digest
from astra_core.judge import Judge
from astra_core.models.language_model import LanguageModel
from astra_core.models.pretrained import weights_digest
from astra_core.registry import build
from astra_core.scorer import Scorer, version_of
from astra_core.scorers.cached import cached
from astra_core.scorers.of_probes import probe_scorer_of
from astra_core.target import Target


@dataclass(frozen=True, slots=True)
class System:
    """Who talks to whom.

    Attributes:
        attacker: The model that is trained; of several agents the first one's.
        target: Frozen; a language model, or anything else that keeps the promises of ``Target``.
        reference: Frozen copy of the untrained attacker.
        scorer: Rates replies, as a scorer of texts or as a judge of exchanges.
        config: How they talk.
        shares_tokenizer: Attacker and target read the same ids, so ids pass between them unchanged.
        reference_is_target: The two hold the same weights, so one pass serves both.
        target_digest: Names the target's weights.
        probe_scorer: Rates a probe's own words; the scorer itself where that reads texts.
        agents: Those of ``config.roles``; empty where one attacker plays every turn.
    """

    attacker: LanguageModel
    target: Target
    reference: LanguageModel
    scorer: Scorer | Judge
    config: SystemConfiguration
    shares_tokenizer: bool
    reference_is_target: bool
    target_digest: str
    probe_scorer: Scorer
    agents: tuple[Agent, ...] = ()

    @classmethod
    def load(
        cls,
        config: SystemConfiguration,
        *,
        attacker: Path,
        target: Path,
        reference: Path,
        is_trained: bool = False,
        device: torch.device | str = "cpu",
        machine: Machine | None = None,
    ) -> Self:
        """The System of these Hugging Face folders; equal target and reference load once.

        Raises:
            ConfigurationError: A folder cannot be loaded, or attacker and reference differ in
                tokenizer.
        """
        scorer: Scorer | Judge = cached(build("scorer", config.scorer), config.score_cache_size)
        load = partial(
            LanguageModel.load, separator=config.separator, device=device, machine=machine
        )
        own = load(attacker, is_frozen=not is_trained)
        victim = load(target)
        digests = {path: weights_digest(path) for path in (target, reference)}
        copy = victim if digests[target] == digests[reference] else load(reference)
        system = cls.of(
            own, victim, copy, scorer=scorer, config=config, target_digest=digests[target]
        )
        agents = load_agents(
            config, (attacker, own), (reference, copy), load=load, is_trained=is_trained
        )
        return replace(system, agents=agents)

    @classmethod
    def of(
        cls,
        attacker: LanguageModel,
        target: Target,
        reference: LanguageModel,
        *,
        scorer: Scorer | Judge,
        config: SystemConfiguration,
        target_digest: str = "",
    ) -> Self:
        """The System of these parts; a trial settles a precision of ``auto``."""
        if attacker.vocabulary_digest() != reference.vocabulary_digest():
            msg = (
                "models.reference must share the attacker's tokenizer, got another; "
                "leave it null for the attacker's own frozen copy"
            )
            raise ConfigurationError(msg)
        _check_room("probe", config.probe, attacker)
        _check_room("response", config.response, target)
        talkers = [each.model for each in (attacker, target) if isinstance(each, LanguageModel)]
        config = settled(config, *talkers, machine=attacker.plan.machine)
        shares = attacker.vocabulary_digest() == target.vocabulary_digest()
        return cls(
            attacker,
            target,
            reference,
            scorer,
            config,
            shares_tokenizer=shares,
            reference_is_target=shares and reference is target,
            target_digest=target_digest,
            probe_scorer=probe_scorer_of(config, scorer),
        )

    def digest(self) -> str:
        """Covers everything that affects an evaluation; equal digests make figures comparable."""
        # Who plays which turn belongs to the attacker that is evaluated, not to the evaluation.
        left_out = {"score_cache_size", "prefix_cache_mib", "roles", "agents"}
        # What scores probes is named by its version, where it is not the judge itself.
        settings = self.config.model_dump(mode="json", exclude={*left_out, "probe_scorer"})
        versions = dict.fromkeys((version_of(self.scorer), version_of(self.probe_scorer)))
        return record_digest([self.target_digest, *versions, settings])

    def training_digest(self) -> str:
        """Covers also who plays which turn; a run is resumed only under the same."""
        roles = self.config.model_dump(mode="json", include={"roles", "agents"})
        return record_digest([self.digest(), roles]) if self.agents else self.digest()

    def player(self, turn: int) -> Agent:
        """The agent that plays a turn, counted from 0; the last role plays all further ones."""
        if not self.agents:
            return Agent("attacker", self.attacker, self.reference)
        roles = self.config.roles
        name = roles[min(turn, len(roles) - 1)]
        return next(agent for agent in self.agents if agent.name == name)

    def seen_by(self, agent: Agent) -> Self:
        """The System with this agent as its only attacker."""
        if not self.agents:
            return self
        return replace(
            self,
            attacker=agent.model,
            reference=agent.reference,
            reference_is_target=self.shares_tokenizer and agent.reference is self.target,
            agents=(),
        )

    def save(self, folder: Path) -> None:
        """Writes the attacker as a Hugging Face folder; see ``astra_core.agents`` for several."""
        if self.agents:
            save_agents(self.agents, self.config, folder)
        else:
            self.attacker.save(folder)

    @property
    def plan(self) -> Plan:
        """The attacker's, in the System's precision, with the threads of its largest talker."""
        every = (self.attacker, self.target, *separate_models(self.agents).values())
        plans = [each.plan for each in every if hasattr(each, "plan")]
        precision: Precision = "bf16" if self.config.precision == "bf16" else "fp32"
        plan = self.attacker.plan.talking(precision=precision)
        return replace(plan, num_threads=max(own.num_threads for own in plans))

    @contextmanager
    def remembering(self) -> Iterator[None]:
        """Runs the body with every model caching what it has read; no weight may change in it."""
        others = [model for agent in self.agents for model in (agent.model, agent.reference)]
        talkers: tuple[Target, ...] = (self.attacker, self.target, self.reference, *others)
        models = {id(model): model for model in talkers}
        max_bytes, is_bf16 = self.config.prefix_cache_mib << 20, self.config.precision == "bf16"
        with ExitStack() as stack:
            for model in models.values():
                stack.enter_context(model.remembering(max_bytes, is_bf16=is_bf16))
            yield

    def context_limit(self, model: Target, new_tokens: int) -> int:
        """How many context tokens fit before ``new_tokens`` more, for this model."""
        return max(1, min(self.config.max_context_tokens, model.max_positions - new_tokens))


def _check_room(name: str, generation: GenerationConfiguration, model: Target) -> None:
    """Returns if an utterance and a token before it fit the model's positions."""
    if generation.max_new_tokens >= model.max_positions:
        msg = (
            f"system.{name}.max_new_tokens must be below {model.max_positions}, the positions of "
            f"the model that speaks, got {generation.max_new_tokens}; lower it"
        )
        raise ConfigurationError(msg)
