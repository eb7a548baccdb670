from registry_project import receipt

from tasks.records.receipt import RegistrationReceipt
from tasks.records.reports import read_record, write_record


def test_a_receipt_survives_its_file(tmp_path):
    write_record(receipt(), tmp_path / "r.json")

    assert receipt() == read_record(tmp_path / "r.json", RegistrationReceipt)


def test_the_summary_names_version_checkpoint_and_run():
    line = receipt(checkpoint_digest="c0" * 32, run_id="ab" * 16).summary()

    assert "attacker version 1 is candidate (checkpoint c0c0c0c0c0c0, run abababababab)" == line
