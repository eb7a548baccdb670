import sys
from pathlib import Path

import pytest

from astra_core.errors import ConfigurationError
from astra_core.extensions.calls import path_of
from astra_core.registry import resolve

MINE = """\
from dataclasses import dataclass
from . import helpers
from astra_core.scorer import Scorer

@dataclass(frozen=True, slots=True)
class Pair:
    first: str

class Mine(Scorer):
    version = helpers.NAME
    def score(self, texts):
        from . import late
        return [late.VALUE] * len(texts)
"""


@pytest.fixture(autouse=True)
def lab(tmp_path, monkeypatch):
    """Two folders with files of the same names."""
    monkeypatch.chdir(tmp_path)
    for name, value in (("one", 0.25), ("two", 0.75)):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "mine.py").write_text(MINE, "utf-8")
        (folder / "helpers.py").write_text(f"NAME = {name!r}", "utf-8")
        (folder / "late.py").write_text(f"VALUE = {value}", "utf-8")
    yield tmp_path
    for name in [name for name in sys.modules if name.partition(".")[0] == "astra_files"]:
        del sys.modules[name]


def test_files_of_one_name_and_their_neighbours_do_not_clash():
    one, two = resolve("scorer", "one/mine.py:Mine"), resolve("scorer", "two/mine.py:Mine")

    assert ("one", "two") == (one.version, two.version)
    # What is imported only when it is needed, too.
    scores = [plugin(plugin.Options()).score(["a"]) for plugin in (one, two)]
    assert [[0.25], [0.75]] == scores
    assert not {"mine", "helpers", "late"} & set(sys.modules)


def test_a_file_is_one_module_however_its_path_is_spelled(lab):
    spelled = ("one/mine.py", "./one/../one/mine.py", str(lab / "one" / "mine.py"))

    assert 1 == len({resolve("scorer", f"{path}:Mine") for path in spelled})
    assert "one/mine.py:Mine" == path_of(resolve("scorer", f"{spelled[2]}:Mine"))


def test_a_file_below_another_folder_is_named_by_its_whole_path(lab, monkeypatch):
    monkeypatch.chdir(lab / "two")

    assert f"{lab}/one/mine.py:Mine" == path_of(resolve("scorer", "../one/mine.py:Mine"))


def test_a_file_beside_our_own_package_uses_that_very_package(lab):
    (lab / "astra_core").symlink_to(Path(__file__).parents[3] / "astra_core")
    (lab / "mine.py").write_text(
        MINE.replace("helpers.NAME", "'x'").replace("from . import helpers", "")
    )

    assert "x" == resolve("scorer", "mine.py:Mine").version


def package(lab):
    inner = lab / "recipe" / "task"
    inner.mkdir(parents=True)
    (lab / "recipe" / "__init__.py").write_text("NAME = 'recipe'", "utf-8")
    (inner / "__init__.py").write_text("", "utf-8")
    (lab / "recipe" / "common.py").write_text("from . import NAME", "utf-8")
    (inner / "algo.py").write_text("from ..common import NAME\nclass Base: pass", "utf-8")
    (inner / "mine.py").write_text(
        "from . import algo\n"
        "from .algo import Base\n"
        "from astra_core.scorer import Scorer\n"
        "class Mine(Scorer):\n"
        "    version = f'{algo.NAME} {algo.Base is Base}'\n"
        "    score = len\n",
        "utf-8",
    )


def test_a_file_of_a_package_imports_relatively(lab):
    package(lab)

    assert "recipe True" == resolve("scorer", "recipe/task/mine.py:Mine").version


def test_a_package_can_be_named_by_its_file(lab):
    package(lab)
    (lab / "recipe" / "task" / "__init__.py").write_text("from .mine import Mine", "utf-8")
    named = resolve("scorer", "recipe/task/__init__.py:Mine")

    assert named is resolve("scorer", "recipe/task/mine.py:Mine")


def test_names_that_no_module_may_have_are_no_hindrance(lab):
    folder = lab / "my lab.v2 ü"
    (lab / "one").rename(folder)
    (folder / "mine.py").rename(folder / "my-best.1.py")
    found = resolve("scorer", "my lab.v2 ü/my-best.1.py:Mine")

    assert "one" == found.version
    assert "my lab.v2 ü/my-best.1.py:Mine" == path_of(found)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("one/nothing.py:Mine", r"must name a file that exists, got 'one/nothing\.py' \(nothing"),
        ("folder.py:Mine", r"must name a file that exists, got 'folder\.py' \(a folder\)"),
        ("one/:Mine", "must name a file that ends in .py"),
        ("one/mine.txt:Mine", "must name a file that ends in .py"),
        ("one/mine.py", "must name a file and a class, as in 'lab/mine.py:Mine'"),
        ("one/mine.py:", "must name a file and a class"),
        ("one/mine.py:Other", r"got AttributeError: 'one/mine\.py' has no attribute 'Other'"),
        ("one/mine.py:Pair", r"must be a subclass of astra_core\.scorer\.Scorer"),
        ("one/torn.py:Mine", r"got SyntaxError: .*\(torn\.py, line 2\)"),
        (
            "one/script.py:Mine",
            "'helpers'; a file beside it is imported by 'from . import helpers'",
        ),
        ("one/lost.py:Mine", "got ModuleNotFoundError: No module named 'nowhere_to_be_found'"),
        ("one/beyond.py:Mine", "got ModuleNotFoundError"),
        ("one/leaves.py:Mine", "got SystemExit"),
        ("one/latin.py:Mine", "got SyntaxError"),
    ],
)
def test_a_path_that_leads_to_no_class_is_one_line(lab, name, says):
    (lab / "folder.py").mkdir()
    (lab / "one" / "torn.py").write_text("a = 1\nclass Mine(:", "utf-8")
    (lab / "one" / "lost.py").write_text("import nowhere_to_be_found", "utf-8")
    (lab / "one" / "script.py").write_text("import helpers", "utf-8")
    (lab / "one" / "beyond.py").write_text("from ..two.helpers import NAME", "utf-8")
    (lab / "one" / "leaves.py").write_text("raise SystemExit", "utf-8")
    (lab / "one" / "latin.py").write_bytes(b"name = '\xe9'")

    with pytest.raises(ConfigurationError, match=f"^scorer '{name}' .*({says})") as refused:
        resolve("scorer", name)

    assert "\n" not in str(refused.value)


def test_what_a_file_says_when_it_fails_is_masked(lab):
    (lab / "one" / "rude.py").write_text("raise ValueError('you stupid fool')", "utf-8")

    with pytest.raises(ConfigurationError) as refused:
        resolve("scorer", "one/rude.py:Mine")

    assert "stupid" not in str(refused.value)
    assert "ValueError" in str(refused.value)
