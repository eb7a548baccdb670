"""The memory of one worker: prepared works and their weights; other versions are refused."""

from dataclasses import dataclass, field
from typing import Any

from astra_core.errors import AstraError, StaleWorkerError
from astra_core.errors.exception_text import error_line, masked_trace
from astra_core.executor import Weights, Work


@dataclass(slots=True)
class Held:
    """What the parent knows that a worker holds, so that only the rest is sent."""

    holder: str = ""
    works: set[str] = field(default_factory=set)
    version: str = ""

    def missing(self, work: Work, weights: Weights | None) -> tuple[Work | None, Weights | None]:
        """The work and weights that must be sent along; from now on it holds them."""
        # To get the first weights back after others, the work is prepared again.
        if work.holder != self.holder or (weights is None and self.version):
            self.holder, self.version = work.holder, ""
            self.works.clear()
        is_known = work.key in self.works
        is_same = weights is None or weights.version == self.version
        self.works.add(work.key)
        self.version = weights.version if weights else self.version
        return None if is_known else work, None if is_same else weights


@dataclass(frozen=True, slots=True)
class Task:
    """One shard, with the work and the weights to use.

    ``version``: the version of its weights; empty for those it was prepared with.
    """

    key: str
    version: str
    shard: Any

    @classmethod
    def of(cls, work: Work, weights: Weights | None, shard: Any) -> "Task":
        """The task of this shard."""
        return cls(work.key, weights.version if weights else "", shard)


class Bench:
    """A worker's memory between calls.

    It holds the works of one holder at a time: the models of two might not fit.

    ``version``: the version of its weights; empty for those they were prepared with.
    """

    def __init__(self) -> None:
        self._kept: dict[str, Any] = {}
        self._works: dict[str, tuple[Work, Any]] = {}
        self.holder = ""
        self.version = ""

    def answer(
        self, task: Task, work: Work | None, weights: Weights | None
    ) -> tuple[Any, Exception | None]:
        """The result of ``do``, or the error with its trace as a note, for the parent to raise."""
        try:
            return self.do(task, work, weights), None
        except (Exception, SystemExit) as error:  # noqa: BLE001 - raised again in the parent
            return None, portable(error)

    def do(self, task: Task, work: Work | None = None, weights: Weights | None = None) -> Any:
        """The result of a shard.

        Args:
            work: The work to prepare first; None if this worker has prepared it.
            weights: The weights to load first; None if this worker has them.

        Raises StaleWorkerError if the work is not prepared, or has other weights than the task
        names.
        """
        if work is not None:
            self._prepare(work, is_plain=not task.version)
        if task.key not in self._works:
            msg = "a worker must be given its work before a shard of it, got none; send it again"
            raise StaleWorkerError(msg)
        known, prepared = self._works[task.key]
        if weights is not None and self.version != weights.version:
            # Half loaded, the weights are of no version.
            self.version = "none"
            known.renew(prepared, weights.data)
            self.version = weights.version
        if self.version != task.version:
            wanted, found = (own[:12] or "of the folder" for own in (task.version, self.version))
            msg = f"a worker must have the weights {wanted}, got {found}; send them again"
            raise StaleWorkerError(msg)
        return known.do(prepared, task.shard)

    def _prepare(self, work: Work, *, is_plain: bool) -> None:
        """Prepares a work that is new, or that is to have its first weights again."""
        if work.holder != self.holder or (is_plain and self.version):
            self._works.clear()
            self._kept.clear()
            self.holder, self.version = work.holder, ""
        if work.key not in self._works:
            self._works[work.key] = work, work.prepare(self._kept)


def portable(error: BaseException) -> Exception:
    """A worker's error in a form that can be sent, with its masked trace in a note.

    Our own errors take only a message. Any other error, which may not be picklable, is described.
    """
    trace = masked_trace(error).rstrip()
    if isinstance(error, AstraError) and type(error).__module__ == AstraError.__module__:
        found: Exception = type(error)(*error.args)
    else:
        found = RuntimeError(f"a worker failed, got {error_line(error)}")
    found.add_note(trace)
    return found
