"""Names that torch, transformers and TRL have for a choice, and their equivalents here.

``AdamW`` is ``adamw``, ``ReduceLROnPlateau`` is ``plateau``, ``cosine`` is the schedule
``transformers`` of that kind, and ``StepLR`` is the schedule ``torch`` with torch's own arguments.
``ipo`` is ``dpo`` with that loss. Either name gives the same configuration.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Literal, get_args

_OF_TORCH = ("torch.optim.lr_scheduler.", "torch.optim.")
# Keys are in lower case, as they are looked up.
NAMES: Mapping[str, str] = MappingProxyType(
    {
        **{name.lower(): name.lower() for name in ("Adam", "AdamW", "SGD", "RMSprop", "Adagrad")},
        **{name.lower(): name.lower() for name in ("DPO", "GRPO", "PPO", "RLOO", "SFT")},
        "reinforce": "reinforce",
        "adamw_torch": "adamw",
        "adamw_torch_fused": "adamw",
        "expertiteration": "expert_iteration",
        "reducelronplateau": "plateau",
        "reduce_lr_on_plateau": "plateau",
    }
)
# Kinds of the schedule ``transformers``, whose options they take.
KINDS = (
    "constant",
    "constant_with_warmup",
    "linear",
    "cosine",
    "cosine_with_restarts",
    "cosine_with_min_lr",
    "polynomial",
    "inverse_sqrt",
    "warmup_stable_decay",
)
TorchKind = Literal[
    "StepLR",
    "MultiStepLR",
    "ExponentialLR",
    "LinearLR",
    "ConstantLR",
    "PolynomialLR",
    "CosineAnnealingLR",
    "CosineAnnealingWarmRestarts",
]
"""Kinds of the schedule ``torch``; what is given beside one of these names are its arguments."""

_TORCH_KINDS = MappingProxyType({kind.lower(): kind for kind in get_args(TorchKind)})


def in_our_words(given: Any) -> Any:
    """A choice, as it is read, under our name for it; anything else unchanged."""
    record = {"name": given} if isinstance(given, str) else given
    if not (isinstance(record, Mapping) and isinstance(record.get("name"), str)):
        return record
    name, options = record["name"], record.get("options", {})
    for prefix in _OF_TORCH:
        name = name.removeprefix(prefix)
    word = name.lower()
    if word in NAMES:
        return {**record, "name": NAMES[word]}
    if word == "ipo" and isinstance(options, Mapping):
        return {**record, "name": "dpo", "options": {"loss": "ipo", **options}}
    if word in KINDS and isinstance(options, Mapping):
        return {**record, "name": "transformers", "options": {"kind": word, **options}}
    if word in _TORCH_KINDS:
        options = {"kind": _TORCH_KINDS[word], "arguments": options}
        return {**record, "name": "torch", "options": options}
    return record
