"""A device that computes like the CPU and refuses what a GPU refuses.

Its tensors say that they are on ``meta``, a device that every build of torch has, and hold their
numbers on the CPU. As on a GPU, an operation on tensors of both devices is an error unless it
copies, or the other tensor is a number or an index; and numpy reads none of them.
"""

from contextlib import ExitStack, contextmanager
from functools import partial
from unittest import mock

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter, tree_map

NAME = torch.device("meta")
_COPIES = {torch.ops.aten.copy_.default}
_INDEXED = {
    torch.ops.aten.index.Tensor,
    torch.ops.aten.index_put_.default,
    torch.ops.aten.index_put.default,
    torch.ops.aten._index_put_impl_.default,
}


class OtherTensor(torch.Tensor):
    """A tensor of the other device; ``numbers`` has its numbers."""

    @staticmethod
    def __new__(cls, numbers):
        return torch.Tensor._make_wrapper_subclass(
            cls,
            numbers.shape,
            strides=numbers.stride(),
            storage_offset=numbers.storage_offset(),
            dtype=numbers.dtype,
            device=NAME,
        )

    def __init__(self, numbers):
        self.numbers = numbers

    def __repr__(self):
        return f"OtherTensor({self.numbers})"

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return _computed(func, args, kwargs or {})


class _Kernels(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return _computed(func, args, kwargs or {})


class _Functions(TorchFunctionMode):
    """What torch does in one go for ``meta``, or not at all for a subclass."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func is torch.tensor and _is_other(kwargs.get("device")):
            return torch.tensor(*args, **{**kwargs, "device": "cpu"}).to(NAME)
        if func is torch.Tensor.tolist and isinstance(args[0], OtherTensor):
            return args[0].detach().numbers.tolist()
        if func is torch.Tensor.numpy and isinstance(args[0], OtherTensor):
            msg = "can't convert a tensor of the other device to numpy"
            raise TypeError(msg)
        return func(*args, **kwargs)


@contextmanager
def other_device():
    """Makes ``torch.device("meta")`` a device that computes; autocast leaves it alone."""
    with ExitStack() as stack:
        for name in ("autocast", "is_autocast_enabled", "get_autocast_dtype"):
            known = partial(_known_to_autocast, getattr(torch, name))
            stack.enter_context(mock.patch.object(torch, name, known))
        stack.enter_context(_Functions())
        stack.enter_context(_Kernels())
        yield NAME


def _known_to_autocast(function, device, **options):
    return function("cpu" if device == NAME.type else device, **options)


def _is_other(device):
    return device is not None and torch.device(device) == NAME


def _computed(func, args, kwargs):
    tensors = [x for x in tree_iter((args, kwargs)) if isinstance(x, torch.Tensor)]
    others = [x for x in tensors if isinstance(x, OtherTensor)]
    goes_to = kwargs.get("device")
    if others and not goes_to:
        _refuse_mixture(func, args, tensors)
    here = dict(kwargs, device=torch.device("cpu")) if goes_to else kwargs
    result = func(*tree_map(_real, args), **tree_map(_real, here))
    if not (_is_other(goes_to) if goes_to else others):
        return result
    if func in _COPIES and not isinstance(args[0], OtherTensor):
        return args[0]
    known = {id(x.numbers): x for x in others}
    return tree_map(lambda x: known[id(x)] if id(x) in known else _other(x), result)


def _refuse_mixture(func, args, tensors):
    if func in _COPIES:
        return
    checked = [*tensors]
    if func in _INDEXED:
        checked = [args[0], *args[2:3]]
    strangers = [x for x in checked if isinstance(x, torch.Tensor) and x.dim()]
    if len({type(x) is OtherTensor or isinstance(x, OtherTensor) for x in strangers}) > 1:
        msg = f"{func} must have all tensors on one device, got two"
        raise RuntimeError(msg)


def _real(x):
    return x.numbers if isinstance(x, OtherTensor) else x


def _other(x):
    return OtherTensor(x) if isinstance(x, torch.Tensor) else x
