"""An attacker that learns here and samples at a vLLM server, which is given its adapters.

Token ids go out, token ids and their log-probabilities come back. The server knows adapters by the
digest of their weights: each request names the weights of now, and each answer must name them too,
so no draw is of other weights unnoticed. What this process has not tried yet, or the server has
lost as it was started again, it is given and tried once, and nothing is drawn from it before. Each
draw is kept before it is used: a run that is killed, or whose server is, finds its draws again.
"""

import copy
import hashlib
import json
import re
import shutil
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, Self

import httpx
from pydantic import Field, model_validator
from safetensors.torch import save_file

from astra_core.config import GenerationConfiguration, Seconds
from astra_core.errors import ConfigurationError, RolloutError
from astra_core.errors.exception_text import excerpt
from astra_core.files import draft_folder_of, record_digest
from astra_core.models.language_model import LanguageModel
from astra_core.models.utterances import Continuations, Utterance
from astra_core.rollout import Failure
from astra_parts.targets import wire
from astra_parts.targets.calls import CallError, Calls, Question
from astra_parts.targets.kept import Kept
from astra_parts.targets.server import Server, ServerOptions
from astra_parts.targets.timed_client import Fetched

SUBJECT = "trainer 'vllm'"
PLACE = "training.trainer.options"
# Mean over the tokens of one draw. Between kinds of rounding it is a hundredth, in four bits a
# tenth; between other weights it is above 1.
_MOST_GAP_NATS = 0.5
# The draw that is tried has so many tokens, where it may: the likelihood of one says little.
_LEAST_TRIED = 8
# On a GPU vLLM 0.32.0 dies of a request with more.
_MOST_BARRED = 1024
_NAME = re.compile(r"astra-[0-9a-f]{32}")
_START = "start it with --enable-lora, --max-lora-rank and VLLM_ALLOW_RUNTIME_LORA_UPDATING=True"


class VllmOptions(ServerOptions):
    """Where the server is, and how it is called."""

    subject: ClassVar[str] = SUBJECT
    concurrency: int = Field(default=64, ge=1, le=1024, description="Draws asked for at once.")
    timeout_s: Seconds = Field(
        default=600.0, description="Limit of one try; a draw waits in the server's queue, too."
    )
    retries: int = Field(
        default=8,
        ge=0,
        le=100,
        description="Further tries of a draw: 92 to 183 s for a server that is started again.",
    )
    folder: Path | None = Field(
        default=None,
        description="For the adapters, where this process writes and the server reads them under "
        "the same path, in a folder of each run's own; null is beside the run's checkpoints.",
    )

    @model_validator(mode="after")
    def _has_one_budget(self) -> Self:
        if "evaluation_share" in self.budget.model_fields_set:
            msg = f"budget.evaluation_share must be left out for {SUBJECT}: its budget is one"
            raise ValueError(msg)
        return self


class VllmSpeaker:
    """Samples at the server, and scores here.

    Args:
        options: The server.
        model: The attacker, with adapters.
        base: Names what the adapters change.
        folder: For the adapters of this run alone; ``close`` removes them.

    Raises ConfigurationError if the attacker has more barred ids than a request may name.
    """

    is_mirror = True

    def __init__(
        self, options: VllmOptions, model: LanguageModel, *, base: str, folder: Path
    ) -> None:
        if (num := len(_unsaid(model))) > _MOST_BARRED:
            msg = (
                f"models.attacker must have at most {_MOST_BARRED} ids that are never said for "
                f"{SUBJECT}, got {num}: vLLM bars no more; use the trainer 'trainer'"
            )
            raise ConfigurationError(msg)
        # The same weights, without anybody in their place.
        self._here = copy.copy(model)
        self._base, self._folder = base, folder.absolute()
        self._server = Server(options)
        file = f"vllm-{base[:16]}"
        self.calls = Calls(SUBJECT, options, self._draw, file=file, place=PLACE)
        self._loading = threading.Lock()
        # The adapters that were tried, and the how-manieth loading they came from.
        self._tried = ("", 0)

    def continuations(
        self,
        model: LanguageModel,
        contexts: Sequence[Sequence[int]],
        keys: Sequence[Sequence[bytes]],
        *,
        generation: GenerationConfiguration,
    ) -> list[Continuations]:
        """The utterances after each context, one for each of its keys.

        Raises RolloutError if a draw failed, after all tries.
        """
        weights, name = self._write_adapters()
        body = {"model": name, **sampling(model, generation)}
        questions = [
            _question(body, context, key, weights=weights)
            for context, own in zip(contexts, keys, strict=True)
            for key in own
        ]
        found: list[Utterance] = []
        # Here nobody says what is drawn for an evaluation, so nothing is left for one.
        with self.calls.purse.evaluating():
            answers = self.calls.answers(questions)
        for kept in answers:
            if isinstance(kept, Failure):
                msg = f"{kept.reason}; what was drawn is kept, so start the server and run again"
                raise RolloutError(msg)
            ids, logprobs = json.loads(kept.text)
            text, has_ended = model.decode(ids), ids[-1] in model.end_ids
            found.append(Utterance(text, tuple(ids), tuple(logprobs), has_ended))
        stream = iter(found)
        return [Continuations(tuple(next(stream) for _ in own), ()) for own in keys]

    def score(
        self, contexts: Sequence[Sequence[int]], continuations: Sequence[Sequence[int]]
    ) -> list[tuple[float, ...]]:
        """Log-probabilities under the weights here, which the server mirrors; nats."""
        return self._here.continuation_logprobs(contexts, continuations)

    def leave(self, folder: Path) -> None:
        """Does nothing: the weights are here."""
        del folder

    def close(self) -> None:
        """Takes this run's adapters from the server, where it answers, and from the folder.

        Connections and the file of draws open again when they are needed.
        """
        with self._loading, suppress(CallError):
            self._unload()
        self._remove()
        with suppress(OSError):  # not there, or something else is in it
            self._folder.rmdir()
        self._server.close()
        self.calls.replies.close()

    def _write_adapters(self) -> tuple[str, str]:
        """The digest of the weights of now, and the name of their adapters, which are written.

        The name is of this run too: another may have the same weights, and takes its own away.
        """
        from peft import get_peft_model_state_dict

        plain = get_peft_model_state_dict(self._here.model)
        state = {
            f"base_model.model.{name}": tensor.detach().cpu().contiguous()
            for name, tensor in plain.items()
        }
        content = hashlib.sha256()
        for name, tensor in sorted(state.items()):
            content.update(name.encode())
            content.update(tensor.numpy().tobytes())
        weights = record_digest([self._base, content.hexdigest()])
        folder = self._folder / f"astra-{record_digest([weights, str(self._folder)])[:32]}"
        if not folder.is_dir():
            self._remove()
            with draft_folder_of(folder) as draft:
                self._here.model.peft_config["default"].save_pretrained(str(draft))
                save_file(state, draft / "adapter_model.safetensors")
        return weights, folder.name

    def _remove(self) -> None:
        """Removes the folders of adapters that were written, and nothing else."""
        for old in self._folder.glob("astra-*"):
            if _NAME.fullmatch(old.name) and old.is_dir():
                shutil.rmtree(old, ignore_errors=True)

    def _draw(self, question: Question) -> Kept:
        """One draw, from the adapters that the request names, after they were tried.

        Raises CallError if it failed.
        """
        lost = None
        for _ in range(2):
            tried = self._ready(question, lost)
            fetched = self._server.fetch("completions", question.body, key=question.key)
            # What was answered while others load is of adapters that nobody has tried.
            if fetched.status != httpx.codes.NOT_FOUND and tried == self._tried:
                return _read(fetched, question)
            lost = tried
        if fetched.status != httpx.codes.NOT_FOUND:
            raise CallError(kind="server", words="the server lost its adapters again")
        return _read(fetched, question)

    def _ready(self, question: Question, lost: tuple[str, int] | None) -> tuple[str, int]:
        """The loading of the adapters, after they were tried; another than the one that is lost."""
        with self._loading:
            if self._tried[0] != question.body["model"] or self._tried == lost:
                self._unload()
                self._load(question)
                self._tried = (question.body["model"], self._tried[1])
            return self._tried

    def _load(self, question: Question) -> None:
        """Gives the server the adapters and tries them; what fails does not stay there.

        Raises CallError if it takes none, or adapts other weights.
        """
        name = question.body["model"]
        try:
            body = {"lora_name": name, "lora_path": str(self._folder / name)}
            fetched = self._server.fetch("load_lora_adapter", body)
            self._try(fetched, question)
        except CallError:
            with suppress(CallError):
                self._server.fetch("unload_lora_adapter", {"lora_name": name})
            raise

    def _unload(self) -> None:
        """Takes from the server what it has of this run; from now on nothing counts as tried."""
        self._tried = ("", self._tried[1] + 1)
        known = self._models()
        for name in known:
            if _NAME.fullmatch(name) and known[name] == self._folder / name:
                self._server.fetch("unload_lora_adapter", {"lora_name": name})

    def _models(self) -> dict[str, Path]:
        """The models at the server, with the folders that they come from."""
        fetched = self._server.fetch("models")
        if fetched.status != httpx.codes.OK:
            raise wire.call_error(fetched.status, fetched.headers, fetched.content)
        try:
            models = json.loads(fetched.content)["data"]
            return {str(own["id"]): Path(str(own.get("root"))) for own in models}
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise CallError(kind="malformed", words="the list of models is none") from error

    def _try(self, loaded: Fetched, question: Question) -> None:
        """Checks that a draw from adapters that were loaded now is one of the weights here.

        Raises CallError if the server took none, or adapts other weights.
        """
        if loaded.status != httpx.codes.OK:
            refused = wire.call_error(loaded.status, loaded.headers, loaded.content)
            words = f"{refused.words}; {_START}, where it can read {self._folder}"
            raise CallError(refused.kind, words, is_final=refused.is_final)
        least = min(_LEAST_TRIED, question.body["max_tokens"])
        body = {**question.body, "min_tokens": max(question.body["min_tokens"], least)}
        drawn = _read(self._server.fetch("completions", body), question)
        ids, theirs = json.loads(drawn.text)
        [ours] = self.score([body["prompt"]], [ids])
        gap = sum(abs(a - b) for a, b in zip(ours, theirs, strict=True)) / len(ids)
        if not gap <= _MOST_GAP_NATS:
            words = (
                f"the server's log-probabilities must be within {_MOST_GAP_NATS} nats a token of "
                f"the attacker's, got {gap:.2f}; serve the model of models.attacker with "
                "--logprobs-mode raw_logprobs"
            )
            raise CallError(kind="refused", words=words, is_final=True)


def sampling(model: LanguageModel, generation: GenerationConfiguration) -> dict[str, Any]:
    """What a request asks for beside its context: all settings, since a server has its own."""
    return {
        "max_tokens": generation.max_new_tokens,
        "min_tokens": generation.min_new_tokens,
        "temperature": generation.temperature,
        "top_k": generation.top_k,
        "top_p": generation.top_p,
        "min_p": generation.min_p,
        "repetition_penalty": generation.repetition_penalty,
        "logit_bias": {str(each): -100.0 for each in sorted(_unsaid(model))},
        "ignore_eos": True,
        "stop_token_ids": list(model.end_ids),
        "logprobs": 0,
        "return_token_ids": True,
    }


def read(content: bytes, *, name: str) -> Kept:
    """The draw in an answer: its text is token ids and log-probabilities, as JSON.

    Args:
        content: The answer.
        name: The adapters that were asked for.

    Raises CallError if there is none, or it is of other adapters.
    """
    try:
        answer = json.loads(content)
        [choice] = answer["choices"]
        ids = [int(each) for each in choice["token_ids"]]
        logprobs = [float(each) for each in choice["logprobs"]["token_logprobs"]]
        model, finish, usage = str(answer["model"]), choice["finish_reason"], answer["usage"]
        read_tokens = int(usage["prompt_tokens"])
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        words = "the answer has no token ids with their log-probabilities, as vLLM gives them"
        raise CallError(kind="malformed", words=words, is_final=True) from error
    if model != name:
        words = f"the answer must be of the adapters {name}, got {excerpt(model)}"
        raise CallError(kind="refused", words=words, is_final=True)
    if finish not in {"stop", "length"} or not ids or len(ids) != len(logprobs):
        words = f"the server broke the draw off ({excerpt(finish)})"
        raise CallError(kind="server", words=words)
    text = json.dumps([ids, logprobs])
    return Kept(text, finish=finish, tokens_in=read_tokens, tokens_out=len(ids), model=model)


def _unsaid(model: LanguageModel) -> set[int]:
    """The ids that no draw may have."""
    pad = model.tokenizer.pad_token_id
    return {*model.barred_ids, pad} - {*model.end_ids, *model.said_ids, None}


def _read(fetched: Fetched, question: Question) -> Kept:
    if fetched.status != httpx.codes.OK:
        raise wire.call_error(fetched.status, fetched.headers, fetched.content)
    return read(fetched.content, name=question.body["model"])


def _question(
    body: Mapping[str, Any], context: Sequence[int], key: bytes, *, weights: str
) -> Question:
    seed = int.from_bytes(key[:4], "big") >> 1
    whole = {**body, "prompt": list(context), "seed": seed}
    # By the weights, so that a run that was moved finds its draws.
    digest = record_digest(["vllm", {**whole, "model": weights}])
    return Question(digest, whole, len(context) + body["max_tokens"])
