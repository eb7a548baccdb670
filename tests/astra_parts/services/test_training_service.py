from inspect import signature

from played_service import PlayedService

from astra_parts.services.tinker_client import TinkerService
from astra_parts.services.training_service import TrainingService


def test_every_service_takes_every_call():
    calls = [name for name in vars(TrainingService) if not name.startswith("_")]
    for kind in (TinkerService, PlayedService):
        for name in calls:
            wanted = list(signature(getattr(TrainingService, name)).parameters)
            assert wanted == list(signature(getattr(kind, name)).parameters), (kind, name)
