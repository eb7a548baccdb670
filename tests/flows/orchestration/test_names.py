import shutil
from pathlib import Path

import pytest
from each_row import each_row

from flows.orchestration.names import describe_training, scheduled_day

pytestmark = pytest.mark.real

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def project(tmp_path, monkeypatch):
    shutil.copy(ROOT / "params.yaml", tmp_path)
    monkeypatch.chdir(tmp_path)


@each_row(
    ("parameters", "name"),
    [
        ({}, "dpo seed 0"),
        ({"seed": "date", "warm_start": "champion"}, "dpo seed 20261123, from champion"),
        ({"seed": 4, "overrides": {"seed": 3}, "force": True}, "dpo seed 4, with seed=3, forced"),
        ({"overrides": {"training.lr": 1e-4}}, "dpo seed 0, with training.lr=0.0001"),
        ({"overrides": {"training.algorithm.name": "rloo"}}, "rloo seed 0, with training"),
        ({"only": "training"}, "only training, dpo seed 0"),
        ({"start": "rollouts", "end": "training"}, "from step rollouts to step training, dpo"),
        ({"overrides": {"training.lr.x": 1}}, "training, with training.lr.x=1"),
        # What a person typed can be an attack.
        ({"overrides": {"system.x": "you stupid idiot"}}, "training, with system.x=..."),
    ],
)
def test_a_training_is_named_for_what_it_does(parameters, name):
    assert describe_training(parameters, day=20261123).startswith(name)


def test_a_name_is_short_and_a_broken_file_still_has_one():
    Path("params.yaml").write_text("seed: -1\n", encoding="utf-8")
    overrides = {f"training.k{number}": number for number in range(60)}

    assert "training" == describe_training({})
    assert len(describe_training({"overrides": overrides})) <= 120


def test_the_seed_of_a_day_is_that_day():
    day = str(scheduled_day())

    assert 8 == len(day)
    assert day.startswith("20")
