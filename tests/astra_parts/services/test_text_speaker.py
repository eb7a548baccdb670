import pytest
from hostile_jobs import WORDS, HostileJobs
from job_service import served

from astra_core.config import GenerationConfiguration
from astra_core.errors import RolloutError
from astra_core.target import Surroundings
from astra_parts.services.text_speaker import TextSpeaker
from astra_parts.targets.endpoint import Endpoint
from astra_parts.testing import tiny_system

# The speaker asks through a process of its own.
pytestmark = pytest.mark.real

SHORT = GenerationConfiguration(max_new_tokens=3)


@pytest.fixture
def speaking(tmp_path):
    hostile, system = HostileJobs(), tiny_system(0)
    with served(hostile.app) as url:
        options = Endpoint.Options(
            base_url=url, model="tiny", replies=tmp_path, retries=0, backoff_s=0.0
        )
        own = Surroundings(system.config)
        speaker = TextSpeaker(options, surroundings=own, reference=system.reference)
        yield hostile, speaker, system.attacker
        speaker.close()


def say(speaker, model, keys=((b"a", b"b"),)):
    context = model.closed_ids(model.encode("why so"))
    return speaker.continuations(model, [context], keys, generation=SHORT)[0].utterances


def test_an_answer_is_a_text_with_the_ids_of_the_local_tokenizer(speaking):
    _, speaker, model = speaking
    for own in say(speaker, model):
        assert own.text in WORDS
        assert model.closed_ids(model.encode(own.text)) == own.token_ids
        assert len(own.token_ids) == len(own.logprobs)


def test_what_was_answered_is_not_asked_again_and_another_model_is(speaking):
    hostile, speaker, model = speaking
    first = say(speaker, model)
    assert first == say(speaker, model)
    assert 2 == hostile.asked["chat"]
    speaker.switch("ft:0")

    say(speaker, model)
    assert 4 == hostile.asked["chat"]


def test_an_attacker_that_says_nothing_ends_the_rollout(speaking):
    hostile, speaker, model = speaking
    hostile.lost = "chat"

    with pytest.raises(RolloutError, match="trainer 'text'"):
        say(speaker, model)
