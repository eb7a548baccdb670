"""Chat templates are tried where params.yaml is checked, not where weights load."""

import pytest

from astra_core.config import Choice, SystemConfiguration
from astra_core.errors import ConfigurationError
from astra_core.settings.attacker import AttackerConfiguration
from astra_parts.testing import tiny_language_model
from tasks.params.models import ModelsConfiguration, ModelSource
from tasks.params.schema import Params
from tasks.params.templates import check_templates

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

    with pytest.raises(ConfigurationError, match=rf"^{where}: .*TemplateError: .*; leave system_"):
        check_templates(_params(folder, **told))

    check_templates(_params(folder, **{side: {"format": chat_format}}))


def test_a_tokenizer_without_a_template_is_refused_where_one_is_asked_for(tmp_path):
    tiny_language_model(3).tokenizer.save_pretrained(str(tmp_path))

    check_templates(_params(tmp_path, target={"format": "auto"}))
    with pytest.raises(ConfigurationError, match="tokenizer without a chat template"):
        check_templates(_params(tmp_path, target={"format": "template"}))


def test_the_builtin_model_has_no_template():
    check_templates(_params(None, attacker={"format": "auto"}, target={"format": "auto"}))
    with pytest.raises(ConfigurationError, match="for the builtin model"):
        check_templates(_params(None, attacker={"format": "template"}))


def test_a_folder_without_a_tokenizer_is_left_to_the_model(tmp_path):
    (tmp_path / "config.json").write_text("{}")

    check_templates(_params(tmp_path, target={"format": "template"}))
