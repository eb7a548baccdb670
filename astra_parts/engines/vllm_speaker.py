"""An attacker that learns here and samples at a vLLM server, which is given its adapters.

Token ids go out, token ids and their log-probabilities come back. The server knows adapters by the
digest of their weights: each request names the weights of now, and each answer must name them too,
so no draw is of other weights unnoticed. What the server has not, or has lost as it was started
again, it is given and tried once. Each draw is kept before it is used: a run that is killed, or
whose server is, finds its draws again.
"""

import copy
import hashlib
import json
import shutil
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

import httpx
from pydantic import Field
from safetensors.torch import save_file

from astra_core.config import GenerationConfiguration, Seconds
from astra_core.errors import RolloutError
from astra_core.errors.exception_text import excerpt
from astra_core.files import draft_folder_of, record_digest
from astra_core.models.language_model import LanguageModel
from astra_core.models.utterances import Continuations, Utterance
from astra_core.rollout import Failure
from astra_parts.targets import wire
from astra_parts.targets.calls import CallError, Calls, Question
from astra_parts.targets.kept import Kept
from astra_parts.targets.server import Server, ServerOptions

SUBJECT = "trainer 'vllm'"
PLACE = "training.trainer.options"
# Mean over the tokens of one draw. Between kinds of rounding it is a hundredth, in four bits a
# tenth; between other weights it is above 1.
_MOST_GAP_NATS = 0.5
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
        description="Further tries of a draw: three minutes for a server that is started again.",
    )
    folder: Path | None = Field(
        default=None,
        description="For the adapters, where this process writes and the server reads them under "
        "the same path; null is in the run's own.",
    )


class VllmSpeaker:
    """Samples at the server, and scores here.

    Args:
        options: The server.
        model: The attacker, with adapters.
        base: Names what the adapters change.
        folder: For the adapters.
    """

    is_mirror = True

    def __init__(
        self, options: VllmOptions, model: LanguageModel, *, base: str, folder: Path
    ) -> None:
        # The same weights, without anybody in their place.
        self._here = copy.copy(model)
        self._base, self._folder = base, folder.absolute()
        self._server = Server(options)
        file = f"vllm-{base[:16]}"
        self.calls = Calls(SUBJECT, options, self._draw, file=file, place=PLACE)
        self._loading = threading.Lock()

    def continuations(
        self,
        model: LanguageModel,
        contexts: Sequence[Sequence[int]],
        keys: Sequence[Sequence[bytes]],
        *,
        generation: GenerationConfiguration,
    ) -> list[Continuations]:
        """The utterances after each context, one for each of its keys.

        Raises:
            RolloutError: A draw failed, after all tries.
        """
        body = {"model": self._write_adapters(), **sampling(model, generation)}
        questions = [
            _question(body, context, key)
            for context, own in zip(contexts, keys, strict=True)
            for key in own
        ]
        found: list[Utterance] = []
        for kept in self.calls.answers(questions):
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
        """Closes connections and the file of draws; both open again when they are needed."""
        self._server.close()
        self.calls.replies.close()

    def _write_adapters(self) -> str:
        """The name of the adapters of now, whose folder is there; earlier ones are removed."""
        from peft import get_peft_model_state_dict

        plain = get_peft_model_state_dict(self._here.model)
        state = {
            f"base_model.model.{name}": tensor.detach().cpu().contiguous()
            for name, tensor in plain.items()
        }
        weights = hashlib.sha256()
        for name, tensor in sorted(state.items()):
            weights.update(name.encode())
            weights.update(tensor.numpy().tobytes())
        name = f"astra-{record_digest([self._base, weights.hexdigest()])[:32]}"
        folder = self._folder / name
        if not folder.is_dir():
            for old in self._folder.glob("astra-*"):
                shutil.rmtree(old)
            with draft_folder_of(folder) as draft:
                self._here.model.peft_config["default"].save_pretrained(str(draft))
                save_file(state, draft / "adapter_model.safetensors")
        return name

    def _draw(self, question: Question, *, may_load: bool = True) -> Kept:
        """One draw, from the adapters that the request names.

        Raises:
            CallError: It failed.
        """
        fetched = self._server.fetch("completions", question.body, key=question.key)
        if fetched.status == httpx.codes.NOT_FOUND and may_load:
            self._load(question)
            return self._draw(question, may_load=False)
        if fetched.status != httpx.codes.OK:
            raise wire.refused(fetched.status, fetched.headers, fetched.content)
        return read(fetched.content, name=question.body["model"])

    def _load(self, question: Question) -> None:
        """Gives the server the adapters in place of earlier ones of this run, and tries them."""
        name = question.body["model"]
        with self._loading:
            known = self._models()
            if name in known:
                return  # by another thread
            for old in known:
                if known[old] == self._folder / old:
                    self._server.fetch("unload_lora_adapter", {"lora_name": old})
            body = {"lora_name": name, "lora_path": str(self._folder / name)}
            fetched = self._server.fetch("load_lora_adapter", body)
            if fetched.status != httpx.codes.OK:
                refused = wire.refused(fetched.status, fetched.headers, fetched.content)
                words = f"{refused.words}; {_START}, where it can read {self._folder}"
                raise CallError(refused.kind, words, is_final=refused.is_final)
            self._try(question)

    def _models(self) -> dict[str, Path]:
        """The models at the server, with the folders that they come from."""
        fetched = self._server.fetch("models")
        if fetched.status != httpx.codes.OK:
            raise wire.refused(fetched.status, fetched.headers, fetched.content)
        try:
            models = json.loads(fetched.content)["data"]
            return {str(own["id"]): Path(str(own.get("root"))) for own in models}
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise CallError(kind="malformed", words="the list of models is none") from error

    def _try(self, question: Question) -> None:
        """Checks that a draw from adapters that were loaded now is one of the weights here.

        Raises:
            CallError: The server adapts other weights.
        """
        ids, theirs = json.loads(self._draw(question, may_load=False).text)
        [ours] = self.score([question.body["prompt"]], [ids])
        gap = sum(abs(a - b) for a, b in zip(ours, theirs, strict=True)) / len(ids)
        if gap > _MOST_GAP_NATS:
            self._server.fetch("unload_lora_adapter", {"lora_name": question.body["model"]})
            words = (
                f"the server's log-probabilities must be within {_MOST_GAP_NATS} nats a token of "
                f"the attacker's, got {gap:.2f}; serve the model of models.attacker"
            )
            raise CallError(kind="refused", words=words, is_final=True)


def sampling(model: LanguageModel, generation: GenerationConfiguration) -> dict[str, Any]:
    """What a request asks for beside its context: all settings, since a server has its own."""
    pad = model.tokenizer.pad_token_id
    unsaid = {*model.barred_ids, pad} - {*model.end_ids, *model.said_ids, None}
    return {
        "max_tokens": generation.max_new_tokens,
        "min_tokens": generation.min_new_tokens,
        "temperature": generation.temperature,
        "top_k": generation.top_k,
        "top_p": generation.top_p,
        "min_p": generation.min_p,
        "repetition_penalty": generation.repetition_penalty,
        "logit_bias": {str(each): -100.0 for each in sorted(unsaid)},
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

    Raises:
        CallError: There is none, or it is of other adapters.
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


def _question(body: Mapping[str, Any], context: Sequence[int], key: bytes) -> Question:
    seed = int.from_bytes(key[:4], "big") >> 1
    whole = {**body, "prompt": list(context), "seed": seed}
    return Question(record_digest(["vllm", whole]), whole, len(context) + body["max_tokens"])
