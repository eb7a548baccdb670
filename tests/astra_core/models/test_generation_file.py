import warnings

from each_row import each_row
from transformers import GenerationConfig

from astra_core.models.generation_file import consistent_generation
from astra_parts.testing import tiny_language_model

IDS = {"eos_token_id": 0}


@each_row(
    ("settings", "expected"),
    [
        ({"temperature": 0.9, "do_sample": True}, {"temperature": 0.9, "do_sample": True}),
        ({"temperature": 0.9, "do_sample": False}, {"temperature": 0.9, "do_sample": True}),
        ({"num_return_sequences": 3}, {"num_return_sequences": 3, "do_sample": True}),
        ({"top_p": 0.5, "early_stopping": True}, {}),
        ({"max_new_tokens": 0}, {}),
    ],
)
def test_a_configuration_that_contradicts_itself_is_mended_at_saving(settings, expected, tmp_path):
    model = tiny_language_model().model
    own = model.generation_config = GenerationConfig(**IDS)
    for name, value in settings.items():
        setattr(own, name, value)
    with warnings.catch_warnings(), consistent_generation(model):
        model.save_pretrained(tmp_path)

    found = GenerationConfig.from_pretrained(tmp_path).to_diff_dict()
    found.pop("transformers_version")
    assert IDS | expected == found
    assert own is model.generation_config
    assert settings == {name: getattr(own, name) for name in settings}
