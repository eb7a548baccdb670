import pytest

from tasks.expectations.rollout_warnings import rollout_warnings

pytestmark = pytest.mark.real


def test_nothing_here_stops_a_run():
    assert {"warning"} == {each.meta["level"] for each in rollout_warnings()}
