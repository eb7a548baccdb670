"""The file of a trainer at a service: the next stage, all requests and their results.

Every remote effect is written down twice: its *intent* before (stage, iteration, key, digest of the
request) and its *result* after (an id, a path, figures). An intent without a result is left by a
crash: a resumed run first asks the service whether it has the result, and only then asks again.
"""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from astra_core.errors import CheckpointError
from astra_core.files import read_json, record_digest, write_json

_FORMAT = 1
_KEY_LENGTH = 24

Result = dict[str, Any]
"""The result of an effect, as JSON: ids, paths, digests, figures; large data have own files."""


@dataclass(frozen=True, slots=True)
class Intent:
    """A request that is about to be sent to a service.

    Attributes:
        part: Distinguishes several effects of a stage, for example by a model's name; empty for a
            single one.
        key: The effect's name at the service: the same after a restart, and in no other run.
    """

    stage: str
    iteration: int
    part: str
    key: str
    digest: str

    @property
    def name(self) -> str:
        """The effect's name within its run."""
        return effect_name(self.stage, self.iteration, self.part)


@dataclass(slots=True)
class Effect:
    """An intent, and its result once there is one."""

    intent: Intent
    result: Result | None = None


@dataclass(slots=True)
class TrainerState:
    """Which stage is next, and all effects so far; every change is on disk before it is used.

    Attributes:
        run: The run's name at the services; the same after a restart.
        stage: The next stage; empty in a run that has not begun.
    """

    path: Path
    run: str
    iteration: int = 0
    stage: str = ""
    effects: dict[str, Effect] = field(default_factory=dict)

    @classmethod
    def open(cls, path: Path, *, run: str) -> Self:
        """The state in the file, or a new one.

        Raises CheckpointError if the file is damaged, or of another run.
        """
        if not path.exists():
            return cls(path, run)
        try:
            record = read_json(path)
            known, kind = record["run"], record["format"]
            effects = [
                Effect(Intent(**each["intent"]), each["result"]) for each in record["effects"]
            ]
            state = cls(path, known, int(record["iteration"]), str(record["stage"]))
        except (OSError, ValueError, KeyError, TypeError) as error:
            msg = f"{path} must hold a trainer's state, got {type(error).__name__}: {error}"
            raise CheckpointError(msg) from error
        if (known, kind) != (run, _FORMAT):
            msg = (
                f"{path} must be of run {run!r} in format {_FORMAT}, got {known!r} in {kind}; name "
                "another folder"
            )
            raise CheckpointError(msg)
        state.effects = {effect.intent.name: effect for effect in effects}
        return state

    def move_to(self, iteration: int, stage: str) -> None:
        """Records that everything before this stage is done."""
        self.iteration, self.stage = iteration, stage
        self._write()

    def result(self, stage: str, iteration: int, part: str = "") -> Result | None:
        """The result of an effect; None if it was not done."""
        effect = self.effects.get(effect_name(stage, iteration, part))
        return effect.result if effect else None

    def once(
        self,
        part: str,
        request: Any,
        *,
        do: Callable[[Intent], Mapping[str, Any]],
        look_up: Callable[[Intent], Mapping[str, Any] | None] | None = None,
    ) -> Result:
        """The result of an effect of the present stage, which is done at most once.

        Args:
            part: Distinguishes the stage's effects; empty if it has only one.
            request: The request as JSON; the same after a restart.
            look_up: Finds the result of an earlier process's intent at the service. If it is None,
                or returns None, the effect is done again.

        Raises CheckpointError if an effect of this name was begun with another request.
        """
        intent = self._intent(part, record_digest(request))
        known = self.effects.get(intent.name)
        if known is not None:
            if known.intent != intent:
                msg = (
                    f"{self.path}: {intent.name} must ask what it asked before the restart, got "
                    "another request; restore the parameters or name another folder"
                )
                raise CheckpointError(msg)
            if known.result is not None:
                return known.result
        found = look_up(intent) if known is not None and look_up is not None else None
        if found is None:
            self.effects[intent.name] = Effect(intent)
            self._write()
            found = do(intent)
        self.effects[intent.name] = Effect(intent, dict(found))
        self._write()
        return dict(found)

    def _intent(self, part: str, digest: str) -> Intent:
        stage, iteration = self.stage, self.iteration
        name = [self.run, *effect_name(stage, iteration, part).split("/")]
        key = f"astra-{record_digest(name)[:_KEY_LENGTH]}"
        return Intent(stage, iteration, part, key, digest)

    def _write(self) -> None:
        record = {
            "format": _FORMAT,
            "run": self.run,
            "iteration": self.iteration,
            "stage": self.stage,
            "effects": [asdict(effect) for effect in self.effects.values()],
        }
        write_json(record, self.path)


def effect_name(stage: str, iteration: int, part: str = "") -> str:
    """The name of an effect within its run."""
    return f"{iteration}/{stage}" + (f"/{part}" if part else "")
