from dataclasses import asdict

import pytest
from each_row import each_row
from registry_project import enter_project

from tasks.records.data_profile import DataProfile
from tasks.tracking.registry.accepted import accepted_data, profile_in
from tasks.tracking.store import connect

PROFILE = DataProfile("word list 1", 7, {"score": [3, 4]}, attacker="ab" * 32)


@each_row(
    ("report", "expected"),
    [
        ({"success": True, "profile": asdict(PROFILE), "checks": []}, PROFILE),
        ({"num_turns": 8, "checks": {"profile": asdict(PROFILE)}}, PROFILE),
        ({"success": True, "checks": []}, None),
        ({"num_turns": 8, "checks": {"profile": None}}, None),
    ],
)
def test_each_report_has_its_profile_in_its_place(report, expected):
    assert expected == profile_in(report)


@pytest.mark.real
def test_the_data_are_those_of_the_champion(tmp_path, monkeypatch):
    enter_project(tmp_path, monkeypatch)
    client = connect()
    client.create_registered_model("attacker")
    assert accepted_data(client, "attacker") is None

    experiment = client.create_experiment("e", artifact_location=(tmp_path / "a").as_uri())
    run = client.create_run(experiment).info.run_id
    client.log_dict(run, {"checks": [], "profile": asdict(PROFILE)}, "data/validation.json")
    client.create_model_version("attacker", source="x", run_id=run)
    client.create_model_version("attacker", source="x")
    client.set_registered_model_alias("attacker", "champion", "1")

    found = accepted_data(client, "attacker")
    assert ("1", {"prompts": PROFILE}) == (found.version, found.profiles)
