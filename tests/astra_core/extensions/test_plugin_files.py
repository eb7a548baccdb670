import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from astra_core.errors import ConfigurationError
from astra_core.extensions.calls import path_of
from astra_core.extensions.plugin_files import module_name
from astra_core.registry import resolve

MINE = """\
from dataclasses import dataclass
import helpers
from astra_core.scorer import Scorer

@dataclass(frozen=True, slots=True)
class Pair:
    first: str

class Mine(Scorer):
    version = helpers.NAME
    def score(self, texts):
        import late
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


def test_a_neighbour_comes_before_a_module_that_is_loaded_already(lab):
    """As in a script, whose folder is looked into first; and for this file alone."""
    import colorsys

    (lab / "one" / "colorsys.py").write_text("NAME = 'ours'", "utf-8")
    (lab / "one" / "helpers.py").write_text("from colorsys import NAME", "utf-8")

    assert "ours" == resolve("scorer", "one/mine.py:Mine").version
    assert sys.modules["colorsys"] is colorsys


def test_a_folder_gives_way_to_a_module_of_its_name(lab):
    (lab / "one" / "json").mkdir()
    (lab / "one" / "helpers.py").write_text("import json; NAME = json.dumps(1)", "utf-8")

    assert "1" == resolve("scorer", "one/mine.py:Mine").version


def test_a_file_beside_our_own_package_uses_that_very_package(lab):
    (lab / "astra_core").symlink_to(Path(__file__).parents[3] / "astra_core")
    (lab / "mine.py").write_text(MINE.replace("helpers.NAME", "'x'").replace("import helpers", ""))

    assert "x" == resolve("scorer", "mine.py:Mine").version


def test_a_file_in_a_plain_folder_may_import_relatively_too(lab):
    (lab / "one" / "mine.py").write_text(MINE.replace("import helpers", "from . import helpers"))

    assert "one" == resolve("scorer", "one/mine.py:Mine").version


def package(lab):
    inner = lab / "recipe" / "task"
    inner.mkdir(parents=True)
    (lab / "recipe" / "__init__.py").write_text("NAME = 'recipe'", "utf-8")
    (inner / "__init__.py").write_text("", "utf-8")
    (lab / "recipe" / "common.py").write_text("from . import NAME", "utf-8")
    (inner / "algo.py").write_text("from ..common import NAME\nclass Base: pass", "utf-8")
    (inner / "mine.py").write_text(
        "import algo, recipe.common\n"
        "from recipe import common\n"
        "from .algo import Base\n"
        "from astra_core.scorer import Scorer\n"
        "class Mine(Scorer):\n"
        "    version = f'{algo.NAME} {algo.Base is Base} {recipe.common is common}'\n"
        "    score = len\n",
        "utf-8",
    )


def test_a_file_of_a_package_imports_relatively_by_full_name_or_as_a_script(lab):
    package(lab)

    assert "recipe True True" == resolve("scorer", "recipe/task/mine.py:Mine").version


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


@pytest.mark.real
def test_another_process_unpickles_an_object_of_a_class_in_a_file(lab):
    module = sys.modules[resolve("scorer", "one/mine.py:Mine").__module__]
    (lab / "pair").write_bytes(pickle.dumps(module.Pair("a")))
    code = "import astra_core.registry, pickle; print(pickle.load(open('pair', 'rb')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert "Pair(first='a')\n" == done.stdout


SPAWNS = """\
import multiprocessing, sys
from astra_core.registry import resolve

def first(pair):
    return pair.first

if __name__ == "__main__":
    module = sys.modules[resolve("scorer", "one/mine.py:Mine").__module__]
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(pool.map(first, [module.Pair("a")]))
"""


@pytest.mark.real
def test_a_spawned_process_gets_objects_of_a_class_in_a_file(lab):
    (lab / "script.py").write_text(SPAWNS, "utf-8")
    command = [sys.executable, "script.py"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)

    assert "['a']\n" == done.stdout


def test_the_name_of_a_module_says_where_its_file_lies(lab):
    package(lab)
    names = [module_name(lab / path) for path in ("one/mine.py", "recipe/task/mine.py")]

    assert [name.split(".")[2:] for name in names] == [["mine"], ["recipe", "task", "mine"]]
    assert 2 == len({name.split(".")[1] for name in names})


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
