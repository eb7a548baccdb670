"""The System: attacker, target, reference and scorer, and the models that they share."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Self

import torch

from astra_core.agents import Agent, load_agents, save_agents, save_format, separate_models
from astra_core.config import GenerationConfiguration, SystemConfiguration
from astra_core.conversation import Conversation
from astra_core.crew import Crew
from astra_core.engine.machine import Machine
from astra_core.engine.plan import Plan
from astra_core.engine.products.precision import Precision, settle
from astra_core.errors import ConfigurationError
from astra_core.files import record_digest
from astra_core.judge import Judge
from astra_core.models.language_model import LanguageModel
from astra_core.models.lora import share_frozen
from astra_core.models.spelling import spell_text, spelling_digest
from astra_core.registry import build
from astra_core.scorer import Scorer, version_of
from astra_core.scorers.cached import with_cache
from astra_core.scorers.of_probes import probe_scorer_of
from astra_core.settings.attacker import AttackerConfiguration
from astra_core.target import Outcome, Surroundings, Target, checked_digest, checked_outcomes
from astra_core.targets.causal_lm import CausalLM, as_target, speaker_of

Talker = LanguageModel | Target


@dataclass(frozen=True, slots=True)
class System:
    """The attacker and everything that it talks to.

    Attributes:
        attacker: The model that is trained; of several agents the first one's.
        scorer: Rates replies, as a scorer of texts or as a judge of exchanges.
        probe_scorer: Rates a probe's own words; the scorer itself if that reads texts.
        agents: The agents of ``config.roles``; empty if one attacker plays every turn.
        crew: Rolls it out; None for this process, all prompts at once.
    """

    attacker: LanguageModel
    target: Target
    reference: LanguageModel
    scorer: Scorer | Judge
    config: SystemConfiguration
    target_digest: str
    probe_scorer: Scorer
    agents: tuple[Agent, ...] = ()
    crew: Crew | None = None

    @classmethod
    def load(
        cls,
        config: SystemConfiguration,
        *,
        attacker: Path | str,
        target: Path | str | None,
        reference: Path | str,
        is_trained: bool = False,
        may_differ: bool = False,
        device: torch.device | str = "cpu",
        machine: Machine | None = None,
    ) -> Self:
        """The System of these Hugging Face folders; equal target and reference load once.

        Args:
            target: The folder of a target with weights; None for any other.
            may_differ: The attacker's tokenizer may; then it is its own reference: none is read.
            machine: What the machine can do; None for this one.

        Raises ConfigurationError if a folder cannot be loaded, or attacker and reference differ in
        tokenizer.
        """
        attacker, reference = Path(attacker), Path(reference)
        target = None if target is None else Path(target)
        scorer: Scorer | Judge = with_cache(build("scorer", config.scorer), config.score_cache_size)
        load = partial(
            LanguageModel.load, separator=config.separator, device=device, machine=machine
        )
        own = load(attacker, is_frozen=not is_trained)
        surroundings = Surroundings(
            config, target, device=device, machine=machine, beside=(reference, attacker)
        )
        victim: Target = build("target", config.target, surroundings=surroundings)
        speakers = [speaker.model for speaker in victim.language_models]
        # Before the next is read: one file of weights is in memory twice at most.
        share_frozen(own.model, *speakers)
        # A list that the attacker continues ends with a line, which no reply of a target does.
        shared = None if config.attacker.template else _as_reference(victim, reference)
        copy = shared or load(reference)
        if may_differ and copy.vocabulary != own.vocabulary:
            copy = own
        share_frozen(copy.model, *speakers)
        system = cls.of(
            own, victim, copy, scorer=scorer, config=config, target_digest=checked_digest(victim)
        )
        agents = load_agents(
            config, (attacker, own), (reference, copy), load=load, is_trained=is_trained
        )
        return replace(system, agents=agents)

    @classmethod
    def of(
        cls,
        attacker: LanguageModel,
        target: Target | LanguageModel,
        reference: LanguageModel,
        *,
        scorer: Scorer | Judge,
        config: SystemConfiguration,
        target_digest: str = "",
    ) -> Self:
        """The System of these parts; a trial settles a precision of ``auto``."""
        if attacker.vocabulary != reference.vocabulary:
            msg = (
                "models.reference must share the attacker's tokenizer, got another; "
                "leave it null for the attacker's own frozen copy"
            )
            raise ConfigurationError(msg)
        victim = as_target(target, config)
        talkers = (attacker, *victim.language_models)
        _check_room("probe", config.probe, attacker)
        for speaker in talkers[1:]:
            _check_room("response", config.response, speaker)
        models = [each.model for each in talkers]
        config = settle(config, *models, machine=attacker.plan.machine)
        for model in talkers:
            model.plan = replace(model.plan, compiles_steps=config.compile)
        own = probe_scorer_of(config, scorer)
        system = cls(attacker, victim, reference, scorer, config, target_digest, own)
        system.player(0)  # a template that cannot be used is refused here, not in the first turn
        return system

    @property
    def spell(self) -> Callable[[str], str]:
        """Gives what an attacker said as the target reads it."""
        return partial(spell_text, name=self.config.spelling)

    @property
    def shares_tokenizer(self) -> bool:
        """True where attacker and target read the same ids, which pass between them unchanged."""
        return self.attacker.vocabulary == self.target.vocabulary

    @property
    def reference_is_target(self) -> bool:
        """True where the two are one model, so that one pass may serve both."""
        return self.shares_tokenizer and self.reference is speaker_of(self.target)

    def respond(
        self, conversations: Sequence[Conversation], keys: Sequence[Sequence[bytes]]
    ) -> list[Outcome]:
        """The target's outcomes, one per conversation in order; see ``checked_outcomes``."""
        config = self.config
        return checked_outcomes(
            self.target,
            conversations,
            keys,
            generation=config.response,
            tokens_per_batch=config.tokens_per_batch,
        )

    def digest(self) -> str:
        """Covers everything that affects an evaluation; equal digests make figures comparable."""
        # Agents and their formats belong to the attacker that is evaluated, not to the evaluation,
        # and the target's own digest covers what decides its replies.
        left_out = {"score_cache_size", "prefix_cache_mib", "roles", "agents", "attacker", "target"}
        left_out |= {"compile"} if self.config.spelling else {"compile", "spelling"}
        # The scorer of probes is named by its version if it is not the judge itself.
        settings = self.config.model_dump(mode="json", exclude={*left_out, "probe_scorer"})
        versions = dict.fromkeys((version_of(self.scorer), version_of(self.probe_scorer)))
        code = filter(None, [spelling_digest(self.config.spelling)])
        # As merged ones they are the same target, but for rounding, which may decide a draw.
        apart = ["apart"] if any(own.is_apart for own in self.target.language_models) else []
        return record_digest([self.target_digest, *versions, settings, *code, *apart])

    def training_digest(self) -> str:
        """Also covers agents and their formats; a run is resumed only under the same digest."""
        named = {"roles", "agents"} if self.agents else set[str]()
        if self.config.attacker != AttackerConfiguration():
            named.add("attacker")
        own = self.config.model_dump(mode="json", include=named)
        return record_digest([self.digest(), own]) if named else self.digest()

    def learners(self) -> dict[str, LanguageModel]:
        """Every attacker's model once, by the name of its agent; the first has an empty name."""
        return separate_models(self.agents) or {"": self.attacker}

    def parameters(self) -> Iterator[torch.nn.Parameter]:
        """The weights that are trained, each once, for a custom optimiser or norm."""
        every = (p for model in self.learners().values() for p in model.model.parameters())
        return iter({id(p): p for p in every if p.requires_grad}.values())

    def player(self, turn: int) -> Agent:
        """The agent that plays a turn, counted from 0; the last role plays all further ones."""
        if not self.agents:
            return Agent("attacker", self.attacker, self.reference, told=self.config.attacker)
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
            config=self.config.model_copy(update={"attacker": agent.told}),
            agents=(),
        )

    def save(self, folder: Path) -> None:
        """Writes the attacker as a Hugging Face folder; see ``astra_core.agents`` for several."""
        if self.agents:
            save_agents(self.agents, self.config, folder)
        else:
            self.attacker.save(folder)
        save_format(self.config, folder)

    @property
    def plan(self) -> Plan:
        """The attacker's plan, in the System's precision, with the threads of its largest model."""
        talkers = (*self.learners().values(), *self.target.language_models)
        precision: Precision = "bf16" if self.config.precision == "bf16" else "fp32"
        plan = self.attacker.plan.talking(precision=precision)
        return replace(plan, num_threads=max(own.plan.num_threads for own in talkers))

    @contextmanager
    def remembering(self) -> Iterator[None]:
        """Runs the body with every model caching what it reads; no weight may change in it."""
        others = [model for agent in self.agents for model in (agent.model, agent.reference)]
        # A target's own model remembers through the target, which may be of a class of its own.
        speakers = set(map(id, self.target.language_models))
        talkers: tuple[Talker, ...] = (self.attacker, self.target, self.reference, *others)
        models = {id(model): model for model in talkers if id(model) not in speakers}
        max_bytes, is_bf16 = self.config.prefix_cache_mib << 20, self.config.precision == "bf16"
        with ExitStack() as stack:
            for model in models.values():
                stack.enter_context(model.remembering(max_bytes, is_bf16=is_bf16))
            yield

    def context_limit(self, model: LanguageModel, new_tokens: int) -> int:
        """How many context tokens fit before ``new_tokens`` more, for this model."""
        return max(1, min(self.config.max_context_tokens, model.max_positions - new_tokens))


def _as_reference(target: Target, folder: Path) -> LanguageModel | None:
    """The target's own model if it holds the weights of the reference, which then load once."""
    return target.language_model if isinstance(target, CausalLM) and target.holds(folder) else None


def _check_room(name: str, generation: GenerationConfiguration, model: LanguageModel) -> None:
    """Checks that an utterance and a token before it fit the model's positions."""
    if generation.max_new_tokens >= model.max_positions:
        msg = (
            f"system.{name}.max_new_tokens must be below {model.max_positions}, the positions of "
            f"the model that speaks, got {generation.max_new_tokens}; lower it"
        )
        raise ConfigurationError(msg)
