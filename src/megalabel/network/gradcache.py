"""Gradient cache: train on thousands of texts per step in the memory of a few dozen.

A contrastive loss needs the vectors of the whole batch at once, but not the activations
behind them. The cache encodes in chunks without a graph, lets the loss compute its gradient
with respect to the vectors, then encodes each chunk again, with a graph and the same
random state, and sends its part of that gradient through it (Gao, Zhang, Han and
Callan, "Scaling Deep Contrastive Learning Batch Size under Memory Limited Setup",
RepL4NLP 2021, section 3.2).

The second round runs inside ``loss.backward()``. Every encoded input is a node of the
graph that only stores the gradient it receives; all nodes share one root, which autograd
reaches after all of them. The root runs the whole second round, so that it knows which
chunk is the last (where replicas average their gradients), and the graph of the loss has
already been freed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import count
from typing import Any, ClassVar
from weakref import WeakSet

import torch
from torch import Tensor, nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.nn.parallel import DistributedDataParallel

from megalabel.errors import DataError, SettingError
from megalabel.network._inputs import Inputs, count_rows, cut, tensors_in
from megalabel.network._random_state import RandomState, devices_of, random_state, restore_random_state

__all__ = ["GradientCache"]


class GradientCache:
    """Encode in chunks, so that only the activations of one chunk are in memory.

    ``encode(encoder, *inputs, **inputs)`` returns the same vectors [n, d] as
    ``encoder(*inputs, **inputs)``, computed ``chunk_size`` rows at a time. Use them in any
    torch code and call ``loss.backward()`` as usual: the gradients of the encoder are
    those of the plain call, at the price of a second forward pass. Other tensors in the
    loss (a temperature, a bias, a table of free vectors) get gradients as usual, and a
    scaled loss (``GradScaler``) works too. Queries and labels may share an encoder or not.

    Inputs: a tensor, a numpy array, a list, a tuple or :class:`~megalabel.types.Tokens` has
    one entry per row and is cut into chunks; a mapping is cut value by value; all must
    have the same number of rows. Everything else (numbers, strings, None, 0-d
    tensors, other objects) is passed to every chunk unchanged. The encoder may be a module,
    a method of one, or any function; of modules, devices, buffers and replicas are known too.

    Random numbers: the state of torch's generators (CPU, and the devices of the inputs
    and of the encoder's parameters) is kept per chunk and restored for the second round,
    so dropout draws the same mask twice; the generators end where the first round left
    them. Autocast is the same in both rounds. Random numbers from numpy or from the
    encoder's own generator are not replayed.

    Buffers: layers that update buffers in their forward pass (running statistics of
    BatchNorm) update them in the first round only. BatchNorm in training mode sees a
    chunk where the plain call sees the batch, so its vectors differ.

    Distributed: an encoder that is or contains a ``DistributedDataParallel`` model
    averages its gradients once per backward pass, with the last chunk. Call that model
    only through the cache within a step, and give every process at least one row.

    Gradients reach leaves only (``loss.backward()``); ``torch.autograd.grad`` with respect
    to encoder parameters, second derivatives, and hooks that step the optimiser during
    the backward pass are not supported.

    >>> import torch
    >>> encoder = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Dropout(0.1))
    >>> cache = GradientCache(chunk_size=2)
    >>> queries = cache.encode(encoder, torch.randn(5, 4))
    >>> labels = cache.encode(encoder, torch.randn(7, 4))
    >>> (queries @ labels.T).logsumexp(1).mean().backward()
    >>> encoder[0].weight.grad.shape
    torch.Size([3, 4])
    """

    def __init__(self, chunk_size: int = 32) -> None:
        self.chunk_size = chunk_size

    def __repr__(self) -> str:
        return f"GradientCache(chunk_size={self.chunk_size})"

    def encode(self, encoder: Callable[..., Tensor], /, *args: Any, **kwargs: Any) -> Tensor:
        """Return the vectors [n, d] of n rows, ready for a loss and a plain ``backward()``.

        Without gradients (``torch.no_grad()``) this is a chunked forward pass. If all rows fit
        into one chunk, the encoder runs once, with its graph. No rows give
        [0, ``encoder.dim``], or the encoder's result for empty inputs.
        """
        if self.chunk_size < 1:
            raise SettingError(f"chunk_size is {self.chunk_size}", remedy="give at least 1")
        rows = count_rows((args, kwargs))
        if rows is None:
            raise DataError("nothing to cut into chunks", remedy="pass a tensor or a list with one entry per row")
        owner = _owner(encoder)
        dim = getattr(owner, "dim", None)
        if rows == 0 and isinstance(dim, int):
            weight = next(owner.parameters(), None) if isinstance(owner, nn.Module) else None
            return torch.empty(0, dim) if weight is None else weight.detach().new_empty(0, dim)
        run = _EncoderRun(encoder, (args, kwargs), rows, self.chunk_size)
        if not torch.is_grad_enabled() or not run.trainable:
            return run.first_round(keep_state=False)
        if rows <= self.chunk_size and not run.replicas:
            return run.forward(0)
        encoded: Tensor = _Encoded.apply(_root(), run.first_round(keep_state=True), run)  # type: ignore[no-untyped-call]
        return encoded


class _EncoderRun:
    """One encoded input, which can be encoded chunk by chunk a second time."""

    numbers: ClassVar[Iterator[int]] = count()
    alive: ClassVar[WeakSet[_EncoderRun]] = WeakSet()

    def __init__(self, encoder: Callable[..., Tensor], inputs: Inputs, rows: int, chunk_size: int) -> None:
        self.encoder, self.inputs = encoder, inputs
        self.bounds = [(begin, min(begin + chunk_size, rows)) for begin in range(0, max(rows, 1), chunk_size)]
        self.number = next(self.numbers)
        self.states: list[RandomState] = []
        self.task = -1  # the backward pass that the gradient belongs to
        self.gradient: Tensor | None = None  # [n, d]
        tensors = list(tensors_in(inputs))
        owner = _owner(encoder)
        self.devices = devices_of(owner, tensors)
        kinds = sorted({device.type for device in self.devices})
        self.autocast = [(kind, torch.get_autocast_dtype(kind), torch.is_autocast_enabled(kind)) for kind in kinds]
        self.buffers: list[Tensor] = []
        self.replicas: list[DistributedDataParallel] = []
        self.trainable = True
        if isinstance(owner, nn.Module):
            self.buffers = list(owner.buffers())
            self.replicas = [part for part in owner.modules() if isinstance(part, DistributedDataParallel)]
            self.trainable = any(tensor.requires_grad for tensor in [*tensors, *owner.parameters()])
        if any(tensor.requires_grad and not tensor.is_leaf for tensor in tensors):
            raise SettingError(
                "an input of the encoder comes from a computation that needs a gradient",
                remedy="move that computation into the encoder, or detach() the input",
            )
        if any(replica.static_graph for replica in self.replicas):
            raise SettingError(
                "the gradient cache runs the model several times a step", remedy="use static_graph=False"
            )

    def forward(self, chunk: int) -> Tensor:
        """Encode one chunk."""
        begin, end = self.bounds[chunk]
        args, kwargs = cut(self.inputs, begin, end)
        vectors = self.encoder(*args, **kwargs)
        if not isinstance(vectors, Tensor) or vectors.dim() == 0 or len(vectors) != end - begin:
            got = tuple(vectors.shape) if isinstance(vectors, Tensor) else type(vectors).__name__
            raise DataError(
                f"the encoder returned {got} for {end - begin} rows",
                remedy="let it return a tensor with one row for each",
            )
        return vectors

    def first_round(self, *, keep_state: bool) -> Tensor:
        """Encode all chunks without a graph."""
        vectors = torch.empty(0)
        with torch.no_grad(), self.same_autocast():
            for chunk, (begin, end) in enumerate(self.bounds):
                if keep_state:
                    self.states.append(random_state(self.devices))
                part = self.forward(chunk)
                if chunk == 0:
                    vectors = part.new_empty(self.bounds[-1][1], *part.shape[1:])
                vectors[begin:end] = part
        return vectors

    def second_round(self, chunk: int, gradient: Tensor) -> None:
        """Encode one chunk again, with a graph, and send its part of the gradient through it."""
        begin, end = self.bounds[chunk]
        restore_random_state(self.states[chunk])
        with self.same_autocast():
            vectors = self.forward(chunk)
        if vectors.requires_grad:
            torch.autograd.backward(vectors, gradient[begin:end])

    @contextmanager
    def same_autocast(self) -> Iterator[None]:
        """Run under the autocast state of ``encode``, without its cache of cast weights.

        A weight cast in the first round has no graph, so a later pass must not reuse it.
        """
        with ExitStack() as stack:
            for kind, dtype, enabled in self.autocast:
                stack.enter_context(torch.autocast(kind, dtype=dtype, enabled=enabled, cache_enabled=False))
            yield


def _owner(encoder: Any) -> object:
    """Return the object behind a method or a partial: ``model`` for ``model.encode``."""
    while isinstance(encoder, partial):
        encoder = encoder.func
    return getattr(encoder, "__self__", encoder)


# ------------------------------------------------------------------------ the graph


class _Encoded(Function):
    """Vectors whose gradient is stored for the root."""

    @staticmethod
    def forward(ctx: Any, root: Tensor, vectors: Tensor, run: _EncoderRun) -> Tensor:
        ctx.run = run
        _EncoderRun.alive.add(run)
        return vectors

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        ctx.run.task, ctx.run.gradient = torch._C._current_graph_task_id(), gradient
        return torch.zeros((), device="cpu"), None, None


class _Root(Function):
    """Runs once per backward pass, after all encoded inputs of that pass."""

    @staticmethod
    def forward(ctx: Any, start: Tensor) -> Tensor:
        return start.clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> None:
        task = torch._C._current_graph_task_id()
        runs = sorted((run for run in list(_EncoderRun.alive) if run.task == task), key=lambda run: run.number)
        _second_round(runs)


_roots: list[Tensor] = []  # at most one; it holds no reference to its nodes


def _root() -> Tensor:
    if not _roots:
        _roots.append(_Root.apply(torch.zeros((), device="cpu", requires_grad=True)))  # type: ignore[no-untyped-call]
    return _roots[0]


def _second_round(runs: list[_EncoderRun]) -> None:
    """Replay every chunk of every run; replicas average their gradients at their last chunk."""
    jobs = [(run, chunk) for run in runs for chunk in range(len(run.bounds))]
    last = {replica: place for place, (run, _) in enumerate(jobs) for replica in run.replicas}
    gradients = {}
    for run in runs:
        gradients[run], run.task, run.gradient = run.gradient, -1, None
    devices = {device for run in runs for device in run.devices}
    with torch.enable_grad(), _kept(devices, [buffer for run in runs for buffer in run.buffers]):
        for place, (run, chunk) in enumerate(jobs):
            with ExitStack() as stack:
                for replica in run.replicas:
                    if last[replica] != place:
                        stack.enter_context(replica.no_sync())
                gradient = gradients[run]
                assert gradient is not None  # autograd fills in zeros
                run.second_round(chunk, gradient)


@contextmanager
def _kept(devices: Iterable[torch.device], buffers: list[Tensor]) -> Iterator[None]:
    """Restore random generators and buffers afterwards."""
    state = random_state(devices)
    before = [(buffer, buffer.clone()) for buffer in buffers]
    try:
        yield
    finally:
        restore_random_state(state)
        for buffer, value in before:
            if not torch.equal(buffer, value):
                buffer.data.copy_(value)
