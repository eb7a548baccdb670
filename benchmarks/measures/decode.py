"""Tokens per second of decoding: ours, transformers' ``generate``, and the machine's limit.

``python -m benchmarks decode`` prints them. The time of a step is the difference between sampling
many tokens and sampling one, per token more: reading the prompt is not in it.
"""

import statistics
from collections.abc import Callable

from astra_core.config import GenerationConfiguration
from astra_core.models.language_model import LanguageModel
from astra_core.seeding import derive_key
from benchmarks.figures import Figure, Report
from benchmarks.limits import Machine, decoding_work
from benchmarks.reference.plain_passes import Ids, plain_generate
from benchmarks.shapes import SEED, Shape, language_model, prompts
from benchmarks.timing import Effort, seconds, threads
from tasks.machine.tables import markdown

BATCH_SIZES = (1, 16, 64)
_GIGA = 1e9

Speaker = Callable[[list[Ids], GenerationConfiguration], object]


def report(shape: Shape, effort: Effort) -> Report:
    """Tokens per second by batch size, and their share of the machine's limit."""
    model = language_model(shape, seed=SEED + 1)
    with threads(effort.threads):
        machine = Machine.measured()
        rows = [_row(shape, effort, model, machine, size) for size in BATCH_SIZES]
    header = ("batch", "ours, tokens/s", "share of limit", "generate, tokens/s", "share of limit")
    return Report(
        tables=[
            markdown(
                (f"decoding of {shape.name}: {header[0]}", *header[1:], "limit, tokens/s"), rows
            )
        ],
        figures=[
            Figure("read bandwidth", machine.bytes_per_s / _GIGA, "GB/s"),
            Figure("fp32 matrix product", machine.flops_per_s / _GIGA, "GFLOP/s"),
            *split_figures(machine),
        ],
    )


def split_figures(machine: Machine) -> list[Figure]:
    """The rate of products computed as three of bf16; nothing if the processor does not do so."""
    if not machine.split_flops_per_s:
        return []
    return [Figure("the same as three of bf16", machine.split_flops_per_s / _GIGA, "GFLOP/s")]


def _row(
    shape: Shape, effort: Effort, model: LanguageModel, machine: Machine, size: int
) -> tuple[str, ...]:
    own, other = _medians_s(shape, effort, model, size)
    context = shape.prompt_tokens + shape.new_tokens // 2
    work = decoding_work(model.model, shape, batch_size=size, context_tokens=context)
    limit = machine.seconds(work)
    cells = [text for x in (own, other) for text in (f"{size / x:.0f}", f"{limit / x:.0%}")]
    return (str(size), *cells, f"{size / limit:.0f}")


def _medians_s(
    shape: Shape, effort: Effort, model: LanguageModel, size: int
) -> tuple[float, float]:
    """Seconds of a step, ours and of ``generate``, which take turns."""
    contexts = [model.closed_ids(model.encode(prompt.text)) for prompt in prompts(shape, size)]
    keys = [[derive_key(SEED, "decode", row)] for row in range(size)]

    def ours(asked: list[Ids], generation: GenerationConfiguration) -> object:
        return model.continuations(asked, keys, generation)

    def theirs(asked: list[Ids], generation: GenerationConfiguration) -> object:
        return plain_generate(model, asked, generation)

    own, other = [], []
    for _ in range(effort.plain_repetitions):
        # As in a rollout, weights are packed once; nothing else is kept from call to call.
        with model.remembering(0):
            own.append(_step_s(shape, ours, contexts))
        other.append(_step_s(shape, theirs, contexts))
    return statistics.median(own), statistics.median(other)


def _step_s(shape: Shape, speaker: Speaker, contexts: list[Ids]) -> float:
    """Seconds of one token for each context."""
    short, long = (
        shape.generation.model_copy(update={"max_new_tokens": n, "min_new_tokens": n})
        for n in (1, shape.new_tokens + 1)
    )
    least = seconds(lambda: speaker(contexts, short))
    return (seconds(lambda: speaker(contexts, long)) - least) / shape.new_tokens
