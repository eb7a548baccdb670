import pytest
from each_row import each_row

from astra_core.errors import ConfigurationError
from tasks.promotion.decision import make_candidate
from tasks.tracking.store import connect

pytestmark = pytest.mark.real


@pytest.fixture
def client(in_memory):
    """A registry with two versions, of which the second is the candidate."""
    client = connect()
    client.create_registered_model("attacker")
    for _ in range(2):
        client.create_model_version("attacker", source="nowhere")
    client.set_registered_model_alias("attacker", "candidate", "2")
    return client


def candidate(client):
    return client.get_registered_model("attacker").aliases["candidate"]


def test_an_earlier_version_is_candidate_again(client):
    make_candidate("attacker", "1", client=client)

    assert "1" == str(candidate(client))


@each_row("version", ["3", "champion", "", "-1"])
def test_a_version_that_is_none_changes_nothing(client, version):
    with pytest.raises(ConfigurationError, match="must be the number of a version of 'attacker'"):
        make_candidate("attacker", version, client=client)

    assert "2" == str(candidate(client))
