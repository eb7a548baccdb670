"""Chat templates are tried where params.yaml is checked, not where weights load."""

import pytest
from each_row import each_row

from astra_core.config import Choice, LoraConfiguration, Part, SystemConfiguration
from astra_core.errors import ConfigurationError
from astra_core.settings.agents import AgentConfiguration
from astra_core.settings.attacker import AttackerConfiguration
from astra_parts.testing import tiny_language_model
from tasks.params.models import ModelsConfiguration, ModelSource
from tasks.params.schema import Params
from tasks.params.templates import check_templates, check_weight_names, template_left_out

PLAIN = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}"
NO_SYSTEM = "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}"


@pytest.fixture
def folder(tmp_path):
    """A tokenizer that knows no system prompt; there are no weights to load."""
    tokenizer = tiny_language_model(3).tokenizer
    tokenizer.chat_template = NO_SYSTEM + PLAIN
    tokenizer.save_pretrained(str(tmp_path / "chat"))
    return tmp_path / "chat"


def _params(folder, **told):
    """Attacker and target of one folder, or the builtin ones."""
    source = ModelSource(source="folder", path=folder) if folder else ModelSource()
    system = SystemConfiguration(
        attacker=AttackerConfiguration(**told.get("attacker", {})),
        target=Choice(name="causal_lm", options=told.get("target", {})),
    )
    return Params(system=system, models=ModelsConfiguration(attacker=source, target=source))


@pytest.mark.parametrize("chat_format", ["template", "auto"])
@pytest.mark.parametrize(
    ("side", "where"), [("attacker", "system.attacker"), ("target", "system.target.options")]
)
def test_a_template_that_refuses_the_system_prompt_is_refused(folder, chat_format, side, where):
    told = {side: {"format": chat_format, "system_prompt": "be brief"}}

    with pytest.raises(
        ConfigurationError, match=rf"^{where}: .*TemplateError: .*; set {where}\.system_"
    ):
        check_templates(_params(folder, **told))

    check_templates(_params(folder, **{side: {"format": chat_format}}))


def test_a_chat_model_asked_without_its_template_is_told_what_fits(folder):
    assert "the preset local_chat has what fits" in template_left_out(_params(folder))
    assert "" == template_left_out(_params(folder, target={"format": "template"}))
    assert "" == template_left_out(_params(None))


def test_a_tokenizer_without_a_template_is_refused_where_one_is_asked_for(tmp_path):
    tiny_language_model(3).tokenizer.save_pretrained(str(tmp_path))

    check_templates(_params(tmp_path, target={"format": "auto"}))
    with pytest.raises(ConfigurationError, match="tokenizer without a chat template"):
        check_templates(_params(tmp_path, target={"format": "template"}))


def test_the_builtin_model_has_no_template():
    check_templates(_params(None, attacker={"format": "auto"}, target={"format": "auto"}))
    with pytest.raises(ConfigurationError, match="for the builtin model"):
        check_templates(_params(None, attacker={"format": "template"}))


def _naming(*, pattern=None, algorithm="grpo", lora=None, own=None, folder=None):
    params = Params()
    parts = {"late": Part(pattern=pattern, lr_factor=0.1)} if pattern else {}
    changes = {"parts": parts, "algorithm": Choice(name=algorithm)}
    if lora:
        changes["lora"] = LoraConfiguration(target_modules=(lora,))
    agents = {"a": AgentConfiguration(), "b": AgentConfiguration(own_weights=own)}
    system = SystemConfiguration(roles=("a", "b"), agents=agents) if own else params.system
    source = ModelSource(source="folder", path=folder) if folder else ModelSource()
    return params.model_copy(
        update={
            "training": params.training.model_copy(update=changes),
            "system": system,
            "models": ModelsConfiguration(attacker=source),
        }
    )


@each_row(
    "named",
    [
        {"pattern": "layers[.]2"},
        {"pattern": "algorithm", "algorithm": "ppo"},
        {"lora": "q_proj", "pattern": "lora_A"},
        {"own": "layers[.]2"},
    ],
)
def test_what_names_weights_passes(named):
    check_weight_names(_naming(**named))


@each_row(
    ("named", "where"),
    [
        # The builtin model's output weights are its embeddings: they have one name.
        ({"pattern": "lm_head"}, "training.parts.late.pattern"),
        ({"pattern": "layers[.]3"}, "training.parts.late.pattern"),
        ({"pattern": "algorithm"}, "training.parts.late.pattern"),
        ({"lora": "q_proj", "pattern": "embed"}, "training.parts.late.pattern"),
        ({"lora": "c_attn"}, "training.lora.target_modules"),
        ({"own": "layers[.]3"}, "system.agents.b.own_weights"),
    ],
)
def test_what_names_none_is_refused(named, where):
    with pytest.raises(ConfigurationError, match=f"^{where}"):
        check_weight_names(_naming(**named))


def test_a_folder_is_asked_by_its_configuration_alone(tmp_path):
    model = tiny_language_model(3).model
    model.config.architectures = None
    model.config.save_pretrained(tmp_path)

    check_weight_names(_naming(pattern="layers[.]0", folder=tmp_path))
    with pytest.raises(ConfigurationError, match=r"training\.parts\.late\.pattern"):
        check_weight_names(_naming(pattern="layers[.]9", folder=tmp_path))
    # What is wrong there is told where the weights load.
    (tmp_path / "config.json").write_text("{}")
    check_weight_names(_naming(pattern="layers[.]9", folder=tmp_path))
