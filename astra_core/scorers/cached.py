"""A cache in front of a scorer or judge: nothing that was judged recently is judged again.

Attackers repeat themselves, and every evaluation of equal weights repeats every text.
"""

import hashlib
import json
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from astra_core.judge import Exchange, Judge, Judgement, checked_judgements
from astra_core.scorer import Rater, Scorer, checked_scores, version_of

_Item = TypeVar("_Item")
_Found = TypeVar("_Found")


def with_cache(plugin: Any, size: int) -> Any:
    """The scorer or judge behind a cache of ``size`` entries; 0 is no cache."""
    if not size:
        return plugin
    return CachedScorer(plugin, size) if isinstance(plugin, Scorer) else CachedJudge(plugin, size)


class _Cached(Rater):
    """Passes on only what is not cached, each once, in one batch; caching changes no result.

    ``size``: how many results are cached; the least recently used is evicted first.
    """

    def __init__(self, rater: Rater, size: int) -> None:
        super().__init__(rater.options)
        self.works_on = rater.works_on
        self._rater: Any = rater
        self._size = size
        self._known: OrderedDict[bytes, Any] = OrderedDict()

    @property
    def version(self) -> str:
        """The rater's own."""
        own: str = self._rater.version
        return own

    def _look_up(
        self,
        items: Sequence[_Item],
        key_of: Callable[[_Item], bytes],
        ask: Callable[[Sequence[_Item]], Sequence[_Found]],
    ) -> list[_Found]:
        """The results for the items; ``ask`` gives those that are not cached."""
        keys = list(map(key_of, items))
        found = {key: self._known[key] for key in keys if key in self._known}
        missing = {key: item for key, item in zip(keys, items, strict=True) if key not in found}
        if missing:
            found.update(zip(missing, ask(list(missing.values())), strict=True))
        for key in keys:
            self._known[key] = found[key]
            self._known.move_to_end(key)
        while len(self._known) > self._size:
            self._known.popitem(last=False)
        return [found[key] for key in keys]


class CachedScorer(_Cached, Scorer):
    """A scorer behind a cache."""

    def score(self, texts: Sequence[str]) -> list[float]:
        """The scorer's scores, cached or new."""
        return self._look_up(texts, _key, lambda new: checked_scores(self._rater, new))


class CachedJudge(_Cached, Judge):
    """A judge behind a cache."""

    def judge(self, exchanges: Sequence[Exchange]) -> list[Judgement]:
        """The judge's judgements, cached or new."""
        version = version_of(self._rater)
        return self._look_up(
            exchanges,
            lambda exchange: _key(exchange_text(exchange, version)),
            lambda new: checked_judgements(self._rater, new),
        )


def exchange_text(exchange: Exchange, version: str) -> str:
    """Everything that a judge reads as one text, which is equal only for equal exchanges."""
    conversation = exchange.conversation
    prompt, messages = conversation.prompt, conversation.messages
    said = [[message.role, message.text] for message in messages]
    opened: Mapping[str, object] = dict(sorted(prompt.metadata.items()))
    everything = [version, prompt.text, opened, said, exchange.probe, exchange.reply]
    return json.dumps(everything, ensure_ascii=True, default=str)


def _key(text: str) -> bytes:
    # A digest and not the text, so that an entry's memory does not depend on its length.
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
