"""Every promise of the README is held by a test that is named in promises.yaml, with its tier."""

import ast
import re
from pathlib import Path

import pytest
import quick_tier
import yaml
from pages import ROOT, blocks, prose

TESTS = ROOT / "tests"
LIST = yaml.safe_load((Path(__file__).parent / "promises.yaml").read_text("utf-8"))
TIERS = ("quick", "real", "wide")


def _statements() -> list[str]:
    """The commands and sentences of the README; titles, tables and the list of pages are none."""
    page = ROOT / "README.md"
    found = [line for block in blocks(page, "bash") for line in block.splitlines() if line]
    text = re.sub(r"<!--.*?-->|^#.*?$", "", prose(page), flags=re.DOTALL | re.MULTILINE)
    for part in re.split(r"\n\s*\n|\n(?=[-|#>] ?)", text):
        whole = " ".join(part.split()).removeprefix("> ").removeprefix("- ")
        if whole and not whole.startswith(("|", "[")):
            found += re.split(r"(?<=[.:!?])\s+(?=[A-Z*\[])", whole)
    return found


def test_every_statement_of_the_readme_is_a_promise_with_a_test_or_none():
    known = [entry["says"] for entry in LIST["promises"]] + LIST["no_promise"]
    statements = _statements()

    assert [] == [each for each in statements if not any(words in each for words in known)]
    assert [] == [words for words in known if not any(words in each for each in statements)]


def test_the_tests_of_a_promise_are_there_in_the_tier_that_it_names():
    wrong = [
        f"{entry['says']}: {tier} {name}"
        for entry in LIST["promises"]
        for tier in TIERS
        for name in entry.get(tier, ())
        if tier not in _tiers(name)
    ]
    untested = [entry["says"] for entry in LIST["promises"] if not set(TIERS) & set(entry)]

    assert [] == wrong
    assert [] == untested


def _tiers(name: str) -> set[str]:
    """The tiers of a test, or of those in a file, by their marks."""
    file, _, function = name.partition("::")
    if not (TESTS / file).exists():
        return set()
    tree = ast.parse((TESTS / file).read_text("utf-8"))
    of_file = _marks(
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark"
    )
    return {
        next((tier for tier in ("wide", "real") if tier in marks | of_file), "quick")
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
        if function in {"", node.name}
        for marks in [_marks(node.decorator_list)]
    }


def _marks(nodes) -> set[str]:
    return set(re.findall(r"mark\.(real|wide)", " ".join(map(ast.unparse, nodes))))


def test_every_tier_has_its_command():
    makefile = (ROOT / "Makefile").read_text("utf-8")
    chosen = dict(re.findall(r"^(test[\w-]*): dev\n\t.*?pytest(.*)$", makefile, re.MULTILINE))

    assert "-m" not in chosen["test"].split()
    assert '-m "not wide and not gpu"' in chosen["test-real"]
    assert '-m "not gpu"' in chosen["test-all"]


@pytest.mark.parametrize(
    ("event", "said"),
    [
        (("subprocess.Popen", ("/usr/bin/python3.11", ["python3.11"], None, None)), "starts"),
        (("os.fork", ()), "starts"),
        (("sqlite3.connect", ("/somewhere/mlflow.db",)), "keeps a store"),
    ],
)
def test_a_quick_test_that_breaks_its_promise_fails(event, said, request):
    quick_tier.note(*event)

    with pytest.raises(pytest.fail.Exception, match=said):
        quick_tier.check(request.node)
    quick_tier.begin()
