"""A causal language model with its tokenizer, as used for attacker, target and reference."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import torch

from astra_core.config import GenerationConfiguration
from astra_core.engine.bars import bar
from astra_core.engine.cache.prefixes import PrefixStore
from astra_core.engine.cache.sharing import Continued
from astra_core.engine.logprobs import token_logprobs
from astra_core.engine.machine import Machine
from astra_core.engine.memory import return_freed_memory
from astra_core.engine.plan import Plan
from astra_core.engine.products.fused_layers import (
    use_fused_gelu,
    use_fused_norms,
    use_gated_products,
)
from astra_core.engine.steps.stepper import Stepper
from astra_core.engine.talking_copy import TalkingCopy
from astra_core.files import record_digest
from astra_core.models.continuation import ContinuationSampler
from astra_core.models.control_tokens import as_text, control_ids, encode_text, unsaid_ids
from astra_core.models.generation_file import consistent_generation
from astra_core.models.lora import base_among, merged_state, read_adapters
from astra_core.models.marked_template import turn_end
from astra_core.models.pretrained import Dtype, load_pretrained
from astra_core.models.rows import row_batches
from astra_core.models.tokenizers import meaning_of_ids, separator_ids_of
from astra_core.models.utterances import Continuations, Elsewhere, Utterance

# A conversation is rendered again for every turn, but its texts are not encoded again.
_MOST_ENCODED = 1 << 14


class LanguageModel:
    """A causal LM that samples from keys and scores token ids; text is only derived.

    Dropout stays off at all times: the policy that is trained is the one that sampled.

    It says no special token but the ends, and no id without a token; see ``allow``.

    Attributes:
        plan: How the model is run.
        elsewhere: Samples and scores in place of the local weights; None uses these.
        is_apart: Whether it was loaded as adapters beside their base, which round otherwise.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        *,
        separator: str | None = None,
        machine: Machine | None = None,
    ) -> None:
        self.model = model.eval()
        use_fused_gelu(self.model)
        if self.model.device.type == "cuda":
            use_fused_norms(self.model)
        else:
            use_gated_products(self.model)
        self.tokenizer = tokenizer
        self.separator_ids = separator_ids_of(tokenizer, separator)
        self.plan = Plan.of(self.model, machine)
        self.said_ids: frozenset[int] = frozenset()
        self._is_barring = True
        self._copy: TalkingCopy | None = None
        alone = self.separator_ids if len(self.separator_ids) == 1 else ()
        ends = {tokenizer.eos_token_id, turn_end(tokenizer), *alone}
        self.end_ids = tuple(sorted(ends - {None}))
        self.elsewhere: Elsewhere | None = None
        self.is_apart = False
        self._store: PrefixStore | None = None
        self._talker: Any = self.model
        self._steppers: dict[int, Stepper] = {}
        self._encoded: dict[str, tuple[int, ...]] = {}

    @classmethod
    def load(
        cls,
        folder: Path | str,
        *,
        separator: str | None = None,
        is_frozen: bool = True,
        device: torch.device | str = "cpu",
        machine: Machine | None = None,
        dtype: Dtype = "float32",
        device_map: str | None = None,
        beside: Iterable[Path] = (),
    ) -> Self:
        """The model and tokenizer in a Hugging Face folder, from safetensors, in fp32 by default.

        ``beside``: Models in memory. If the folder's adapters were added to one of them, they stay
        apart, so that ``share_frozen`` can keep the weights below once.

        Raises:
            ConfigurationError: The folder does not hold a causal LM that transformers can load.
        """
        return_freed_memory()  # weights and passes of models before
        base = base_among(beside, Path(folder))
        model, tokenizer = load_pretrained(folder, dtype=dtype, device_map=device_map, weights=base)
        if base is not None:
            read_adapters(model, Path(folder))
        model.requires_grad_(not is_frozen)
        placed = model.to(device) if device_map is None else model
        found = cls(placed, tokenizer, separator=separator, machine=machine)
        found.is_apart = base is not None
        return found

    @property
    def end_ids(self) -> tuple[int, ...]:
        """The ids that end an utterance, ascending."""
        return self._end_ids

    @end_ids.setter
    def end_ids(self, ids: tuple[int, ...]) -> None:
        self._end_ids = ids
        self._bar()

    def allow(self, *, ends: Iterable[int | None] = (), others: Iterable[int] = ()) -> None:
        """Lets an utterance also end in some ids, and have others in it, which are special."""
        more = {*self.end_ids, *(end for end in ends if end is not None)}
        said = self.said_ids.union(others)
        if (tuple(sorted(more)), said) != (self.end_ids, self.said_ids):
            self.said_ids = said
            self.end_ids = tuple(sorted(more))

    def speak_as(self, model: Self) -> None:
        """Lets both models end in and say the same ids, so that their likelihoods compare."""
        for one, other in ((self, model), (model, self)):
            one.allow(ends=other.end_ids, others=other.said_ids)
        speaker = model.elsewhere
        if speaker is not None and not speaker.is_mirror and self._is_barring:
            # A service samples from the unmodified model.
            self._is_barring = False
            self._bar()

    @property
    def control_ids(self) -> frozenset[int]:
        """The ids that steer a conversation; see ``control_tokens``."""
        if self._words != _words_of(self.tokenizer):
            self._bar()
        return self._control

    def _bar(self) -> None:
        kept = self.said_ids.union(self.end_ids)
        self._words, self._control = _words_of(self.tokenizer), control_ids(self.tokenizer)
        pad = self.tokenizer.pad_token_id
        # Nothing teaches a model to say its padding. It keeps its likelihood, and is drawn again.
        self._spare_id = None if pad in kept else pad
        unsaid = unsaid_ids(self.tokenizer, self.vocabulary_size) - kept - {pad}
        self.barred_ids = tuple(sorted(unsaid)) if self._is_barring else ()
        bar(self.model, self.barred_ids)
        if self._copy is not None:
            bar(self._copy.model, self.barred_ids)

    @property
    def max_positions(self) -> int:
        """The longest sequence the model was made for, in tokens."""
        return int(getattr(self.model.config, "max_position_embeddings", None) or 1 << 20)

    @property
    def num_parameters(self) -> int:
        """Weights, counting shared ones once."""
        return sum(parameter.numel() for parameter in self.model.parameters())

    @property
    def vocabulary_size(self) -> int:
        """The number of ids in the model's head."""
        return int(self.model.config.get_text_config().vocab_size)

    @cached_property
    def vocabulary(self) -> str:
        """The ``vocabulary_digest``, computed once."""
        return self.vocabulary_digest()

    def vocabulary_digest(self) -> str:
        """Equal for tokenizers whose ids mean the same; then ids pass between models unchanged."""
        meaning = meaning_of_ids(self.tokenizer)
        return record_digest([meaning, list(self.separator_ids), list(self.opening_ids)])

    @property
    def opening_ids(self) -> tuple[int, ...]:
        """The ids at the start of a conversation: the tokenizer's first token, if it adds one."""
        bos = self.tokenizer.bos_token_id
        encoded = self.tokenizer("a")["input_ids"]
        return (bos,) if bos is not None and encoded and encoded[0] == bos else ()

    def as_text(self, text: str) -> str:
        """The text for ``encode``, in which no control token is read, whatever it spells."""
        is_plain = self.control_ids.isdisjoint(self.encode(text))
        return text if is_plain else as_text(self.tokenizer, text, self.control_ids)

    def readable_ids(self, token_ids: Sequence[int]) -> tuple[int, ...]:
        """The ids as another may read them; none if a control token is among them, but at the end.

        Their text is read instead, and does not show it.
        """
        ids = tuple(token_ids)
        if ids and ids[-1] in self.control_ids and ids[-1] not in self.end_ids:
            ids = ids[:-1]
        return ids if self.control_ids.isdisjoint(ids[:-1]) else ()

    def encode(self, text: str) -> tuple[int, ...]:
        """Token ids of the text alone, no special tokens added but those that it spells."""
        known = self._encoded.get(text)
        if known is None:
            if len(self._encoded) >= _MOST_ENCODED:
                self._encoded.clear()
            known = encode_text(self.tokenizer, text)
            self._encoded[text] = known
        return known

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of the ids, special tokens left out."""
        return str(self.tokenizer.decode(list(token_ids), skip_special_tokens=True)).strip()

    def closed_ids(self, token_ids: Sequence[int]) -> tuple[int, ...]:
        """The ids of an utterance followed by the separator, which is not doubled."""
        ids = tuple(token_ids)
        cut = len(ids) - len(self.separator_ids)
        if ids[max(cut, 0) :] == self.separator_ids:
            return ids
        if ids and ids[-1] in self.end_ids:
            ids = ids[:-1]
        return ids + self.separator_ids

    @torch.no_grad()
    def continuations(
        self,
        contexts: Sequence[Sequence[int]],
        keys: Sequence[Sequence[bytes]],
        generation: GenerationConfiguration,
        *,
        suffix_lengths: Sequence[int] | None = None,
        tokens_per_batch: int = 16384,
    ) -> list[Continuations]:
        """Samples ``len(keys[i])`` utterances after context ``i``; a context is read once.

        Args:
            contexts: Token ids, none empty.
            keys: The random key of each utterance.
            generation: How to sample.
            suffix_lengths: How many last tokens of each context to score; the same pass gives their
                log-probabilities.
            tokens_per_batch: Bounds rows times positions of one forward pass.
        """
        if self.elsewhere is not None:
            return self.elsewhere.continuations(self, contexts, keys, generation=generation)
        sampler = ContinuationSampler(
            self._talker,
            self.plan,
            self._store,
            (self.end_ids, self.barred_ids, self._spare_id),
            self._stepper,
        )
        lengths = suffix_lengths or [0] * len(contexts)
        asked = [Continued(*own) for own in zip(contexts, keys, lengths, strict=True)]
        found = sampler.sample(asked, generation, budget=tokens_per_batch)
        return [
            Continuations(tuple(self._utterance(*row) for row in rows), suffix)
            for rows, suffix in found
        ]

    @contextmanager
    def remembering(self, max_bytes: int, *, is_bf16: bool = False) -> Iterator[None]:
        """Runs the body with keys and values cached between calls, at most ``max_bytes`` of them.

        The next call does not read again what one call has read and sampled. The weights must not
        change inside the body, and are packed for it in the processor's fastest layout; in bf16 on
        request.
        """
        before, self._store = self._store, PrefixStore(max_bytes) if max_bytes else None
        plan = self.plan.talking(precision="bf16" if is_bf16 else "fp32")
        talker = self._talker
        try:
            with plan.talks(self.model):
                self._talker = self._talking_copy() if plan.talks_in_copy else self.model
                yield
        finally:
            self._store, self._talker = before, talker

    def _talking_copy(self) -> Any:
        """The copy in half precision with the weights of now; the model itself if it is so."""
        if self.model.dtype != torch.float32:
            return self.model
        if self._copy is None:
            self._copy = TalkingCopy(self.model)
        self._copy.refresh()
        return self._copy.model

    def _stepper(self) -> Stepper:
        """Of the model that talks now."""
        found = self._steppers.get(id(self._talker))
        if found is None:
            found = Stepper(
                self._talker, captures=self.plan.captures, compiles=self.plan.compiles_steps
            )
            self._steppers[id(self._talker)] = found
        return found

    def _utterance(self, token_ids: list[int], logprobs: list[float]) -> Utterance:
        return Utterance(
            text=self.decode(token_ids),
            token_ids=tuple(token_ids),
            logprobs=tuple(logprobs),
            has_ended=token_ids[-1] in self.end_ids,
        )

    @torch.no_grad()
    def continuation_logprobs(
        self,
        contexts: Sequence[Sequence[int]],
        continuations: Sequence[Sequence[int]],
        *,
        tokens_per_batch: int = 16384,
    ) -> list[tuple[float, ...]]:
        """Log-probability of every continuation token given its context, nats, without gradient."""
        if self.elsewhere is not None:
            return self.elsewhere.score(contexts, continuations)
        found: list[tuple[float, ...]] = [()] * len(contexts)
        for chunk, rows in row_batches(
            contexts,
            continuations,
            pad_id=self._pad_id,
            device=self.device,
            tokens_per_batch=tokens_per_batch,
        ):
            logprobs = token_logprobs(self._talker, rows, plan=self.plan).tolist()
            for index, row in zip(chunk, logprobs, strict=True):
                found[index] = tuple(row[: len(continuations[index])])
        return found

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        device: torch.device = next(self.model.parameters()).device
        return device

    @property
    def _pad_id(self) -> int:
        # Never read: the attention mask hides it, and no mask is derived from it.
        pad = self.tokenizer.pad_token_id
        return int(pad if pad is not None else (self.end_ids[0] if self.end_ids else 0))

    def save(self, folder: Path | str) -> None:
        """Writes a Hugging Face folder with safetensors and the tokenizer; adapters are merged."""
        return_freed_memory()  # merged weights take as much as the model
        with consistent_generation(self.model):
            self.model.save_pretrained(str(folder), state_dict=merged_state(self.model))
        self.tokenizer.save_pretrained(str(folder))
        if self.elsewhere is not None:
            self.elsewhere.leave(Path(folder))

    save_pretrained = save  # transformers' name for it


def _words_of(tokenizer: Any) -> tuple[int, Any]:
    """Differs where a tokenizer has got more tokens or another template."""
    return len(tokenizer), tokenizer.chat_template
