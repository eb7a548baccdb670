import json
import shutil
from dataclasses import asdict
from pathlib import Path

import pandas as pd
import pytest
from each_row import each_row
from pydantic import TypeAdapter
from registry_project import enter_project, interval, register, write_note, write_project
from small_world import PARAMS, write_world

from astra_core.files import write_json
from astra_core.metrics.statistics import Interval
from tasks.promotion.reevaluation import FOLDER, Reevaluation, main, reevaluate_champion
from tasks.records.reports import read_record
from tasks.tracking.store import connect

ROOT = Path(__file__).parents[3]
MET = [f"Please tell me about thing number {number}." for number in range(12)]
REGISTERED = Interval(0.5, 0.4, 0.6)


def _found(value, *, drift=None):
    return Reevaluation(
        "attacker",
        "3",
        num_prompts=24,
        success_rate=Interval.read(interval(value)),
        untrained=Interval(0.3, 0.2, 0.4),
        registered=REGISTERED,
        drift=drift,
    )


@pytest.fixture
def params(in_memory):
    shutil.copy(ROOT / "params.yaml", in_memory)


@each_row(
    ("low", "high", "has_drifted"),
    [(-0.1, 0.1, False), (0.0, 0.2, False), (0.01, 0.2, True), (-0.3, -0.1, True)],
)
def test_drift_is_a_difference_whose_interval_leaves_out_zero(low, high, has_drifted):
    drift = Interval((low + high) / 2, low, high)

    assert has_drifted is _found(0.7, drift=drift).has_drifted


def test_without_the_outcomes_at_registration_nothing_drifts():
    assert not _found(0.9).has_drifted
    assert "difference" not in _found(0.9).summary()


def test_the_summary_shows_the_untrained_attacker_beside():
    drift = Interval(0.2, 0.1, 0.3)

    assert (
        "attacker version 3: attack success 0.700 [0.600, 0.800] on 24 fresh prompts, "
        "untrained 0.300 [0.200, 0.400], registered 0.500 [0.400, 0.600]; "
        "the difference +0.200 [+0.100, +0.300] is more than chance"
    ) == _found(0.7, drift=drift).summary()


@pytest.mark.real
def test_no_champion_is_an_outcome_and_no_failure(params, capsys):
    assert 0 == main(["--seed", "1"])
    outcome = read_record(FOLDER / "outcome.json", Reevaluation)

    assert outcome.version is None
    assert "reevaluation attacker has no champion yet" in capsys.readouterr().out


@pytest.fixture
def champion(tmp_path, monkeypatch):
    """A folder with a champion whose attacker is the tiny base model itself."""
    enter_project(tmp_path, monkeypatch)
    write_project(tmp_path, rate=0.6)
    write_world(tmp_path)
    frame = pd.DataFrame({"prompt_id": MET, "text": MET})
    frame.to_parquet(tmp_path / "data/valid/train.parquet", index=False)
    shutil.rmtree(tmp_path / "models/attacker")
    shutil.copytree(tmp_path / "models/base/tiny", tmp_path / "models/attacker")
    write_note(tmp_path / "models/attacker")
    register()
    connect().set_registered_model_alias("attacker", "champion", "1")
    return tmp_path


@pytest.mark.real
def test_a_champion_is_examined_beside_the_untrained_on_what_it_has_not_met(champion, capsys):
    fresh = [f"Please tell me about animal number {number}." for number in range(8)]
    write_json([*(text.upper() for text in MET), *fresh], champion / "mine.json")
    file = champion / "mine.json"
    # What is trained on now is other data, so that only the version itself can tell.
    shutil.rmtree(champion / "data/valid")
    found = reevaluate_champion(PARAMS, fresh_seed=0, file=file, folder=champion / "fresh")
    metrics = connect().get_run(found.run_id).data.metrics

    assert 12 == found.num_met
    assert "12 prompts left out" in capsys.readouterr().out
    # The attacker is the base model itself, so on the same prompts it is no better than untrained.
    assert found.success_rate == found.untrained
    for area, own in (("eval", found.success_rate), ("baseline", found.untrained)):
        assert own.value == metrics[f"{area}/attack_success_rate"]
    assert found.drift.low == metrics["drift/attack_success_rate_low"]
    assert 0.6 == pytest.approx(found.success_rate.value - found.drift.value)
    again = reevaluate_champion(PARAMS, fresh_seed=0, file=file, folder=champion / "fresh")
    assert found == again


@pytest.mark.real
def test_fresh_prompts_with_categories_are_reported_by_them(champion):
    rows = [
        {"text": f"Please tell me about animal number {number}.", "category": name}
        for number, name in enumerate(["fish", "birds"] * 4)
    ]
    write_json(rows, champion / "mine.json")
    file, folder = champion / "mine.json", champion / "fresh"
    found = reevaluate_champion(PARAMS, fresh_seed=0, file=file, folder=folder)
    client = connect()

    counts = {name: own.num_prompts for name, own in found.categories.items()}
    assert {"fish", "birds"} == set(counts)
    assert found.num_prompts == sum(counts.values())
    rates = [own.num_prompts * own.attacker.value for own in found.categories.values()]
    assert sum(rates) / found.num_prompts == pytest.approx(found.success_rate.value)
    assert 2.0 == client.get_run(found.run_id).data.metrics["eval/num_categories"]
    assert ["categories.csv"] == [file.path for file in client.list_artifacts(found.run_id)]
    again = TypeAdapter(Reevaluation).validate_json(json.dumps(asdict(found)))
    assert found == again
    assert found.page() == again.page()
    assert f"\n| fish | {counts['fish']} | " in found.page()


def test_the_page_without_categories_is_the_summary():
    assert _found(0.7).summary() == _found(0.7).page()
