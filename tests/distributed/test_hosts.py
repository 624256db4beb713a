"""Two machines, each a network namespace with one rank, joined by a slow link that may lose packets or break."""

import os
import shutil
import subprocess
import sys
import time

import pytest

from megalabel.training.checkpoint import load_checkpoint
from megalabel.training.run_log import read_log

pytestmark = pytest.mark.extra

LONGEST = 300.0  # seconds; the machine may be busy
MINUTE = 60.0  # seconds until both machines have noticed that the link is cut
SLOW = ["tbf", "rate", "20mbit", "burst", "32kb", "latency", "100ms"]
LOSSY = ["netem", "rate", "20mbit", "delay", "2ms", "loss", "1%"]
ARGUMENTS = [
    "train", "unidec-cpu", "--data", "synthetic:points=150,labels=23,seed=4", "--seed", "3", "--no-report",
    "--set", "encoder={kind: bag, source: null, options: {dim: 16, words: 256, bigrams: 0, characters: 0}}",
    "--set", "batching.batch_size=32", "--set", "batching.refresh={start: 1, every: 2}",
]  # fmt: skip
BUSY = """
import sys, time
from megalabel import trainer
from megalabel.__main__ import main
def save_stage(phase, best, spaces, folder, drop):
    (folder.parents[1] / "busy").touch()
    time.sleep(600)
trainer.save_stage = save_stage
sys.exit(main())
"""


def ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


class Hosts:
    """Two network namespaces, ``a`` and ``b``."""

    def __init__(self):
        self.names = [f"megalabel-{side}-{os.getpid()}" for side in "ab"]
        self.links = [f"ml{side}{os.getpid()}" for side in "ab"]
        self.addresses = ["10.213.77.1", "10.213.77.2"]
        self.ranks = []

    def open(self):
        for name in self.names:
            ip("netns", "add", name)
            ip("-n", name, "link", "set", "lo", "up")
        first, second = self.links
        ip("-n", self.names[0], "link", "add", first, "type", "veth", "peer", "name", second, "netns", self.names[1])
        for name, link, address in zip(self.names, self.links, self.addresses, strict=True):
            ip("-n", name, "address", "add", f"{address}/30", "dev", link)
            ip("-n", name, "link", "set", link, "up")

    def close(self):
        for rank in self.ranks:
            rank.kill()
            rank.communicate()
        for name in self.names:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True, check=False)

    def slow_down(self, discipline):
        """Let both ends of the link send so; return whether the kernel can."""
        ends = zip(self.names, self.links, strict=True)
        commands = [["netns", "exec", name, "tc", "qdisc", "add", "dev", link, "root"] for name, link in ends]
        codes = [subprocess.run(["ip", *each, *discipline], capture_output=True).returncode for each in commands]
        return codes == [0, 0]

    def cut(self):
        ip("-n", self.names[0], "link", "set", self.links[0], "down")

    def train(self, out, *more, program=("-m", "megalabel")):
        """Start a rank on each host."""
        for rank, (name, link) in enumerate(zip(self.names, self.links, strict=True)):
            environment = {
                "RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": self.addresses[0],
                "MASTER_PORT": "29555", "GLOO_SOCKET_IFNAME": link, "OMP_NUM_THREADS": "1",
            }  # fmt: skip
            command = [sys.executable, *program, *ARGUMENTS, "--out", str(out), *more]
            self.ranks.append(
                subprocess.Popen(
                    ["ip", "netns", "exec", name, *command], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                    text=True, env={**os.environ, **environment},
                )
            )  # fmt: skip
        return self.ranks[-2:]


@pytest.fixture
def hosts():
    if shutil.which("ip") is None or shutil.which("tc") is None:
        pytest.skip("network namespaces need ip and tc (iproute2)")
    two = Hosts()
    try:
        two.open()
    except subprocess.CalledProcessError as error:
        two.close()
        pytest.skip(f"network namespaces cannot be made here: {error.stderr.strip().splitlines()[-1]}")
    yield two
    two.close()


@pytest.fixture(scope="module")
def near(tmp_path_factory):
    """The weights of two ranks on one host, with nothing between them."""
    return tmp_path_factory.mktemp("near") / "run"


def weights(run):
    files = {str(path.relative_to(run)): path.read_bytes() for path in (run / "model").rglob("*.safetensors")}
    assert files
    return files


@pytest.mark.parametrize("link", [SLOW, LOSSY], ids=["slow", "lossy"])
def test_the_weights_are_those_of_one_host(hosts, near, run_ranks, tmp_path, link):
    if not hosts.slow_down(link):
        pytest.skip(f"this kernel has no {link[0]}")
    short = ["--set", "training.epochs=3"]
    if not near.exists():
        run_ranks(2, "-m", "megalabel", *ARGUMENTS, *short, "--out", near)
    ranks = hosts.train(tmp_path / "far", *short)
    said = [rank.communicate(timeout=LONGEST)[1] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], said
    assert weights(tmp_path / "far") == weights(near)


def wait_for(ranks, has_come):
    end = time.monotonic() + LONGEST
    while not has_come():
        assert time.monotonic() < end and all(rank.poll() is None for rank in ranks), "the run did not start"
        time.sleep(0.05)


def check_stopped(ranks, run):
    """Both sides stop by themselves, with one line each, and leave a whole checkpoint."""
    end = time.monotonic() + MINUTE
    said = [rank.communicate(timeout=max(0.1, end - time.monotonic()))[1] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [2, 2], said
    for rank, words in enumerate(said):
        spoken = [line for line in words.splitlines() if "lost" in line]
        assert len(spoken) == 1, words
        assert spoken[0].startswith(f"megalabel: rank {rank} of 2 lost rank {1 - rank}, which could not be reached")
        assert "--resume" in spoken[0]
        assert "Traceback" not in words and "frame #" not in words
    steps = [load_checkpoint(folder).step for folder in (run / "checkpoints").iterdir()]
    assert steps and min(steps) > 0


def test_a_host_is_cut_off_in_the_middle_of_a_step(hosts, tmp_path):
    """The ranks wait for each other in the library."""
    assert hosts.slow_down(SLOW)
    ranks = hosts.train(tmp_path, "--set", "training.epochs=5000", "--set", "training.evaluate_every=20")
    log = tmp_path / "metrics.jsonl"
    wait_for(ranks, lambda: log.is_file() and sum("loss" in row for row in read_log(log)) > 30)
    hosts.cut()
    check_stopped(ranks, tmp_path)


def test_a_host_is_cut_off_while_the_other_works(hosts, tmp_path):
    """Rank 0 is busy by itself, and the other asks it over the link whether it is done."""
    assert hosts.slow_down(SLOW)
    stages = ["--set", "training.epochs=1", "--set", "stages=[{name: one}, {name: two}]"]
    ranks = hosts.train(tmp_path, *stages, program=["-c", BUSY])
    wait_for(ranks, (tmp_path / "busy").exists)
    hosts.cut()
    check_stopped(ranks, tmp_path)
