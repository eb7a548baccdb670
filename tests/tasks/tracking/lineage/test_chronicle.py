import pytest

from tasks.tracking.errors import TrackingError
from tasks.tracking.lineage.chronicle import lineage_of, version_summaries
from tasks.tracking.lineage.logged import log_inputs
from tasks.tracking.store import connect

pytestmark = pytest.mark.real


@pytest.fixture
def client(in_memory):
    return connect()


RATES = {"attack_success_rate": "0.5", "attack_success_rate_low": "0.4"}


def _version(client, **tags):
    """A version with a run of its own."""
    if not client.search_registered_models():
        client.create_registered_model("attacker")
    run = client.create_run("0", tags={"git.commit": "abc", "version.torch": "2", "own": "x"})
    tags = {name.replace("__", "."): value for name, value in tags.items()}
    made = client.create_model_version("attacker", source="x", run_id=run.info.run_id, tags=tags)
    return made.version, run.info.run_id


def test_versions_are_listed_newest_first_with_their_aliases(client):
    assert [] == version_summaries(client, "attacker")

    _version(client, seed="3", lift="0.25", **RATES, attack_success_rate_high="0.6")
    _version(client, **RATES, lift="many", promotion__decision="refused")
    client.set_registered_model_alias("attacker", "champion", "1")
    client.set_registered_model_alias("attacker", "best", "1")
    newest, oldest = version_summaries(client, "attacker")

    assert ("2", (), "refused") == (newest.version, newest.aliases, newest.decision)
    # Half an interval is none, and neither is a gain that is no number.
    assert (None, None) == (newest.attack_success_rate, newest.lift)
    assert ("1", ("best", "champion"), "3") == (oldest.version, oldest.aliases, oldest.seed)
    assert ((0.5, 0.4, 0.6), 0.25) == (oldest.attack_success_rate, oldest.lift)
    assert "+00:00" in oldest.created


def test_more_versions_than_a_page_holds_are_all_listed(client, monkeypatch):
    monkeypatch.setattr("tasks.tracking.lineage.logged._PAGE", 2)
    for _ in range(5):
        _version(client)

    assert list("54321") == [each.version for each in version_summaries(client, "attacker")]


def test_a_lineage_has_data_code_and_the_chain_of_parents(client, tmp_path):
    (tmp_path / "prompts").mkdir()
    (tmp_path / "prompts/one").write_text("one")
    _version(client)
    _version(client, astra__parent_version="1")
    number, run_id = _version(client, astra__parent_version="2", scorer="profanity")
    log_inputs(client, run_id, {"prompts": tmp_path / "prompts"})
    client.set_registered_model_alias("attacker", "champion", number)
    found = lineage_of(client, "attacker", "champion")

    assert found == lineage_of(client, "attacker", "3")
    assert ("2", "1") == found.parents
    assert {"git.commit": "abc", "version.torch": "2"} == found.code
    assert ["prompts"] == [data.part for data in found.data]
    assert (None, "") == (found.data[0].num_rows, found.data[0].dvc_md5)
    assert "profanity" == found.record()["scorer"]


def test_a_version_that_is_not_there_is_named_with_those_that_are(client):
    with pytest.raises(TrackingError, match=r"'best', got none; see 'astra history'"):
        lineage_of(client, "attacker", "best")
    _version(client)
    with pytest.raises(TrackingError, match=r"version or alias 'best', got \['1'\]"):
        lineage_of(client, "attacker", "best")


def test_a_parent_that_was_deleted_ends_the_chain(client):
    _version(client, astra__parent_version="7")

    assert ("7",) == lineage_of(client, "attacker", "1").parents
