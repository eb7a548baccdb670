"""``astra trial`` and ``astra tune-lr``, beside models and prompts as the stages leave them."""

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from small_world import PARAMS, write_world

from astra_core.redaction import mask
from flows.cli import run_command

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("project")
    write_world(folder)
    record = PARAMS.model_dump(mode="json")
    (folder / "params.yaml").write_text(yaml.safe_dump(record), "utf-8")
    (folder / "my").mkdir()
    (folder / "my" / "mine.py").write_text(
        "from astra_core.training.trainer import Trainer\nclass Mine(Trainer): pass\n", "utf-8"
    )
    return folder


def tree(folder):
    """Every path below a folder, with its bytes' digest and its time."""
    return {
        path.relative_to(folder).as_posix(): (
            path.stat().st_mtime_ns,
            hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "",
        )
        for path in folder.rglob("*")
    }


def trial(folder, *arguments):
    command = [sys.executable, "-m", "flows.cli", "trial", *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.real
def test_a_trial_shows_samples_and_estimates_and_touches_no_file(world):
    before = tree(world)
    done = trial(world, "--set", "training.trainer.name=my/mine.py:Mine")

    assert 0 == done.returncode, done.stderr
    # A busy machine is told how far it is.
    assert all(line.startswith("trial ") for line in done.stderr.splitlines()), done.stderr
    assert before == tree(world)
    lines = done.stdout.splitlines()
    starts = [line.split()[0] for line in lines]
    # So few rollouts explain little.
    assert ["batch", "signal", "target", "time", "memory", "cost", "nothing"] == starts[-7:]
    assert "| score | prompt | probe | response |" in lines
    probes = [
        line.split("|")[3].strip() for line in lines if line.startswith("| 0") or line[:3] == "| 1"
    ]
    assert probes
    assert all(probe == mask(probe) for probe in probes)


@pytest.mark.real
def test_a_trial_in_json_has_the_cost_and_can_be_revealed(world):
    done = trial(world, "--json", "--reveal", "--price-per-million-tokens", "2.5")
    found = json.loads(done.stdout)
    run = found["run"]

    assert run["cost"] == pytest.approx(2.5e-6 * (run["tokens_in"] + run["tokens_out"]))
    assert run["calls"] == pytest.approx(sum(part["calls"] for part in run["parts"].values()))
    text = " ".join(found["samples"])
    assert any(word in text.split() for word in ("bad", "worse", "you", "they", "said", "never"))
    assert found["peak_bytes"] > 2**20


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--set", "models.attacker.source=hub"), "--set must change training_seed, machine,"),
        (("--set", "training.lrr=1"), "training.lrr is not a known key"),
        (("--set", "training"), "--set must read section.key=value"),
        (("--price-per-million-tokens", "-1"), "--price-per-million-tokens: input should be"),
        (("--price-per-million-tokens", "inf"), "must be a finite number, got inf"),
        (("--set", "training.trainer.name=my/gone.py:Mine"), "must name a file that exists"),
        (("--set", "training.algorithm.options.margin=1000000.0"), "offer something to learn"),
    ],
)
def test_a_mistake_is_one_line(world, monkeypatch, capfd, restored, arguments, says):
    monkeypatch.chdir(world)
    before = tree(world)
    status = run_command(["trial", *arguments])
    # Bars of libraries that were loaded before the command could silence them are not its words.
    told = capfd.readouterr().err.splitlines()
    (line,) = [line for line in told if line.startswith("error: ")]

    assert status in {1, 2}
    assert says in line
    assert before == tree(world)


def test_what_is_missing_is_one_line_with_the_command_that_makes_it(
    world, tmp_path, monkeypatch, capfd, restored
):
    (tmp_path / "params.yaml").write_text((world / "params.yaml").read_text("utf-8"), "utf-8")
    monkeypatch.chdir(tmp_path)

    assert 2 == run_command(["trial"])
    told = capfd.readouterr().err
    assert told == (
        "error: astra trial must find data/valid and models/base, got no such path; "
        "'dvc repro validation models' makes it\n"
    )


@pytest.mark.real
def test_a_preset_under_which_the_earlier_stages_have_not_run_is_refused(
    dvc_project, capfd, restored
):
    for name in ("params.yaml", "dvc.yaml", "astra_core", "astra_parts", "plugins", "tasks"):
        (dvc_project / name).symlink_to(ROOT / name)
    (dvc_project / "params").mkdir()
    (dvc_project / "params/other.yaml").write_text("data_seed: 7", "utf-8")

    assert 2 == run_command(["trial", "--preset", "other"])
    told = capfd.readouterr().err
    assert "must have run under --preset other, got prompts, validation, models of other" in told


@pytest.fixture
def own_world(tmp_path, monkeypatch, restored):
    write_world(tmp_path)
    record = PARAMS.model_dump(mode="json")
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(record), "utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.real
def test_the_rate_is_saved_only_if_that_is_asked_for(own_world, capfd, monkeypatch):
    monkeypatch.setattr("flows.cli.project_folder", lambda _: own_world)
    written = (own_world / "params.yaml").read_text()
    arguments = ["tune-lr", "--lowest", "1e-5", "--highest", "2e-5", "--count", "2"]

    assert 0 == run_command(arguments)
    assert "nothing was changed" in capfd.readouterr().out
    assert written == (own_world / "params.yaml").read_text()
    assert 0 == run_command([*arguments, "--save", "--json"])
    told = json.loads(capfd.readouterr().out)
    assert [0.0, 1e-5, 2e-5] == [tried["rate"] for tried in told["tried"]]
    assert 2e-5 == told["suggested"]
    # PyYAML reads 1e-4 as a text, unlike YAML 1.2.
    assert 2e-5 == float(yaml.safe_load((own_world / "params.yaml").read_text())["training"]["lr"])


def test_a_wrong_range_is_one_line(own_world, capsys, monkeypatch):
    monkeypatch.setattr("flows.cli.project_folder", lambda _: own_world)

    assert 2 == run_command(["tune-lr", "--lowest", "1", "--highest", "0.1"])
    (line,) = capsys.readouterr().err.splitlines()
    assert "rates must go up" in line
