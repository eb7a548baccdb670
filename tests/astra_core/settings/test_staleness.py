import pytest
from each_row import each_row

from astra_core.config import StalenessConfiguration, TrainingConfiguration
from astra_core.errors import ConfigurationError


def test_nothing_is_stale_unless_it_is_asked_for():
    assert 0 == TrainingConfiguration().staleness.max_versions


@each_row(
    ("given", "reason"),
    [
        ({"max_versions": 1, "cap": 2.0}, "cap must be left out when correction is 'none'"),
        ({"max_versions": 1, "correction": "sequence_mask", "cap": 1.0}, "cap must be above 1"),
        ({"max_versions": -1}, "greater than or equal to 0"),
    ],
)
def test_a_setting_without_effect_is_refused(given, reason):
    with pytest.raises(ConfigurationError, match=reason):
        StalenessConfiguration(**given)


def test_a_correction_needs_an_older_attacker_or_another_engine():
    own = {"staleness": {"correction": "token"}}

    with pytest.raises(ConfigurationError, match=r"staleness.correction must be left out when max"):
        TrainingConfiguration.read(own, where="training")
    served = TrainingConfiguration.read({**own, "trainer": {"name": "vllm"}}, where="training")
    assert "token" == served.staleness.correction
