import shutil
from pathlib import Path

import pytest
from registry_project import enter_project

from astra_core.errors import DataError
from astra_core.files import read_json
from tasks.params import read_params
from tasks.reevaluation import FOLDER, Reevaluation, fresh_prompts, main

ROOT = Path(__file__).parents[2]
REGISTERED = {"value": 0.5, "low": 0.4, "high": 0.6}


def _found(value, registered=REGISTERED):
    today = {"value": value, "low": value - 0.1, "high": value + 0.1}
    return Reevaluation("attacker", "3", 24, today, registered, "run")


@pytest.fixture
def params(tmp_path, monkeypatch):
    enter_project(tmp_path, monkeypatch)
    shutil.copy(ROOT / "params.yaml", tmp_path)
    found = read_params()
    return found.model_copy(
        update={"evaluation": found.evaluation.model_copy(update={"num_prompts": 20})}
    )


@pytest.mark.parametrize(
    ("value", "has_drifted"), [(0.4, False), (0.6, False), (0.39, True), (0.61, True)]
)
def test_a_rate_outside_of_the_registered_interval_is_drift(value, has_drifted):
    assert has_drifted is _found(value).has_drifted


def test_without_a_registered_interval_nothing_drifts():
    assert not _found(0.9, registered=None).has_drifted
    assert "registered" not in _found(0.9, registered=None).summary()


def test_the_summary_says_on_which_side_of_the_interval_it_is():
    assert (
        "attacker version 3: attack success 0.700 [0.600, 0.800] on 24 fresh prompts, "
        "outside of the registered 0.500 [0.400, 0.600]"
    ) == _found(0.7).summary()


def test_no_champion_is_an_outcome_and_no_failure(params, capsys):
    assert 0 == main(["--seed", "1"])
    outcome = Reevaluation(**read_json(FOLDER / "outcome.json"))

    assert outcome.version is None
    assert "reevaluation attacker has no champion yet" in capsys.readouterr().out


def test_fresh_prompts_are_repeatable_and_follow_the_seed(params, tmp_path):
    def ids(seed):
        found = fresh_prompts(params, fresh_seed=seed, file=None, folder=tmp_path / "fresh")
        return [prompt.prompt_id for prompt in found]

    assert 20 == len(set(ids(7)))
    assert ids(7) == ids(7)
    assert ids(7) != ids(8)


def test_prompts_that_were_trained_on_are_left_out(params, tmp_path):
    lines = [f"Please tell me about thing number {number}." for number in range(60)]
    Path("mine.txt").write_text("\n".join(lines), encoding="utf-8")
    folder = tmp_path / "fresh"
    first = fresh_prompts(params, fresh_seed=0, file=Path("mine.txt"), folder=folder)
    Path("data").mkdir()
    shutil.move(folder / "valid", "data/valid")
    trained = {prompt.prompt_id for prompt in _train_split()}
    second = fresh_prompts(params, fresh_seed=0, file=Path("mine.txt"), folder=folder)

    assert trained & {prompt.prompt_id for prompt in first}
    assert not trained & {prompt.prompt_id for prompt in second}


def test_a_file_that_was_trained_on_whole_is_refused(params, tmp_path, monkeypatch):
    lines = [f"Please tell me about thing number {number}." for number in range(60)]
    Path("mine.txt").write_text("\n".join(lines), encoding="utf-8")
    folder = tmp_path / "fresh"
    fresh_prompts(params, fresh_seed=0, file=Path("mine.txt"), folder=folder)
    import pandas as pd

    splits = [pd.read_parquet(path) for path in sorted((folder / "valid").glob("[dt]*.parquet"))]
    Path("data/valid").mkdir(parents=True)
    pd.concat(splits).to_parquet("data/valid/train.parquet")
    with pytest.raises(DataError, match="name another --seed or --file"):
        fresh_prompts(params, fresh_seed=0, file=Path("mine.txt"), folder=folder)


def _train_split():
    from tasks.artifacts import read_prompts

    return read_prompts(Path("data/valid/train.parquet"))
