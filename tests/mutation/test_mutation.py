import ast
import textwrap
from functools import cache

import mutation
import pytest
from each_row import each_row
from mutation import Change, Outcome


@cache
def reasons():
    return mutation.explained()


def functions(path):
    """Source of every function and method of a file, by its name."""
    text = (mutation.ROOT / path).read_text("utf-8")
    found = {}

    def visit(body, owner=""):
        for node in body:
            if isinstance(node, ast.ClassDef):
                visit(node.body, f"{owner}{node.name}.")
            elif isinstance(node, ast.FunctionDef):
                # Whole lines, with the comment behind the last one.
                lines = text.splitlines()[node.lineno - 1 : node.end_lineno]
                found[f"{owner}{node.name}"] = "\n".join(lines)

    visit(ast.parse(text).body)
    return found


@pytest.mark.real
def test_every_explained_survivor_names_code_that_is_there():
    gone = []
    for change in reasons():
        lines = functions(change.path).get(change.function, "").splitlines()
        there = {line.strip() for line in lines}
        if not change.was or not there.issuperset(change.was.splitlines()):
            gone.append(str(change))

    assert [] == gone


def test_every_explained_survivor_has_a_reason_and_is_of_a_module_that_is_changed():
    files = {
        path.relative_to(mutation.ROOT).as_posix()
        for pattern in mutation.modules()
        for path in mutation.ROOT.glob(pattern)
    }

    assert {change.path for change in reasons()} <= files
    assert all(len(why.split()) >= 4 for why in reasons().values())


def test_every_pattern_and_every_chosen_test_is_there():
    chosen = mutation.settings()["pytest_add_cli_args_test_selection"]

    assert all(list(mutation.ROOT.glob(pattern)) for pattern in mutation.modules())
    assert [] == [name for name in chosen if not (mutation.ROOT / name).exists()]


LOST = Change("a.py", "f", "return x < 1", "return x <= 1")
KILLED, ENDLESS = Outcome("a.py", "killed", None), Outcome("b.py", "timeout", None)


@each_row(
    ("found", "reasons", "status"),
    [
        ([KILLED] * 9 + [Outcome("a.py", "survived", LOST)], {LOST: "why"}, 0),
        # Without a reason; for another change; without a test at all; too many of them.
        ([KILLED] * 9 + [Outcome("a.py", "survived", LOST)], {}, 1),
        ([KILLED] * 9 + [Outcome("a.py", "no tests", LOST)], {}, 1),
        ([KILLED] * 8 + [Outcome("a.py", "survived", LOST)], {LOST: "why"}, 1),
        ([KILLED] * 9 + [ENDLESS], {}, 0),
        ([], {}, 1),
    ],
)
def test_a_run_is_judged_by_its_share_and_by_reasons(found, reasons, status, capsys):
    assert status == mutation.report(found, reasons)
    assert ("without a reason in" in capsys.readouterr().out) == bool(
        mutation.unexplained(found, reasons)
    )


def test_counts_are_by_module_and_of_all():
    found = [KILLED, Outcome("a.py", "survived", LOST), ENDLESS]

    assert [
        "| `a.py` | 2 | 1 | 50.0% |",
        "| `b.py` | 1 | 1 | 100.0% |",
        "| all | 3 | 2 | 66.7% |",
    ] == list(mutation.table(found))[2:]


def test_a_reason_for_a_change_that_is_noticed_can_go(capsys):
    mutation.report([KILLED], {LOST: "why"})

    assert f"noticed today, its reason can go:\n  {LOST}" in capsys.readouterr().out


@pytest.mark.wide
def test_the_tool_finds_what_a_test_does_not_notice(tmp_path):
    (tmp_path / "small").mkdir()
    (tmp_path / "tests").mkdir()
    (tmp_path / "pyproject.toml").write_text(
        textwrap.dedent("""
            [tool.mutmut]
            source_paths = ["small"]
            only_mutate = ["small/*.py"]
            pytest_add_cli_args_test_selection = ["tests"]
        """)
    )
    (tmp_path / "small/__init__.py").touch()
    (tmp_path / "small/gate.py").write_text("def is_open(share):\n    return share > 3\n")
    (tmp_path / "tests/test_gate.py").write_text(
        "from small.gate import is_open\n\n\n"
        "def test_gate():\n    assert is_open(9)\n    assert not is_open(3)\n"
    )

    assert mutation.run(root=tmp_path) == 0
    # `>=` is noticed at 3 itself; `> 4` is not.
    found = mutation.outcomes(tmp_path)
    lost = Change("small/gate.py", "is_open", "return share > 3", "return share > 4")
    assert [None, lost] == sorted((one.change for one in found), key=str)
    assert 0.5 == mutation.score(found)
