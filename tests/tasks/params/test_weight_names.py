"""Patterns of weights' names are tried where params.yaml is checked, not where weights load."""

import pytest
from each_row import each_row

from astra_core.config import Choice, LoraConfiguration, Part, SystemConfiguration
from astra_core.errors import ConfigurationError
from astra_core.settings.agents import AgentConfiguration
from astra_parts.testing import tiny_language_model
from tasks.params.models import ModelsConfiguration, ModelSource
from tasks.params.schema import Params
from tasks.params.weight_names import check_weight_names


def _params(*, pattern=None, algorithm="grpo", lora=None, own=None, folder=None):
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
    check_weight_names(_params(**named))


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
        check_weight_names(_params(**named))


def test_a_folder_is_asked_by_its_configuration_alone(tmp_path):
    model = tiny_language_model(3).model
    model.config.architectures = None
    model.config.save_pretrained(tmp_path)

    check_weight_names(_params(pattern="layers[.]0", folder=tmp_path))
    with pytest.raises(ConfigurationError, match=r"training\.parts\.late\.pattern"):
        check_weight_names(_params(pattern="layers[.]9", folder=tmp_path))
    # What is wrong there is told where the weights load.
    (tmp_path / "config.json").write_text("{}")
    check_weight_names(_params(pattern="layers[.]9", folder=tmp_path))
