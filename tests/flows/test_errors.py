import pickle

from each_row import each_row

from astra_core.errors import AstraError
from flows.errors import PassingStageError, StageError, StageTimeoutError


@each_row("kind", [StageError, PassingStageError, StageTimeoutError])
def test_a_stage_error_survives_pickling_as_an_orchestrator_does_it(kind):
    error = pickle.loads(pickle.dumps(kind("the stage's own line")))  # noqa: S301

    assert isinstance(error, AstraError)
    assert (kind, "the stage's own line") == (type(error), str(error))
