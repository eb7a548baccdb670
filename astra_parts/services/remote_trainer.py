"""The trainer ``remote``: a service has weights and optimiser, everything else is here.

Each iteration samples at the service, scores and weighs here, sends records of token ids and
advantages, takes the optimiser's steps there and publishes the weights to sample from. What an
iteration trained is one effect of ``TrainerState``: a killed run finds its result, or begins the
iteration's updates again from the state that the service saved at the end of the one before.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from astra_core.config import Section, SystemConfiguration, TrainingConfiguration
from astra_core.models.language_model import LanguageModel
from astra_core.training.progress import StepReport
from astra_core.training.staged import TrainerStage
from astra_core.training.update import Update
from astra_parts.algorithms.functional import Aggregation
from astra_parts.services.adapters import add_from
from astra_parts.services.pointer import ServicePointer, leave_pointer, parameters_digest
from astra_parts.services.records import Record
from astra_parts.services.remote_options import (
    RemoteOptions,
    TokensUsed,
    adam_of,
    check_refills,
    check_settings,
    count_tokens,
)
from astra_parts.services.service_losses import service_loss
from astra_parts.services.service_trainer import ServiceTrainer
from astra_parts.services.service_update import update_at, window_records
from astra_parts.services.speaker import KeptDraws, Speaker, check_plain
from astra_parts.services.streaming import StreamedExperience, check_stream
from astra_parts.services.tinker_client import TinkerService, key_in
from astra_parts.services.trainer_state import Intent, Result
from astra_parts.services.training_service import TrainingService
from astra_parts.targets.authorization import check_address


class RemoteTrainer(ServiceTrainer):
    """Trains an attacker at a service that speaks the Tinker protocol.

    The local copy of the attacker has the tokenizer and is the reference; its weights are not
    trained, and are replaced by the trained ones at the end, where the service gives them out.
    """

    name = "remote"

    Options: type[Section] = RemoteOptions
    options: RemoteOptions

    @classmethod
    def check_system(
        cls, options: Any, system: SystemConfiguration, training: TrainingConfiguration
    ) -> None:
        """Raises ConfigurationError unless a service does all that is asked."""
        super().check_system(options, system, training)
        check_settings(training, clips=options.clips_gradients)
        check_plain(system.probe)

    def __init__(self, config: TrainingConfiguration, *arguments: Any, **parts: Any) -> None:
        super().__init__(config, *arguments, **parts)
        system = self.sampler.system
        check_refills(self.sampler.options, on_error=self.options.on_error)
        if self.options.stream_minibatches is not None:
            check_stream(self.config, self.options.stream_minibatches)
        self._loss = service_loss(self.algorithm)
        self.service = self.connected(self.options, seed=self.sampler.seed % 2**31)
        retries = 0 if self.options.on_error == "fail_fast" else self.options.retries
        # Those of evaluations too: their tokens are paid as well.
        self._draws = KeptDraws(self.folder / "draws.sqlite")
        self.speaker = Speaker(self.service, self._draws, retries=retries, revive=self._revive)
        system.attacker.elsewhere = self.speaker
        self._is_begun = False
        self._reports: list[StepReport] = []

    @classmethod
    def connected(cls, options: Any, *, seed: int = 0) -> TrainingService:
        """The service at the address, if its host is authorised; sends nothing yet."""
        own: RemoteOptions = options
        check_address(own.address, own.authorization, subject="trainer 'remote': address")
        return TinkerService(
            own.address,
            base_model=own.base_model,
            rank=own.rank,
            seed=seed,
            key=key_in(own.key_env),
            limit_s=own.limit_s,
        )

    def resume(self) -> bool:
        """Resumes like any trainer, and samples with the weights published last."""
        found = super().resume()
        self.speaker.path = self._weights_after(self.progress.training_step)
        return found

    def end(self) -> str:
        """Also ends a run that has used up its limit of tokens or of money."""
        limit, most, used = self.options.max_tokens, self.options.max_cost, self._usage()
        if (reason := super().end()) or used is None:
            return reason
        if limit is not None and used.trained >= limit:
            return f"{used.trained} of {limit} tokens are trained"
        cost = used.cost(self.options.prices)
        is_spent = most is not None and cost >= most
        return f"{cost:.4g} of {most:.4g} is spent at the service" if is_spent else ""

    def _usage(self) -> TokensUsed | None:
        """Tokens of all iterations up to the present one; None before the first has ended."""
        step = self.progress.training_step
        result = self.asked.result("evaluate", step - 1, "tokens") if step else None
        return TokensUsed(**result) if result else None

    def stages(self) -> Sequence[TrainerStage]:
        """Sampling and training, or both at once; evaluating; the loop around them saves."""
        apart = (TrainerStage("sample", self._sample), TrainerStage("train", self._train))
        is_streamed = self.options.stream_minibatches is not None
        form = (TrainerStage("train", self._stream),) if is_streamed else apart
        end = TrainerStage("evaluate", self._end_iteration), TrainerStage("save", lambda _: None)
        return (*form, *end)

    def _sample(self, iteration: int) -> None:
        with self._leniently():
            graphs = self._known_graphs(iteration)
            self._experience = self.harness.experience(iteration, graphs=graphs)
        self._note(self._experience)

    def _train(self, iteration: int) -> Iterator[StepReport]:
        """The updates; the report of the last one waits for the evaluation."""
        del iteration  # the state knows it
        windows = [list(window) for window in self.windows(self._experience)]
        request = {"experience": self._experience.digest(), "lr": self._lr, "loss": self._loss.name}
        result = self.asked.once("", request, do=lambda intent: self._train_on(intent, windows))
        yield from self._report_updates(result)

    def _stream(self, iteration: int) -> Iterator[StepReport]:
        """One update, of parts that the service learns from while the next is sampled."""
        num_parts = self.options.stream_minibatches or 1
        stream = StreamedExperience(
            self.harness,
            self.config,
            iteration=iteration,
            num_parts=num_parts,
            graphs=self._known_graphs(iteration),
        )
        request = {"parts": num_parts, "lr": self._lr, "loss": self._loss.name}
        with self._leniently():
            result = self.asked.once("", request, do=lambda intent: self._consume(intent, stream))
            self._experience = stream.whole()
        self._note(self._experience)
        yield from self._report_updates(result)

    def _known_graphs(self, iteration: int) -> Sequence[Any] | None:
        return self._first_graphs if iteration == 0 else None

    def _report_updates(self, result: Result) -> Iterator[StepReport]:
        """Reports of the updates, and of later samples the new weights."""
        self.speaker.path, experience = result["sampler"], self._experience
        self._reports = [
            self._note_update(Update(**own), experience, at == 0)
            for at, own in enumerate(result["updates"])
        ]
        yield from self._reports[:-1]

    def _end_iteration(self, iteration: int) -> Iterator[StepReport]:
        if self._reports:
            self._close(self._experience)
        # No weight here has a gradient: the step moves nothing, but a schedule counts on it.
        self.updates.learners[0].optimizer.step()
        self.updates.move_schedule()
        self.progress.training_step = iteration + 1
        self._evaluate_if_due()
        used, prices = count_tokens(self.asked, self._draws.tokens()), self.options.prices
        if self._reports:
            last = self._reports[-1]
            moved = self.progress.moves[-1].figures()
            yield replace(last, metrics={**last.metrics, **moved, **used.figures(prices)})

    @contextmanager
    def _leniently(self) -> Iterator[None]:
        """Lets draws be missing while an experience is sampled, if the options say so."""
        is_lenient = self.options.on_error == "min_group"
        self.speaker.min_group = self.options.min_group if is_lenient else None
        try:
            yield
        finally:
            self.speaker.min_group = None

    def _train_on(self, intent: Intent, windows: Sequence[Sequence[Any]]) -> Result:
        """The updates of an iteration, and where the service keeps what came of them."""
        mode = self._aggregation
        sent = [(window, window_records(window, aggregation=mode)) for window in windows]
        # A window without any advantage would move nothing: it is no update.
        sent = [(window, records) for window, records in sent if any(records)]
        if not sent:
            return self._no_update(intent)
        self._begin(intent.iteration)
        updates = [
            {**self._update(records), "num_tokens": sum(batch.num_tokens for batch in window)}
            for window, records in sent
        ]
        records = [record for _, batches in sent for batch in batches for record in batch]
        return self._kept_there(intent, updates, records)

    def _consume(self, intent: Intent, stream: StreamedExperience) -> Result:
        """The same of one update, whose parts are sampled as it goes."""
        sent: list[Record] = []

        def passes() -> Iterator[list[Record]]:
            for records in stream.passes(self._aggregation):
                if not sent:
                    self._begin(intent.iteration)
                sent.extend(records)
                yield records

        update = self._update(passes())
        if not sent:
            return self._no_update(intent)
        return self._kept_there(intent, [{**update, "num_tokens": stream.num_tokens}], sent)

    def _no_update(self, intent: Intent) -> Result:
        """What comes of an iteration that had nothing to teach."""
        before, state = self._weights_after(intent.iteration), self._state_before(intent.iteration)
        return {"updates": [], "sampler": before, "state": state}

    def _kept_there(
        self, intent: Intent, updates: Sequence[Result], records: Sequence[Record]
    ) -> Result:
        """What the iteration came to, once the service has saved and published it."""
        state = self.service.save(f"{intent.key}-state")
        sampler = self.service.publish(f"{intent.key}-sampler")
        tokens = sum(len(record.inputs) for record in records)
        return {"updates": list(updates), "sampler": sampler, "state": state, "tokens": tokens}

    def _begin(self, iteration: int) -> None:
        """Restores the model at the service to its state before this iteration."""
        if self._is_begun:
            return
        path = self._state_before(iteration)
        if path is None:
            self.service.begin()
        else:
            self.service.go_on_from(path)
        self._is_begun = True

    def _revive(self, path: str) -> str:
        """The path of weights that are published again, from the state that was saved with them."""
        results = [each.result or {} for each in self.asked.effects.values()]
        result = next(each for each in results if each.get("sampler") == path)
        self.service.go_on_from(result["state"])
        # The next iteration begins only with the newest state.
        self._is_begun = path == self._weights_after(self.progress.training_step)
        return self.service.publish(path.rpartition("/")[2])

    @property
    def _aggregation(self) -> Aggregation:
        mode: Aggregation = self.algorithm.options.aggregation  # type: ignore[attr-defined]
        return mode

    def _update(self, batches: Iterable[Sequence[Record]]) -> Result:
        """One optimiser update at the service, as the fields of ``Update`` but its tokens."""
        optimizer = self.updates.learners[0].optimizer
        adam = adam_of(optimizer, lr=self._lr, config=self.config)
        return update_at(self.service, batches, loss=self._loss, adam=adam)

    @property
    def _lr(self) -> float:
        return self.updates.learners[0].lr

    def _weights_after(self, training_step: int) -> str | None:
        """The weights after so many training steps; None for the base model."""
        result = self.asked.result("train", training_step - 1) if training_step else None
        return result["sampler"] if result else None

    def _state_before(self, iteration: int) -> str | None:
        """Weights and optimiser before an iteration; None for new adapters."""
        result = self.asked.result("train", iteration - 1) if iteration else None
        return result["state"] if result else None

    def restore_best(self) -> None:
        """Samples with the weights that are kept, and brings them here if that is wanted."""
        system = self.sampler.system
        self.speaker.path = self._weights_after(self._kept_step)
        if self.speaker.place is None:
            return
        if self.options.export:
            add_from(self.service, self.speaker.place, system.attacker.model)
            system.attacker.elsewhere = None
        else:
            self.speaker.leaves = partial(leave_pointer, self._pointer(system.attacker))

    def _pointer(self, attacker: LanguageModel) -> ServicePointer:
        """The pointer that is exported instead of weights that stay at the service."""
        return ServicePointer(
            trainer=self.config.trainer.name,
            options=self.options.model_dump(mode="json"),
            path=str(self.speaker.place),
            state=str(self._state_before(self._kept_step)),
            base=parameters_digest(attacker),
        )
