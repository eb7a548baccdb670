from pathlib import Path

from tasks.pipeline.names import STAGE_NAMES

STAGES = Path(__file__).parents[3] / "tasks" / "stages"


def test_every_module_of_a_stage_is_named_once():
    assert sorted(STAGE_NAMES) == sorted({*STAGE_NAMES})
    assert {path.stem for path in STAGES.glob("*.py")} >= {*STAGE_NAMES}
