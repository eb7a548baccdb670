import shutil
from pathlib import Path

import pytest

from astra_core.errors import DataError
from tasks.records.baselines import BASELINES, BaselineRecord
from tasks.records.hardening import HARDENING
from tasks.records.receipt import RECEIPT, RegistrationReceipt
from tasks.records.reports import read_record, write_record
from tasks.report.material import read_material
from tasks.tracking.errors import TrackingError
from tasks.tracking.registry.versions import CHECKPOINT_DIGEST_TAG
from tasks.tracking.store import connect

pytestmark = pytest.mark.real


@pytest.fixture
def receipt(candidate_in_memory):
    return read_record(RECEIPT, RegistrationReceipt)


def test_a_version_is_found_by_number_alias_and_run(receipt):
    client = connect()
    found = read_material(client, "attacker", "1")

    assert "attacker version 1" == found.name
    assert 0.6 == found.evaluation.rate().value
    assert ("dpo", "builtin") == (
        found.params["training"]["algorithm"]["name"],
        found.params["prompts"]["source"],
    )
    assert {"validation", "rollouts"} == set(found.data)
    assert found.seconds is not None
    for wanted in ("candidate", receipt.run_id):
        assert "1" == read_material(client, "attacker", wanted).lineage.summary.version


def test_baselines_are_those_of_its_examination(receipt):
    client = connect()
    found = read_material(client, "attacker", "1")
    digest = client.get_model_version("attacker", "1").tags[CHECKPOINT_DIGEST_TAG]
    own = BaselineRecord(found.examination, digest, 4, 2, 2, 1, ())
    assert found.baselines is None
    write_record(own, BASELINES)

    assert own == read_material(client, "attacker", "1").baselines


def test_a_record_of_a_hardening_that_cannot_be_read_leaves_the_report(receipt):
    HARDENING.write_text("{")

    assert read_material(connect(), "attacker", "1").hardening is None


def test_what_is_not_there_is_named(receipt):
    client = connect()
    with pytest.raises(TrackingError, match="must have a version of 'attacker', got none"):
        read_material(client, "attacker", "ab" * 16)
    with pytest.raises(TrackingError, match="version or alias '7'"):
        read_material(client, "attacker", "7")
    shutil.rmtree(Path(client.get_run(receipt.run_id).info.artifact_uri) / "evaluation")
    with pytest.raises(DataError, match="version 1 of 'attacker' must have its examination"):
        read_material(client, "attacker", "1")
