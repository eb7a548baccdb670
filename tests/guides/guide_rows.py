"""The rows of the guides' table: what a guide promises, and what our tests of it say."""

import importlib.util
import re
import sys
import tomllib
from dataclasses import dataclass
from functools import cache
from inspect import signature
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "coming-from.md"
MODULES = (
    "test_astra_rl",
    "test_astra_rl_parts",
    "test_astra_rl_trainers",
    "test_nexrl",
    "test_nexrl_rewards",
    "test_nip",
    "test_nip_agents",
    "test_scripts",
    "test_pipeline_loops",
    "test_pipeline_parts",
    "test_pipeline_rollouts",
    "test_pipeline_state",
)
# The last row of each guide.
GUIDES = {"ASTRA-RL": 39, "NexRL": 68, "NIP": 88}
WAYS = ("script", "pipeline")
# Fixtures that run ``python -m tasks training``.
STAGES = frozenset({"pipeline", "both"})
MARKS = ("<!-- rows:begin (rendered by python -m tests.guides) -->", "<!-- rows:end -->")


@dataclass(frozen=True)
class Shown:
    """One test of a row: its name, what it says of the row, where, and why it does not hold."""

    number: int
    title: str
    way: str
    test: str
    missing: str

    @property
    def guide(self):
        """The guide that has the row."""
        return next(name for name, last in GUIDES.items() if self.number <= last)


@cache
def shown():
    """Every test that shows a row, in the order of the rows."""
    found = []
    for module in MODULES:
        for name, test in vars(_loaded(module)).items():
            marks = getattr(test, "pytestmark", []) if name.startswith("test_") else []
            missing = "; ".join(m.kwargs["reason"] for m in marks if m.name in {"xfail", "skip"})
            for mark in (m for m in marks if m.name == "row"):
                number, title = mark.args[0], "".join(mark.args[1:])
                way = "pipeline" if STAGES & signature(test).parameters.keys() else "script"
                found.append(Shown(number, title, way, name, missing))
    return sorted(found, key=lambda each: each.number)


def status(tests):
    """Y where a row holds in a script and in the pipeline, N where it holds in neither, else P."""
    holds = [all(not each.missing for each in tests if each.way == way) for way in WAYS]
    shown = [any(each.way == way for each in tests) for way in WAYS]
    known = [own and there for own, there in zip(holds, shown, strict=True)]
    return "Y" if all(known) else "P" if any(known) else "N"


def lines(*, is_whole):
    """How many rows work, then those that do not wholly, or all of them, by guide."""
    every = shown()
    rows = {number: [each for each in every if each.number == number] for number in range(1, 89)}
    found = {number: status(tests) for number, tests in rows.items()}
    counts = {letter: sum(own == letter for own in found.values()) for letter in "YPN"}
    yield f"{counts['Y']} work (Y), {counts['P']} work in part (P), {counts['N']} do not yet (N)."
    for number, tests in rows.items():
        title = next(each.title for each in tests if each.title)
        told = "; ".join([found[number], *sorted({own.missing for own in tests if own.missing})])
        if is_whole or told != "Y":
            yield f"- {tests[0].guide} {number}: {title} ({told})"


def rendered(page):
    """The page with the table of today's tests."""
    begin, end = map(re.escape, MARKS)
    whole = f"{MARKS[0]}\n{chr(10).join(lines(is_whole=False))}\n{MARKS[1]}"
    return re.sub(f"{begin}.*?{end}", lambda _: whole, page, flags=re.DOTALL)


def _loaded(name):
    """The test file as a module, imported as pytest would."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    for folder in settings["tool"]["pytest"]["ini_options"]["pythonpath"]:
        path = str((ROOT / folder).resolve())
        if path not in sys.path:
            sys.path.append(path)
    spec = importlib.util.spec_from_file_location(
        f"rows_of_{name}", Path(__file__).parent / f"{name}.py"
    )
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module
