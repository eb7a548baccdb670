import pytest
from tiny_training import configured, sampler_of

from astra_core.errors import ConfigurationError
from astra_core.registry import build
from astra_core.services.service_trainer import ServiceTrainer
from astra_core.testing import tiny_system


class Elsewhere(ServiceTrainer):
    name = "elsewhere"


def test_a_trainer_at_a_service_must_have_a_store():
    config, system = configured(), tiny_system(1)
    algorithm = build("algorithm", config.algorithm, system=system)

    with pytest.raises(ConfigurationError, match="trainer 'elsewhere' must have a store and one"):
        Elsewhere(config, sampler_of(system), algorithm)
