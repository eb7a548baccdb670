"""A chat model behind an OpenAI-compatible server as judge, with a rubric and strict parsing.

It is called like the target ``endpoint``: authorised, limited, and with each answer kept before it
is used, so that no judgement is paid for twice.
"""

from collections.abc import Sequence
from typing import Self

from pydantic import Field, model_validator

from astra_core.config import GenerationConfiguration, SystemConfiguration
from astra_core.conversation import Conversation, Message
from astra_core.errors import ScorerError
from astra_core.files import record_digest
from astra_core.judge import Exchange, Judge, Judgement
from astra_core.rollout import Failure, Prompt
from astra_core.scorers.cached import exchange_text
from astra_core.target import Outcome, Surroundings
from astra_parts.judges.guard import fill
from astra_parts.judges.local import nothing_said
from astra_parts.judges.rubrics import RUBRICS, VoteOptions, judgement_of
from astra_parts.targets.endpoint import Endpoint

# Failures that another try may fix. They stop the stage, which resumes where it was; any other
# failure would come again, so the exchange is unjudged.
_PASSING = frozenset({"down", "timeout", "rate_limited", "server"})


class EndpointJudge(Judge):
    """The mean of its votes; a vote that cannot be read does not count.

    Scores are those of ``llm_judge``. With several votes the label ``disagreement`` is the range of
    their scores and ``unread`` the share of votes that could not be read.
    """

    works_on = "elsewhere"

    class Options(VoteOptions):
        """The judge's server, and the rubric."""

        endpoint: Endpoint.Options = Field(description="As of the target `endpoint`.")

        @model_validator(mode="after")
        def _is_a_judge(self) -> Self:
            if self.endpoint.api != "chat":
                msg = f"endpoint.api must be chat for a judge, got {self.endpoint.api}"
                raise ValueError(msg)
            if "evaluation_share" in self.endpoint.budget.model_fields_set:
                msg = "endpoint.budget.evaluation_share must be left out: a judge's budget is one"
                raise ValueError(msg)
            return self

    options: Options

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._rubric = RUBRICS[options.rubric]
        own = options.endpoint
        if options.votes == 1:
            own = own.model_copy(update={"extra": {"temperature": 0.0, **own.extra}})
        self._endpoint = Endpoint(
            own,
            surroundings=Surroundings(SystemConfiguration()),
            subject="judge 'endpoint_judge'",
            place="system.scorer.options.endpoint",
        )
        asked = options.model_dump(mode="json", exclude={"endpoint"})
        self._digest = record_digest([self._endpoint.digest(), asked])[:12]
        self._generation = GenerationConfiguration(
            max_new_tokens=options.max_new_tokens, temperature=options.temperature
        )

    @property
    def version(self) -> str:
        """The model's name, and the digest of its server and its prompts."""
        return f"{type(self).__name__} {self.options.endpoint.model} {self._digest}"

    def judge(self, exchanges: Sequence[Exchange]) -> list[Judgement]:
        """One judgement per exchange.

        Raises ScorerError if the server is down or too busy, BudgetError if the rest of its budget
        is too small for these exchanges.
        """
        silent = [nothing_said(own.reply) for own in exchanges]
        asked = [own for own, empty in zip(exchanges, silent, strict=True) if empty is None]
        with self._endpoint.evaluating():
            outcomes = iter(
                self._endpoint.respond(
                    list(map(self._conversation, asked)),
                    list(map(self._keys, asked)),
                    self._generation,
                )
            )
        return [empty or self._judgement(next(outcomes)) for empty in silent]

    def prompt(self, exchange: Exchange) -> str:
        """The judge's prompt."""
        return fill(self._rubric.template, exchange, self.options.policy)

    def _conversation(self, exchange: Exchange) -> Conversation:
        return Conversation(Prompt.of("")).say(Message("user", self.prompt(exchange)))

    def _keys(self, exchange: Exchange) -> list[bytes]:
        """The keys of the votes: equal for equal exchanges, in any batch and at any address."""
        text = exchange_text(exchange, self.options.endpoint.model)
        return [
            record_digest([self.options.seed, vote, text]).encode()
            for vote in range(self.options.votes)
        ]

    def _judgement(self, outcome: Outcome) -> Judgement:
        if not isinstance(outcome, Failure):
            return judgement_of(self._rubric, [reply.text for reply in outcome.replies])
        if outcome.kind in _PASSING:
            msg = (
                f"{outcome.reason}; see that it answers, and the same command goes on: what was "
                "judged is kept"
            )
            raise ScorerError(msg)
        return Judgement.none(f"no answer ({outcome.kind}): {outcome.reason}")
