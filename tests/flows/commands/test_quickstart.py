import csv
import json
import random
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from each_row import each_row

from astra_parts.testing import tiny_language_model
from flows.cli import run_command
from flows.commands.quickstart import _first_row
from tasks.params.schema import read_params
from tasks.trials.file_check import check_file

pytestmark = pytest.mark.real

ROOT = Path(__file__).parents[3]
URL = "http://127.0.0.1:9/v1"
TOPICS = ("kettle", "garden", "violin", "harbour", "lantern", "meadow", "quarry", "saddle")
ASKED = ("Who sells a {}?", "Where is the oldest {}?", "Draw me one {}.", "Why paint a {} blue?")


@pytest.fixture
def project(restored, tmp_path, monkeypatch):
    """A folder with params.yaml, the presets and a file of 32 goals."""
    shutil.copy(ROOT / "params.yaml", tmp_path)
    shutil.copytree(ROOT / "params", tmp_path / "params")
    with (tmp_path / "mine.csv").open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["Goal", "Category"])
        for topic in TOPICS:
            rows.writerows([form.format(topic), topic[0]] for form in ASKED)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_an_own_csv_and_an_own_endpoint_take_one_command(project, monkeypatch, capfd):
    begun = []
    # What it starts are commands with tests of their own.
    monkeypatch.setattr(
        subprocess, "run", lambda words, **_: begun.append(words[3:]) or _ended(words)
    )
    status = run_command(
        ["quickstart", "--prompts", "mine.csv", "--target", URL, "--model", "@m: 4"]
    )
    told, params = capfd.readouterr().out, read_params()

    assert (0, [["run", "--to", "models"], ["trial"]]) == (status, begun)
    assert ("Goal", "Category") == (params.prompts.text_column, params.prompts.category_column)
    options = params.system.target.options
    assert (URL, "@m: 4") == (options["base_url"], options["model"])
    # Of 32 prompts no split has the 20 that long files must give it.
    assert (0.3, 0.3) == (params.prompts.dev_fraction, params.prompts.test_fraction)
    found = check_file(params, Path("mine.csv"))
    assert min(found.splits.values()) == params.validation.min_prompts
    assert "" == found.gate
    assert "mine.csv: 32 of 32 rows usable" in told
    assert 1 == told.count("prompts.dev_fraction") == told.count("validation.min_prompts")
    few = rf"first duel: {found.splits['test']} prompts, power \d%.*: the gate hardly promotes"
    assert re.search(few, told)
    assert "undo           cp .astra/params.before.yaml params.yaml" in told


def test_a_folder_says_how_its_replies_are_sampled(project, monkeypatch):
    begun = []
    monkeypatch.setattr(subprocess, "run", lambda words, **_: begun.append(words) or _ended(words))
    folder = project / "model"
    tiny_language_model(1).save(folder)
    told = {"do_sample": True, "temperature": 0.2, "top_k": 7}
    (folder / "generation_config.json").write_text(json.dumps(told), "utf-8")
    template = folder / "chat_template.jinja"
    template.write_text(
        "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}", "utf-8"
    )

    assert 0 == run_command(["quickstart", "--prompts", "mine.csv", "--target", "model"])
    response = read_params().system.response
    # What the makers leave open is the preset's.
    assert (0.2, 7, 0.9) == (response.temperature, response.top_k, response.top_p)
    assert 2 == len(begun)
    assert "template" == read_params().system.target.options["format"]
    # A model that was never taught to chat is given the plain text of the turns.
    template.unlink()
    assert 0 == run_command(["quickstart", "--prompts", "mine.csv", "--target", "model"])
    assert "separator" == read_params().system.target.options["format"]


def test_another_file_is_shared_out_anew(project, monkeypatch):
    monkeypatch.setattr(subprocess, "run", lambda words, **_: _ended(words))
    words = ["quickstart", "--target", URL, "--model", "m", "--prompts"]
    assert 0 == run_command([*words, "mine.csv", "--set", "validation.languages=[en]"])
    assert (0.3, 4) != (read_params().prompts.dev_fraction, read_params().validation.min_prompts)
    draw, said = (
        random.Random(1),
        [*TOPICS, *["who", "why", "where", "some", "old", "new", "near", "far", "big", "red"]],
    )
    rows = [" ".join(draw.choices(said, k=9)) for _ in range(400)]
    Path("long.txt").write_text("\n".join(rows), "utf-8")

    assert 0 == run_command([*words, "long.txt"])
    params = read_params()
    assert (None, 20, ()) == (
        params.prompts.test_fraction,
        params.validation.min_prompts,
        params.validation.languages,
    )
    # A third of the test prompts is left for the duels after the first.
    assert 74 == params.evaluation.num_prompts


def _ended(words):
    return subprocess.CompletedProcess(words, 0)


@each_row(
    ("name", "content", "found"),
    [
        ("p.jsonl", '{"goal": "a", "type": "b"}', "goal"),
        ("p.json", '{"x": [{"prompt": "a"}], "y": [{"prompt": "b"}]}', "prompt"),
        ("p.json", '{"Question": ["a", "c"], "label": ["b", "d"]}', "Question"),
        ("p.yaml", "- Behavior: a\n", "Behavior"),
        ("p.csv", "TOPIC,PROMPT\nb,a\n", "PROMPT"),
        ("p.csv", "id;Prompt\n1;a\n", "Prompt"),
    ],
)
def test_the_column_is_found_by_its_usual_names_in_every_format(tmp_path, name, content, found):
    (tmp_path / name).write_text(content, "utf-8")
    row, column = _first_row(tmp_path / name, None)

    assert ("a", found) == (row.text, column)


@each_row(
    ("words", "told"),
    [
        (["--prompts", "mine.csv", "--target", URL], "must come with --model, got none"),
        (["--prompts", "mine.csv", "--target", "no/model"], "a URL or a folder with a model"),
        (["--prompts", "none.csv", "--target", "."], "from a file, got 'none.csv' (nothing there)"),
        (
            ["--prompts", "mine.csv", "--target", ".", "--column", "nope"],
            "must have the column 'nope', got ['Goal', 'Category']; name it with --column",
        ),
        (
            ["--prompts", "a;b.csv", "--target", "."],
            "a;b.csv must have the column 'text', got ['x']",
        ),
        (["--prompts", "no.json", "--target", "."], "must hold prompts, got none; check how"),
        # Rows that are rejected for another reason are not too few.
        (
            ["--prompts", "other.txt", "--target", URL, "--model", "m"],
            "other.txt must have rows that can be used, got 0 of 30 rows usable (0 train",
        ),
    ],
)
def test_a_mistake_is_one_line_and_changes_nothing(project, capfd, words, told):
    before = Path("params.yaml").read_bytes()
    chinese = [
        f"\u8bf7\u95ee{topic}\u5728\u54ea\u91cc{form[:3]}\u5462\u8c22\u8c22\u4f60\u5566"
        for topic in TOPICS
        for form in ASKED
    ]
    Path("a;b.csv").write_text("x\ny\n", "utf-8")
    Path("no.json").write_text("[]", "utf-8")
    Path("other.txt").write_text("\n".join(chinese[:30]), "utf-8")

    assert 2 == run_command(["quickstart", *words])
    assert told in capfd.readouterr().err
    assert before == Path("params.yaml").read_bytes()
