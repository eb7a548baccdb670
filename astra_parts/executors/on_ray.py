"""Workers that are actors of a Ray cluster, which the stage starts here or joins by its address.

Ray restarts an actor whose process or node has died, as often as ``max_restarts``; the shard it had
is given to another here, since Ray's own retries would wait for the same actor. A restarted actor
holds nothing, and is given work and weights again.
"""

import os
import sys
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from pydantic import Field

from astra_core.config import Section
from astra_core.errors import ConfigurationError, LostProcessError, StaleWorkerError
from astra_core.errors.packages import require_package
from astra_core.executor import Advance, Executor, Weights, Work
from astra_parts.executors.bench import Bench, Held, Task
from astra_parts.executors.ledger import Ledger, WorkersOptions

LOOPBACK = "127.0.0.1"
SETTINGS: Mapping[str, str] = MappingProxyType(
    {
        "RAY_USAGE_STATS_ENABLED": "0",
        # Without this variable Ray replaces the loopback by the machine's own address.
        "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",
        "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    }
)
"""Variables that Ray is to find, unless they are set already."""
_POLL_S = 0.5
_STORE_BYTES = 256 << 20


class RayBench:
    """The memory of one actor."""

    def __init__(self, folder: str, path: Sequence[str]) -> None:
        if os.path.isdir(folder):  # noqa: PTH112 - a name from another machine
            os.chdir(folder)
        sys.path.extend(own for own in path if own not in sys.path)
        self._bench = Bench()

    def ping(self) -> int:
        """The actor's process number, once it is alive."""
        return os.getpid()

    def do(
        self, task: Task, work: Work | None, weights: Weights | None
    ) -> tuple[Any, Exception | None]:
        """The result of a shard, or the error."""
        return self._bench.answer(task, work, weights)


@dataclass(slots=True, eq=False)
class _RayWorker:
    """An actor, what it has been sent, and whether it waits for a shard."""

    actor: Any
    held: Held = field(default_factory=Held)
    is_idle: bool = False


class RayExecutor(Executor):
    """``num_workers`` actors, which live until ``close``."""

    class Options(WorkersOptions):
        """Where the cluster is, and what each worker takes of it."""

        address: str | None = Field(
            None,
            min_length=1,
            description="host:port of a running cluster; null starts one on this machine alone.",
        )
        cpus_per_worker: float = Field(1.0, gt=0.0, description="Cores that it reserves.")
        gpus_per_worker: float = Field(0.0, ge=0.0, description="GPUs that it reserves.")
        max_restarts: int = Field(3, ge=0, description="Of one worker, by Ray.")

    options: Options

    def __init__(self, options: Section) -> None:
        super().__init__(options)
        self._workers: list[_RayWorker] = []
        # The awaited answers: worker and number of the call, which is 0 for the first ping.
        self._pending: dict[Any, tuple[_RayWorker, int]] = {}
        self._call = 0
        self._num_gone = 0
        self._ray: Any = None
        self.ledger: Ledger | None = None

    @property
    def num_workers(self) -> int:
        """As many as the options say."""
        return self.options.num_workers

    def results(
        self, work: Work, shards: Sequence[Any], *, weights: Weights | None, advance: Advance
    ) -> list[Any]:
        """See ``Executor.results``."""
        self.ledger = ledger = Ledger(shards, self.options)
        if not shards:
            return []
        ray = self._join_cluster()
        self._call += 1
        # Put once into the cluster's store, from which each worker takes it.
        stored = {
            id(None): None,
            id(work): ray.put(work),
            id(weights): weights and ray.put(weights),
        }
        while not ledger.is_complete:
            self._hire()
            for worker in [own for own in self._workers if own.is_idle]:
                number = ledger.take(worker)
                if number is None:
                    break
                sent = [stored[id(own)] for own in worker.held.missing(work, weights)]
                ref = worker.actor.do.remote(Task.of(work, weights, shards[number]), *sent)
                self._pending[ref], worker.is_idle = (worker, self._call), False
            for ref in ray.wait(list(self._pending), timeout=_POLL_S)[0]:
                self._hear(ref, ledger, advance)
        return ledger.results()

    def close(self) -> None:
        """Ends the actors, and the cluster if it was started here."""
        if self._ray is None:
            return
        for worker in self._workers:
            self._ray.kill(worker.actor)
        self._workers.clear()
        self._pending.clear()
        self._ray.shutdown()
        self._ray = None

    def _join_cluster(self) -> Any:
        """Ray, in a cluster."""
        if self._ray is None:
            ray = _import_ray()
            try:
                _join(ray, self.options)
            except (ConnectionError, RuntimeError, ValueError) as error:
                reason = " ".join(str(error).split())[:200]
                msg = (
                    f"executor.options.address must be of a cluster that answers, got "
                    f"'{self.options.address}': {reason}; see docs/scaling.md"
                )
                raise ConfigurationError(msg) from error
            self._ray = ray
            weakref.finalize(self, ray.shutdown)
        return self._ray

    def _hire(self) -> None:
        """Asks for missing actors; one is idle once it has answered a ping."""
        options = self.options
        if self._num_gone >= options.max_losses * options.num_workers:
            msg = (
                f"workers must be able to live, got {self._num_gone} that could not be restarted; "
                "see the cluster's logs, or raise executor.options.max_restarts"
            )
            raise LostProcessError(msg)
        while len(self._workers) < options.num_workers:
            kind = self._ray.remote(
                num_cpus=options.cpus_per_worker,
                num_gpus=options.gpus_per_worker,
                max_restarts=options.max_restarts,
                max_task_retries=0,
            )(RayBench)
            worker = _RayWorker(kind.remote(os.getcwd(), list(sys.path)))  # noqa: PTH109 - text
            self._workers.append(worker)
            self._await_life(worker)

    def _await_life(self, worker: _RayWorker) -> None:
        worker.held, worker.is_idle = Held(), False
        ping = worker.actor.ping.options(max_task_retries=-1).remote()
        self._pending[ping] = worker, 0

    def _hear(self, ref: Any, ledger: Ledger, advance: Advance) -> None:
        """Takes what an actor has sent, or notes that it died."""
        worker, call = self._pending.pop(ref)
        try:
            answer = self._ray.get(ref)
        except self._ray.exceptions.RayActorError as error:
            if not call:  # no answer to the ping: Ray has given it up
                self._workers.remove(worker)
                self._num_gone += 1
                return
            self._await_life(worker)
            if call == self._call:
                ledger.lose(worker, type(error).__name__)
            return
        worker.is_idle = True
        if not call or call != self._call:
            return
        result, problem = answer
        if isinstance(problem, StaleWorkerError):  # it was restarted without notice
            ledger.back(worker)
            worker.held = Held()
        elif problem is not None:
            raise problem
        elif ledger.put(worker, result):
            advance(1)


def _import_ray() -> Any:
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    require_package("ray", subject="executor 'ray'", extra="ray")
    import ray
    from ray._private import ray_constants

    # Ray reads this variable when it is imported, and a plug-in may have imported it before.
    name = ray_constants.ENABLE_RAY_CLUSTERS_ENV_VAR
    ray_constants.ENABLE_RAY_CLUSTER = ray_constants.env_bool(name, False)
    return ray


def _join(ray: Any, options: RayExecutor.Options) -> None:
    """Starts a cluster that only this machine can reach, or joins the one that is named."""
    if ray.is_initialized():
        return
    quiet = {"log_to_driver": False, "logging_level": "ERROR", "configure_logging": True}
    if options.address is not None:
        own = {"_node_ip_address": LOOPBACK} if options.address.startswith(LOOPBACK) else {}
        ray.init(address=options.address, **own, **quiet)
        return
    ray.init(
        address="local",
        num_cpus=max(1, round(options.num_workers * options.cpus_per_worker)),
        include_dashboard=False,
        object_store_memory=_STORE_BYTES,
        _node_ip_address=LOOPBACK,
        **quiet,
    )
