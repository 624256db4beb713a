"""A simulated device: its tensors compute like real ones and refuse to meet tensors of other devices."""

from functools import partial

import pytest
import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import arg_tree_leaves, tree_map_only

FAR = torch.device("meta")  # torch knows its name without a driver; what lies there has values all the same
MOVES = {torch.ops.aten._to_copy.default, torch.ops.aten.copy_.default}  # take tensors of two devices


class FarTensor(torch.Tensor):
    """Says that it lies on FAR; the numbers are in ``held``, on the CPU. ``numpy()`` fails as it does on a GPU."""

    @staticmethod
    def __new__(cls, held):
        dense = {"strides": held.stride(), "storage_offset": held.storage_offset()}
        return torch.Tensor._make_wrapper_subclass(
            cls, held.shape, dtype=held.dtype, layout=held.layout, device=FAR,
            **(dense if held.layout == torch.strided else {}),
        )  # fmt: skip

    def __init__(self, held):
        self.held = held

    def __repr__(self):
        return f"FarTensor({self.held})"

    def tolist(self):
        return self.held.tolist()

    @classmethod
    def __torch_dispatch__(cls, operation, types, args=(), kwargs=None):
        return compute(operation, args, kwargs or {})


def compute(operation, args, kwargs):
    """Run an operation of torch on the CPU, and leave the result where the real device would; refuse two devices."""
    asked = kwargs.get("device")
    tensors = [part for part in arg_tree_leaves(*args, **kwargs) if isinstance(part, torch.Tensor)]
    far = [part for part in tensors if isinstance(part, FarTensor)]
    if not far and asked != FAR:
        return operation(*args, **kwargs)
    near = [part for part in tensors if not isinstance(part, FarTensor) and part.dim()]  # single numbers may come along
    if far and near and operation not in MOVES:
        raise RuntimeError(f"{operation} was given tensors of two devices")
    there = bool(far) if asked is None else torch.device(asked) == FAR
    if operation is torch.ops.aten.copy_.default:
        there = isinstance(args[0], FarTensor)
    if asked is not None:
        kwargs = {**kwargs, "device": torch.device("cpu")}
    held = {id(part.held): part for part in far}
    args, kwargs = tree_map_only(FarTensor, lambda part: part.held, (args, kwargs))
    actual = operation(*args, **kwargs)
    if not there:
        return actual
    # what was changed in place is the same object
    return tree_map_only(torch.Tensor, lambda part: held[id(part)] if id(part) in held else FarTensor(part), actual)


class FarOperations(TorchDispatchMode):
    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        return compute(operation, args, kwargs or {})


class FarNumbers(TorchFunctionMode):
    """Makes tensors of Python numbers, which torch does not let a dispatch mode see, on the device asked for."""

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if function is torch.tensor and kwargs.get("device") is not None:
            return function(*args, **{**kwargs, "device": "cpu"}).to(kwargs["device"])
        if function is torch.Tensor.new_tensor and isinstance(args[0], FarTensor):
            return torch.tensor(*args[1:], **{"dtype": args[0].dtype, **kwargs}).to(FAR)
        return function(*args, **kwargs)


def as_on_the_cpu(function, kind, *args, **kwargs):
    return function("cpu" if kind == FAR.type else kind, *args, **kwargs)


@pytest.fixture
def far(monkeypatch):
    """Let every run and every model that is loaded take the far device; return it."""
    for name in ("trainer", "model.store"):
        monkeypatch.setattr(f"megalabel.{name}.find_device", lambda name: FAR if name == "auto" else torch.device(name))
    for name in ("autocast", "is_autocast_enabled", "get_autocast_dtype"):  # the CPU's stands in for the device's own
        monkeypatch.setattr(torch, name, partial(as_on_the_cpu, getattr(torch, name)))
    with FarOperations(), FarNumbers():
        yield FAR
