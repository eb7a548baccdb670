import subprocess
import sys

import pytest
from each_row import each_row

from astra_core.config import Choice
from astra_core.errors import ConfigurationError
from astra_core.registry import BUILT_INS, build, find, resolve
from astra_core.scorer import Scorer
from astra_parts.scorers.phrases import PhraseScorer

JUDGES = "astra_core.scorer.Scorer or astra_core.judge.Judge"


@each_row(("kind", "name"), [(kind, name) for kind, table in BUILT_INS.items() for name in table])
def test_every_built_in_is_a_class_whose_options_have_defaults_or_say_what_is_missing(kind, name):
    assert isinstance(resolve(kind, name), type)
    try:
        find(kind, Choice(name=name))
    except ConfigurationError as error:
        assert "must be given" in str(error)  # noqa: PT017 - most built-ins raise nothing


def test_an_unknown_name_lists_the_built_ins_and_the_nearest():
    with pytest.raises(ConfigurationError) as caught:
        resolve("scorer", "profane")

    assert str(caught.value) == (
        f"unknown scorer 'profane'; built-ins are {sorted(BUILT_INS['scorer'])}, or give an import "
        "path such as 'plugins.mine:Class'; did you mean 'profanity'?"
    )


def test_an_import_path_names_a_class():
    assert resolve("scorer", "astra_parts.scorers.phrases:PhraseScorer") is PhraseScorer


@each_row(
    ("path", "reason"),
    [
        ("no_such_package.module:Class", "ModuleNotFoundError"),
        ("astra_parts.scorers.phrases:NoSuchClass", "AttributeError"),
        ("astra_parts.scorers.phrases:", "AttributeError"),
        (":PhraseScorer", "ValueError"),
        (".phrases:PhraseScorer", "TypeError"),
        ("astra_core.files:write_json", "must be a class"),
    ],
)
def test_an_import_path_that_leads_nowhere_is_refused_with_its_reason(path, reason):
    with pytest.raises(ConfigurationError, match=reason):
        resolve("scorer", path)


def test_a_plugin_that_cannot_be_read_is_refused_with_its_reason(tmp_path, monkeypatch):
    (tmp_path / "my_torn_plugin.py").write_text("class Mine(:", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ConfigurationError, match=r"got SyntaxError: .*my_torn_plugin\.py, line 1"):
        resolve("scorer", "my_torn_plugin:Mine")


@pytest.mark.real
@each_row("launch", [("-m", "look"), ("-P", "look.py")])
def test_a_plugin_below_the_working_folder_is_found_however_python_was_started(tmp_path, launch):
    """As ``python -m tasks`` and a notebook (-m), and as a command such as ``astra`` (-P)."""
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins" / "mine.py").write_text(
        "from astra_core.scorer import Scorer\n"
        "class Mine(Scorer):\n    version = 'mine'\n    score = len\n",
        encoding="utf-8",
    )
    (tmp_path / "look.py").write_text(
        "from astra_core.registry import resolve; print(resolve('scorer', 'plugins.mine:Mine'))",
        encoding="utf-8",
    )
    found = subprocess.run(
        [sys.executable, *launch], cwd=tmp_path, capture_output=True, text=True, check=True
    )

    assert "<class 'plugins.mine.Mine'>\n" == found.stdout


def test_options_are_read_by_the_plugin_itself():
    choice = Choice(name="phrases", options={"phrases": ["rude"]})

    assert find("scorer", choice).options == PhraseScorer.Options(phrases=("rude",))


def test_an_unknown_option_names_the_plugin():
    with pytest.raises(ConfigurationError, match=r"optimizer 'adamw' options\.beta is not a known"):
        find("optimizer", Choice(name="adamw", options={"beta": 0.9}))


def test_a_plugin_without_options_takes_none(tmp_path, monkeypatch):
    (tmp_path / "my_plugin.py").write_text(
        "from astra_core.scorer import Scorer\n"
        "class Mine(Scorer):\n"
        "    version, score = 'mine', len\n"
        "    def __init__(self, options, *, size):\n        self.size = size\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "my_plugin", raising=False)

    assert find("scorer", Choice(name="my_plugin:Mine")).options == Scorer.Options()
    assert build("scorer", Choice(name="my_plugin:Mine"), size=3).size == 3
    with pytest.raises(ConfigurationError, match="not a known key"):
        find("scorer", Choice(name="my_plugin:Mine", options={"x": 1}))


@each_row(
    ("kind", "name", "rule"),
    [
        ("scorer", "bad_plugins:NotDerived", f"must be a subclass of {JUDGES}, got"),
        ("scorer", "builtins:dict", f"must be a subclass of {JUDGES}, got"),
        ("algorithm", "builtins:dict", "must be a subclass of astra_core.algorithm.Algorithm, got"),
        ("reward", "bad_plugins:Plain", "must be a subclass of astra_core.reward.Reward, got"),
        ("scorer", "bad_plugins:gives", "must be a class, got function; name the class itself"),
        ("scorer", "bad_plugins:Abstract", r"must implement \['score'\], got an abstract class"),
        ("scorer", "bad_plugins:OddOptions", "must have Options that are a Section of .*, got int"),
        ("scorer", "bad_plugins:ForeignOptions", "must have Options that are a .*, got class Opt"),
        ("sampler", "bad_plugins:OddGives", "must declare gives as a frozenset, got str"),
        ("algorithm", "bad_plugins:OddNeeds", "must declare needs as a frozenset, got int"),
    ],
)
def test_a_class_that_can_be_no_plug_in_of_its_kind_is_one_line_with_its_name(kind, name, rule):
    with pytest.raises(ConfigurationError, match=rf"^{kind} '{name}' {rule}") as refused:
        resolve(kind, name)

    assert "\n" not in str(refused.value)


def test_a_plug_in_that_leaves_while_it_is_imported_is_one_line(tmp_path, monkeypatch):
    (tmp_path / "leaving_at_import.py").write_text("import sys\nsys.exit(0)\n", encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)

    with pytest.raises(ConfigurationError, match="must be importable, got SystemExit"):
        resolve("scorer", "leaving_at_import:Scorer")


def test_a_scorer_may_be_a_judge_of_exchanges(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "own_judge.py").write_text(
        "from astra_core.judge import Judge, Judgement\n"
        "class Mine(Judge):\n"
        "    version = '1'\n"
        "    def judge(self, exchanges):\n"
        "        return [Judgement(0.5) for _ in exchanges]\n"
    )

    assert "1" == build("scorer", Choice(name="own_judge:Mine")).version
