"""The environment of a stage's process, set before any heavy library is imported.

A value that the user has set already is left alone.
"""

import os
from collections.abc import Mapping

from tasks.machine.console import quiet_libraries
from tasks.machine.thread_waits import set_thread_waits
from tasks.params.schema import Params

PRIVATE: Mapping[str, str] = {
    "DO_NOT_TRACK": "true",  # MLflow reads "true" and ignores "1"
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "DVC_NO_ANALYTICS": "1",
    "GX_ANALYTICS_ENABLED": "false",
    "HF_HUB_DISABLE_TELEMETRY": "1",
}
QUIET: Mapping[str, str] = {
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "TRANSFORMERS_VERBOSITY": "error",
    "TRANSFORMERS_NO_ADVISORY_WARNINGS": "1",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    "TQDM_DISABLE": "1",
    "GIT_PYTHON_REFRESH": "quiet",
}
STEADY: Mapping[str, str] = {
    "TOKENIZERS_PARALLELISM": "false",
    "CUBLAS_WORKSPACE_CONFIG": ":4096:8",  # deterministic matrix products on a GPU
    "MPLBACKEND": "Agg",
    # Each shape of a product is another primitive, of about a megabyte; by default 1,024 are kept,
    # by oneDNN and by torch's way to it.
    "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "32",
    "LRU_CACHE_CAPACITY": "32",
    # The tracking server's job runner takes gigabytes and nothing here uses it.
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
}
OFFLINE: Mapping[str, str] = {
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
}


def needs_hub(params: Params) -> bool:
    """Whether prompts or a model come from the Hugging Face hub."""
    models = params.models.sources.values()
    return "hub" in (params.prompts.source, *(model.source for model in models))


def stage_environment(params: Params) -> dict[str, str]:
    """The variables a stage runs under; the hub is out of reach unless params.yaml names it."""
    offline = {} if needs_hub(params) else OFFLINE
    return {**PRIVATE, **QUIET, **STEADY, **offline}


def set_environment(params: Params) -> None:
    """Sets those variables of ``stage_environment`` that are not set yet."""
    for name, value in stage_environment(params).items():
        os.environ.setdefault(name, value)


def set_up_process(params: Params) -> None:
    """Sets this process up like a stage's, before a check of params.yaml that may load torch."""
    set_environment(params)
    set_thread_waits(params.machine.num_threads)
    quiet_libraries()
