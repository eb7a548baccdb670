from each_row import each_row

from astra_parts.judges.guard import SLOTS
from astra_parts.judges.guard_presets import PRESETS


@each_row("name", PRESETS)
def test_a_preset_has_a_worst_answer_and_a_harmless_one(name):
    words = PRESETS[name].words

    assert {0.0, 1.0} <= set(words.values())


@each_row("name", [name for name, own in PRESETS.items() if own.template])
def test_a_template_of_a_preset_has_the_reply_and_known_slots(name):
    template = PRESETS[name].template

    assert "{reply}" in template
    assert "{" not in template.format(**dict.fromkeys(SLOTS, ""))
