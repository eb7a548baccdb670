import sys
from pathlib import Path

import pytest
from each_row import each_row

from astra_parts.sources import sources_of


@pytest.fixture(autouse=True)
def lab(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # Another test of this process may have imported a package of this name.
    monkeypatch.delitem(sys.modules, "lab", raising=False)

    def write(path, text=""):
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, "utf-8")

    return write


def names(plugin):
    return [path.relative_to(Path.cwd()).as_posix() for path in sources_of(plugin)]


def test_a_file_and_the_neighbours_that_it_imports_are_found(lab):
    lab(
        "my/mine.py",
        "from . import one\nfrom .two import x\nfrom .three import y\nimport json, torch\n",
    )
    lab("my/one.py", "def late():\n    from .four import inner\n")
    lab("my/two.py")
    lab("my/three.py")
    lab("my/four/__init__.py")
    lab("my/four/inner.py", "from ..five import z\nfrom . import other")
    lab("my/four/other.py")
    lab("my/five.py")
    lab("my/unused.py")

    assert names("my/mine.py:Mine") == [
        f"my/{name}.py"
        for name in (
            "five",
            "four/__init__",
            "four/inner",
            "four/other",
            "mine",
            "one",
            "three",
            "two",
        )
    ]


def test_the_packages_of_a_file_belong_to_it(lab):
    lab("recipe/__init__.py", "from . import setup")
    lab("recipe/setup.py")
    lab("recipe/task/__init__.py")
    lab("recipe/task/mine.py", "import recipe.common as common")
    lab("recipe/common.py")
    found = ["__init__", "common", "setup", "task/__init__", "task/mine"]

    assert [f"recipe/{name}.py" for name in found] == names("recipe/task/mine.py:Mine")
    assert names("recipe/task/mine.py:Mine") == names("recipe.task.mine:Mine")


def test_a_plug_in_by_import_path_and_what_it_imports_are_found_without_running_them(lab):
    lab("lab/mine.py", "import helper_of_lab\nraise SystemExit")
    lab("helper_of_lab.py")
    # Beside the file, where only a script would look.
    lab("lab/helper_of_lab.py")

    assert ["helper_of_lab.py", "lab/mine.py"] == names("lab.mine:Mine")


def test_the_project_that_a_process_worked_in_before_is_no_part_of_this_one(lab, monkeypatch):
    for name in ("before", "now"):
        lab(f"{name}/lab/{name}.py")
        lab(f"{name}/lab/mine.py")
    here = Path.cwd()
    monkeypatch.chdir("before")
    assert ["lab/mine.py"] == names("lab.mine:Mine")
    monkeypatch.chdir(here / "now")

    assert ["lab/mine.py"] == names("lab.mine:Mine")
    assert () == sources_of("lab.before:Mine")


def test_of_a_package_in_several_folders_the_first_that_has_the_module_counts(lab, monkeypatch):
    for name in ("first", "second"):
        lab(f"{name}/lab/mine.py")
        monkeypatch.syspath_prepend(f"{Path.cwd()}/{name}")

    assert ["second/lab/mine.py"] == names("lab.mine:Mine")


@pytest.mark.real
def test_an_installed_plug_in_is_followed_within_its_package_alone():
    found = sources_of("peft.tuners.lora:LoraModel")

    assert found
    assert all("peft" in path.parts for path in found)


@each_row(
    "name",
    [
        "adamw",
        "__main__:Mine",
        "astra_core.scorer:Scorer",
        "nothing_of_this_name.mine:Mine",
        "nothing/here.py:Mine",
        "json:dumps",
        ":",
        "a/b.py",
    ],
)
def test_a_name_without_code_of_ones_own_has_no_sources(name):
    assert () == sources_of(name)


def test_a_file_that_cannot_be_read_as_python_is_still_watched(lab):
    lab("torn.py", "class Mine(:")

    assert ["torn.py"] == names("torn.py:Mine")
    assert ["torn.py"] == names("torn:Mine")


def test_files_that_import_each_other_are_found_once(lab):
    lab("one.py", "import two")
    lab("two.py", "import one")

    assert ["one.py", "two.py"] == names("one.py:Mine")
