"""The trainer ``text``: rollouts are chats, and learning is a fine-tuning job of a service.

Expert iteration (``expert_iteration``, ``sft``) writes answers to imitate, MALT (``dpo`` with
``backup: leaf_mean`` and a ``midpoint``, arXiv:2412.01928) preferences. An iteration samples with
the present model, selects, uploads, creates one job, waits for it and switches to its model. Every
step at the service is an effect of ``TrainerState``: a killed run looks there before it asks again.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

from pydantic import Field
from safetensors.torch import load

from astra_core.config import Count, Seconds, Section, TrainingConfiguration
from astra_core.errors import ConfigurationError, TrainingError
from astra_core.files import draft_of, record_digest
from astra_core.target import Surroundings
from astra_core.training.progress import StepReport
from astra_core.training.staged import TrainerStage
from astra_core.training.update import Update
from astra_parts.bodies import MOST_JSON
from astra_parts.services.fine_tuning_client import KEY, FineTuning, ServiceRefusal
from astra_parts.services.service_trainer import ServiceTrainer
from astra_parts.services.text_lines import TrainingFile, lines_of, method_of
from astra_parts.services.text_speaker import TextSpeaker
from astra_parts.services.trainer_state import Intent, Result
from astra_parts.services.waiting import wait_for
from astra_parts.targets.authorization import check_address
from astra_parts.targets.endpoint import Endpoint
from astra_parts.targets.server import key_of

STAGE = "fine_tune"
_WAY_OUT = {
    "refused": "host the service yourself with 'astra serve-jobs' and name it as base_url",
    "timed_out": "the same command continues to wait; raise training.trainer.options.job_limit_s",
}
_FILE = "the training file"
_ANEW = "the same command creates another job"


class TextTrainer(ServiceTrainer):
    """Trains an attacker that is reached only by an OpenAI-compatible interface.

    The local attacker provides tokenizer, format and reference, and is not trained; at the end it
    has the weights of the model that is kept, if the service gives them out.
    """

    name = "text"

    class Options(Section):
        """Which service, and how its jobs learn."""

        attacker: Endpoint.Options = Field(
            description="The server of chats and jobs, as for the target 'endpoint'."
        )
        begin_from: Literal["present", "base"] = Field(
            "present", description="A job's model: the one that sampled, or the first."
        )
        min_examples: Count = Field(
            10, description="With fewer the iteration trains nothing, which is reported."
        )
        hyperparameters: dict[str, int | float | str] = Field(
            default_factory=dict, description="Of the method, as the service takes them."
        )
        job_limit_s: Seconds = Field(86_400.0, description="The longest wait for a job.")
        poll_s: Seconds = Field(30.0, description="Seconds between two checks of a job.")
        export: bool = Field(
            True,
            description="Brings the trained weights here at the end, which 'astra serve-jobs' "
            "allows; false leaves the local weights untrained.",
        )

    options: Options

    def __init__(self, config: TrainingConfiguration, *arguments: Any, **parts: Any) -> None:
        self._method = method_of(config.algorithm.name)
        super().__init__(config, *arguments, **parts)
        system, options = self.sampler.system, self.options.attacker
        if system.config.attacker.format != "separator" and system.attacker.tokenizer.chat_template:
            msg = (
                "system.attacker.format must be 'separator' for trainer 'text', got "
                f"'{system.config.attacker.format}': the service has a format of its own"
            )
            raise ConfigurationError(msg)
        self.service = FineTuning(
            options.base_url,
            key=key_of(options),
            timeout_s=options.timeout_s,
            pause_s=options.backoff_s,
            is_here=check_address(options.base_url, options.authorization),
        )
        own = Surroundings(system.config)
        self.speaker = TextSpeaker(options, surroundings=own, reference=system.reference)
        system.attacker.elsewhere = self.speaker
        self._update: Update

    def resume(self) -> bool:
        """Resumes like any trainer, and samples with the model that was trained last."""
        found = super().resume()
        self.speaker.switch(self._model_after(self.progress.training_step))
        return found

    def begin(self) -> None:
        """Also checks, before anything is paid for, that weights can be fetched if wanted."""
        if self.options.export and not self.service.gives_weights(self.speaker.model):
            msg = (
                "trainer 'text': the service must give weights out to be exported, got none; set "
                "training.trainer.options.export: false, or host it with 'astra serve-jobs'"
            )
            raise ConfigurationError(msg)
        super().begin()

    def stages(self) -> Sequence[TrainerStage]:
        """Sampling, fine-tuning, evaluating with the new model; the loop around them saves."""
        return (
            TrainerStage("sample", self._sample),
            TrainerStage(STAGE, self._learn),
            TrainerStage("evaluate", self._end_iteration),
            TrainerStage("save", lambda _: None),
        )

    def _sample(self, iteration: int) -> None:
        # Not the rollouts of the local attacker: another model is trained.
        self._experience = self.harness.experience(iteration, graphs=None)
        self._note(self._experience)

    def _learn(self, iteration: int) -> None:
        lines = lines_of(
            self.sampler.system.attacker,
            self._experience.steps,
            method=self._method,
            seed=self.sampler.seed,
            iteration=iteration,
        )
        start = time.perf_counter()
        result = self._fine_tuned(lines, iteration)
        seconds = time.perf_counter() - start
        self.speaker.switch(result["model"])
        figures = {"examples": float(len(lines.records)), "is_trained": float(result["trained"])}
        self._update = Update(0.0, 0.0, 0.0, 0, is_skipped=False, metrics=figures, train_s=seconds)

    def _end_iteration(self, iteration: int) -> Iterator[StepReport]:
        report = self._note_update(self._update, self._experience, is_first=True)
        self.progress.training_step = iteration + 1
        self._evaluate_if_due()
        yield report

    def _fine_tuned(self, lines: TrainingFile, iteration: int) -> Result:
        """The model after an iteration, and whether it is a new one."""
        before = self._model_after(iteration)
        if len(lines.records) < self.options.min_examples:
            few = {"model": before, "trained": 0}
            return self.asked.once("model", lines.records, do=lambda _: few)
        known = self.asked.result(STAGE, iteration, "model")
        if known is not None:
            return known
        with draft_of(self.folder / f"lines-{iteration:06d}.jsonl") as draft:
            draft.write_bytes(lines.content())
        base = before if self.options.begin_from == "present" else self.options.attacker.model
        model = self._job_done(lines, base=base, iteration=iteration)
        return self.asked.once("model", lines.records, do=lambda _: {"model": model, "trained": 1})

    def _job_done(self, lines: TrainingFile, *, base: str, iteration: int) -> str:
        """The model of the iteration's job."""
        attempt = self._attempt(iteration)
        file = self._ask(
            f"file-{attempt}",
            record_digest(lines.records),
            do=lambda intent: self.service.upload(lines.content(), intent.key),
            look_up=lambda intent: self.service.find_file(intent.key),
        )
        body = self._body(lines, base, file["id"])
        job = self._ask(
            f"job-{attempt}",
            body,
            do=lambda intent: self.service.create(_body_with_key(body, intent.key)),
            look_up=lambda intent: self.service.find_job(intent.key),
        )
        limit_s, every_s = self.options.job_limit_s, self.options.poll_s
        end = wait_for(lambda: self.service.look(job["id"]), limit_s=limit_s, every_s=every_s)
        if end.outcome == "succeeded":
            return str(end.record["model"])
        if end.outcome != "timed_out":
            self._note_end(attempt, end.status, end.detail)
        subject = f"job {job['id']}"
        raise _failure(subject, end.status, end.detail)

    def _attempt(self, iteration: int) -> int:
        """The number of jobs of the iteration that ended without a model."""
        attempt = 0
        while (end := self.asked.result(STAGE, iteration, f"end-{attempt}")) is not None:
            if end["outcome"] == "refused":
                raise _failure(_FILE, "refused", end["detail"])
            attempt += 1
        return attempt

    def _ask(
        self,
        part: str,
        request: Any,
        *,
        do: Callable[[Intent], Mapping[str, Any]],
        look_up: Callable[[Intent], Mapping[str, Any] | None],
    ) -> Result:
        """The id of what a service made; a refusal ends the run for good."""

        def find(intent: Intent) -> dict[str, str] | None:
            known = look_up(intent)
            return None if known is None else _id_of(known)

        try:
            return self.asked.once(
                part, request, do=lambda intent: _id_of(do(intent)), look_up=find
            )
        except ServiceRefusal as error:
            self._note_end(int(part.rpartition("-")[2]), "refused", str(error))
            raise _failure(_FILE, "refused", str(error)) from None

    def _note_end(self, attempt: int, outcome: str, detail: str) -> None:
        end = {"outcome": outcome, "detail": detail}
        self.asked.once(f"end-{attempt}", attempt, do=lambda _: end)

    def _body(self, lines: TrainingFile, base: str, file: str) -> dict[str, Any]:
        own = {"hyperparameters": dict(self.options.hyperparameters)}
        method = {"type": lines.method, lines.method: own}
        return {
            "model": base,
            "training_file": file,
            "method": method,
            "seed": self.sampler.seed % 2**31,
        }

    def _model_after(self, training_step: int) -> str:
        """The name of the model after so many training steps."""
        for iteration in reversed(range(training_step)):
            result = self.asked.result(STAGE, iteration, "model")
            if result is not None:
                return str(result["model"])
        return self.options.attacker.model

    def restore_best(self) -> None:
        """Switches to the model that is kept, and fetches its weights if that is wanted."""
        self.speaker.switch(self._model_after(self._kept_step))
        if self.options.export:
            self._bring(self.speaker.model)

    def _bring(self, model: str) -> None:
        attacker = self.sampler.system.attacker
        # In the longest type of weights that is known, and names and shapes besides.
        most = sum(8 * each.numel() for each in attacker.model.parameters()) + MOST_JSON
        content = self.service.weights(model, most=most)
        if content is None:
            msg = f"trainer 'text': the weights of {model} must be given out, got none; try again"
            raise TrainingError(msg)
        attacker.model.load_state_dict(load(content), strict=False)
        attacker.model.tie_weights()
        attacker.elsewhere = None


def _id_of(record: Mapping[str, Any]) -> dict[str, str]:
    return {"id": str(record["id"])}


def _body_with_key(body: Mapping[str, Any], key: str) -> dict[str, Any]:
    """The body with the key by which the job is found again."""
    return {**body, "suffix": key, "metadata": {KEY: key}}


def _failure(subject: str, outcome: str, detail: str) -> TrainingError:
    way = _WAY_OUT.get(outcome, _ANEW)
    return TrainingError(
        f"trainer 'text': {subject} must succeed, got {outcome} ({detail or 'no reason'}); {way}"
    )
