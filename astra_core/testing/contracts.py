"""The contract of each kind of plug-in, built-in or not."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, get_args

import torch
from torch import Tensor

from astra_core.algorithm import Algorithm
from astra_core.config import Section
from astra_core.errors import ConfigurationError
from astra_core.registry import NoOptions, resolve
from astra_core.reward import Reward, rewarded
from astra_core.rewards.adversarial import AdversarialReward
from astra_core.rollout import Graph, Node, runs_of
from astra_core.sampler import Sampler
from astra_core.samplers.tree import TreeSampler
from astra_core.scorer import Scorer
from astra_core.seeding import torch_seeded
from astra_core.system import System
from astra_core.testing.tiny import tiny_graph, tiny_node, tiny_prompts, tiny_system

_SEED = 5
_TEXTS = (
    "you are bad",
    "",
    "so kind",
    "worse and WORSE!",
    "  ",
    "Grüße, 世界 \U0001f642",
    "bad " * 300,
)


def check_algorithm(plugin: str | type[Algorithm], **options: Any) -> None:
    """Returns if an algorithm may be named under ``training.algorithm``.

    - Its options refuse unknown keys, and it is built as ``Class(options, system=system)``; its own
      weights start the same under any random state of torch.
    - ``flatten`` finds something to learn in trees of differing rewards, nothing in a graph without
      turns, and nothing in turns that failed. It gives the same steps twice.
    - ``collate`` returns a positive weight and the tokens the attacker reads; weights add up.
    - ``step`` returns a finite scalar whose gradient reaches only the attacker, changes no weight
      itself, and reports finite metrics.
    - The loss is a sum: of one batch it equals the sum over its steps, one by one, in any order.
    - ``load_state`` of ``state`` changes no loss.

    Args:
        plugin: A built-in name, an import path, or the class.
        options: Its options, as in params.yaml.

    Raises:
        AssertionError: A promise is broken.
    """
    # If the reference equalled the attacker, their difference would be only rounding.
    system = tiny_system(_SEED, reference_seed=_SEED + 1)
    algorithm: Algorithm = _built("algorithm", plugin, options, system=system)
    with torch_seeded(_SEED):
        twin: Algorithm = _built("algorithm", plugin, options, system=system)
    _promise(
        _equal(algorithm.parameters(), twin.parameters()),
        "its own weights do not depend on torch's global random state",
    )
    graphs = _rewarded_graphs(system)
    steps = _check_flatten(algorithm, graphs)
    whole = algorithm.collate(steps)
    parts = [algorithm.collate([step]) for step in reversed(steps)]
    _promise(whole.weight > 0.0, "the weight of a batch is positive")
    _promise(_close(whole.weight, sum(p.weight for p in parts)), "weights of batches add up")
    _promise(whole.num_tokens > 0, "a batch counts the tokens the attacker reads")
    before = _weights(system)
    loss = _check_step(algorithm, whole, system)
    single = sum(float(algorithm.step(part)[0].detach()) for part in parts)
    _promise(_close(loss, single), f"the loss is a sum over steps, got {loss} against {single}")
    _promise(_equal(before, _weights(system)), "flatten, collate and step move no weight")
    again: Algorithm = _built("algorithm", plugin, options, system=system)
    again.load_state(algorithm.state())
    resumed = float(again.step(again.collate(steps))[0].detach())
    _promise(_close(loss, resumed), "a loss is the same after load_state(state())")


def check_scorer(plugin: str | type[Scorer], **options: Any) -> None:
    """Returns if a scorer may be named under ``system.scorer``.

    - Its options refuse unknown keys, and it is built as ``Class(options)``.
    - One score per text, in order, a float in [0, 1], also for empty, very long and foreign text.
    - A text's score depends on the text alone: not on its neighbours, its place, the call or the
      thread, so that it may be remembered.
    - ``works_on`` says ``cpu``, ``gpu`` or ``elsewhere``.
    - No text gives no score; ``version`` is not empty and stays what it is.

    Args:
        plugin: A built-in name, an import path, or the class.
        options: Its options, as in params.yaml.

    Raises:
        AssertionError: A promise is broken.
    """
    scorer: Scorer = _built("scorer", plugin, options)
    version = scorer.version
    scores = scorer.score(_TEXTS)
    _promise(isinstance(scores, Sized), f"one score per text, got {type(scores).__name__}")
    _promise(len(scores) == len(_TEXTS), f"one score per text, got {len(scores)} of {len(_TEXTS)}")
    for text, score in zip(_TEXTS, scores, strict=True):
        holds = isinstance(score, float) and 0.0 <= score <= 1.0
        _promise(holds, f"a score is a float in [0, 1], got {score!r} for {text[:20]!r}")
    alone = [scorer.score([text])[0] for text in _TEXTS]
    _promise(all(map(_close, scores, alone)), "a score does not depend on the batch")
    turned = scorer.score(_TEXTS[::-1])[::-1]
    _promise(all(map(_close, scores, turned)), "scores come in the order of the texts")
    with ThreadPoolExecutor(max_workers=1) as worker:
        elsewhere = worker.submit(scorer.score, _TEXTS).result()
    _promise(all(map(_close, scores, elsewhere)), "a score does not depend on the thread")
    places = get_args(Scorer.__annotations__["works_on"])
    _promise(scorer.works_on in places, f"works_on is one of {places}, got {scorer.works_on!r}")
    _promise(list(scorer.score([])) == [], "an empty batch gives an empty list")
    _promise(bool(version) and scorer.version == version, "a version names the scorer and stays")


def check_reward(plugin: str | type[Reward], **options: Any) -> None:
    """Returns if a reward may be named under ``reward``.

    - Its options refuse unknown keys, and it is built as ``Class(options)``.
    - ``assign`` gives every turn a finite reward, 0 to one that failed, and changes no attribute
      but ``reward`` and ``novelty``; graphs stay in order.
    - ``assign`` remembers nothing: the second call gives what the first gave.
    - ``load_state`` of ``state`` carries the memory into another process; figures of ``remember``
      are finite.

    Args:
        plugin: A built-in name, an import path, or the class.
        options: Its options, as in params.yaml.

    Raises:
        AssertionError: A promise is broken.
    """
    reward: Reward = _built("reward", plugin, options)
    graphs = [*_graphs(tiny_system(_SEED)), _failed_graph()]
    assigned = reward.assign(graphs)
    _promise(len(assigned) == len(graphs), "one graph comes back per graph")
    for graph, given in zip(graphs, assigned, strict=True):
        _promise(_unrewarded(graph) == _unrewarded(given), "only reward and novelty change")
        for node in given.nodes():
            _promise(math.isfinite(node.reward), f"a reward is finite, got {node.reward}")
            _promise(not node.has_failed or node.reward == 0.0, "a failed turn keeps reward 0")
    _promise(_texts(reward.assign(graphs)) == _texts(assigned), "assign remembers nothing")
    _check_figures(reward.remember(assigned))
    later = reward.assign(graphs)
    resumed: Reward = _built("reward", plugin, options)
    resumed.load_state({name: value.clone() for name, value in reward.state().items()})
    _promise(_texts(resumed.assign(graphs)) == _texts(later), "state() holds all of the memory")


def check_sampler(plugin: str | type[Sampler], **options: Any) -> None:
    """Returns if a sampler may be named under ``rollouts.sampler``.

    - Its options refuse unknown keys; it is built as
      ``Class(options, system=, prompts=, reward=, seed=)``.
    - ``roll_out`` gives one graph per prompt, in order, that names the iteration and has a turn.
    - A turn's tokens, log-probabilities and masks are of one length, and its scores lie in [0, 1].
    - A prompt's graph depends on the seed, the iteration and the prompt alone: not on the other
      prompts, their order or the size of a batch. Another iteration, another seed and another run
      of the prompt (``run_id``) give others.
    - Turns hold reference log-probabilities if its class declares that it ``gives`` them.
    - It moves no weight and leaves no gradient.
    - Figures of ``remember`` are finite; ``load_state`` of ``state`` carries what it has noted into
      another process, which then chooses the same prompts and rolls them out the same.

    Args:
        plugin: A built-in name, an import path, or the class.
        options: Its options, as in params.yaml.

    Raises:
        AssertionError: A promise is broken.
    """
    system, prompts = tiny_system(_SEED), tiny_prompts(3)
    narrow = replace(system, config=system.config.model_copy(update={"tokens_per_batch": 1}))

    def sampler(seed: int = _SEED, own: System = system) -> Sampler:
        reward = AdversarialReward(AdversarialReward.Options())
        parts = {"system": own, "prompts": prompts, "reward": reward, "seed": seed}
        built: Sampler = _built("sampler", plugin, options, **parts)
        return built

    before, kind = _weights(system), type(sampler())
    graphs = sampler().roll_out(prompts, iteration=2)
    _promise([graph.prompt for graph in graphs] == list(prompts), "one graph per prompt, in order")
    _promise(all(graph.iteration == 2 for graph in graphs), "a graph names its iteration")
    for graph in graphs:
        _promise(bool(graph.children), "a graph has a turn")
        for node in graph.nodes():
            _check_turn(node)
            if "reference" in kind.gives and not node.has_failed:
                count = len(node.reference_logprobs)
                _promise(count == len(node.probe_ids), "a sampler gives the reference it declares")
    said = _spoken(graphs)
    _promise(said == _spoken(sampler().roll_out(prompts, iteration=2)), "a rollout can be repeated")
    turned = sampler().roll_out(prompts[::-1], iteration=2)[::-1]
    _promise(said == _spoken(turned), "the order of the prompts changes nothing")
    alone = [sampler().roll_out([prompt], iteration=2)[0] for prompt in prompts]
    _promise(said == _spoken(alone), "the other prompts change nothing")
    _promise(
        said == _spoken(sampler(own=narrow).roll_out(prompts, iteration=2)),
        "the size of a batch changes nothing",
    )
    _promise(said != _spoken(sampler().roll_out(prompts, iteration=3)), "iterations differ")
    again = sampler().roll_out(runs_of(prompts, 2)[1::2], iteration=2)
    _promise(all(graph.run_id == 1 for graph in again), "a graph is of the run that was asked for")
    _promise(said != _spoken(again), "runs of a prompt differ")
    _promise(said != _spoken(sampler(seed=6).roll_out(prompts, iteration=2)), "seeds differ")
    _promise(_equal(before, _weights(system)), "a rollout moves no weight")
    _promise(_gradients(system) == [], "a rollout leaves no gradient")
    _check_memory(sampler, graphs)


def _check_memory(sampler: Callable[[], Sampler], graphs: Sequence[Graph]) -> None:
    noting, resumed = sampler(), sampler()
    _check_figures(noting.remember(rewarded(noting.reward, graphs)))
    resumed.load_state({name: value.clone() for name, value in noting.state().items()})
    chosen = [own.episodes(3, 3) for own in (noting, resumed)]
    _promise(chosen[0] == chosen[1], "state() holds all that the choice of prompts depends on")
    said = [_spoken(own.roll_out(chosen[0], iteration=3)) for own in (noting, resumed)]
    _promise(said[0] == said[1], "state() holds all that a rollout depends on")


def _built(kind: str, plugin: str | type[Any], options: Mapping[str, Any], **parts: Any) -> Any:
    found = resolve(kind, plugin) if isinstance(plugin, str) else plugin
    section: type[Section] = getattr(found, "Options", NoOptions)
    try:
        section.read({**options, "no such option": 1}, where=f"{kind} options")
    except ConfigurationError:
        pass
    else:
        _promise(holds=False, promise=f"{found.__name__}.Options refuses an unknown option")
    return found(section.read(options, where=f"{kind} options"), **parts)


def _check_flatten(algorithm: Algorithm, graphs: Sequence[Graph]) -> list[Any]:
    steps = algorithm.flatten_all(graphs)
    num_again = len(algorithm.flatten_all(graphs))
    _promise(bool(steps), "flatten finds something to learn in trees of differing rewards")
    _promise(len(steps) == num_again, "flatten gives the same steps twice")
    _promise(len(algorithm.flatten(tiny_graph())) == 0, "a graph without turns teaches nothing")
    _promise(len(algorithm.flatten(_failed_graph())) == 0, "turns that failed teach nothing")
    _check_figures(algorithm.remember(graphs))
    return steps


def _check_figures(figures: Mapping[str, float] | None) -> None:
    for name, value in (figures or {}).items():
        _promise(
            math.isfinite(value), f"a figure about an experience is finite, got {value} for {name}"
        )


def _check_step(algorithm: Algorithm, batch: Any, system: System) -> float:
    loss, metrics = algorithm.step(batch)
    _promise(
        loss.ndim == 0 and bool(torch.isfinite(loss)), f"a loss is a finite scalar, got {loss}"
    )
    for name, value in metrics.items():
        holds = isinstance(value, float) and math.isfinite(value)
        _promise(holds, f"a metric is a finite float, got {value!r} for {name}")
    loss.backward()  # type: ignore[no-untyped-call]
    gradients = _gradients(system)
    _promise(
        any(bool(gradient.abs().sum() > 0.0) for gradient in gradients),
        "the gradient reaches the attacker",
    )
    _promise(all(bool(g.isfinite().all()) for g in gradients), "the gradient is finite")
    frozen = [*system.target.model.parameters(), *system.reference.model.parameters()]
    _promise(all(p.grad is None for p in frozen), "target and reference take no gradient")
    system.attacker.model.zero_grad(set_to_none=True)
    return float(loss.detach())


def _check_turn(node: Node) -> None:
    num_tokens = len(node.probe_ids)
    _promise(num_tokens > 0, "a probe has tokens")
    _promise(len(node.probe_logprobs) == num_tokens, "a log-probability per probe token")
    _promise(len(node.probe_mask) == num_tokens, "a mask per probe token")
    _promise(len(node.context_ids) > 0, "a probe has a context")
    if not node.has_failed:
        _promise(len(node.response_texts) == len(node.response_scores) > 0, "a score per reply")
        _promise(all(0.0 <= s <= 1.0 for s in node.response_scores), "scores lie in [0, 1]")
        _promise(0.0 <= node.score <= 1.0, "the score of a turn lies in [0, 1]")


def _graphs(system: System) -> list[Graph]:
    reward = AdversarialReward(AdversarialReward.Options())
    options = TreeSampler.Options(tree_width=3, tree_depth=2, num_responses=2)
    prompts = tiny_prompts(3)
    sampler = TreeSampler(options, system=system, prompts=prompts, reward=reward, seed=_SEED)
    return sampler.roll_out(prompts, iteration=0)


def _rewarded_graphs(system: System) -> list[Graph]:
    return AdversarialReward(AdversarialReward.Options(novelty_weight=1.0)).assign(_graphs(system))


def _failed_graph() -> Graph:
    reason = "TargetError: no answer"
    return tiny_graph(tiny_node(0.0, failure=reason), tiny_node(0.0, failure=reason))


def _unrewarded(graph: Graph) -> str:
    def plain(node: Node) -> Node:
        probe = replace(node.probe, novelty=0.0)
        return replace(node, probe=probe, reward=0.0, children=tuple(map(plain, node.children)))

    # Spelled out, because NaN, the score of a turn that failed, does not equal itself.
    return repr(replace(graph, children=tuple(map(plain, graph.children))))


def _texts(graphs: Iterable[Graph]) -> list[str]:
    return [repr(graph) for graph in graphs]


def _spoken(graphs: Iterable[Graph]) -> list[list[tuple[Any, ...]]]:
    return [
        [(node.path, node.context_ids, node.probe_ids, node.response_ids) for node in graph.nodes()]
        for graph in graphs
    ]


def _weights(system: System) -> list[Tensor]:
    models = (system.attacker, system.target, system.reference)
    return [p.detach().clone() for model in models for p in model.model.parameters()]


def _gradients(system: System) -> list[Tensor]:
    return [p.grad for p in system.attacker.model.parameters() if p.grad is not None]


def _equal(some: Sequence[Tensor], others: Sequence[Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(some, others, strict=True))


def _close(value: float, other: float) -> bool:
    return math.isclose(value, other, rel_tol=1e-4, abs_tol=1e-5)


def _promise(holds: bool, promise: str) -> None:
    """Raises unless the promise holds; not an ``assert``, which ``python -O`` removes."""
    if not holds:
        msg = f"broken promise: {promise}"
        raise AssertionError(msg)
