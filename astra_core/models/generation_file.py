"""The generation configuration that is saved beside a model's weights.

transformers saves none that contradicts itself, and no model with one: a run would fail at its end.
"""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_IDS = ("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id")


@contextmanager
def consistent_generation(model: Any) -> Iterator[None]:
    """Runs the body with a generation configuration that can be saved; then it has its own.

    Settings of sampling where ``do_sample`` is false (Vicuna's) were meant to be used, so it turns
    true. Of any other contradiction only the token ids are kept.
    """
    own = getattr(model, "generation_config", None)
    if own is None or _is_consistent(own):
        yield
        return
    sampling, ids = copy.deepcopy(own), {name: getattr(own, name, None) for name in _IDS}
    sampling.do_sample = True
    model.generation_config = sampling if _is_consistent(sampling) else type(own)(**ids)
    try:
        yield
    finally:
        model.generation_config = own


def _is_consistent(config: Any) -> bool:
    try:
        config.validate(strict=True)
    except ValueError:
        return False
    return True
