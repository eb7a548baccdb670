"""A GPU: decoding, updates and rollouts, as shares of what the card can do and beside plain ways.

``python -m benchmarks gpu`` takes under five minutes. Random models of Qwen2's 0.5 B and 1.5 B
shapes read 64 tokens and draw 128 more; an update learns from 32 pairs of such rows. The time of a
step is the difference of a long and a short run, so that reading the contexts is not in it. Shares
are of the rates of a copy and of a large bf16 product, measured in the same run. ``--tiny`` tries
every line with small models on any device.

The last line is everything in JSON. The status is 1 if ways to one result differ.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from astra_core.config import GenerationConfiguration
from astra_core.errors.exception_text import error_line
from astra_core.models.language_model import LanguageModel
from astra_core.models.rows import pad_rows, padded_logprobs
from astra_core.models.utterances import Utterance
from astra_core.seeding import derive_key
from astra_parts.arguments import LineParser
from benchmarks.cards import NEW_TOKENS, SHORT, SIZES, TINY, Card, Size, largest_gap
from benchmarks.measures.gpu_updates import rollouts, updates
from tasks.machine.tables import markdown

PARTS: dict[str, Callable[[Card, Size], None]] = {}
# Nats; bf16 has eight bits, and random models differ by whole ones where something is wrong.
_TOLERANCE = 0.25


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints the tables; the exit status is 1 where results that should be equal are not."""
    parser = LineParser(prog="python -m benchmarks gpu", description=__doc__)
    parser.add_argument("--only", choices=PARTS, action="append", help="by default all")
    parser.add_argument("--size", choices=[size.name for size in SIZES], action="append")
    parser.add_argument("--tiny", action="store_true", help="small models, on any device")
    parser.add_argument("--uncompiled", action="store_true", help="no line that is compiled")
    parser.add_argument("--seconds", type=float, default=270.0, help="no line begins later")
    asked = parser.parse_args(arguments)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device.type == "cpu" and not asked.tiny:
        parser.error("a CUDA device must be there, got none; --tiny tries the lines without one")
    torch.use_deterministic_algorithms(mode=True, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]
    card = Card.measured(device, seconds=asked.seconds, is_tiny=asked.tiny)
    card.compiles = (False,) if asked.uncompiled else (False, True)
    sizes = [size for size in SIZES if size.name in (asked.size or [size.name])]
    for size in [TINY] if asked.tiny else sizes:
        for part in asked.only or PARTS:
            PARTS[part](card, size)
            card.free()
    return _told(card)


def _told(card: Card) -> int:
    rates = f"{card.bytes_per_s / 1e12:.2f} TB/s, {card.flops_per_s / 1e12:.0f} TFLOP/s in bf16"
    print(f"\n{card.name} ({rates}), torch {torch.__version__}\n")
    for table in dict.fromkeys(line["table"] for line in card.lines):
        rows = card.rows_of(table)
        header = tuple(dict.fromkeys(key for row in rows for key in row))
        print(markdown(header, [[str(row.get(key, "")) for key in header] for row in rows]))
        print()
    gaps = [line["gap"] for line in card.lines if "gap" in line]
    failed = [line for line in card.lines if "failed" in line]
    print(json.dumps({"card": card.name, "torch": torch.__version__, "lines": card.lines}))
    return int(bool(failed) or any(gap > _TOLERANCE for gap in gaps))


def decoding(card: Card, size: Size) -> None:
    """Tokens per second of ours, compiled and not, and of transformers' ``generate``."""
    speaker = size.language_model(card.device)
    for rows in size.rows:
        # Compiling takes half a minute: the larger batch shows what it gives.
        for compiles in card.compiles if rows == size.rows[-1] else (False,):
            speaker.plan = replace(speaker.plan, compiles_steps=compiles)
            speaker._steppers.clear()  # noqa: SLF001  # what was made without compiling
            way = "ours, compiled" if compiles else "ours"
            _line(card, size, way, _ours(speaker, size, rows), rows)
            card.free()
    model = size.model(card.device, dtype=torch.bfloat16)
    _line(card, size, "generate", _generate(model, size, size.rows[0]), size.rows[0])


def _line(
    card: Card,
    size: Size,
    way: str,
    ways: tuple[Callable[[int], None], Callable[[], float]],
    rows: int,
) -> None:
    run, largest_gap_of = ways
    if card.is_over:
        card.add("decoding", model=size.name, rows=rows, way=way, failed="no time left")
        return
    try:
        first = card.time(lambda: run(NEW_TOKENS))
        run(SHORT)
        short = card.time(lambda: run(SHORT), 2)
        long = card.time(lambda: run(NEW_TOKENS), 2)
        gap = largest_gap_of()
    except Exception as error:  # noqa: BLE001  # the other lines count too
        card.add("decoding", model=size.name, rows=rows, way=way, failed=error_line(error))
        return
    step = max(long - short, 1e-9) / (NEW_TOKENS - SHORT)
    weights = 2 * _num_weights(size)
    limit = (weights + rows * size.bytes_per_row()) / card.bytes_per_s
    card.add(
        "decoding",
        model=size.name,
        rows=rows,
        way=way,
        step_ms=round(1e3 * step, 2),
        tokens_per_s=round(rows / step),
        with_reading=round(rows * NEW_TOKENS / long),
        share_of_limit=round(limit / step, 3),
        first_s=round(first, 1),
        peak_gib=round(card.peak_gib(), 1),
        gap=round(gap, 4),
    )


def _num_weights(size: Size) -> int:
    with torch.device("meta"):
        return sum(
            p.numel() for p in size.model(torch.device("meta"), dtype=torch.bfloat16).parameters()
        )


def _ours(
    speaker: LanguageModel, size: Size, rows: int
) -> tuple[Callable[[int], None], Callable[[], float]]:
    """Draws so many tokens for every row, and the gap of some log-probabilities of the last."""
    contexts = size.contexts(rows)
    keys = [[derive_key(0, "gpu", row)] for row in range(rows)]

    few: list[Utterance] = []

    def run(count: int) -> None:
        generation = GenerationConfiguration(max_new_tokens=count, min_new_tokens=count)
        with speaker.remembering(1 << 30, is_bf16=True):
            found = speaker.continuations(contexts, keys, generation, tokens_per_batch=1 << 18)
        few[:] = [one.utterances[0] for one in found[:4]]

    def gap() -> float:
        given = pad_rows(
            contexts[:4], [own.token_ids for own in few], pad_id=0, device=speaker.device
        )
        with torch.no_grad():
            plain = padded_logprobs(speaker.model, given)
        return largest_gap([own.logprobs for own in few], plain.tolist())

    return run, gap


def _generate(
    model: Any, size: Size, rows: int
) -> tuple[Callable[[int], None], Callable[[], float]]:
    from transformers import GenerationConfig

    ids = torch.tensor(size.contexts(rows), device=model.device)

    def run(count: int) -> None:
        sampling = GenerationConfig(
            max_new_tokens=count,
            min_new_tokens=count,
            do_sample=True,
            top_k=0,
            eos_token_id=None,
            pad_token_id=0,
        )
        with torch.no_grad():
            model.generate(
                input_ids=ids, attention_mask=torch.ones_like(ids), generation_config=sampling
            )

    return run, lambda: 0.0


PARTS |= {"decoding": decoding, "rollouts": rollouts, "updates": updates}
