"""The executors of this process: equal choices share one, with its workers."""

from astra_core.config import Choice
from astra_core.executor import Executor
from astra_core.files import record_digest
from astra_core.registry import build

_executors: dict[str, Executor] = {}


def executor_of(choice: Choice) -> Executor:
    """The executor that a choice names; an equal choice gives the same one, with its workers.

    Raises ConfigurationError if it cannot be built.
    """
    key = record_digest(choice.model_dump(mode="json"))
    if key not in _executors:
        _executors[key] = build("executor", choice)
    return _executors[key]
