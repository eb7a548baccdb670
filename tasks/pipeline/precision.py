"""Precision: a warning if it is slow on this processor, and a choice that all stages share."""

import os
from pathlib import Path

from astra_core.config import SystemConfiguration
from astra_core.files import read_json, write_json
from tasks.machine.console import complain
from tasks.params.schema import Params

FILE = "precision.json"
KEY = "system_precision"
_TOLD = "ASTRA_PRECISION_TOLD"


def advise(params: Params) -> None:
    """Warns on standard error if bf16 is asked of a processor without units for it.

    The warning is printed once: child processes see in their environment that it was.
    """
    asked = {
        "system.precision": params.system.precision,
        "training.precision": params.training.precision,
    }
    names = [name for name, precision in asked.items() if precision == "bf16"]
    if not names or _TOLD in os.environ or not _is_slow(params.machine.device):
        return
    os.environ[_TOLD] = "1"
    complain(
        f"warning: {' and '.join(names)} should be fp32 or auto here, got bf16: this processor has "
        "no units for bf16 and takes several times as long as in fp32"
    )


def _is_slow(device: str) -> bool:
    from astra_core.engine.processor import has_bf16_units
    from astra_core.models.pretrained import device_for

    return device_for(device).type == "cpu" and not has_bf16_units()


def remember(config: SystemConfiguration, folder: Path) -> None:
    """Writes the precision that a trial chose beside the rollouts, for the later stages."""
    write_json({KEY: config.precision}, folder / FILE)


def with_remembered(config: SystemConfiguration, file: Path) -> SystemConfiguration:
    """The configuration with ``auto`` or ``device`` replaced by what an earlier stage left."""
    if config.precision not in {"auto", "device"} or not file.is_file():
        return config
    found = read_json(file).get(KEY)
    return config.model_copy(update={"precision": found}) if found else config
