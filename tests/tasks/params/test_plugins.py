import pytest

from astra_core.files import file_digest
from tasks.params.plugins import plugin_data, plugin_names, plugin_sources, source_digests


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    folder = tmp_path / "project"
    (folder / "plugins").mkdir(parents=True)
    (folder / "my").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (folder / "plugins" / "inside.py").write_text("import my.helper", "utf-8")
    (folder / "my" / "helper.py").write_text("", "utf-8")
    (tmp_path / "elsewhere" / "mine.py").write_text("", "utf-8")
    monkeypatch.chdir(folder)
    return folder


def choice(name, **options):
    return {"name": name, "options": options}


def test_names_are_found_wherever_a_choice_stands():
    record = {
        "reward": choice("a.b:C"),
        "training": {"trainer": choice("x/y.py:Z"), "algorithm": choice("dpo")},
        "sinks": [choice("one:A"), choice("two:B", inner={"deep": ["three:C", "no path: D"]})],
        "agents": {"presser": {"schedule": {**choice("my lab/four.py:D"), "defaults": "turns"}}},
        "experiment": "team:Alpha",
        "system": {"spelling": "my/words.py:translated"},
    }
    named = ["a.b:C", "x/y.py:Z", "one:A", "two:B", "three:C", "my lab/four.py:D"]

    assert [*named, "my/words.py:translated"] == list(plugin_names(record))
    assert [] == list(plugin_names({"system": {"spelling": "base64"}}))


def test_code_outside_of_plugins_is_named_from_the_project(project):
    inside = {"reward": choice("plugins.inside:Mine")}
    both = [choice("plugins/inside.py:Mine"), choice("../elsewhere/mine.py:Mine")]

    # What a plug-in in plugins/ imports from elsewhere, and nothing that the folder has itself.
    assert ["my/helper.py"] == [str(path) for path in plugin_sources(inside)]
    far = project.parent / "elsewhere" / "mine.py"
    assert [str(far), "my/helper.py"] == [str(path) for path in plugin_sources(both)]


def test_a_digest_follows_an_edit(project):
    record = {"trainer": choice("my/helper.py:Mine")}
    file = project / "my" / "helper.py"
    before = source_digests(record)
    assert {"my/helper.py": file_digest(file)} == before
    file.write_text("a = 1", "utf-8")

    assert before != source_digests(record)
    assert {} == source_digests({"trainer": choice("trainer")})


def test_what_a_plugin_reads_is_named_by_its_options(project):
    (project / "my" / "guard").mkdir()
    (project / "my" / "words.txt").write_text("", "utf-8")
    parts = {"strict": {"judge": choice("guard", path="my/guard")}}
    terms = {"own": {**choice("plugins.inside:Mine", path="my/words.txt"), "weight": 1.0}}
    record = {
        "system": {
            "target": choice("command", program=["python", "my/helper.py", "--fast"]),
            "scorer": choice("ensemble", judges=parts),
            "probe_scorer": choice("plugins.inside:Mine", path="plugins/inside.py"),
        },
        "evaluation": {"second_judge": choice("guard", path="my/nowhere")},
        "prompts": {"path": "my/helper.py"},
        "reward": {"name": "terms", "options": {"terms": terms}},
        "goal": None,
    }

    assert ["my/guard", "my/helper.py", "my/words.txt"] == [
        path.as_posix() for path in plugin_data(record)
    ]
    assert () == plugin_data({"target": choice("scripted", path=None, key_file="my/helper.py")})
