"""What a model supports, found by numerical trials; the plain way is the fallback."""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch

from astra_core.config import GenerationConfiguration
from astra_core.engine.attention import use_own_attention
from astra_core.engine.bars import unbar
from astra_core.engine.cache.prefixes import PrefixStore
from astra_core.engine.cache.reading import CachedReading, LoneReading, PaddedReading, Reading
from astra_core.engine.steps.step import DecodingStep, DrawnRow, Rows
from astra_core.engine.steps.stepper import Stepper

Contexts = list[list[int]]

# The errors of an architecture that is built differently.
_FAILURES = (
    *(AttributeError, IndexError, KeyError, NotImplementedError),
    *(RuntimeError, TypeError, ValueError),
)

# Allowed difference of log-probabilities, nats, by nat from the middle token to the likeliest one.
# A chat model of 30 layers rounds by a tenth of it in fp32; another way differs far more.
_TOLERANCE = 1e-3
# In half precision also so many roundings of the largest logit, as sums over layers have some.
_ROUNDINGS = 8
_CONTEXTS = ((1, 2, 3, 4, 5), (1, 2), (1, 2, 3, 5, 4, 2, 1))
# Rows of the trial: some forked, one left out, and one that ends before the others.
_FORKED = (0, 0, 2, 2, 2)
_ENDED = 1
# The attention window of windowed layers in the trial; the contexts are longer.
_WINDOW = 3
# Tokens that a trial of steps draws.
_NEW = 3


@dataclass(frozen=True, slots=True)
class Abilities:
    """What a model supports.

    Attributes:
        takes_masks: It attends only to what our mask and our cache allow.
            Architectures that derive positions from the padding (ALiBi), or that keep a state
            instead of keys and values, do not.
        takes_padding: It ignores what a padding mask hides, and continues from transformers'
            own cache. State-space models do not.
        takes_stems: Its attention uses the stems in the cache that several rows share.
        has_plain_head: Its logits are its head's output for the last hidden state, unscaled.
    """

    takes_masks: bool
    takes_padding: bool
    takes_stems: bool
    has_plain_head: bool


_known: WeakKeyDictionary[Any, Abilities] = WeakKeyDictionary()
_by_build: dict[str, Abilities] = {}
_token_bytes: WeakKeyDictionary[Any, int] = WeakKeyDictionary()
_steppable: WeakKeyDictionary[Any, bool] = WeakKeyDictionary()


def abilities_of(model: Any) -> Abilities:
    """The abilities of a causal LM of transformers, tried out on the first of its build.

    Attacker, reference and target are often one: they have the same code, sizes and number type.
    """
    if model not in _known:
        build = _build_of(model)
        if build not in _by_build:
            _by_build[build] = _try_out(model)
        assume(model, _by_build[build])
        if _known[model].takes_masks:
            token_bytes_of(model)
    return _known[model]


def token_bytes_of(model: Any) -> int:
    """Memory of the keys and values of one token, as our cache holds them."""
    if model not in _token_bytes:
        with _trying(model):
            values = CachedReading(model, _contexts_of(model)[:1], [1], room=0).values
        _token_bytes[model] = values.num_bytes // values.capacity
    return _token_bytes[model]


def takes_steps(model: Any) -> bool:
    """True if steps of fixed shape draw tokens with the log-probabilities of the plain way."""
    found = _steppable.get(model)
    if found is None:
        with _trying(model):
            found = _steppable[model] = _takes_steps(model)
    return found


def _build_of(model: Any) -> str:
    config = model.config.to_dict()
    config.pop("_name_or_path", None)
    attention = model.config._attn_implementation  # noqa: SLF001  # its only name
    return repr((type(model), attention, model.dtype, model.device, config))


def _try_out(model: Any) -> Abilities:
    with _trying(model):
        takes_masks = _takes_masks(model)
        takes_padding = takes_masks or _takes_padding(model)
        takes_stems = takes_masks and _takes_stems(model)
        return Abilities(takes_masks, takes_padding, takes_stems, _has_plain_head(model))


@contextmanager
def _trying(model: Any) -> Iterator[None]:
    """A scope of trials: without gradient, in the model's own precision, with nothing barred."""
    with torch.no_grad(), unbar(model), _in_full_precision(model.device.type):
        yield


def assume(model: Any, found: Abilities) -> None:
    """Skips the trial of a model that is built like one whose abilities are known."""
    if found.takes_masks:
        use_own_attention(model)
    _known[model] = found


def _in_full_precision(device: str) -> AbstractContextManager[Any]:
    if not torch.amp.is_autocast_available(device):
        return nullcontext()
    return torch.autocast(device, enabled=False)


def _takes_masks(model: Any) -> bool:
    """Contexts of different lengths are read and continued as in the plain way."""
    was = model.config._attn_implementation  # noqa: SLF001  # its only name
    asked = _contexts_of(model), [1] * len(_CONTEXTS)
    try:
        with _narrow_windows(model.config.get_text_config()):
            is_same = use_own_attention(model) and _are_alike(
                model, PaddedReading(model, *asked), CachedReading(model, *asked, room=1)
            )
    except _FAILURES:
        is_same = False
    if not is_same:
        model.set_attn_implementation(was)
    return is_same


def _takes_padding(model: Any) -> bool:
    asked = _contexts_of(model), [1] * len(_CONTEXTS)
    try:
        return _are_alike(model, LoneReading(model, *asked), PaddedReading(model, *asked))
    except _FAILURES:
        return False


def _takes_stems(model: Any) -> bool:
    """Siblings are read, forked and continued as in the plain way."""
    if getattr(model.config.get_text_config(), "sliding_window", None):
        return False
    contexts = _contexts_of(model)
    # Each context gets two continuations.
    tails = contexts[0][:2], contexts[1]
    siblings = [[*context, *tail] for context in contexts for tail in tails]
    store = PrefixStore(1 << 30)

    def read(rows: Contexts) -> CachedReading:
        ones = [1] * len(rows)
        places = store.places(rows, ones)
        return CachedReading(
            model, rows, ones, store=store, places=places, room=1, takes_stems=True
        )

    try:
        read(contexts).close()
        plain = PaddedReading(model, siblings, [1] * len(siblings))
        return _are_alike(model, plain, read(siblings))
    except _FAILURES:
        return False


@contextmanager
def _narrow_windows(config: Any) -> Iterator[None]:
    """Runs the body with short attention windows, so that a few tokens reach beyond them."""
    names = ("sliding_window", "attention_chunk_size")
    found = {name: getattr(config, name, None) for name in names}
    windows = {name: window for name, window in found.items() if window}
    try:
        for name in windows:
            setattr(config, name, _WINDOW)
        yield
    finally:
        for name, window in windows.items():
            setattr(config, name, window)


def _are_alike(model: Any, *readings: Reading) -> bool:
    """Does all that sampling does: forks what was read, ends a row, drops it and goes on."""
    found = [_three_steps(model, reading) for reading in readings]
    allowed = _tolerance(found[0][-1])
    return all(_is_close(one, other, allowed) for one, other in zip(*found, strict=True))


def _three_steps(model: Any, reading: Reading) -> list[torch.Tensor]:
    """Logits of the forked rows in three steps, the last without one of them, and the suffixes."""
    suffixes = torch.tensor(reading.suffix_logprobs).flatten()[None]
    reading.select(_FORKED, room=2)
    places = torch.arange(len(_FORKED), device=model.device)
    tokens, is_over = places % model.config.get_text_config().vocab_size, places == _ENDED
    found = [suffixes, reading.logits]
    found.append(reading.advance(tokens, (~is_over).tolist())[~is_over])
    kept = torch.tensor(reading.drop(is_over.tolist()), device=model.device)
    last = reading.advance(tokens[kept], [True] * len(kept))
    return [*found, last[kept.argsort()]]


def _contexts_of(model: Any) -> Contexts:
    """What every trial reads: contexts of different lengths, one of which begins another."""
    return [_known_ids(model, ids) for ids in _CONTEXTS]


def _known_ids(model: Any, ids: Sequence[int]) -> list[int]:
    return [index % model.config.get_text_config().vocab_size for index in ids]


def _has_plain_head(model: Any) -> bool:
    ids = torch.tensor([_known_ids(model, _CONTEXTS[0])], device=model.device)
    try:
        states = model.base_model(input_ids=ids, use_cache=False).last_hidden_state
        own = model.get_output_embeddings()(states)
    except _FAILURES:
        return False
    return _is_close(model(input_ids=ids, use_cache=False).logits, own, _TOLERANCE)


def _is_close(first: torch.Tensor, second: torch.Tensor, allowed: float) -> bool:
    difference = first.float().log_softmax(dim=-1) - second.float().log_softmax(dim=-1)
    return float(difference.abs().max()) < allowed


def _tolerance(logits: torch.Tensor) -> float:
    """How far log-probabilities of two ways to the same logits may differ, nats."""
    values = logits.float()
    allowed = _TOLERANCE * max(1.0, float(values.max() - values.median()))
    rounding = torch.finfo(logits.dtype).eps * (logits.element_size() < 4)
    return allowed + _ROUNDINGS * rounding * float(values.abs().max())


def _takes_steps(model: Any) -> bool:
    config = model.config.get_text_config()
    windows = (getattr(config, name, None) for name in ("sliding_window", "attention_chunk_size"))
    if not abilities_of(model).takes_masks or any(windows):
        return False
    contexts = _contexts_of(model)
    try:
        drawn = _draw_rows(model, contexts)
    except _FAILURES:
        return False
    rows = [[*ids, *own.token_ids] for ids, own in zip(contexts, drawn, strict=True)]
    plain = PaddedReading(model, rows, [_NEW] * len(rows))
    pairs = zip(drawn, plain.suffix_logprobs, strict=True)
    gap = max(abs(a - b) for own, other in pairs for a, b in zip(own.logprobs, other, strict=True))
    return gap < _tolerance(plain.logits)


def _draw_rows(model: Any, contexts: list[list[int]]) -> list[DrawnRow]:
    reading = CachedReading(model, contexts, [0] * len(contexts), room=0)
    step: DecodingStep = Stepper(model, captures=False).step(
        reading.values,
        GenerationConfiguration(max_new_tokens=_NEW, min_new_tokens=_NEW),
        num_rows=len(contexts),
        num_slots=max(map(len, contexts)) + _NEW,
        rules=((), (), None),
    )
    places = list(range(len(contexts)))
    uniforms = torch.full((len(contexts), _NEW), 0.5, dtype=torch.float64)
    step.begin(places, Rows(contexts, reading.values, places, uniforms))
    for _ in range(_NEW):
        step.advance()
    return step.drawn_rows(places)
