"""How far one experience may move the attacker, measured as a KL divergence in nats per probe."""

from pydantic import Field

from astra_core.settings.sections import Positive, Section


class KLConfiguration(Section):
    """Limits on the KL divergence between the attacker before and after an experience.

    All are means over probes, summed over a probe's tokens. See docs/method.md.
    """

    max_per_experience_nats: Positive | None = Field(
        4.0,
        description="An update whose own pass finds the attacker this far from where the "
        "experience began is left out, and with it the rest of the experience; null never.",
    )
    warn_per_experience_nats: Positive | None = Field(
        10.0,
        description="An experience that moves the attacker further is named at the end of the "
        "stage, in its report and in a tag of the run; null never.",
    )
