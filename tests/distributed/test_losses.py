"""Labels sharded over two processes give the value and the gradients of one process."""

import socket
import subprocess
import sys

import pytest
import torch
import torch.distributed as dist

from megalabel.losses import (
    BCE,
    DecoupledSoftmax,
    ProbabilisticContrastive,
    Softmax,
    SoftTopK,
    Sum,
    SupCon,
    Symmetric,
    Triplet,
    streamed,
)
from megalabel.types import Targets

LOSSES = [
    BCE(),
    Symmetric(BCE(reduction="cells")),
    Softmax(),
    SupCon(balanced=True),
    DecoupledSoftmax(),
    SoftTopK(2),
    SoftTopK("positives"),
    Triplet(k=3),
    Triplet(margin=0.2, k=5, positives=2, weights="hinge"),
    ProbabilisticContrastive(c=0.9, d=1.5, k=3, threshold=0.0, scaled=False),
    Symmetric(DecoupledSoftmax(), weight=0.3),
    Sum((Symmetric(Softmax()), SoftTopK(1), Triplet(k=2), BCE())),
]
ROWS, SHARDS, DIM = 5, (9, 4), 6  # uneven on purpose
EDGES = (0, 8, 9, 12)  # first and last label of every shard


def problem():
    generator = torch.Generator().manual_seed(4)

    def draw(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    cols = sum(SHARDS)
    unit = torch.nn.functional.normalize
    targets = (draw(ROWS, cols) > 0.8).double()
    for row, col in enumerate(EDGES):
        targets[row, col] = 1
    targets[4] = 0
    mask = draw(ROWS, cols) > -1.5
    mask[range(4), list(EDGES)] = True
    return unit(draw(ROWS, DIM)), unit(draw(cols, DIM)), draw(cols) * 0.1, targets, mask


def run(loss, queries, labels, bias, targets, mask, group=None):
    temperature = torch.tensor(0.7, dtype=torch.float64)
    leaves = [tensor.clone().requires_grad_() for tensor in (queries, labels, temperature, bias)]
    q, x, t, b = leaves
    value = streamed(loss, q, x, Targets.from_dense(targets), temperature=t, bias=b, mask=mask, block=4, group=group)
    return [value.detach(), *torch.autograd.grad(value, leaves)]


def work(rank, port):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=2)
    try:
        queries, labels, bias, targets, mask = problem()
        first = sum(SHARDS[:rank])
        own = slice(first, first + SHARDS[rank])
        for loss in LOSSES:
            whole = run(loss, queries, labels, bias, targets, mask)
            part = run(loss, queries, labels[own], bias[own], targets[:, own], mask[:, own], group=dist.group.WORLD)
            expected = [whole[0], whole[1], whole[2][own], whole[3], whole[4][own]]
            for left, right in zip(part, expected, strict=True):
                torch.testing.assert_close(left, right, rtol=1e-9, atol=1e-10, msg=lambda m, loss=loss: f"{loss}: {m}")
            for edge in (0, -1):
                assert part[2][edge].abs().sum() > 0, f"{loss}: label {edge} of rank {rank} gets no gradient"
    finally:
        dist.destroy_process_group()


@pytest.mark.skipif(not dist.is_gloo_available(), reason="needs gloo")
def test_two_processes_equal_one():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    ranks = [
        subprocess.Popen([sys.executable, __file__, str(rank), str(port)], stderr=subprocess.PIPE, text=True)
        for rank in range(2)
    ]
    try:
        errors = [rank.communicate(timeout=120)[1] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    assert [rank.returncode for rank in ranks] == [0, 0], "".join(errors)


if __name__ == "__main__":
    work(int(sys.argv[1]), int(sys.argv[2]))
