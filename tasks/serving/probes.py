"""The probes of a registered attacker, by our own code.

MLflow's own loader would run the code and unpickle the objects that lie beside the weights.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tasks.tracking.store import quiet_pyfunc


def write_probes(
    checkpoint: Path, config: Mapping[str, Any], contexts: Sequence[str], *, max_new_tokens: int
) -> list[str]:
    """One probe per context, as the version would be served."""
    quiet_pyfunc()
    import pandas as pd
    from mlflow.pyfunc.model import PythonModelContext

    from tasks.serving.attacker_pyfunc import AttackerModel

    context = PythonModelContext(  # type: ignore[no-untyped-call]
        {"checkpoint": str(checkpoint)}, dict(config)
    )
    model = AttackerModel()
    model.load_context(context)
    asked = pd.DataFrame({"context": list(contexts)})
    return model.predict(context, asked, {"max_new_tokens": max_new_tokens, "seed": 0})
