"""Mutation run: is every rule of the mathematics held by a test that notices when it is broken?

``make mutants`` changes one thing at a time in the modules that ``[tool.mutmut]`` names, runs the
tests that reach it, and fails if fewer than ``LEAST`` of the changes are noticed or one that is not
lacks a reason in ``survivors.yaml``. With patterns of mutants' names it tries those alone, on top
of what the last run found, and judges nothing.
"""

import json
import shutil
import subprocess
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
SURVIVORS = Path(__file__).with_name("survivors.yaml")
LEAST = 0.9
# Virtual memory in KiB: a change that makes a loop append for ever would take all there is.
MOST_MEMORY = 8 << 20
# A change that makes a test run for ever is noticed as well.
NOTICED = ("killed", "timeout")


@dataclass(frozen=True, order=True)
class Change:
    """What a mutant does: lines of one function, stripped, before and after."""

    path: str
    function: str
    was: str
    becomes: str

    def __str__(self) -> str:
        """As a diff that a person reads."""
        lines = [f"- {line}" for line in self.was.splitlines()]
        lines += [f"+ {line}" for line in self.becomes.splitlines()]
        return "\n    ".join([f"{self.path}: {self.function}", *lines])


@dataclass(frozen=True)
class Outcome:
    """What came of a mutant; the change is looked up only for those that nobody noticed."""

    path: str
    status: str
    change: Change | None

    @property
    def is_noticed(self) -> bool:
        """True if a test failed."""
        return self.status in NOTICED


def settings() -> dict[str, Any]:
    """What pyproject.toml tells mutmut."""
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    found: dict[str, Any] = tomllib.loads(text)["tool"]["mutmut"]
    return found


def modules() -> list[str]:
    """Patterns of the files that are changed."""
    return list(settings()["only_mutate"])


def explained(path: Path = SURVIVORS) -> dict[Change, str]:
    """The survivors that have a reason, with it.

    The file is a tree: module, function, then entries of ``was``, ``becomes`` (one or several) and
    ``why``.
    """
    found: dict[Change, str] = {}
    tree: dict[str, Any] = yaml.safe_load(path.read_text("utf-8")) or {}
    for module, functions in tree.items():
        for function, entries in functions.items():
            for entry in entries:
                variants = entry["becomes"]
                for becomes in variants if isinstance(variants, list) else [variants]:
                    change = Change(module, function, entry["was"].strip(), becomes.strip())
                    found[change] = entry["why"]
    return found


def run(patterns: Sequence[str] = (), *, root: Path = ROOT, workers: int = 2) -> int:
    """The exit status of mutmut; without patterns nothing of an earlier run is kept."""
    if not patterns:
        shutil.rmtree(root / "mutants", ignore_errors=True)
    (root / "mutants").mkdir(exist_ok=True)
    program = Path(sys.executable).with_name("mutmut")
    limited = ["sh", "-c", f'ulimit -v {MOST_MEMORY}; exec "$0" "$@"']
    command = [*limited, str(program), "run", "--max-children", str(workers), *patterns]
    with (root / "mutants/mutmut.log").open("w", encoding="utf-8") as log:
        return subprocess.run(command, cwd=root, stdout=log, stderr=log, check=False).returncode


def outcomes(root: Path = ROOT) -> list[Outcome]:
    """Everything that was tried, module by module."""
    # Beside the reading of pages and lists, which needs no mutmut.
    from mutmut.stats import status_by_exit_code

    found = []
    for meta in sorted((root / "mutants").rglob("*.py.meta")):
        path = meta.relative_to(root / "mutants").as_posix().removesuffix(".meta")
        codes = json.loads(meta.read_text("utf-8"))["exit_code_by_key"]
        for name, code in codes.items():
            status = status_by_exit_code[code]
            change = None if status in NOTICED else change_of(name, path, root=root)
            found.append(Outcome(path, status, change))
    return found


def change_of(name: str, path: str, *, root: Path = ROOT) -> Change:
    """What the mutant of this name does."""
    import os

    from mutmut.mutation.diff_apply import get_diff_for_mutant
    from mutmut.utils.format_utils import orig_function_and_class_names_from_key

    function, owner = orig_function_and_class_names_from_key(name)
    before = Path.cwd()
    os.chdir(root)
    try:
        lines = get_diff_for_mutant(name, path=path).splitlines()[2:]
    finally:
        os.chdir(before)
    was, becomes = (
        "\n".join(line[1:].strip() for line in lines if line.startswith(sign)) for sign in "-+"
    )
    return Change(path, f"{owner}.{function}" if owner else function, was, becomes)


def table(found: Sequence[Outcome]) -> Iterator[str]:
    """Rows of module, changes, noticed and share, with their sum."""
    total = Counter(outcome.path for outcome in found)
    noticed = Counter(outcome.path for outcome in found if outcome.is_noticed)
    yield "| module | changes | noticed | share |"
    yield "| --- | ---: | ---: | ---: |"
    for path in sorted(total):
        share = noticed[path] / total[path]
        yield f"| `{path}` | {total[path]} | {noticed[path]} | {share:.1%} |"
    share = score(found)
    yield f"| all | {total.total()} | {noticed.total()} | {share:.1%} |"


def score(found: Sequence[Outcome]) -> float:
    """Share of the changes that a test noticed; 0 if there was none."""
    return sum(outcome.is_noticed for outcome in found) / len(found) if found else 0.0


def unexplained(found: Sequence[Outcome], reasons: dict[Change, str]) -> list[Outcome]:
    """The changes that no test noticed and nobody gave a reason for."""
    return [one for one in found if one.change is not None and one.change not in reasons]


def report(found: Sequence[Outcome], reasons: dict[Change, str]) -> int:
    """Prints the counts and what is open; the exit status."""
    print("\n".join(table(found)))
    survivors = {outcome.change for outcome in found if outcome.change is not None}
    for change in sorted(set(reasons) - survivors):
        print(f"noticed today, its reason can go:\n  {change}")
    unasked = unexplained(found, reasons)
    for outcome in unasked:
        print(f"{outcome.status}, without a reason in {SURVIVORS.name}:\n  {outcome.change}")
    print(f"{score(found):.1%} noticed, at least {LEAST:.0%} must be; ", end="")
    print(f"{len(survivors)} survivors, {len(unasked)} without a reason")
    return int(score(found) < LEAST or bool(unasked))


def main(patterns: Sequence[str]) -> int:
    """Runs and judges."""
    status = run(patterns)
    if status:
        print((ROOT / "mutants/mutmut.log").read_text("utf-8")[-3000:], file=sys.stderr)
        return status
    return report(outcomes(), explained())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
