"""The rows of the guides' table: what a guide promises, and what our tests of it say."""

import importlib.util
import re
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "coming-from.md"
GUIDES = {
    "test_astra_rl": "ASTRA-RL",
    "test_astra_rl_parts": "ASTRA-RL",
    "test_nexrl": "NexRL",
    "test_nexrl_rewards": "NexRL",
    "test_nip": "NIP",
    "test_nip_agents": "NIP",
}
MARKS = ("<!-- rows:begin (rendered by python -m tests.guides) -->", "<!-- rows:end -->")


@dataclass(frozen=True)
class Shown:
    """One test of a row: its name, what it says of the row, and why it does not hold."""

    number: int
    title: str
    guide: str
    test: str
    missing: str


def shown():
    """Every test that shows a row, in the order of the rows."""
    found = []
    for module, guide in GUIDES.items():
        for name, test in vars(_loaded(module)).items():
            marks = getattr(test, "pytestmark", []) if name.startswith("test_") else []
            missing = "; ".join(m.kwargs["reason"] for m in marks if m.name in {"xfail", "skip"})
            for mark in (m for m in marks if m.name == "row"):
                number, title = mark.args[0], "".join(mark.args[1:])
                found.append(Shown(number, title, guide, name, missing))
    return sorted(found, key=lambda each: each.number)


def status(tests):
    """Y where every test of a row passes, N where none does, else P."""
    holds = [not each.missing for each in tests]
    return "Y" if all(holds) else "P" if any(holds) else "N"


def table():
    """The rows as a table of Markdown, below a line that counts them."""
    found = shown()
    rows = {number: [each for each in found if each.number == number] for number in range(1, 89)}
    found = {number: status(tests) for number, tests in rows.items()}
    counts = {letter: sum(own == letter for own in found.values()) for letter in "YPN"}
    lines = [
        f"{counts['Y']} work (Y), {counts['P']} work in part (P), {counts['N']} do not yet (N).",
        "",
        "| row | guide | what it shows | works | test, or what is missing |",
        "|---|---|---|---|---|",
    ]
    for number, tests in rows.items():
        title = next(each.title for each in tests if each.title)
        missing = sorted({each.missing for each in tests if each.missing})
        names = ", ".join(f"`{each.test}`" for each in tests if not each.missing)
        said = "; ".join([*([names] if names else []), *missing])
        lines.append(f"| {number} | {tests[0].guide} | {title} | {found[number]} | {said} |")
    return "\n".join(lines)


def rendered(page):
    """The page with the table of today's tests."""
    begin, end = map(re.escape, MARKS)
    whole = f"{MARKS[0]}\n{table()}\n{MARKS[1]}"
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
