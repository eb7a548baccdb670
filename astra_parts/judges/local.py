"""The base of judges that are models in a folder: frozen, on a device, named by their weights."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from astra_core.config import Count, Section
from astra_core.errors import ConfigurationError
from astra_core.errors.exception_text import shorten
from astra_core.files import record_digest
from astra_core.judge import Exchange, Judge, Judgement
from astra_core.models.folders import require_folder

_DIGITS = 4
# Options that change judgements only by rounding.
_NOT_NAMED = frozenset({"path", "device", "batch_size"})


class FolderOptions(Section):
    """Where the model is, and how it is run."""

    path: str = Field(description="A Hugging Face folder with safetensors and tokenizer.")
    device: Literal["auto", "cpu", "cuda"] = "cpu"
    batch_size: Count = 16

    @model_validator(mode="after")
    def _is_there(self) -> Self:
        require_folder(self.path)
        return self

    def model_config_of(self) -> Mapping[str, Any]:
        """The content of the folder's config.json; reads no weights."""
        try:
            found = json.loads((Path(self.path) / "config.json").read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            msg = f"{self.path}/config.json must be JSON, got {type(error).__name__}; check it"
            raise ConfigurationError(msg) from error
        return found if isinstance(found, dict) else {}


class LocalJudge(Judge):
    """A judge that is a model in a folder, loaded and frozen when the judge is built.

    ``kind``: the class of transformers that loads it, such as ``AutoModelForCausalLM``.
    """

    options: FolderOptions

    def __init__(self, options: FolderOptions, kind: str) -> None:
        # Imported late: naming a judge must stay cheap.
        from astra_core.models.control_tokens import control_ids
        from astra_core.models.pretrained import device_for, weights_digest

        super().__init__(options)
        self.device = device_for(options.device)
        self.works_on = "cpu" if self.device.type == "cpu" else "gpu"
        self.model, self.tokenizer = _load(Path(options.path), kind)
        self.control_ids = control_ids(self.tokenizer)
        self.model.to(self.device).eval().requires_grad_(requires_grad=False)
        own = options.model_dump(mode="json", exclude=set(_NOT_NAMED))
        weights = weights_digest(Path(options.path))
        self._digest = record_digest([weights, own])[:12]

    @property
    def version(self) -> str:
        """The digest of weights and options."""
        return f"{type(self).__name__} {self._digest}"

    def as_text(self, exchange: Exchange) -> Exchange:
        """The exchange, for ``ids_of``, whose texts spell no control token of this model."""
        from astra_core.models.control_tokens import as_text

        own = partial(as_text, self.tokenizer, control=self.control_ids)
        said = exchange.conversation
        columns = {
            name: own(value) if isinstance(value, str) else value
            for name, value in said.prompt.metadata.items()
        }
        told = replace(
            said,
            prompt=replace(said.prompt, text=own(said.prompt.text), metadata=columns),
            messages=tuple(replace(message, text=own(message.text)) for message in said.messages),
        )
        return Exchange(told, own(exchange.probe), own(exchange.reply))

    def ids_of(self, text: str, *, adds_special: bool) -> list[int]:
        """The ids of a prompt."""
        from astra_core.models.control_tokens import encode_text

        return list(encode_text(self.tokenizer, text, adds_special=adds_special))

    def in_batches(
        self,
        exchanges: Sequence[Exchange],
        encode: Callable[[Exchange], list[int]],
        judge: Callable[[list[list[int]]], Iterable[Judgement]],
        *,
        room: int,
    ) -> list[Judgement]:
        """One judgement per exchange, from rows of ids; none of one that is empty or too long.

        ``judge``: the judgements of ``options.batch_size`` rows at most, in order.
        """
        found: list[Judgement | None] = [nothing_said(own.reply) for own in exchanges]
        waiting = []
        for at, exchange in enumerate(exchanges):
            ids = encode(exchange) if found[at] is None else []
            if len(ids) > room:
                found[at] = Judgement.none(f"the exchange has {len(ids)} tokens")
            elif ids:
                waiting.append((at, ids))
        size = self.options.batch_size
        for first in range(0, len(waiting), size):
            batch = waiting[first : first + size]
            for (at, _), judgement in zip(batch, judge([ids for _, ids in batch]), strict=True):
                found[at] = judgement
        return [own or Judgement.none("the exchange is empty") for own in found]

    def room(self, most: int) -> int:
        """How many tokens the model reads at once; ``most`` where its folder says nothing."""
        config = self.model.config
        positions = getattr(config, "max_position_embeddings", 0) or most
        # Of RoBERTa two positions are never used.
        return min(most, positions - 2 if config.model_type.endswith("roberta") else positions)

    def space_out(self, text: str) -> str:
        """The text, for the tokenizer itself, in which no control token is read."""
        from astra_core.models.control_tokens import space_out

        return space_out(self.tokenizer, text, self.control_ids)


def round_score(score: float) -> float:
    """A score to four digits, because further digits depend on the size of the batch."""
    return min(1.0, max(0.0, round(float(score), _DIGITS)))


def nothing_said(reply: str) -> Judgement | None:
    """Why an empty reply is not judged; None for any other."""
    return None if reply.strip() else Judgement.none("the reply is empty")


def _load(folder: Path, kind: str) -> tuple[Any, Any]:
    import torch
    import transformers

    local = {"local_files_only": True, "trust_remote_code": False}
    try:
        model, loading = getattr(transformers, kind).from_pretrained(
            str(folder),
            dtype=torch.float32,
            use_safetensors=True,
            output_loading_info=True,
            **local,
        )
        tokenizer = transformers.AutoTokenizer.from_pretrained(str(folder), **local)
    except Exception as error:  # a damaged folder may raise anything
        reason = shorten(f"{type(error).__name__}: {error}", limit=140)
        msg = f"{folder} must hold a model for {kind} and its tokenizer, got {reason}; check it"
        raise ConfigurationError(msg) from error
    if loading["missing_keys"]:
        # transformers would continue with random numbers instead.
        missing = sorted(loading["missing_keys"])
        msg = f"{folder} must hold every weight, got no {missing[0]} of {len(missing)}; check it"
        raise ConfigurationError(msg)
    return model, tokenizer
