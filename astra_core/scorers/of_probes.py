"""The scorer of the attacker's own words: ``system.probe_scorer``."""

from astra_core.config import Choice, SystemConfiguration
from astra_core.errors import ConfigurationError
from astra_core.judge import Judge
from astra_core.registry import build, resolve
from astra_core.scorer import Scorer
from astra_core.scorers.cached import with_cache

_DEFAULT = Choice(name="profanity")


def probe_scorer_of(config: SystemConfiguration, scorer: Scorer | Judge) -> Scorer:
    """The scorer of probes beside this scorer or judge, behind its own cache.

    Raises ConfigurationError if ``system.probe_scorer`` names a judge of exchanges, which a probe
    alone is not.
    """
    if config.probe_scorer is None and isinstance(scorer, Scorer) and _reads_texts(config):
        return scorer
    choice = _DEFAULT if config.probe_scorer is None else text_scorer_choice(config)
    found: Scorer = with_cache(build("scorer", choice), config.score_cache_size)
    return found


def text_scorer_choice(config: SystemConfiguration) -> Choice:
    """The scorer of texts that are not replies: probes, and prompts before they are used.

    Raises ConfigurationError if ``system.probe_scorer`` names a judge of exchanges.
    """
    if config.probe_scorer is None:
        return config.scorer if _reads_texts(config) else _DEFAULT
    name = config.probe_scorer.name
    if not issubclass(resolve("scorer", name), Scorer):
        msg = (
            f"system.probe_scorer must name a scorer of texts, got the judge '{name}'; a probe "
            "has no reply yet, so name profanity or a Scorer of your own"
        )
        raise ConfigurationError(msg)
    return config.probe_scorer


def _reads_texts(config: SystemConfiguration) -> bool:
    """False for a judge of exchanges, and for one of replies: no prompt is refused or granted."""
    found = resolve("scorer", config.scorer.name)
    return issubclass(found, Scorer) and found.rates_probes
