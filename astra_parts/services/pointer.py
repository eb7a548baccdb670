"""Pointers: the folder of an attacker whose weights stay at a service.

It has configuration and tokenizer but no weights, so that a program that does not know pointers
fails to load it, instead of using the untrained weights.
"""

import hashlib
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import Field

from astra_core.agents import read_note
from astra_core.config import Section
from astra_core.errors import ConfigurationError
from astra_core.files import write_json
from astra_core.models.folders import POINTER
from astra_core.models.language_model import LanguageModel
from astra_core.registry import resolve
from astra_parts.services.adapters import add_from
from astra_parts.services.speaker import KeptDraws, Speaker
from astra_parts.services.training_service import Draw, TrainingService

_WEIGHTS = ("*.safetensors", "*.safetensors.index.json")
_RETRIES = 3


class ServicePointer(Section):
    """Where the weights of an attacker are."""

    trainer: str = Field(min_length=1, description="The trainer's name in params.yaml.")
    options: dict[str, Any] = Field(description="The trainer's options, which name the service.")
    path: str = Field(min_length=1, description="The service's path of the published weights.")
    state: str = Field(min_length=1, description="Path of the state to publish again.")
    base: str = Field(min_length=1, description="Digest of the local weights that they adapt.")

    def service(self) -> TrainingService:
        """The service, if its host is authorised; sends nothing yet."""
        kind = resolve("trainer", self.trainer)
        service: TrainingService = kind.connected(
            kind.Options.read(self.options, where=f"{POINTER}: options")
        )
        return service

    def try_out(self, contexts: Sequence[Sequence[int]], *, max_tokens: int) -> None:
        """Raises TrainingError unless the service samples after each context."""
        service = self.service()
        draws = [Draw(tuple(context), 0, max_tokens, ()) for context in contexts]
        found = service.draw(draws, self.path)
        if any(isinstance(each, Exception) for each in found):
            found = service.draw(draws, self.revive(service))
        for each in found:
            if isinstance(each, Exception):
                raise each

    def revive(self, service: TrainingService) -> str:
        """The path of the weights, published again from the state that was saved with them."""
        service.go_on_from(self.state)
        return service.publish(self.path.rpartition("/")[2])

    def check(self, model: LanguageModel) -> None:
        """Raises ConfigurationError unless the service's weights adapt those of this model."""
        if (found := parameters_digest(model)) != self.base:
            msg = (
                f"models.attacker must have the weights {self.base[:12]} that those at the service "
                f"change, got {found[:12]}; name the model that the attacker was trained from"
            )
            raise ConfigurationError(msg)


def read_pointer(folder: Path) -> ServicePointer | None:
    """The pointer in an attacker's folder; None where the folder has weights."""
    return read_note(folder / POINTER, ServicePointer, advice="register the attacker again")


def leave_pointer(pointer: ServicePointer, folder: Path) -> None:
    """Replaces the weights in an attacker's folder by the pointer."""
    for pattern in _WEIGHTS:
        for file in folder.glob(pattern):
            file.unlink()
    write_json(pointer.model_dump(mode="json"), folder / POINTER)


def speak_from(
    pointer: ServicePointer, model: LanguageModel, *, kept: Path, max_tokens: int | None = None
) -> Speaker:
    """Makes the model sample with the weights at the service.

    Args:
        kept: File of earlier samples, which are not asked for again.
        max_tokens: Most tokens to read and sample for everything in that file; None for no limit.
    """
    pointer.check(model)
    service = pointer.service()
    speaker = Speaker(
        service,
        KeptDraws(kept),
        retries=_RETRIES,
        max_tokens=max_tokens,
        revive=lambda _: pointer.revive(service),
    )
    speaker.path, speaker.leaves = pointer.path, partial(leave_pointer, pointer)
    model.elsewhere = speaker
    return speaker


def bring(pointer: ServicePointer, model: LanguageModel) -> None:
    """Adds the weights at the service to those of the model.

    Raises ConfigurationError if they adapt other weights than the model's, TrainingError if the
    service does not give them.
    """
    pointer.check(model)
    add_from(pointer.service(), pointer.path, model.model)


def parameters_digest(model: LanguageModel) -> str:
    """SHA-256 over the names and the values of the weights."""
    found = hashlib.sha256()
    for name, value in sorted(model.model.state_dict().items()):
        found.update(f"{name} {value.dtype} {tuple(value.shape)}".encode())
        found.update(value.detach().cpu().contiguous().numpy().tobytes())
    return found.hexdigest()
