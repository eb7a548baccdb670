"""Several attackers in one System: each plays its turns with its own model and instruction.

A folder of several agents holds the first at the top, each other one with its own weights in
``agents/NAME``, and ``agents.json``, which says which agent plays which turn. ``attacker.json``
says how an attacker reads by its chat template, if it does.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

from astra_core.config import (
    AgentConfiguration,
    AttackerConfiguration,
    Section,
    SystemConfiguration,
)
from astra_core.conversation import Conversation
from astra_core.errors import ConfigurationError
from astra_core.files import read_json, write_json
from astra_core.metrics.attack import mean_kl_nats
from astra_core.models.attacker_format import attacker_format, uses_template
from astra_core.models.chat_format import ChatFormat
from astra_core.models.folders import AGENTS, FORMAT
from astra_core.models.language_model import LanguageModel
from astra_core.rollout import Context, Graph

_Kind = TypeVar("_Kind", bound=Section)
FOLDER = "agents"


class Loader(Protocol):
    """Loads a model folder with the settings of the System."""

    def __call__(self, folder: Path, *, is_frozen: bool = True) -> LanguageModel:
        """The model."""


@dataclass(frozen=True, slots=True)
class Agent:
    """One of several attackers.

    Attributes:
        instruction_ids: What it reads before every conversation; empty for nothing.
        told: How it reads, and the instruction of a chat template.
    """

    name: str
    model: LanguageModel
    reference: LanguageModel
    instruction_ids: tuple[int, ...] = ()
    told: AttackerConfiguration = field(default_factory=AttackerConfiguration)
    format: ChatFormat = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        spoken = attacker_format(self.model, self.told, self.instruction_ids)
        self.reference.speak_as(self.model)
        object.__setattr__(self, "format", spoken)

    def contexts(self, conversations: Sequence[Conversation], limit: int) -> list[Context]:
        """What it reads before it speaks, its instruction included: at most ``limit`` tokens."""
        read = map(partial(self.format.rendering, limit=limit), conversations)
        return [Context(own.token_ids, own.truncated_tokens) for own in read]


class Roles(Section):
    """What ``agents.json`` holds."""

    roles: tuple[str, ...]
    agents: dict[str, AgentConfiguration]


def load_agents(
    config: SystemConfiguration,
    attacker: tuple[Path, LanguageModel],
    reference: tuple[Path, LanguageModel],
    *,
    load: Loader,
    is_trained: bool,
) -> tuple[Agent, ...]:
    """The agents of ``config.roles``, in the order of their first turns.

    ``is_trained``: true if they will be trained.

    Raises ConfigurationError if an instruction leaves no room, or a tokenizer differs.
    """
    found = []
    for name in dict.fromkeys(config.roles):
        own = config.agents.get(name, AgentConfiguration())
        model, origin = attacker[1], reference[1]
        if not own.shares_all:
            model = load(own_folder(attacker[0], name), is_frozen=not is_trained)
            folder = own_folder(reference[0], name)
            if origin is attacker[1]:
                origin = model
            elif folder != reference[0]:
                origin = load(folder)
        _check_vocabulary(name, (attacker[1], model, origin))
        if uses_template(model, config.attacker):
            told = config.attacker.instruct(own.instruction)
            found.append(Agent(name, model, origin, told=told))
            continue
        ids = _instruction_ids(own.instruction, model)
        _check_room(name, ids, model, config=config)
        found.append(Agent(name, model, origin, ids))
    return tuple(found)


def own_folder(folder: Path, name: str) -> Path:
    """The folder of an agent's weights: below that of several agents, or that of the only one."""
    inner = folder / FOLDER / name
    return inner if (inner / "config.json").is_file() else folder


def save_agents(agents: Sequence[Agent], config: SystemConfiguration, folder: Path) -> None:
    """Writes the agents: the first at the top, others with their own weights below it."""
    for name, model in separate_models(agents).items():
        model.save(folder / FOLDER / name if name else folder)
    roles = Roles(roles=config.roles, agents=config.agents)
    write_json(roles.model_dump(mode="json"), folder / AGENTS)


def save_format(config: SystemConfiguration, folder: Path) -> None:
    """Writes how the attacker reads beside its weights; nothing if it reads by separator."""
    if config.attacker.format != "separator":
        write_json(config.attacker.model_dump(mode="json"), folder / FORMAT)


def separate_models(agents: Sequence[Agent]) -> dict[str, LanguageModel]:
    """Every distinct model by the name of the agent that owns it; the first agent's is empty."""
    found: dict[str, LanguageModel] = {}
    for agent in agents:
        if not any(agent.model is model for model in found.values()):
            found[agent.name if found else ""] = agent.model
    return found


def as_exported(config: SystemConfiguration, folder: Path) -> SystemConfiguration:
    """The configuration with roles and format that a trained attacker's folder was trained in.

    Raises ConfigurationError if the folder's ``agents.json`` or ``attacker.json`` is damaged.
    """
    roles = read_note(folder / AGENTS, Roles) or Roles(roles=(), agents={})
    own = read_note(folder / FORMAT, AttackerConfiguration) or AttackerConfiguration()
    found = {"roles": roles.roles, "agents": roles.agents, "attacker": own}
    return config.model_copy(update=found)


def read_note(file: Path, kind: type[_Kind], *, advice: str = "train again") -> _Kind | None:
    """A section in a JSON file; None without a file.

    Raises ConfigurationError, which ends in the advice, unless it holds one.
    """
    if not file.is_file():
        return None
    try:
        record = read_json(file)
    except (OSError, ValueError) as error:
        msg = f"{file} must hold JSON, got {type(error).__name__}; {advice}"
        raise ConfigurationError(msg) from error
    return kind.read(record, where=str(file))


def turn_figures(
    agents: Sequence[Agent], player: Callable[[int], Agent], graphs: Sequence[Graph]
) -> dict[str, float]:
    """Means over the turns that each agent played and that were judged, as ``agent/name``.

    Args:
        agents: The agents; None if one attacker plays every turn, which needs no such figures.
        player: Gives the agent that plays a turn, counted from 0.
    """
    nodes = [node for graph in graphs for node in graph.nodes() if node.is_judged]
    figures: dict[str, float] = {}
    for agent in agents:
        own = [node for node in nodes if player(len(node.path) - 1).name == agent.name]
        count = max(len(own), 1)
        figures |= {
            f"{agent.name}/reward": sum(node.reward for node in own) / count,
            f"{agent.name}/score": sum(node.score for node in own) / count,
            f"{agent.name}/kl_nats": mean_kl_nats(own) if own else 0.0,
            f"{agent.name}/num_nodes": float(len(own)),
        }
    return figures


def _instruction_ids(instruction: str | None, model: LanguageModel) -> tuple[int, ...]:
    """The instruction as an utterance that opens the conversation."""
    if instruction is None:
        return ()
    return model.opening_ids + model.closed_ids(model.encode(instruction))


def _check_room(
    name: str, told: Sequence[int], model: LanguageModel, *, config: SystemConfiguration
) -> None:
    room = min(config.max_context_tokens, model.max_positions - config.probe.max_new_tokens)
    if told and len(told) >= room:
        msg = (
            f"system.agents.{name}.instruction must be shorter than {room} tokens, which a context "
            f"may have, got {len(told)}; shorten it or raise system.max_context_tokens"
        )
        raise ConfigurationError(msg)


def _check_vocabulary(name: str, models: Sequence[LanguageModel]) -> None:
    if len({model.vocabulary for model in models}) > 1:
        msg = (
            f"agent {name} must share the first agent's tokenizer, got another; train all agents "
            "from one model"
        )
        raise ConfigurationError(msg)
