import pytest
import yaml
from hardening_world import QUICK, make_hardening_world
from registry_project import enter_project

from astra_core.errors import ConfigurationError
from astra_core.files import read_json
from flows.hardening import PAGE, hardening
from tasks.records.hardening import HARDENING, NOTHING_FOUND

pytestmark = pytest.mark.real


@pytest.fixture
def project(tmp_path, monkeypatch, prefect_server):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    enter_project(tmp_path, monkeypatch)
    make_hardening_world(tmp_path, monkeypatch)
    values = QUICK.model_dump(mode="json", exclude_defaults=True)
    values["flow"] = {"retries": 0}
    (tmp_path / "params.yaml").write_text(yaml.safe_dump(values), encoding="utf-8")
    return tmp_path


def test_rounds_are_measured_registered_and_told_and_more_of_them_go_on(project):
    first = hardening(1, fresh=False)
    written = {path: path.read_bytes() for path in (project / "models/hardened").rglob("*.*")}
    found = hardening(2, fresh=False)

    assert ["", "1"] == [own.version for own in first.rounds]
    assert first.rounds == found.rounds[:2]
    assert {0: {0}, 1: {0}} == {target: set(cells) for target, cells in first.success.items()}
    # What the old attacker finds where the target is measured is not learned.
    assert (NOTHING_FOUND, 2) == (found.ended, len(found.rounds))
    assert all(path.read_bytes() == own for path, own in written.items())
    assert found.ended == read_json(HARDENING)["ended"]
    assert "version 1" in PAGE.read_text()
    assert "bad" not in PAGE.read_text()


def test_without_an_attacker_nothing_begins(project):
    (project / "models/attacker/config.json").unlink()
    with pytest.raises(ConfigurationError, match="must hold the trained attacker, got none"):
        hardening()
