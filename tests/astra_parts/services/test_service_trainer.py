from dataclasses import replace

import pytest
from tiny_agents import agents_config, agents_system
from tiny_training import configured, sampler_of

from astra_core.config import Choice
from astra_core.crew import Crew
from astra_core.errors import ConfigurationError
from astra_core.registry import build
from astra_core.training.checkpoint import CheckpointStore
from astra_core.training.team import build_algorithm
from astra_parts.executors.scoring import executor_of
from astra_parts.services.service_trainer import ServiceTrainer
from astra_parts.testing import tiny_system


class Elsewhere(ServiceTrainer):
    name = "elsewhere"


def test_a_trainer_at_a_service_must_have_a_store():
    config, system = configured(), tiny_system(1)
    algorithm = build("algorithm", config.algorithm, system=system)

    with pytest.raises(ConfigurationError, match="trainer 'elsewhere' must have a store and one"):
        Elsewhere(config, sampler_of(system), algorithm)


def test_several_agents_are_refused_before_anything_is_paid(tmp_path):
    config = configured()
    system = agents_system(tmp_path, agents_config())
    algorithm, store = build_algorithm(config, system), CheckpointStore(tmp_path, keep=1)

    with pytest.raises(ConfigurationError, match=r"system\.roles must be empty .*'elsewhere', got"):
        Elsewhere(config, sampler_of(system), algorithm, store=store)


def test_workers_that_do_not_know_the_service_are_refused(tmp_path):
    config = configured()
    crew = Crew(executor_of(Choice(name="processes")), 1, tiny_system)
    system = replace(tiny_system(1), crew=crew)
    algorithm = build("algorithm", config.algorithm, system=system)
    store = CheckpointStore(tmp_path, keep=1)

    with pytest.raises(ConfigurationError, match=r"executor must be 'local' for trainer 'elsewher"):
        Elsewhere(config, sampler_of(system), algorithm, store=store)
