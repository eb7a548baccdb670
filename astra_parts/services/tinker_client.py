"""A training service that speaks the Tinker protocol, by its own client: the extra ``remote``.

Most of the client's own waits have no limit, and those with one do not cancel the call. So every
call here runs as a future, which ``deadline`` waits for.
"""

import atexit
import os
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

from astra_core.errors import ConfigurationError, TrainingError
from astra_core.errors.exception_text import excerpt
from astra_core.errors.packages import require_package
from astra_parts.bodies import MOST_WEIGHTS
from astra_parts.services.deadline import all_within, answers_within, blocking_within, cancel
from astra_parts.services.limited_client import limited_client
from astra_parts.services.records import Record
from astra_parts.services.training_service import AdamStep, Draw, Drawn, ServiceLoss, Updated

# The protocol requires a key; a server on this machine ignores it.
_NO_KEY = "tml-none"


class TinkerService:
    """One model at a service.

    Args:
        key: The key; None if the service needs none.
        limit_s: The longest wait for simultaneous calls, which are then cancelled.
    """

    def __init__(
        self,
        address: str,
        *,
        base_model: str,
        rank: int,
        seed: int,
        key: str | None = None,
        limit_s: float = 600.0,
    ) -> None:
        require_package("tinker", subject="trainer 'remote'", extra="remote")
        # The client sends telemetry unless this is set; it is read when the client connects.
        os.environ["TINKER_TELEMETRY"] = "0"
        import tinker

        self._types = tinker
        self._address, self._key = address, key or _NO_KEY
        self._base_model, self._rank, self._seed = base_model, rank, seed
        self._limit_s = limit_s
        self._service: Any = None
        self._training: Any = None
        self._samplers: dict[str | None, Any] = {}

    @property
    def _client(self) -> Any:
        if self._service is None:
            from tinker._base_client import DefaultAsyncHttpxClient

            client = self._types.ServiceClient(
                base_url=self._address,
                api_key=self._key,
                http_client=limited_client(DefaultAsyncHttpxClient),
            )
            holder = self._connect(lambda: client.holder)
            # Otherwise its connections outlive the loop in which they are closed.
            atexit.register(holder.close)
            self._service = client
        return self._service

    @property
    def _rest(self) -> Any:
        """The client for calls without a model."""
        return self._connect(self._client.create_rest_client)

    def _connect(self, connect: Callable[[], Any]) -> Any:
        # The client has no public name for its event loop.
        from tinker.lib.internal_client_holder import (
            _internal_client_holder_thread_singleton as loops,
        )

        with _explain_errors("connect"):
            return blocking_within(self._limit_s, connect, loop=loops.get_loop())

    def _answer(self, work: Coroutine[Any, Any, Any]) -> Any:
        """The answer to a call of the client."""
        return self._only(self._client.holder.run_coroutine_threadsafe(work).future())

    def _only(self, future: Future[Any]) -> Any:
        (answer,) = all_within(self._limit_s, [future])
        return answer

    def begin(self) -> None:
        """Creates the model with new adapters."""
        create = self._client.create_lora_training_client_async
        settings = {"rank": self._rank, "seed": self._seed, "train_unembed": False}
        with _explain_errors("create the model"):
            self._training = self._answer(create(self._base_model, **settings))

    def go_on_from(self, path: str) -> None:
        """Creates the model with the weights and the optimiser saved at a path."""
        # Otherwise the client would connect at a place where it may not wait.
        _ = self._rest
        create = self._client.create_training_client_from_state_with_optimizer_async
        with _explain_errors("load the saved state"):
            self._training = self._answer(create(path))

    def update(
        self, batches: Iterable[Sequence[Record]], loss: ServiceLoss, adam: AdamStep
    ) -> Updated:
        """Adds the gradients of all batches up and takes one step; all is queued, then awaited.

        Each batch is queued before the next one is asked for. Without any there is no step.
        """
        passes: list[Future[Any]] = []
        try:
            for batch in batches:
                with _explain_errors("train"):
                    passes.append(self._pass(batch, loss))
            if not passes:
                return Updated((), {})
            with _explain_errors("train"):
                *outputs, last = all_within(self._limit_s, [*passes, self._step(adam)])
        finally:
            cancel(passes)
        found = [
            tuple(float(value) for value in own["logprobs"].data)
            for output in outputs
            for own in output.loss_fn_outputs
        ]
        return Updated(tuple(found), dict(last.metrics or {}))

    def _pass(self, batch: Sequence[Record], loss: ServiceLoss) -> Future[Any]:
        """A batch's gradients, which are under way."""
        data = [self._datum(record, loss) for record in batch]
        options = dict(loss.options) or None
        future: Future[Any] = self._training.forward_backward(data, loss.name, options).future()
        return future

    def _step(self, adam: AdamStep) -> Future[Any]:
        """The optimiser's step, which is under way."""
        future: Future[Any] = self._training.optim_step(
            self._types.AdamParams(
                learning_rate=adam.lr,
                beta1=adam.beta1,
                beta2=adam.beta2,
                eps=adam.eps,
                weight_decay=adam.weight_decay,
                grad_clip_norm=adam.grad_clip_norm,
            )
        ).future()
        return future

    def _datum(self, record: Record, loss: ServiceLoss) -> Any:
        columns: dict[str, Any] = {"target_tokens": list(record.targets)}
        if loss.name == "cross_entropy":
            columns["weights"] = list(record.advantages)
        else:
            columns["logprobs"] = list(record.logprobs)
            columns["advantages"] = list(record.advantages)
        return self._types.Datum(
            model_input=self._types.ModelInput.from_ints(list(record.inputs)),
            loss_fn_inputs=columns,
        )

    def save(self, name: str) -> str:
        """The path of weights and optimiser, after they are saved."""
        with _explain_errors("save"):
            return str(self._only(self._training.save_state(name).future()).path)

    def publish(self, name: str) -> str:
        """The path of weights to sample from, after they are saved."""
        with _explain_errors("publish"):
            saved = self._training.save_weights_for_sampler(name)
            # Some servers leave out the kind, although their own download requires it.
            model, _, last = str(self._only(saved.future()).path).rpartition("/")
        return f"{model.removesuffix('/sampler_weights')}/sampler_weights/{last}"

    def draw(self, draws: Sequence[Draw], path: str | None) -> list[Drawn | Exception]:
        """Samples from the weights at a path (None: the base model); a failed draw is an error."""
        sampler = self._sampler(path)
        futures = [
            sampler.sample(
                self._types.ModelInput.from_ints(list(draw.context)),
                num_samples=1,
                sampling_params=self._types.SamplingParams(
                    max_tokens=draw.max_tokens,
                    seed=draw.seed,
                    stop=list(draw.stop),
                    temperature=1.0,
                ),
            )
            for draw in draws
        ]
        return [_sequence_of(answer) for answer in answers_within(self._limit_s, futures)]

    def score(
        self, sequences: Sequence[Sequence[int]], path: str | None
    ) -> list[tuple[float, ...]]:
        """Log-probability of each token except the first, given those before it, nats."""
        sampler = self._sampler(path)
        with _explain_errors("score"):
            futures = [
                sampler.compute_logprobs(self._types.ModelInput.from_ints(list(ids)))
                for ids in sequences
            ]
            found = all_within(self._limit_s, futures)
        return [tuple(float(value) for value in row[1:]) for row in found]

    def download(self, path: str, archive: Path) -> bool:
        """Writes the published weights as a tar file; False if the service does not give them.

        Hosted services give a signed address of their store, which needs no key; others serve the
        file themselves, at the address in their documentation.

        Raises TrainingError if the download takes longer than the limit.
        """
        model, _, name = path.removeprefix("tinker://").partition("/sampler_weights/")
        place = f"{self._address}/api/v1/training_runs/{model}/checkpoints/{name}/download"
        find = self._rest.get_checkpoint_archive_url_from_tinker_path
        for url in (lambda: self._only(find(path)).url, lambda: place):
            try:
                with _explain_errors("download"):
                    self._answer(_fetch(url(), archive, limit_s=self._limit_s))
            except TrainingError as error:
                if isinstance(error.__cause__, TimeoutError):
                    raise
                continue
            return True
        return False

    def _sampler(self, path: str | None) -> Any:
        if path not in self._samplers:
            base = self._base_model if path is None else None
            create = self._client.create_sampling_client_async
            with _explain_errors("sample"):
                self._samplers[path] = self._answer(create(model_path=path, base_model=base))
        return self._samplers[path]


def _sequence_of(answer: Any) -> Drawn | Exception:
    """The only sequence of an answer; an error becomes one line."""
    try:
        with _explain_errors("sample"):
            if isinstance(answer, Exception):
                raise answer
            (sequence,) = answer.sequences
            return Drawn(
                tuple(int(each) for each in sequence.tokens),
                tuple(float(each) for each in sequence.logprobs),
            )
    except TrainingError as error:
        return error


async def _fetch(url: str, archive: Path, *, limit_s: float) -> None:
    async with httpx.AsyncClient(timeout=limit_s) as client, client.stream("GET", url) as response:
        response.raise_for_status()
        with archive.open("wb") as file:
            async for part in response.aiter_bytes():
                file.write(part)
                if file.tell() > MOST_WEIGHTS:
                    msg = f"more than {MOST_WEIGHTS} bytes"
                    raise httpx.HTTPError(msg)


def key_in(variable: str | None) -> str | None:
    """The key in a variable of the environment; None where none is named.

    Raises ConfigurationError if the variable is empty.
    """
    key = os.environ.get(variable, "").strip() if variable else None
    if key == "":
        msg = f"trainer 'remote': variable {variable} must hold the key, got nothing; set it"
        raise ConfigurationError(msg)
    return key


@contextmanager
def _explain_errors(work: str) -> Iterator[None]:
    """Turns any error of the client, and a late answer, into one line."""
    try:
        yield
    except TimeoutError as error:
        msg = (
            f"trainer 'remote': the service must {work}, got {error or 'no answer in time'}; the "
            "same command resumes; set a longer training.trainer.options.limit_s if it is slow"
        )
        raise TrainingError(msg) from error
    except Exception as error:
        reason = excerpt(f"{type(error).__name__}: {error}")
        msg = f"trainer 'remote': the service must {work}, got {reason}"
        raise TrainingError(msg) from error
