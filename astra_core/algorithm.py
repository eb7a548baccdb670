"""An algorithm turns graphs into a loss; the loop around it belongs to the Trainer."""

import math
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence, Set as AbstractSet
from types import MappingProxyType
from typing import Any, ClassVar, Literal, Protocol

from jaxtyping import Float
from torch import Tensor
from torch.nn import Parameter

from astra_core.config import GenerationConfiguration, Section
from astra_core.errors import ConfigurationError
from astra_core.extensions.calls import describe, figures_of, is_number, plugin_call, refuse
from astra_core.extensions.plugin_class import Plugin
from astra_core.rollout import Graph
from astra_core.system import System

Need = Literal["siblings", "runs", "reference", "shared_tokenizer", "value_head"]
"""``siblings``: several probes after each context. ``runs``: several trees of each prompt.
``reference``: log-probabilities under it.
``shared_tokenizer``: attacker and target read the same ids. ``value_head``: one on the attacker,
which the algorithm adds as ``parameters``."""

ALL_GIVEN: frozenset[Need] = frozenset({"siblings", "runs", "reference", "shared_tokenizer"})
"""What System and sampler can provide; an algorithm must add its value head itself."""

_SAMPLED_BY = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")
# For each need the message if it is not met; ``check_needs`` adds the algorithm's name.
_LACKING: dict[Need, str] = {
    "siblings": "rollouts.sampler must try several probes after each context for {name}, which "
    "compares siblings, got one that does not; name another, such as 'tree'",
    "runs": "rollouts.runs_per_prompt must be at least 2 for {name}, which compares the runs of a "
    "prompt with these options, got 1; raise it or change the option compare",
    "reference": "rollouts.sampler must give reference log-probabilities, which {name} needs with "
    "these options, got one that does not; name another, such as 'tree'",
    "shared_tokenizer": "models.target must share the attacker's tokenizer, which {name} needs "
    "with these options, got another; change them or name another target",
    "value_head": "training.algorithm {name} must bring the value head it needs, got no parameters "
    "of its own; override parameters()",
}


class Batch(Protocol):
    """Rows of one forward pass."""

    @property
    def weight(self) -> float:
        """The divisor of the summed loss, added up over a whole optimiser window."""

    @property
    def num_tokens(self) -> int:
        """Tokens the attacker reads in this pass, padding not counted."""


class Algorithm(Plugin):
    """``flatten`` graphs into steps, ``collate`` steps into a batch, ``step`` a batch into a loss.

    The loss is a sum over rows, never a mean: the Trainer divides it by the weight of the whole
    optimiser window, so the size and order of micro-batches cannot change an update.
    """

    needs: ClassVar[frozenset[Need]] = frozenset()
    """Under any options; see ``needs_with``."""

    options_for_turns: ClassVar[Mapping[str, Any]] = MappingProxyType({})
    """Options that have another default where ``training.algorithm.defaults`` is ``turns``."""

    weighs_probes: bool = False
    """Whether its loss multiplies by ``Node.probe_weights``, and reads how likely a probe was from
    ``Node.probe_logprobs`` alone, so that ``training.staleness.correction`` can correct it."""

    def __init__(self, options: Section | None = None, *, system: System) -> None:
        super().__init__(options)
        self.system = system

    @classmethod
    def needs_with(cls, options: Section) -> frozenset[Need]:
        """What it needs under these options; overridden where they decide."""
        del options
        return cls.needs

    @classmethod
    def check_needs(
        cls, options: Section, sampler_options: Section, *, gives: AbstractSet[Need] = ALL_GIVEN
    ) -> None:
        """Checks that a sampler of these options can serve this algorithm.

        ``gives``: what the sampler's class declares, ``runs`` if each prompt has several, and
        ``shared_tokenizer`` unless attacker and target are known to differ in it.

        Raises ConfigurationError if it cannot; the message names what is missing.
        """
        with plugin_call("algorithm", cls, "needs_with"):
            needs = frozenset(cls.needs_with(options))
        brought: set[Need] = set() if cls.parameters is Algorithm.parameters else {"value_head"}
        for need in sorted(needs - gives - brought):
            raise ConfigurationError(_LACKING[need].format(name=cls.__name__))
        if "siblings" in needs:
            refuse_single_children(cls.__name__, sampler_options)

    @abstractmethod
    def flatten(self, graph: Graph) -> Sequence[Any]:
        """What there is to learn from one graph; an empty list is legal and counted.

        A step that is a node, or names one as ``node``, is kept beside the others of that graph, so
        that their common context is read once.
        """

    def flatten_all(self, graphs: Sequence[Graph]) -> list[Any]:
        """The steps of one experience; overridden where graphs are compared with each other."""
        return [step for graph in graphs for step in self.flatten(graph)]

    def remember(self, graphs: Sequence[Graph]) -> Mapping[str, float]:
        """Updates its state after an experience is flattened; returns figures for the log."""
        del graphs
        return {}

    @abstractmethod
    def collate(self, steps: Sequence[Any]) -> Batch:
        """The steps as tensors on the attacker's device."""

    @abstractmethod
    def step(self, batch: Any) -> tuple[Float[Tensor, ""], Mapping[str, float]]:
        """The loss summed over the batch's rows, and metrics that are means over them."""

    def parameters(self) -> Sequence[Parameter]:
        """The algorithm's own weights, trained with the attacker's."""
        return ()

    def state(self) -> Mapping[str, Tensor]:
        """What a checkpoint must hold besides weights, such as an adaptive coefficient."""
        return {}

    def load_state(self, state: Mapping[str, Tensor]) -> None:  # no state by default
        """Restores what ``state`` returned."""


def refuse_single_children(subject: str, sampler_options: Section) -> None:
    """Checks that a sampler with these options samples more than one probe after each context."""
    width = getattr(sampler_options, "tree_width", None)
    if width is not None and width < 2:
        msg = (
            f"rollouts.sampler.options.tree_width must be at least 2 for {subject}, "
            f"which compares siblings, got {width}; raise it or choose another training.algorithm"
        )
        raise ConfigurationError(msg)


def off_policy(options: Section, probe: GenerationConfiguration) -> str:
    """A line about probes that are not samples of the attacker's own probabilities; or empty.

    ``options``: of the algorithm; only a policy gradient takes probes for such samples.
    """
    given = probe.model_dump(include=set(_SAMPLED_BY), exclude_defaults=True)
    if not given or not getattr(options, "is_policy_gradient", False):
        return ""
    changed = ", ".join(f"{name} {given[name]:g}" for name in _SAMPLED_BY if name in given)
    return (
        f"system.probe has {changed}: probes are not sampled from the attacker's own "
        "probabilities, so a policy gradient learns off-policy, which no ratio corrects; leave it "
        "out, or see docs/algorithms.md"
    )


def flatten_experience(algorithm: Algorithm, graphs: Sequence[Graph]) -> tuple[Any, ...]:
    """The steps that the algorithm makes of an experience."""
    with plugin_call("algorithm", algorithm, "flatten"):
        steps: Any = algorithm.flatten_all(graphs)
    if not isinstance(steps, Sequence) or isinstance(steps, str):
        refuse("algorithm", algorithm, "a list of steps from flatten", got=describe(steps))
    return tuple(steps)


def collate_steps(algorithm: Algorithm, steps: Sequence[Any]) -> Batch:
    """The batch that the algorithm makes of steps; its weight and its tokens are numbers."""
    with plugin_call("algorithm", algorithm, "collate"):
        batch = algorithm.collate(steps)
        weight, num_tokens = getattr(batch, "weight", None), getattr(batch, "num_tokens", None)
    if not (is_number(weight) and math.isfinite(weight) and is_number(num_tokens)):
        got = f"weight {describe(weight)} and num_tokens {describe(num_tokens)}"
        refuse("algorithm", algorithm, "a batch whose weight and num_tokens are numbers", got=got)
    return batch


def loss_of(algorithm: Algorithm, batch: Batch) -> tuple[Tensor, dict[str, float]]:
    """The loss of a batch, a scalar with a gradient, finite or not, and figures on it."""
    with plugin_call("algorithm", algorithm, "step"):
        given: Any = algorithm.step(batch)
    is_pair = isinstance(given, tuple) and len(given) == 2
    if not is_pair or not isinstance(given[0], Tensor):
        got = describe(given[0] if is_pair else given)
        refuse("algorithm", algorithm, "a loss and figures from step", got=got)
    loss = given[0]
    if loss.ndim != 0 or not loss.is_floating_point() or not loss.requires_grad:
        got = f"one of shape {tuple(loss.shape)}, {loss.dtype}, gradient {loss.requires_grad}"
        refuse("algorithm", algorithm, "a scalar loss with a gradient from step", got=got)
    return loss, figures_of("algorithm", algorithm, given[1], action="step")


def own_weights(algorithm: Algorithm) -> tuple[Parameter, ...]:
    """The algorithm's own weights. Raises PluginError if it failed, or gave something else."""
    with plugin_call("algorithm", algorithm, "parameters"):
        given = algorithm.parameters()
        found = tuple(given) if isinstance(given, Iterable) else None
    if found is None or not all(isinstance(weight, Parameter) for weight in found):
        refuse("algorithm", algorithm, "a list of torch parameters", got=describe(given))
    return found or ()


def tensors_by_name(kind: str, plugin: Any) -> Mapping[str, Tensor]:
    """The tensors of a plug-in that a checkpoint holds."""
    with plugin_call(kind, plugin, "state"):
        state: Mapping[str, Tensor] = plugin.state()
    is_state = isinstance(state, Mapping) and all(
        isinstance(name, str) and isinstance(value, Tensor) for name, value in state.items()
    )
    if not is_state:
        refuse(kind, plugin, "tensors by name from state", got=describe(state))
    return state


def restore(kind: str, plugin: Any, state: Mapping[str, Tensor]) -> None:
    """Gives a plug-in back the tensors that ``tensors_by_name`` found."""
    with plugin_call(kind, plugin, "load_state"):
        plugin.load_state(state)
