"""Updates and rollouts on a GPU, for ``benchmarks.measures.gpu``."""

import random
from collections.abc import Callable, Sequence
from typing import Any

import torch

from astra_core.config import (
    AlgorithmChoice,
    Choice,
    Section,
    SystemConfiguration,
    TrainingConfiguration,
)
from astra_core.errors.exception_text import error_line
from astra_core.models.language_model import LanguageModel
from astra_core.registry import build
from astra_core.rollout import Context, Graph, Node, Probe, Prompt, Replies
from astra_core.system import System
from astra_core.training.distribution.distributed import World
from astra_core.training.harness import Experience, Harness
from astra_core.training.update import Updates
from benchmarks.cards import NEW_TOKENS, PROMPT_TOKENS, Card, Size
from benchmarks.shapes import DigestScorer

_ROWS = 64
_BETA = 0.1
# Too small to move a weight, so that every repetition does the same.
_NO_STEP = 1e-12
_REPLY_TOKENS = 32


def updates(card: Card, size: Size) -> None:
    """Tokens per second of DPO and GRPO, and of a plain loop of the same loss."""
    trained = size.language_model(card.device, is_trained=True)
    pairs, groups = (_graphs(size, trained, width) for width in (2, 4))
    for compiles in card.compiles:
        way = "ours, compiled" if compiles else "ours"
        for name, graphs in (("dpo", pairs), ("grpo", groups)):
            call = _ours(trained, graphs, name, compiles=compiles)
            _line(card, size, f"{way}, {name}", call, trained)
    for compiles in card.compiles:
        way = "plain loop, compiled" if compiles else "plain loop"
        _line(card, size, f"{way}, dpo", _plain(trained, pairs, compiles=compiles), trained)


def _line(
    card: Card, size: Size, way: str, made: Callable[[], Callable[[], float]], model: LanguageModel
) -> None:
    if card.is_over:
        card.add("updates", model=size.name, way=way, failed="no time left")
        return
    card.free()
    try:
        once = made()
        first = card.time(once)
        losses: list[float] = []
        least = card.time(lambda: losses.append(once()), 3)
    except Exception as error:  # noqa: BLE001  # the other lines count too
        card.add("updates", model=size.name, way=way, failed=error_line(error))
        return
    work = size.update_flops(model.num_parameters, _ROWS)
    card.add(
        "updates",
        model=size.name,
        way=way,
        update_s=round(least, 4),
        tokens_per_s=round(_ROWS * (PROMPT_TOKENS + NEW_TOKENS) / least),
        mfu=round(work / least / card.flops_per_s, 3),
        first_s=round(first, 1),
        peak_gib=round(card.peak_gib(), 1),
        loss=round(losses[-1], 5),
    )


def _graphs(size: Size, model: LanguageModel, width: int) -> list[Graph]:
    """Trees of one turn; log-probabilities of the reference are the model's, moved a little."""
    numbers = random.Random(0)  # no secret

    def ids(count: int) -> tuple[int, ...]:
        return tuple(numbers.randrange(1, size.vocabulary) for _ in range(count))

    contexts = [ids(PROMPT_TOKENS) for _ in range(_ROWS // width)]
    probes = [ids(NEW_TOKENS) for _ in range(_ROWS)]
    told = model.continuation_logprobs(
        [contexts[row // width] for row in range(_ROWS)], probes, tokens_per_batch=1 << 14
    )
    nodes = [
        Node(
            (row % width,),
            Context(contexts[row // width]),
            Probe(
                "x",
                own,
                logprobs,
                (True,) * NEW_TOKENS,
                tuple(value + 0.05 * numbers.gauss(0, 1) for value in logprobs),
            ),
            Replies(("y",), (0.5,)),
            reward=numbers.random() + (row % width == 0),
        )
        for row, (own, logprobs) in enumerate(zip(probes, told, strict=True))
    ]
    return [
        Graph(Prompt(f"{at:016x}", "x"), 0, tuple(nodes[at * width : (at + 1) * width]))
        for at in range(len(contexts))
    ]


def _ours(
    trained: LanguageModel, graphs: Sequence[Graph], name: str, *, compiles: bool
) -> Callable[[], Callable[[], float]]:
    def made() -> Callable[[], float]:
        system = System.of(
            trained,
            trained,
            trained,
            scorer=DigestScorer(Section()),
            config=SystemConfiguration(max_context_tokens=900),
        )
        options = {"margin": 0.0, "beta": _BETA} if name == "dpo" else {}
        choice = AlgorithmChoice(name=name, options=options)
        config = TrainingConfiguration(
            algorithm=choice,
            lr=_NO_STEP,
            batch_size=_ROWS // 2 if name == "dpo" else _ROWS,
            compile=compiles,
            optimizer=Choice(name="adamw", options={"weight_decay": 0.0}),
        )
        algorithm = build("algorithm", choice, system=system)
        own = Updates(config, algorithm, trained, world=World())
        sampler = build(
            "sampler",
            Choice(name="tree", options={"tree_width": 2, "tree_depth": 1, "num_responses": 1}),
            system=system,
            prompts=[graph.prompt for graph in graphs],
            reward=build("reward", Choice(name="adversarial")),
            seed=0,
        )
        harness = Harness(sampler, algorithm, num_episodes=len(graphs), shuffle="trees")
        steps = algorithm.flatten_all(graphs)
        experience = Experience(0, tuple(graphs), tuple(steps), {}, 0.0)

        def once() -> float:
            window = list(harness.batches(experience, epoch=0, batch_size=config.batch_size))
            return own.apply(window, training_step=0).loss

        return once

    return made


def _plain(
    trained: LanguageModel, graphs: Sequence[Graph], *, compiles: bool
) -> Callable[[], Callable[[], float]]:
    """A loop over transformers' own parts, under autocast, all pairs in one pass."""

    def made() -> Callable[[], float]:
        model: Any = trained.model
        model.set_attn_implementation("sdpa")
        body = torch.compile(model.base_model) if compiles else model.base_model
        own = [sorted(graph.children, key=lambda node: -node.reward) for graph in graphs]
        nodes = [node[0] for node in own] + [node[-1] for node in own]
        device = trained.device
        ids = torch.tensor([node.context_ids + node.probe_ids for node in nodes], device=device)
        known = torch.tensor([node.reference_logprobs for node in nodes], device=device)
        optimizer = torch.optim.AdamW(
            model.parameters(), lr=_NO_STEP, weight_decay=0.0, fused=device.type == "cuda"
        )

        def scored(states: torch.Tensor) -> torch.Tensor:
            logits = model.lm_head(states).float()
            labels = ids[:, PROMPT_TOKENS:, None]
            found: torch.Tensor = logits.gather(2, labels)[..., 0] - logits.logsumexp(dim=-1)
            return found

        head = torch.compile(scored) if compiles else scored

        def once() -> float:
            with torch.autocast(device.type, dtype=torch.bfloat16):
                states = body(input_ids=ids, use_cache=False).last_hidden_state
                found = head(states[:, PROMPT_TOKENS - 1 : -1])
            better, worse = (found - known).sum(dim=1).chunk(2)
            loss = -torch.nn.functional.logsigmoid(_BETA * (better - worse)).mean()
            loss.backward()  # type: ignore[no-untyped-call]
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            return float(loss.detach())

        return once

    return made


def rollouts(card: Card, size: Size) -> None:
    """New tokens per second of whole trees: attacker, target, reference and scorer."""
    if card.is_over:
        card.add("rollouts", model=size.name, failed="no time left")
        return
    attacker = size.language_model(card.device, is_trained=True)
    target = size.language_model(card.device, seed=1)
    try:
        _trees(card, size, attacker, target)
    except Exception as error:  # noqa: BLE001  # the other lines count too
        card.add("rollouts", model=size.name, failed=error_line(error))


def _trees(card: Card, size: Size, attacker: LanguageModel, target: LanguageModel) -> None:
    from astra_core.config import GenerationConfiguration

    short = GenerationConfiguration(max_new_tokens=_REPLY_TOKENS, min_new_tokens=_REPLY_TOKENS)
    system = System.of(
        attacker,
        target,
        target,
        scorer=DigestScorer(Section()),
        config=SystemConfiguration(probe=short, response=short, max_context_tokens=900),
    )
    last = size.vocabulary - 1
    prompts = [
        Prompt(
            f"{row:016x}",
            " ".join(f"w{(7919 * row + 31 * at) % last}" for at in range(PROMPT_TOKENS - 1)),
        )
        for row in range(size.prompts)
    ]
    sampler = build(
        "sampler",
        Choice(name="tree", options={"tree_width": 4, "tree_depth": 2, "num_responses": 3}),
        system=system,
        prompts=prompts,
        reward=build("reward", Choice(name="adversarial")),
        seed=0,
    )
    sampler.roll_out(prompts, iteration=1)
    grown: list[Graph] = []
    spent = card.time(lambda: grown.extend(sampler.roll_out(prompts, iteration=0)))
    nodes = [node for graph in grown for node in graph.nodes()]
    count = sum(len(node.probe_ids) + sum(map(len, node.response_ids)) for node in nodes)
    card.add(
        "rollouts",
        model=size.name,
        trees=len(grown),
        new_tokens=count,
        seconds=round(spent, 2),
        tokens_per_s=round(count / spent),
        tokens_per_batch=system.config.tokens_per_batch,
        peak_gib=round(card.peak_gib(), 1),
    )
