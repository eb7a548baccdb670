from small_world import PARAMS, write_world

from astra_parts.services.pointer import parameters_digest
from astra_parts.testing import tiny_language_model
from tasks.pipeline.setup import SystemParams
from tasks.pipeline.stage import sections_for


def test_a_system_is_of_the_models_stage_or_has_another_attacker(tmp_path):
    write_world(tmp_path)
    tiny_language_model(seed=11).save(tmp_path / "attacker")
    params, base = sections_for(SystemParams, PARAMS), tmp_path / "models/base"
    own, other = params.load(base), params.load(base, attacker=tmp_path / "attacker")

    assert own.digest() == other.digest()
    assert parameters_digest(own.attacker) != parameters_digest(other.attacker)
