"""Where a hardening keeps what it makes: a folder named by everything that decides it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from astra_core.errors import ConfigurationError
from astra_core.files import file_digest, folder_digest, record_digest, write_json, write_text
from astra_core.models.folders import attacker_digest
from tasks.figures.crossing import BASE, base_with_target
from tasks.figures.examination import EvaluationParams
from tasks.params.schema import Params
from tasks.pipeline.stage import sections_for
from tasks.records.models import read_manifest, read_model_paths
from tasks.sources.requests import requests_file

if TYPE_CHECKING:
    from astra_core.system import System

ATTACKER = Path("models/attacker")
VALID = Path("data/valid")
HARDENED = Path("models/hardened")
FINDINGS = "findings.json"
_ENDED = "ended"
_LIMITS = ("rounds", "max_success", "max_over_refusal", "max_perplexity_ratio")
_OTHER = {"flow", "promotion", "registration", "tracking"}


@dataclass(frozen=True, slots=True)
class HardeningPlace:
    """The folder of one hardening, and the sections of params.yaml that decide it."""

    folder: Path
    params: Params

    @classmethod
    def of(cls, params: Params, *, code: str, findings: Sequence[str], is_fresh: bool) -> Self:
        """The place that these parameters, models, prompts, requests and findings decide.

        Args:
            code: Digest of the code, and of the files that params.yaml names.
            findings: IDs of those that the first round learns from.
            is_fresh: Whether each target meets an attacker that was trained on it.

        Raises ConfigurationError if no attacker is trained, or the target has no weights here.
        """
        check_can_harden(params)
        told: Mapping[str, Any] = params.model_dump(mode="json", exclude=_OTHER)
        for name in _LIMITS:
            del told["hardening"][name]
        digests = [read_manifest(BASE).digests(), attacker_digest(ATTACKER), folder_digest(VALID)]
        requests = file_digest(requests_of(params))
        settings = record_digest([told, code, digests, requests, is_fresh])[:12]
        return cls(HARDENED / f"{settings}-{record_digest([*findings])[:8]}", params)

    def begin(self, findings: Sequence[str]) -> Self:
        """Where a hardening works: here, or where one was killed with all but its findings equal.

        What was found or labelled since then must not make that one's work worthless.
        """
        place = self
        if not self.file(FINDINGS).is_file():
            begun = [path.parent for path in HARDENED.glob(f"{self.settings}-*/{FINDINGS}")]
            killed = [folder for folder in begun if not (folder / _ENDED).is_file()]
            if killed:
                place = replace(self, folder=max(killed, key=lambda own: own.stat().st_mtime))
            else:
                write_json([*findings], self.file(FINDINGS))
        place.file(_ENDED).unlink(missing_ok=True)
        return place

    def end(self) -> None:
        """Lets the next hardening learn from what was found since."""
        write_text("", self.file(_ENDED))

    @property
    def settings(self) -> str:
        """The part of its name that findings do not decide."""
        return self.key.partition("-")[0]

    @property
    def key(self) -> str:
        """Its name."""
        return self.folder.name

    def target(self, number: int) -> Path:
        """The target after a round; 0 is the one of the project."""
        return self.folder / f"target_{number}" if number else read_model_paths(BASE)["target"]

    def attacker(self, number: int) -> Path:
        """The attacker that was trained on the target of this number; 0 is the old one."""
        return self.folder / f"attacker_{number}" if number else ATTACKER

    def attackers(self, number: int) -> list[int]:
        """The attackers there are up to this number."""
        return [own for own in range(number + 1) if self.attacker(own).is_dir()]

    def base(self, number: int) -> Path:
        """A folder as the models stage writes it, with the target of this number."""
        return base_with_target(self.target(number), self.params) if number else BASE

    def system(self, number: int) -> "System":
        """The System with the target of this number."""
        return sections_for(EvaluationParams, self.params).load(self.base(number))

    def file(self, name: str) -> Path:
        """A file of its own."""
        return self.folder / name


def check_can_harden(params: Params) -> None:
    """Raises ConfigurationError if no attacker is trained, or the target has no weights here."""
    if not (ATTACKER / "config.json").is_file():
        msg = f"{ATTACKER} must hold the trained attacker, got none; 'astra run' trains it"
        raise ConfigurationError(msg)
    if params.system.target.name != "causal_lm":
        name = params.system.target.name
        msg = f"system.target must be causal_lm to be trained here, got '{name}'"
        raise ConfigurationError(msg)


def requests_of(params: Params) -> Path:
    """The file of harmless requests.

    Raises ConfigurationError if there is none.
    """
    path = requests_file(params.evaluation)
    if path is None or not path.is_file():
        msg = (
            f"evaluation.benign_prompts must name harmless requests to harden a target, got "
            f"{path or 'null'}; builtin is 63 of them"
        )
        raise ConfigurationError(msg)
    return path
