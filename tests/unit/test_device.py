import pytest
import torch

from megalabel.device import find_device
from megalabel.errors import SettingError


@pytest.fixture
def machine(monkeypatch):
    """Let torch see so many CUDA devices, and MPS or not."""

    def machine(cuda, *, mps=False, built=True):
        monkeypatch.setattr("torch.cuda.is_available", lambda: cuda > 0)
        monkeypatch.setattr("torch.cuda.device_count", lambda: cuda)
        monkeypatch.setattr("torch.backends.mps.is_available", lambda: mps)
        monkeypatch.setattr("torch.version.cuda", "12.8" if built else None)

    return machine


@pytest.mark.parametrize(
    ("name", "cuda", "actual"),
    [
        ("auto", 0, "cpu"),
        ("auto", 2, "cuda:0"),
        ("cpu", 2, "cpu"),
        ("cuda", 1, "cuda:0"),
        ("cuda:1", 2, "cuda:1"),
        ("mps", 0, "mps"),
    ],
)
def test_available_devices(machine, name, cuda, actual):
    machine(cuda, mps=True)
    assert find_device(name) == torch.device(actual)


@pytest.mark.parametrize(
    ("name", "cuda", "words"),
    [
        ("cuda", 0, "there is no device 'cuda', torch finds no GPU; leave it at auto, or choose cpu"),
        ("cuda:2", 2, "there is no device 'cuda:2'; the last one is cuda:1"),
        ("mps", 0, "there is no device 'mps' on this machine; leave it at auto, or choose cpu"),
        ("gpu", 1, "there is no device 'gpu'; choose auto, cpu, cuda"),
        ("cuda:", 1, "there is no device 'cuda:'; choose"),
        ("cuda:x", 1, "there is no device 'cuda:x'; choose"),
        ("cpu:0", 1, "there is no device 'cpu:0'; choose"),
    ],
)
def test_missing_devices(machine, name, cuda, words):
    machine(cuda)
    with pytest.raises(SettingError) as error:
        find_device(name)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_a_torch_without_cuda_says_so(machine):
    machine(0, built=False)
    with pytest.raises(SettingError, match="this torch was built without CUDA"):
        find_device("cuda:0")
