"""The attacker as an MLflow pyfunc: contexts in, probes out, the same probes for the same seed.

This file is stored beside the weights and runs wherever the model is loaded, so it imports nothing
from this project. A context is the text of a conversation. If it has several turns, they are joined
by the text of the separator; the separator at the end is added here. An attacker with a chat
template takes the text of a seed prompt, or a conversation as JSON with the keys ``prompt``,
``goal``, ``category`` and ``messages``, a list of ``role`` (user: the attacker) and ``content``.

Every row draws from its own generator, seeded by the seed and the row's text, so that a probe does
not depend on the other rows of the request.

If several agents play the turns, the parameter ``agent`` names the one that speaks; the default is
the agent that plays the first turn.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from string import Formatter
from typing import Any

import pandas as pd
from mlflow.models import set_model
from mlflow.pyfunc.model import PythonModel, PythonModelContext

_BATCH_ROWS = 32
# The date that a chat template is given, as in training.
_DAY = datetime(2025, 1, 1, tzinfo=UTC)
_DIRECTIVES = ("%d", "%-d", "%m", "%-m", "%B", "%b", "%A", "%a", "%Y", "%y", "%H", "%M", "%S")
_DEFAULTS = {
    "max_new_tokens": 24,
    "min_new_tokens": 1,
    "temperature": 1.0,
    "top_k": 0,
    "top_p": 1.0,
    "min_p": 0.0,
    "repetition_penalty": 1.0,
    "seed": 0,
}


def dated(template: str) -> str:
    """The chat template, with a fixed date if it asks for the time."""
    says = "".join(f" | replace('{own}', '{_DAY.strftime(own)}')" for own in _DIRECTIVES)
    macro = f"{{%- macro strftime_now(form) -%}}{{{{ form{says} }}}}{{%- endmacro %}}{{{{ '' }}}}"
    return f"{macro}{template}" if "strftime_now" in template else template


class AttackerModel(PythonModel):
    """Writes one probe for each context."""

    def load_context(self, context: PythonModelContext) -> None:
        """Loads weights and tokenizer from the model's own files; nothing is fetched."""
        import torch
        from transformers import AutoModelForCausalLM, AutoTokenizer

        folder = context.artifacts["checkpoint"]
        config = dict(context.model_config or {})
        self._separator = config.pop("separator", None)
        self._max_context_tokens = config.pop("max_context_tokens", None)
        chat = config.pop("attacker", None)
        self._defaults = _DEFAULTS | config
        if not Path(folder, "config.json").is_file():
            # transformers would look up a path that is no folder at the hub.
            msg = f"the model's files must hold {folder}, got none; register it again"
            raise FileNotFoundError(msg)
        if Path(folder, "service.json").is_file():
            msg = "weights must be here, got a pointer to those at a service; 'astra export' them"
            raise FileNotFoundError(msg)
        own = {"local_files_only": True, "trust_remote_code": False}
        self._tokenizer = AutoTokenizer.from_pretrained(folder, **own)
        is_chat = chat and (chat["format"] == "template" or self._tokenizer.chat_template)
        self._chat = chat if is_chat else None
        self._roles, self._told = _roles(Path(folder))
        device = "cuda" if torch.cuda.is_available() else "cpu"

        def loaded(place: Path | str) -> Any:
            model = AutoModelForCausalLM.from_pretrained(
                place, dtype=torch.float32, use_safetensors=True, **own
            )
            return model.eval().to(device)

        self._model = loaded(folder)
        self._others = {
            name: loaded(place) for name, place in _places(Path(folder), self._roles).items()
        }

    # A table is the only type hint with which MLflow neither warns nor drops params.
    def predict(
        self,
        context: PythonModelContext,  # noqa: ARG002 - MLflow's signature
        model_input: pd.DataFrame,
        params: dict[str, Any] | None = None,
    ) -> list[str]:
        """One probe per context, in order.

        Args:
            context: Unused; the model was loaded from it.
            model_input: Texts, or a table whose column ``context`` or only column holds them.
            params: ``max_new_tokens``, ``temperature`` (0 takes the likeliest token), ``top_p``,
                ``top_k``, ``min_p``, ``repetition_penalty``, ``min_new_tokens``, ``seed`` and, of
                several agents, ``agent``.

        Raises ValueError if a parameter is out of range, or the input holds no texts.
        """
        options = self._options(params or {})
        texts = _texts(model_input)
        seeds = _row_seeds(texts, options["seed"])
        probes: list[str] = []
        for start in range(0, len(texts), _BATCH_ROWS):
            rows = slice(start, start + _BATCH_ROWS)
            probes += self._generate(texts[rows], seeds[rows], options)
        return probes

    def _options(self, params: dict[str, Any]) -> dict[str, Any]:
        given = {key: value for key, value in params.items() if value is not None}
        options = self._defaults | given
        rules = {
            "max_new_tokens": options["max_new_tokens"] >= 1,
            "temperature": options["temperature"] >= 0,
            "top_p": 0 < options["top_p"] <= 1,
            "min_p": 0 <= options["min_p"] <= 1,
            "top_k": options["top_k"] >= 0,
            "repetition_penalty": options["repetition_penalty"] > 0,
            "agent": options.setdefault("agent", self._roles[0]) in self._roles,
        }
        wrong = [f"{key}={options[key]!r}" for key, holds in rules.items() if not holds]
        if wrong:
            msg = f"params must lie in their ranges, got {', '.join(wrong)}; see the signature"
            raise ValueError(msg)
        return options

    def _generate(self, texts: list[str], seeds: list[int], options: dict[str, Any]) -> list[str]:
        import torch
        from transformers import GenerationConfig

        agent, new_tokens = options["agent"], options["max_new_tokens"]
        # An agent without its own weights speaks with those of the first.
        tokenizer, model = self._tokenizer, self._others.get(agent, self._model)
        contexts = [self._context_ids(text, new_tokens, agent) for text in texts]
        width = max(map(len, contexts))
        ends = self._end_ids()
        pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else ends[0]
        ids = torch.tensor([[pad] * (width - len(row)) + row for row in contexts])
        mask = torch.tensor([[0] * (width - len(row)) + [1] * len(row) for row in contexts])
        config = GenerationConfig(
            max_new_tokens=options["max_new_tokens"],
            min_new_tokens=options["min_new_tokens"],
            repetition_penalty=options["repetition_penalty"],
            do_sample=False,  # A logits processor draws, from the row's own generator.
            eos_token_id=ends,
            pad_token_id=pad,
            suppress_tokens=self._unsaid_ids({*ends, tokenizer.pad_token_id}) or None,
        )
        with torch.inference_mode():
            output = model.generate(
                ids.to(model.device),
                attention_mask=mask.to(model.device),
                generation_config=config,
                logits_processor=_processors(seeds, options),
            )
        rows = output[:, width:].tolist()
        return [self._text_of(row) for row in rows]

    def _text_of(self, row: list[int]) -> str:
        """The text of the answer, without the reasoning before it."""
        text = str(self._tokenizer.decode(row, skip_special_tokens=True)).strip()
        if self._chat is None:
            return text
        opened, closed = self._chat["think_tags"]
        whole = str(self._tokenizer.decode(row, skip_special_tokens=False))
        if closed not in whole:
            return "" if self._opens or whole.lstrip().startswith(opened) else text
        at = next(n for n in range(len(row) + 1) if closed in self._tokenizer.decode(row[:n]))
        return str(self._tokenizer.decode(row[at:], skip_special_tokens=True)).strip()

    def _context_ids(self, text: str, new_tokens: int, agent: str = "") -> list[int]:
        """Ids as in training: opening token, instruction, conversation; the oldest are cut."""
        # What a text spells is no special token.
        encode = partial(self._tokenizer, add_special_tokens=False, split_special_tokens=True)
        opening, told = self._opening_ids(), self._told.get(agent)
        positions = getattr(self._model.config, "max_position_embeddings", None) or 1 << 20
        limit = min(self._max_context_tokens or positions, positions - new_tokens)
        if self._chat is not None:
            return self._chat_ids(_conversation(text), max(1, limit), told)
        start = opening if told is None else self._close(opening + encode(told)["input_ids"])
        return start + self._close(encode(text)["input_ids"])[-max(1, limit - len(start)) :]

    def _chat_ids(self, said: dict[str, Any], limit: int, told: str | None) -> list[int]:
        """Ids by the chat template: as many of the newest turns as fit, after the instruction."""
        chat = self._chat or {}
        instruction = told or chat["instruction"]
        is_told_anew = "conversation" in {own[1] for own in Formatter().parse(instruction)}
        own = {key: said.get(key) or "" for key in ("prompt", "goal", "category")}
        flipped = {"user": "assistant", "assistant": "user"}
        ids: list[int] = []
        for start in range(0, len(said["messages"]) + 1, 2):
            kept = said["messages"][start:]
            lines = [f"{each['role'].capitalize()}: {each['content']}" for each in kept]
            first = instruction.format(conversation="\n".join(lines), **own)
            turns = [("system", chat["system_prompt"])] if chat["system_prompt"] else []
            turns.append(("user", first))
            if not is_told_anew:
                turns += [(flipped[each["role"]], each["content"]) for each in kept]
            rendered = partial(
                self._tokenizer.apply_chat_template,
                [{"role": role, "content": content} for role, content in turns],
                chat_template=dated(self._tokenizer.get_chat_template()),
                add_generation_prompt=True,
            )
            self._opens = rendered(tokenize=False).rstrip().endswith(chat["think_tags"][0])
            ids = rendered(return_dict=False, sanitize_control_tokens=True)
            if len(ids) <= limit:
                break
        is_opened = len(ids) > limit > 1 and ids[0] == self._tokenizer.bos_token_id
        return ids[:is_opened] + ids[is_opened - limit :]

    def _close(self, ids: list[int]) -> list[int]:
        """The ids with the separator last."""
        separator = self._separator_ids()
        return ids if ids[-len(separator) :] == separator else ids + separator

    def _opening_ids(self) -> list[int]:
        """The beginning-of-sequence token, where the tokenizer adds one by itself."""
        bos = self._tokenizer.bos_token_id
        encoded = self._tokenizer("a")["input_ids"]
        return [bos] if bos is not None and encoded and encoded[0] == bos else []

    def _separator_ids(self) -> list[int]:
        if self._separator is None:
            return [self._tokenizer.eos_token_id]
        return list(self._tokenizer(self._separator, add_special_tokens=False)["input_ids"])

    def _end_ids(self) -> list[int]:
        separator = self._separator_ids()
        ends = {self._tokenizer.eos_token_id, *(separator if len(separator) == 1 else ())}
        if self._chat is not None:
            own = self._model.generation_config.eos_token_id
            ends |= set(own) if isinstance(own, list) else {own}
            ends.add(self._turn_end())
        return sorted(ends - {None})

    def _turn_end(self) -> int | None:
        """The token with which the template ends an answer; None where that is no special one."""
        text = self._tokenizer.apply_chat_template(
            [{"role": "user", "content": "a"}, {"role": "assistant", "content": "\ue0a5"}],
            tokenize=False,
            chat_template=dated(self._tokenizer.get_chat_template()),
        )
        after = self._tokenizer(text.rpartition("\ue0a5")[2], add_special_tokens=False)
        special = self._special_ids()
        return next((token for token in after["input_ids"] if token in special), None)

    def _special_ids(self) -> set[int]:
        known = self._tokenizer.added_tokens_decoder
        special = {token for token, own in known.items() if own.special}
        return special - {self._tokenizer.unk_token_id}

    def _unsaid_ids(self, said: set[int | None]) -> list[int]:
        """What a text does not show, as in training: special tokens, and ids without a token."""
        if self._chat is not None:
            tags = "".join(self._chat["think_tags"])
            said |= {*self._tokenizer(tags, add_special_tokens=False)["input_ids"]}
        whole = set(range(self._model.config.get_text_config().vocab_size))
        unknown = whole - set(self._tokenizer.get_vocab().values())
        return sorted(((self._special_ids() & whole) | unknown) - said)


def _conversation(text: str) -> dict[str, Any]:
    """The conversation that a JSON object describes; any other text is a seed prompt."""
    try:
        said = json.loads(text)
    except ValueError:
        said = None
    if not isinstance(said, dict):
        return {"prompt": text, "messages": []}
    said = {"messages": [], **said}
    try:
        roles = [each["role"] for each in said["messages"]]
        is_whole = "prompt" in said and all(isinstance(e["content"], str) for e in said["messages"])
    except (KeyError, TypeError):
        roles, is_whole = [], False
    if not is_whole or roles != ["user", "assistant"] * (len(roles) // 2):
        msg = "a conversation must have a prompt and messages of user and assistant in turn"
        raise ValueError(msg)
    return said


def _roles(folder: Path) -> tuple[list[str], dict[str, str]]:
    """The agents by turn with their settings; a single agent has no name."""
    file = folder / "agents.json"
    if not file.is_file():
        return [""], {}
    record = json.loads(file.read_text(encoding="utf-8"))
    told = {name: own.get("instruction") for name, own in record["agents"].items()}
    return list(record["roles"]), {name: text for name, text in told.items() if text}


def _places(folder: Path, roles: list[str]) -> dict[str, Path]:
    """The folder of each agent with its own weights, except the first one's at the top."""
    inner = {name: folder / "agents" / name for name in roles}
    return {name: place for name, place in inner.items() if (place / "config.json").is_file()}


def _processors(seeds: list[int], options: dict[str, Any]) -> Any:
    """Temperature, truncation and the draw, in transformers' order; none for temperature 0."""
    from transformers import (
        LogitsProcessorList,
        MinPLogitsWarper,
        TemperatureLogitsWarper,
        TopKLogitsWarper,
        TopPLogitsWarper,
    )

    if options["temperature"] == 0:
        return LogitsProcessorList()
    processors = LogitsProcessorList([TemperatureLogitsWarper(float(options["temperature"]))])
    if options["top_k"] > 0:
        processors.append(TopKLogitsWarper(int(options["top_k"])))
    if options["top_p"] < 1:
        processors.append(TopPLogitsWarper(float(options["top_p"])))
    if options["min_p"] > 0:
        processors.append(MinPLogitsWarper(float(options["min_p"])))
    processors.append(_Draw(seeds))
    return processors


class _Draw:
    """A logits processor that leaves one token per row: inverse-CDF sampling, one number a step."""

    def __init__(self, seeds: list[int]) -> None:
        import torch

        self._generators = [torch.Generator().manual_seed(seed) for seed in seeds]

    def __call__(self, input_ids: Any, scores: Any) -> Any:  # noqa: ARG002 - transformers' signature
        import torch

        cumulative = scores.double().softmax(dim=1).cumsum(dim=1)
        uniform = torch.stack(
            [torch.rand((), generator=own, dtype=torch.float64) for own in self._generators]
        ).to(scores.device)
        # Scaled by the last value, which rounding leaves slightly off one.
        threshold = uniform[:, None] * cumulative[:, -1:]
        token = (cumulative <= threshold).sum(dim=1).clamp(max=scores.shape[1] - 1)
        return torch.full_like(scores, -torch.inf).scatter(1, token[:, None], 0.0)


def _row_seeds(texts: list[str], seed: int) -> list[int]:
    """A seed per row, from its text; equal texts are numbered, so that their probes differ."""
    seen: Counter[str] = Counter()
    seeds = []
    for text in texts:
        name = f"{seed}\x1f{seen[text]}\x1f{text}"
        seen[text] += 1
        seeds.append(int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") >> 1)
    return seeds


def _texts(model_input: Any) -> list[str]:
    """The texts in a list, an array, a column or a table."""
    if hasattr(model_input, "columns"):
        columns = list(model_input.columns)
        model_input = model_input["context" if "context" in columns else columns[0]]
    values: Iterable[Any] = [model_input] if isinstance(model_input, str) else model_input
    texts = [value[0] if isinstance(value, list) and value else value for value in values]
    wrong = [type(text).__name__ for text in texts if not isinstance(text, str)]
    if wrong:
        msg = f"contexts must be texts, got {wrong[0]}; pass a list of texts or a column 'context'"
        raise ValueError(msg)
    return texts


set_model(AttackerModel())
