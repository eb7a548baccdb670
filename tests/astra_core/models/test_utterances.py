from astra_core.config import GenerationConfiguration
from astra_core.models.utterances import Continuations, Utterance
from astra_parts.testing import tiny_language_model


class Echo:
    """Says the last token of each context again."""

    def continuations(self, model, contexts, keys, *, generation):
        assert generation.max_new_tokens
        said = [
            Utterance(model.decode(own[-1:]), tuple(own[-1:]), (0.0,), True) for own in contexts
        ]
        return [Continuations((own,) * len(told), ()) for own, told in zip(said, keys, strict=True)]

    def score(self, contexts, continuations):
        assert len(contexts) == len(continuations)
        return [(0.0,) * len(own) for own in continuations]


def test_what_speaks_elsewhere_stands_in_for_the_weights():
    model = tiny_language_model()
    model.elsewhere = Echo()
    (found,) = model.continuations([[3, 4]], [[b"a", b"b"]], GenerationConfiguration())

    assert [(4,), (4,)] == [utterance.token_ids for utterance in found.utterances]
    assert [(0.0, 0.0)] == model.continuation_logprobs([[3]], [[4, 5]])
