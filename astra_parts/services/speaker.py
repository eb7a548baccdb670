"""An attacker that samples at a service: every draw is kept on disk before it is used.

A killed run that samples the same again finds its draws, so no token is paid for twice.
"""

import json
import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from astra_core.config import GenerationConfiguration
from astra_core.errors import BudgetError, ConfigurationError, RolloutError, TrainingError
from astra_core.files import record_digest
from astra_core.models.language_model import LanguageModel
from astra_core.models.utterances import Continuations, Utterance
from astra_core.system import System
from astra_parts.services.training_service import Draw, Drawn, TrainingService

_PLAIN = GenerationConfiguration(min_new_tokens=0)


class KeptDraws:
    """Draws and scores by the digest of the request, with their tokens, in one SQLite file."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._base = sqlite3.connect(path, isolation_level=None)
        path.chmod(0o600)
        self._base.execute("CREATE TABLE IF NOT EXISTS kept (key TEXT PRIMARY KEY, value TEXT)")
        self._base.execute(
            "CREATE TABLE IF NOT EXISTS tokens (key TEXT PRIMARY KEY, read INT, sampled INT)"
        )

    def get(self, key: str) -> list[list[float]] | None:
        """The value under a key; None without one."""
        row = self._base.execute("SELECT value FROM kept WHERE key = ?", (key,)).fetchone()
        return None if row is None else json.loads(row[0])

    def add(
        self, key: str, value: Sequence[Sequence[float]], *, read: int, sampled: int = 0
    ) -> None:
        """Keeps a value and its tokens; both are on disk when this returns."""
        self._base.execute("BEGIN")
        self._base.execute("INSERT OR REPLACE INTO kept VALUES (?, ?)", (key, json.dumps(value)))
        self._base.execute("INSERT OR REPLACE INTO tokens VALUES (?, ?, ?)", (key, read, sampled))
        self._base.execute("COMMIT")

    def tokens(self) -> tuple[int, int]:
        """The tokens that the service has read and sampled for everything that is kept."""
        row = self._base.execute("SELECT total(read), total(sampled) FROM tokens").fetchone()
        return int(row[0]), int(row[1])


class Speaker:
    """Samples and scores with the weights at ``path``.

    Args:
        max_tokens: Most tokens that the service may read and sample for everything that is kept;
            None for no limit.
        revive: Publishes the weights at a path again, for a service that samples only while the
            model that they came from is loaded; returns their new path.

    Attributes:
        path: The path at which the weights were first published, by which draws are kept; None
            for the base model.
        min_group: Draws of a context that must succeed; None for all. A draw that fails after all
            tries is then an utterance without a token.
        leaves: Called with a folder in which the attacker was saved; None for nothing.
    """

    is_mirror = False

    def __init__(
        self,
        service: TrainingService,
        kept: KeptDraws,
        *,
        retries: int = 0,
        max_tokens: int | None = None,
        revive: Callable[[str], str] | None = None,
    ) -> None:
        self.path: str | None = None
        self.min_group: int | None = None
        self.leaves: Callable[[Path], None] | None = None
        self._service, self._kept, self._retries = service, kept, retries
        self._max_tokens = max_tokens
        self._revive = revive
        self._places: dict[str, str] = {}

    @property
    def place(self) -> str | None:
        """The present path of the weights."""
        return None if self.path is None else self._places.get(self.path, self.path)

    def leave(self, folder: Path) -> None:
        """Replaces the local weights in the attacker's folder if the trained ones stay away."""
        if self.leaves is not None:
            self.leaves(folder)

    def continuations(
        self,
        model: LanguageModel,
        contexts: Sequence[Sequence[int]],
        keys: Sequence[Sequence[bytes]],
        *,
        generation: GenerationConfiguration,
    ) -> list[Continuations]:
        """The utterances after each context, one for each of its keys.

        Raises RolloutError if too many draws of a context failed.
        """
        draws = [
            Draw(tuple(context), _seed(key), generation.max_new_tokens, model.end_ids)
            for context, own in zip(contexts, keys, strict=True)
            for key in own
        ]
        stream = iter(self._draw(draws))
        found = [self._viable([next(stream) for _ in own]) for own in keys]
        return [Continuations(tuple(_utterance(model, one) for one in own), ()) for own in found]

    def score(
        self, contexts: Sequence[Sequence[int]], continuations: Sequence[Sequence[int]]
    ) -> list[tuple[float, ...]]:
        """Log-probability of every continuation token given its context, nats."""
        whole = [[*c, *own] for c, own in zip(contexts, continuations, strict=True)]
        keys = [record_digest(["score", self.path, ids]) for ids in whole]
        known = {key: self._kept.get(key) for key in keys}
        missing = [at for at, key in enumerate(keys) if known[key] is None]
        asked = [whole[at] for at in missing]
        for at, row in zip(missing, self._ask_for_scores(asked), strict=True):
            self._kept.add(keys[at], [row], read=len(whole[at]))
            known[keys[at]] = [list(row)]
        rows = [(known[key] or [[]])[0] for key in keys]
        lengths = map(len, continuations)
        return [tuple(row[len(row) - n :]) for row, n in zip(rows, lengths, strict=True)]

    def _draw(self, draws: Sequence[Draw]) -> list[Drawn | Exception]:
        keys = [record_digest([self.path, asdict(draw)]) for draw in draws]
        found: dict[int, Drawn | Exception] = {}
        for at, key in enumerate(keys):
            if (row := self._kept.get(key)) is not None:
                found[at] = Drawn(tuple(map(int, row[0])), tuple(row[1]))
        for _ in range(1 + self._retries):
            missing = [at for at in range(len(draws)) if not isinstance(found.get(at), Drawn)]
            if not missing:
                break
            asked = self._ask_for_draws([draws[at] for at in missing])
            for at, drawn in zip(missing, asked, strict=True):
                found[at] = drawn
                if isinstance(drawn, Drawn):
                    value, read = [drawn.token_ids, drawn.logprobs], len(draws[at].context)
                    self._kept.add(keys[at], value, read=read, sampled=len(drawn.token_ids))
        return [found[at] for at in range(len(draws))]

    def _ask_for_draws(self, draws: Sequence[Draw]) -> list[Drawn | Exception]:
        """The result of each draw; if all fail, of another try after the weights are revived."""
        self._afford(sum(len(draw.context) + draw.max_tokens for draw in draws))
        found = self._service.draw(draws, self.place)
        if all(isinstance(each, Exception) for each in found) and self._is_revived():
            return self._service.draw(draws, self.place)
        return found

    def _afford(self, num_tokens: int) -> None:
        """Raises BudgetError unless this many more tokens stay within the limit."""
        spent = sum(self._kept.tokens())
        if self._max_tokens is not None and num_tokens and spent + num_tokens > self._max_tokens:
            msg = (
                f"evaluation.max_service_tokens must cover what the service reads and samples, got "
                f"{self._max_tokens}, of which {spent} are spent, for {num_tokens} more at most; "
                "raise it (what was answered is kept), or evaluate fewer prompts"
            )
            raise BudgetError(msg)

    def _ask_for_scores(self, sequences: Sequence[Sequence[int]]) -> Sequence[tuple[float, ...]]:
        self._afford(sum(map(len, sequences)))
        try:
            return self._service.score(sequences, self.place)
        except TrainingError:
            if not self._is_revived():
                raise
            return self._service.score(sequences, self.place)

    def _is_revived(self) -> bool:
        """Whether the weights could be published again; tried once in a process."""
        if self._revive is None or self.path is None or self.path in self._places:
            return False
        try:
            self._places[self.path] = self._revive(self.path)
        except TrainingError:
            # The service's error for the draws is reported instead.
            return False
        return True

    def _viable(self, own: Sequence[Drawn | Exception]) -> list[Drawn]:
        failed = [each for each in own if isinstance(each, Exception)]
        needed = len(own) if self.min_group is None else min(self.min_group, len(own))
        if len(own) - len(failed) < needed:
            msg = (
                f"trainer 'remote': {needed} of the {len(own)} draws after a context must succeed, "
                f"got {len(own) - len(failed)}; {failed[0]}"
            )
            raise RolloutError(msg)
        return [each if isinstance(each, Drawn) else Drawn((), ()) for each in own]


def check_plain(generation: GenerationConfiguration) -> None:
    """Checks that a service samples in this way: from the unmodified model without truncation.

    Raises ConfigurationError if it would drop a setting, or its log-probabilities would be of
    another distribution than the one that sampled.
    """
    for name in type(generation).model_fields:
        value, plain = getattr(generation, name), getattr(_PLAIN, name)
        if name != "max_new_tokens" and value != plain:
            msg = (
                f"system.probe.{name} must be {plain} for trainer 'remote', got {value}: a service "
                "samples from the unmodified model"
            )
            raise ConfigurationError(msg)


def check_here(system: System, *, subject: str) -> None:
    """Checks that this process rolls out, since only it knows that the attacker is at a service."""
    if system.crew is not None and not system.crew.executor.is_here:
        msg = (
            f"executor must be 'local' for {subject}, got {type(system.crew.executor).__name__}: "
            "its workers would sample from the weights here, not from those at the service"
        )
        raise ConfigurationError(msg)


def _utterance(model: LanguageModel, drawn: Drawn) -> Utterance:
    ids = drawn.token_ids
    has_ended = bool(ids) and ids[-1] in model.end_ids
    return Utterance(model.decode(ids), ids, drawn.logprobs, has_ended)


def _seed(key: bytes) -> int:
    return int.from_bytes(key[:4], "big") >> 1
