import pytest
from each_row import each_row

from astra_core.config import KLConfiguration
from astra_core.errors import ConfigurationError


def test_no_experience_moves_far_unnoticed_by_default():
    config = KLConfiguration()

    assert config.max_per_experience_nats <= config.warn_per_experience_nats < 30.0


@each_row("name", KLConfiguration.model_fields)
def test_a_limit_is_positive_or_null(name):
    assert getattr(KLConfiguration.read({name: None}, where="training.kl"), name) is None
    with pytest.raises(ConfigurationError, match=f"training.kl.{name}"):
        KLConfiguration.read({name: 0.0}, where="training.kl")
