"""An attacker that is reached only by text: chats out, messages back, each kept before its use."""

from collections.abc import Sequence
from pathlib import Path

from astra_core.config import GenerationConfiguration
from astra_core.conversation import Conversation, Message
from astra_core.errors import RolloutError
from astra_core.models.language_model import LanguageModel
from astra_core.models.utterances import Continuations, Utterance
from astra_core.rollout import Failure, Prompt
from astra_core.target import Surroundings
from astra_parts.services.text_lines import chat_of
from astra_parts.targets.endpoint import Endpoint

SUBJECT = "trainer 'text'"
PLACE = "training.trainer.options.attacker"


class TextSpeaker:
    """Samples at an OpenAI-compatible server.

    A server of texts gives no log-probabilities of our ids. Those of the reference are used
    instead, so that the KL to it counts as 0.
    """

    is_mirror = False

    def __init__(
        self, options: Endpoint.Options, *, surroundings: Surroundings, reference: LanguageModel
    ) -> None:
        self._options = options
        self._surroundings = surroundings
        self._reference = reference
        self._endpoint: Endpoint | None = None
        self.model = options.model

    def switch(self, model: str) -> None:
        """Makes this model speak from now on."""
        if model != self.model:
            self.close()
            self.model = model

    def leave(self, folder: Path) -> None:
        """Does nothing to the local weights: the model's name is in the run's state."""
        del folder

    def close(self) -> None:
        """Closes the connections."""
        if self._endpoint is not None:
            self._endpoint.close()
            self._endpoint = None

    def continuations(
        self,
        model: LanguageModel,
        contexts: Sequence[Sequence[int]],
        keys: Sequence[Sequence[bytes]],
        *,
        generation: GenerationConfiguration,
    ) -> list[Continuations]:
        """The utterances after each context, one for each of its keys.

        Raises RolloutError if the server did not answer.
        """
        chats = [_conversation(model, context) for context in contexts]
        outcomes = self._connect().respond(chats, keys, generation)
        found: list[Continuations] = []
        for context, outcome in zip(contexts, outcomes, strict=True):
            if isinstance(outcome, Failure):
                raise RolloutError(outcome.reason)
            texts = [reply.text for reply in outcome.replies]
            said = [model.closed_ids(model.encode(model.as_text(text))) for text in texts]
            scores = self.score([context] * len(said), said)
            rows = zip(texts, said, scores, strict=True)
            found.append(Continuations(tuple(Utterance(*row, has_ended=True) for row in rows), ()))
        return found

    def score(
        self, contexts: Sequence[Sequence[int]], continuations: Sequence[Sequence[int]]
    ) -> list[tuple[float, ...]]:
        """Log-probabilities under the reference, nats."""
        return self._reference.continuation_logprobs(contexts, continuations)

    def _connect(self) -> Endpoint:
        if self._endpoint is None:
            options = self._options.model_copy(update={"model": self.model})
            self._endpoint = Endpoint(
                options, surroundings=self._surroundings, subject=SUBJECT, place=PLACE
            )
        return self._endpoint


def _conversation(model: LanguageModel, context: Sequence[int]) -> Conversation:
    messages = (
        Message("user" if own["role"] == "user" else "assistant", own["content"])
        for own in chat_of(model, context)
    )
    return Conversation(Prompt("", ""), tuple(messages))
