"""``python -m tasks.hardening.step STEP ROUND FOLDER``: one step of a hardening, in a process."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from astra_parts.arguments import whole_number
from tasks.hardening.learning import train_target
from tasks.hardening.measures import measure
from tasks.hardening.pairs import write_pairs
from tasks.hardening.places import HardeningPlace
from tasks.machine.console import Parser
from tasks.machine.garbage import collect_rarely
from tasks.pipeline import failures
from tasks.pipeline.boundary import run_command
from tasks.records.hardening import NOTHING_FOUND

NAME = "hardening"


def _train(number: int, place: HardeningPlace) -> str:
    pairs = write_pairs(number, place)
    if not pairs:
        return f"target {number - 1} is the last one: {NOTHING_FOUND}"
    return f"{train_target(number, pairs, place)} learned from {len(pairs)} pairs"


def _measure(number: int, place: HardeningPlace) -> str:
    found = measure(number, place)
    last = found.rounds[-1]
    rates = [own.spelled(".1%") for own in found.success[number].values()]
    return (
        f"target {number}: attack success {', '.join(rates)}, over-refusal "
        f"{last.over_refusal.spelled('.1%')}, perplexity {last.perplexity.spelled('.2f')}"
    )


STEPS: Mapping[str, Callable[[int, HardeningPlace], str]] = {"train": _train, "measure": _measure}


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status, after the step is done and a line about it printed."""
    collect_rarely()
    parser = Parser(prog="python -m tasks.hardening.step")
    parser.add_argument("step", choices=STEPS)
    parser.add_argument("number", type=whole_number)
    parser.add_argument("folder", type=Path)
    asked = parser.parse_args(arguments)
    step = STEPS[asked.step]
    return run_command(
        NAME, lambda params: step(asked.number, HardeningPlace(asked.folder, params))
    )


if __name__ == "__main__":
    failures.leave(main())
