"""``python -m tasks.hardening.step STEP ROUND FOLDER``: one step of a hardening, in a process."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from astra_parts.arguments import whole_number
from tasks.hardening.learning import train_target
from tasks.hardening.measures import measure
from tasks.hardening.pairs import write_pairs
from tasks.hardening.places import HardeningPlace
from tasks.machine.console import Parser, complain, say
from tasks.machine.environment import set_up_process
from tasks.machine.garbage import collect_rarely
from tasks.machine.parents import end_group_with_parent
from tasks.machine.privacy import keep_private
from tasks.params.checks import check_params
from tasks.params.schema import read_params
from tasks.pipeline import failures
from tasks.pipeline.precision import advise
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
    keep_private()
    failures.clear_failure(NAME)
    failures.stop_on_terminate()
    end_group_with_parent()
    try:
        params = read_params()
        set_up_process(params)
        check_params(params)
        advise(params)
        told = STEPS[asked.step](asked.number, HardeningPlace(asked.folder, params))
    except BaseException as error:  # noqa: BLE001 - the boundary; sys.exit is no success
        plain = failures.plain(error)
        failure = failures.failure_of(plain)
        failures.write_failure(failure, NAME)
        for line in failure.message.splitlines():
            complain(f"error: {line}")
        return failures.exit_status(plain)
    say(f"{NAME:<13}{told}")
    return 0


if __name__ == "__main__":
    failures.leave(main())
