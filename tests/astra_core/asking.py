"""An endpoint as a target, and what it is asked."""

from astra_core.config import GenerationConfiguration, SystemConfiguration
from astra_core.conversation import Conversation, Message
from astra_core.rollout import Prompt
from astra_core.seeding import derive_key
from astra_core.target import Answer, Surroundings
from astra_parts.targets.endpoint import Endpoint

SHORT = GenerationConfiguration(max_new_tokens=12)
PROBES = [f"probe {number}" for number in range(12)]


def endpoint(url, folder, **options):
    given = {"base_url": url, "model": "tiny", "replies": str(folder), "backoff_s": 0.01}
    given |= options
    return Endpoint(
        Endpoint.Options.read(given, where="target 'endpoint' options"),
        surroundings=Surroundings(SystemConfiguration()),
    )


def conversation(probe, *before):
    roles = ("user", "assistant")
    said = [Message(roles[place % 2], text) for place, text in enumerate([*before, probe])]
    return Conversation(Prompt.of("they are late"), tuple(said))


def ask(target, probes=PROBES, *, replies=1, generation=SHORT):
    keys = [[derive_key(1, "reply", text, n) for n in range(replies)] for text in probes]
    return target.respond([conversation(text) for text in probes], keys, generation)


def texts(outcomes):
    return [
        [reply.text for reply in each.replies] if isinstance(each, Answer) else each.kind
        for each in outcomes
    ]
