"""Two replicas with the gradient cache get the gradient of one process on the whole batch."""

from __future__ import annotations

import datetime
import gc
import os
import subprocess
import sys

import torch
import torch.distributed as dist
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from megalabel.network import GradientCache

WORLD = 2


def make() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.BatchNorm1d(8, affine=False).eval(), nn.Linear(8, 2)).double()


def data(rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(rank)
    rows = [5 + rank, 9 - 2 * rank]  # the replicas have different numbers of chunks
    queries, labels = (torch.randn(n, 3, dtype=torch.float64, generator=generator) for n in rows)
    return queries, labels


def loss_of(queries: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    return (queries @ labels.T).logsumexp(1).mean()


class Wrapped(nn.Module):
    """A replica inside another module, as in the losses of sentence-transformers."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.model(x)


def replica(rank: int, folder: str) -> None:
    dist.init_process_group(
        "gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=WORLD, timeout=datetime.timedelta(seconds=60)
    )
    torch.set_num_threads(1)
    save_file(gradients(rank), f"{folder}/{rank}.safetensors")
    gc.collect()  # the replica keeps the process group alive: its threads must end before the interpreter does
    dist.barrier()
    dist.destroy_process_group()


def gradients(rank: int) -> dict[str, torch.Tensor]:
    model = DistributedDataParallel(make())
    actual = []
    for size, encoder in [(2, model), (100, model), (3, Wrapped(model))]:
        for accumulate in (False, True):
            model.zero_grad()
            cache = GradientCache(size)
            queries, labels = data(rank)
            if accumulate:  # a first half without averaging, then a second half with it
                with model.no_sync():
                    (loss_of(cache.encode(encoder, queries), cache.encode(encoder, labels)) / 2).backward()
            share = 2 if accumulate else 1
            (loss_of(cache.encode(encoder, queries), cache.encode(encoder, labels)) / share).backward()
            actual.append({name: parameter.grad.clone() for name, parameter in model.module.named_parameters()})
    return {f"{case} {name}": grad for case, grads in enumerate(actual) for name, grad in grads.items()}


def test_replicas_average_once_per_step(tmp_path):
    command = [sys.executable, __file__, str(tmp_path)]
    processes = [subprocess.Popen(command, env={**os.environ, "RANK": str(rank)}) for rank in range(WORLD)]
    assert [process.wait(timeout=120) for process in processes] == [0] * WORLD
    plain = make()
    for rank in range(WORLD):
        queries, labels = data(rank)
        (loss_of(plain(queries), plain(labels)) / WORLD).backward()
    expected = {name: parameter.grad for name, parameter in plain.named_parameters()}
    for rank in range(WORLD):
        actual = load_file(tmp_path / f"{rank}.safetensors")
        assert len(actual) == 6 * len(expected)
        for name, grad in actual.items():
            torch.testing.assert_close(grad, expected[name.split()[1]], rtol=1e-10, atol=1e-12)


if __name__ == "__main__":
    replica(int(os.environ["RANK"]), sys.argv[1])
