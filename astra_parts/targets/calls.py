"""Calls of a remote target: several at once, retried, kept before use, answered in order.

A target defines one call, ``Ask``; everything else is the same for an endpoint and for a program.
"""

import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import Field

from astra_core.config import Count, Pause, Positive, Seconds, Section
from astra_core.errors import BudgetError
from astra_core.rollout import Failure
from astra_parts.targets.budget import Budget, Prices, Purse
from astra_parts.targets.kept import Kept, KeptReplies


class Pace:
    """Gives each call a time to start; can be used by many threads."""

    def __init__(
        self,
        requests_per_minute: float | None,
        tokens_per_minute: float | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._per_request = 60.0 / requests_per_minute if requests_per_minute else 0.0
        self._per_token = 60.0 / tokens_per_minute if tokens_per_minute else 0.0
        self._clock = clock
        self._lock = threading.Lock()
        self._next_request = self._next_token = clock()

    def turn(self, tokens: int) -> float:
        """Seconds to wait before a call of about so many tokens, which is then scheduled."""
        with self._lock:
            now = self._clock()
            start = max(now, self._next_request, self._next_token)
            self._next_request = start + self._per_request
            self._next_token = max(self._next_token, now) + tokens * self._per_token
            return start - now

    def correct(self, tokens: int) -> None:
        """Counts so many more tokens than expected; fewer if negative."""
        with self._lock:
            self._next_token += tokens * self._per_token


REPLIES = Path(".astra/replies")
_LONGEST_BACKOFF_S = 60.0
_CHARACTERS_PER_TOKEN = 4  # where nobody has counted


class CallOptions(Section):
    """How a remote target is called; no option changes a reply."""

    concurrency: int = Field(default=8, ge=1, le=1024, description="Simultaneous calls.")
    timeout_s: Seconds = Field(default=60.0, description="Limit of one try, to the last byte.")
    retries: int = Field(
        default=4, ge=0, le=100, description="Further tries after a 429, a 5xx, a timeout."
    )
    backoff_s: Pause = Field(
        default=1.0, description="Before the second try; doubles, with jitter, up to a minute."
    )
    max_wait_s: Pause = Field(
        default=120.0, description="A longer Retry-After is not waited for: the call has failed."
    )
    requests_per_minute: Positive | None = None
    tokens_per_minute: Positive | None = None
    max_reply_bytes: Count = Field(default=1 << 20, description="A longer answer is cut off.")
    budget: Budget = Budget()
    prices: Prices | None = None
    replies: Path = Field(default=REPLIES, description="Folder in which replies are kept.")


@dataclass(frozen=True, slots=True)
class Question:
    """One question.

    Attributes:
        key: Names target, conversation, generation and the random key of the reply.
        body: What the target is sent, as JSON.
        tokens: About how many it reads and writes.
    """

    key: str
    body: Mapping[str, Any]
    tokens: int = 0


class CallError(Exception):
    """A try that gave no reply.

    Args:
        kind: As in ``Failure.kind``.
        words: What happened, without text of the conversation.
        is_final: True if another try would fail in the same way.
        wait_s: The wait that the other side asks for.
    """

    def __init__(
        self, kind: str, words: str, *, is_final: bool = False, wait_s: float = 0.0
    ) -> None:
        super().__init__(words)
        self.kind = kind
        self.words = words
        self.is_final = is_final
        self.wait_s = wait_s


Ask = Callable[[Question], Kept]
"""One try: the reply, or ``CallError``. Called in several threads."""


class Calls:
    """Answers questions from kept replies or by asking the target.

    Args:
        subject: The target's name in an error, such as ``target 'endpoint'``.
        options: The options of the calls.
        ask: Makes one try.
        file: The name of the file of kept replies, without its ending.
        place: Where the options are in params.yaml.
    """

    def __init__(
        self,
        subject: str,
        options: CallOptions,
        ask: Ask,
        *,
        file: str,
        place: str = "system.target.options",
    ) -> None:
        self.subject = subject
        self._place = place
        self.options = options
        self.replies = KeptReplies(options.replies / f"{file}.sqlite")
        self.account = "none"
        self._ask = ask
        self.purse = Purse(options.budget, options.prices or Prices())
        self._pace = Pace(options.requests_per_minute, options.tokens_per_minute)
        self._jitter = random.Random()
        self._stop = threading.Event()
        # This many failed calls in a row end a batch: the other side is gone.
        self._patience = max(16, 2 * options.concurrency)
        self._row = 0

    def answers(self, questions: Sequence[Question]) -> list[Kept | Failure]:
        """One reply or failure per question, in order; kept replies are not asked for again.

        Raises BudgetError if the rest of the budget is too small for these questions. Then nothing
        more is asked, and the answers so far are kept.
        """
        keys = [question.key for question in questions]
        known: dict[str, Kept | Failure] = dict(self.replies.found(keys))
        self.replies.use(list(known), account=self.account)
        missing = {each.key: each for each in questions if each.key not in known}
        if missing:
            spent = self.replies.spending(self.purse.name)
            self._refuse(self.purse.reached_limit(spent, calls=len(missing)))
            known |= zip(missing, self._ask_all(list(missing.values())), strict=True)
        return [known[key] for key in keys]

    @contextmanager
    def account_for(self, account: str) -> Iterator[None]:
        """A scope whose replies are noted under a name."""
        before, self.account = self.account, account
        try:
            yield
        finally:
            self.account = before

    def figures(self) -> dict[str, float]:
        """What the account has used: calls, tokens, cost and seconds per call."""
        used = self.replies.replies_of(self.account)
        seconds = sorted(each.seconds for each in used)
        tokens = sum(each.tokens_in for each in used), sum(each.tokens_out for each in used)
        found = {
            "calls": float(len(used)),
            "tokens_in": float(tokens[0]),
            "tokens_out": float(tokens[1]),
            **{f"latency_p{q}_s": _quantile(seconds, q / 100) for q in (50, 90, 99)},
        }
        if self.options.prices is not None:
            found["cost"] = self.options.prices.cost(*tokens)
        return found

    def _ask_all(self, questions: Sequence[Question]) -> list[Kept | Failure]:
        self._stop.clear()
        self._row = 0
        with ThreadPoolExecutor(self.options.concurrency, "target") as pool:
            futures = [pool.submit(self._answer, question) for question in questions]
            try:
                return [future.result() for future in futures]
            except BaseException:
                self._stop.set()
                pool.shutdown(cancel_futures=True)
                raise

    def _answer(self, question: Question) -> Kept | Failure:
        """The reply to a question, after as many tries as are needed and allowed."""
        if self._row >= self._patience:
            words = f"not asked: the last {self._row} calls have failed"
            return Failure(f"{self.subject}: {words}", "down")
        try:
            return self._try_repeatedly(question)
        except BaseException:
            # The other threads begin no further try.
            self._stop.set()
            raise

    def _try_repeatedly(self, question: Question) -> Kept | Failure:
        for number in range(self.options.retries + 1):
            try:
                return self._try(question)
            except CallError as error:
                last = error
                wait_s = self._wait_s(number, error)
                is_last = number == self.options.retries or self._row >= self._patience
                if error.is_final or is_last or wait_s > self.options.max_wait_s:
                    break
                if self._stop.wait(wait_s):
                    break
        if not last.is_final:
            self._row += 1
        return Failure(f"{self.subject}: {last.words}", last.kind)

    def _try(self, question: Question) -> Kept:
        """One try, counted before it is made and kept before it is returned."""
        if self._stop.wait(self._pace.turn(question.tokens)):
            raise CallError(kind="down", words="stopped before it was asked", is_final=True)
        self._refuse(self.replies.count(self.purse))
        start = time.perf_counter()
        found = self._ask(question).storable()
        reply = replace(found, seconds=time.perf_counter() - start)
        self.replies.keep(question.key, reply, account=self.account, budget=self.purse.name)
        self._pace.correct(reply.tokens_in + reply.tokens_out - question.tokens)
        self._row = 0
        return reply

    def _wait_s(self, number: int, error: CallError) -> float:
        backoff_s = min(_LONGEST_BACKOFF_S, self.options.backoff_s * 2.0**number)
        return max(error.wait_s, backoff_s * self._jitter.uniform(0.5, 1.0))

    def _refuse(self, reached: str) -> None:
        if reached:
            msg = (
                f"{self.subject} must stay within its budget '{self.purse.name}', got {reached}"
                f"{self.purse.reserve}; raise {self._place}.budget (what was answered is kept), "
                "or name another"
            )
            raise BudgetError(msg)


def about_tokens(text: str) -> int:
    """About how many tokens a text has, if nothing has counted them."""
    return max(1, len(text) // _CHARACTERS_PER_TOKEN)


def _quantile(ordered: Sequence[float], share: float) -> float:
    """The nearest-rank quantile; 0 of nothing."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0
