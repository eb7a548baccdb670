"""Rollouts of the demonstration's chat model against batched ``generate``, on one thread.

``python -m benchmarks chat_rollout`` needs the model of ``make my/smollm2``. Both ways write,
score under the reference and answer as many probes, all of full length, at the preset's settings in
fp32, in turn. The plain way reads every context from its start, 16 rows at a time.
"""

import csv
import tempfile
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any

import torch

from astra_core.config import MachineConfiguration
from astra_core.models.language_model import LanguageModel
from astra_core.models.rows import pad_rows, padded_logprobs
from astra_core.rollout import Prompt
from astra_core.sampler import Sampler
from astra_parts.arguments import LineParser, at_least_one
from astra_parts.assembly import ModelFolders, build_sampler, load_system
from benchmarks.copies import copy_project
from benchmarks.figures import cost_table
from benchmarks.measures.chat import MODEL, own_model
from benchmarks.reference.plain import target_of
from benchmarks.reference.plain_passes import plain_generate
from benchmarks.timing import Effort, Way, costs
from tasks.params.schema import Params, read_params

ROWS = 16
LENGTHS = {"probe": 24, "response": 16}
"""Tokens of the preset's probes and replies."""
SECRET = "MARIGOLD"  # noqa: S105 - of the demonstration's target


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status, after both ways have run and their times are printed."""
    parser = LineParser(prog="python -m benchmarks chat_rollout", description=__doc__)
    parser.add_argument("--prompts", type=at_least_one, default=4)
    parser.add_argument("--repetitions", type=at_least_one, default=3)
    asked = parser.parse_args(arguments)
    params = _params()
    with Path(params.prompts.path or "").open(encoding="utf-8") as file:
        rows = [row for row, _ in zip(csv.DictReader(file), range(asked.prompts), strict=False)]
    prompts = [Prompt.of(row["text"], {"kept": row["kept"], "secret": SECRET}) for row in rows]
    folders = ModelFolders(MODEL, MODEL, MODEL)
    system = load_system(
        params.system, folders, machine=MachineConfiguration(device="cpu", num_threads=1)
    )
    sampler = build_sampler(params.rollouts, params.reward, system=system, prompts=prompts, seed=0)
    iterations = count(1)
    plain = _PlainRollout(params, sampler, prompts)
    effort = Effort(threads=1, repetitions=asked.repetitions)
    found = costs(
        [
            Way(
                "ours",
                lambda: sampler.roll_out(prompts, iteration=next(iterations)),
                asked.repetitions,
                plain.num_tokens,
            ),
            Way("generate", plain, asked.repetitions, plain.num_tokens, is_ours=False),
        ],
        effort,
    )
    print(cost_table("rollout of the demonstration, seconds per token", found, threads=1))
    ours, theirs = found
    print(f"\nratio: {theirs.wall_s / ours.wall_s:.1f}")
    return 0


def _params() -> Params:
    """The preset's, in fp32, with probes and replies of full length."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        full = [f"system.{role}.min_new_tokens={size}" for role, size in LENGTHS.items()]
        copy_project(folder, "system.precision=fp32", *full, *own_model(), preset="demo")
        return read_params(folder / "params.yaml")


class _PlainRollout:
    """Writes a probe for each row and answers it, by transformers' ``generate``."""

    def __init__(self, params: Params, sampler: Sampler, prompts: Sequence[Prompt]) -> None:
        self._params, self._system = params, sampler.system
        width = params.rollouts.sampler.options["tree_width"]
        self._rows = [
            (graph.prompt, graph.children[0].context.token_ids)
            for graph in sampler.roll_out(prompts, iteration=0)
            for _ in range(width)
        ]
        self.num_tokens = len(self._rows) * sum(LENGTHS.values())

    def __call__(self) -> None:
        system = self._system
        target = target_of(system)
        for start in range(0, len(self._rows), ROWS):
            rows = self._rows[start : start + ROWS]
            contexts = [context for _, context in rows]
            probes = plain_generate(system.attacker, contexts, system.config.probe)
            with torch.no_grad():
                padded_logprobs(system.reference.model, pad_rows(contexts, probes, pad_id=0))
            told = [
                self._target_context(target, prompt, system.attacker.decode(probe))
                for (prompt, _), probe in zip(rows, probes, strict=True)
            ]
            plain_generate(target, told, system.config.response)

    def _target_context(self, target: LanguageModel, prompt: Prompt, probe: str) -> Any:
        told = self._params.system.target.options["system_prompt"].format(**prompt.metadata)
        messages = [{"role": "system", "content": told}, {"role": "user", "content": probe}]
        return target.tokenizer.apply_chat_template(
            messages, add_generation_prompt=True, return_dict=False
        )
