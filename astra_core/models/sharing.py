"""Models that share weights: both have the same parameters, so training one changes both."""

from typing import Any

from torch.nn import Module, Parameter

from astra_core.errors import ConfigurationError
from astra_core.settings.patterns import occurs


def share_weights(model: Module, origin: Module, *, own: str, where: str) -> None:
    """Makes the model use the origin's weights, except those that it keeps for itself.

    ``own``: regular expression; a weight with a name in which it is found is not shared.

    Raises ConfigurationError if the expression is found in no name.
    """
    names = _names(model)
    kept = {
        key for key, given in names.items() if any(occurs(own, name, where=where) for name in given)
    }
    if not kept:
        known = sorted(name for given in names.values() for name in given)[:3]
        msg = f"{where} must be found in the name of a weight, got '{own}'; names are such as "
        raise ConfigurationError(msg + str(known))
    theirs = dict(origin.named_parameters(remove_duplicate=False))
    for path, module in model.named_modules():
        slots: dict[str, Any] = module._parameters  # noqa: SLF001  # an assignment would re-register
        for name, parameter in slots.items():
            if parameter is not None and id(parameter) not in kept:
                slots[name] = theirs[f"{path}.{name}".lstrip(".")]


def _names(model: Module) -> dict[int, list[str]]:
    """Every name of each parameter; tied embeddings have two."""
    found: dict[int, list[str]] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        found.setdefault(id(parameter), []).append(name)
    return found


def only_trained(modules: dict[str, Module], trained: set[str]) -> None:
    """Freezes every weight that is in none of the modules named as trained."""
    moving: set[int] = {id(p) for name in trained for p in modules[name].parameters()}
    parameter: Parameter
    for module in modules.values():
        for parameter in module.parameters():
            if id(parameter) not in moving:
                parameter.requires_grad = False
