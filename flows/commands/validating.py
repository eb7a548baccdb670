"""``astra validate``: a file of prompts checked as the first two stages would."""

import json
import os
from pathlib import Path

from astra_core.errors import GateError
from tasks.machine.console import libraries_to, quiet_libraries, say
from tasks.machine.environment import set_environment
from tasks.params.schema import read_params


def validate_file(file: Path, dev: Path | None, *, as_json: bool) -> None:
    """Prints how the first two stages would handle the file.

    Raises:
        ConfigurationError: There is no such file, or it lacks the column.
        DataError: A file is broken.
        GateError: The data gate would stop the pipeline; the check has been printed.
    """
    params = read_params()
    set_environment(params)
    quiet_libraries()
    from tasks.trials.file_check import check_file

    with libraries_to(Path(os.devnull)):
        found = check_file(params, file, dev)
    if as_json:
        say(json.dumps(found.record(), indent=2, ensure_ascii=False))
    else:
        for line in found.lines():
            say(line)
    if found.gate:
        msg = f"{found.gate}; see the lines above"
        raise GateError(msg)
