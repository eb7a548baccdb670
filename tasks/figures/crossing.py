"""Another target for the models of a pipeline, so that any attacker meets any target."""

from pathlib import Path

from astra_core.errors import ConfigurationError
from astra_core.models.folders import require_folder
from tasks.params.schema import Params
from tasks.params.targets import has_weights
from tasks.records.models import ModelEntry, read_manifest, read_model_paths, write_manifest

BASE = Path("models/base")
TARGETS = Path(".astra/targets")
_SHORT = 16


def base_with_target(folder: Path, params: Params, *, base: Path = BASE) -> Path:
    """A folder as the models stage writes it, with another target.

    Raises ConfigurationError if the folder holds no model, or the configured target has no weights.
    """
    from astra_core.models.pretrained import weights_digest

    target = params.system.target
    if not has_weights(target):
        msg = (
            f"a target's folder needs a system.target with weights, got '{target.name}'; add "
            "--set system.target.name=causal_lm, or name the other endpoint by --set"
        )
        raise ConfigurationError(msg)
    digest = weights_digest(require_folder(folder))
    known, paths = read_manifest(base).entries(), read_model_paths(base)
    entries = {
        role: ModelEntry(str(paths[role].resolve()), is_outside=True, digest=known[role].digest)
        for role in ("attacker", "reference")
    }
    other = ModelEntry(str(folder.resolve()), is_outside=True, digest=digest, source="folder")
    place = TARGETS / digest[:_SHORT]
    write_manifest({**entries, "target": other}, place)
    return place
