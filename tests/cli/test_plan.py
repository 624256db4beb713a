"""``megalabel plan`` and the check before ``megalabel train``: numbers that hold together, mistakes in one line."""

import json
import re
import shlex
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "scale.md"
QUERY2BID = [
    "plan", "depsl", "--points", "52,029,024", "--labels", "454,608,650", "--labels-per-point", "3.96",
    "--query-tokens", "10", "--label-tokens", "10", "--batch", "2048", "--dim", "64", "--devices", "8",
    "--device", "cuda", "--memory-per-device", "32", "--flops", "14T", "--bandwidth", "12GB/s",
    "--set", "training.precision=float32",
]  # fmt: skip
SMALL = ["--data", "synthetic:points=400,labels=30", "--set", "batching.batch_size=64"]


def test_query2bid_on_eight_gpus(call):
    code, out, err = call(*QUERY2BID)
    assert (code, err) == (0, "")
    last = [line for line in out.splitlines() if line.strip()]
    (verdict,) = (line for line in last if line.startswith("does not fit"))
    assert "of 32.0 GiB on each of 8 GPUs" in verdict
    change = re.search(
        r"; (--set encoder\.options\.projection=64( --set heads\.dual\.\w+=\S+){3}.*) takes it to", verdict
    )[1]
    assert "heads.dual.projection=none" in change
    code, out, _ = call(*QUERY2BID, *change.split())
    assert code == 0
    assert "\nfits: " in out
    words = ["encoded labels", "optimiser", "driver", "main memory of one process", "mined lists", "8 V100"]
    words += ["each device sends", "gradients of the encoder added up", "8 x 14.0 TFLOP/s", "index after training"]
    for word in words:
        assert word in out, word


def test_json_is_one_consistent_document(call):
    code, out, err = call(*QUERY2BID, "--json")
    assert (code, err) == (0, "")
    document = json.loads(out)
    assert document["fits"] is False
    assert document["changes"][0]["enough"] is True
    for where in ("device", "host"):
        peak = document["peak"][where]
        assert sum(part["bytes"] for part in document["parts"] if part["where"] == where) == pytest.approx(
            peak["bytes"]
        )
        assert peak["bytes"] == max(moment[where] for moment in document["moments"].values())
    assert document["sizes"]["labels"] == 454_608_650
    assert document["work"]["sent_in_a_step"] == pytest.approx(sum(document["work"]["sent"].values()))
    assert document["seconds"] > 0
    assert all(line["source"] for line in document["published"])


def test_this_machine_and_a_data_set(call):
    code, out, _ = call("plan", "unidec-cpu", *SMALL)
    assert code == 0
    assert out.startswith("unidec-cpu: 320 points x 30 labels, batch 58")
    assert re.search(r"^fits: .* on one CPU, \d+%$", out, re.MULTILINE)
    assert "FLOP/s" in out
    assert "DEXML, all labels" in out
    assert "640 GB" in out
    assert "Kharbanda 2024, Table 2.3" in out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["unidec-cup", "--points", "1M", "--labels", "1M"], ["'unidec-cup'", "did you mean 'unidec-cpu'?"]),
        (["unidec-cpu"], ["points and labels", "data set"]),
        (["unidec-cpu", "--points", "1M"], ["number of labels"]),
        (["unidec-cpu", "--points", "-5", "--labels", "1M"], ["--points is -5", "1 or more"]),
        (["unidec-cpu", "--points", "1M", "--labels", "many"], ["--labels", "'many'"]),
        (["unidec-cpu", "--points", "1M", "--labels", "5 cats"], ["--labels", "'CATS'"]),
        (["dexml", "--points", "1M", "--labels", "1M", "--memory-per-device", "32 bananas"], ["--memory-per-device"]),
        (["dexml", "--points", "1M", "--labels", "1M", "--devices", "0"], ["--devices is 0"]),
        (["dexml", "--points", "1M", "--labels", "1M", "--flops", "fast"], ["--flops", "'fast'"]),
        (["dexml", "--points", "1M", "--labels", "1M", "--set", "training.epocs=1"], ["did you mean 'epochs'?"]),
        (["dexml", "--points", "1M", "--labels", "1M", "--set", "encoder.source=a/b"], ["'a/b'", "not known"]),
        (["unidec-cpu", "--data", "/no/such/folder"], ["/no/such/folder"]),
    ],
)
def test_mistakes_give_one_line(call, arguments, words):
    code, out, err = call("plan", *arguments)
    assert (code, out) == (2, "")
    (line,) = err.strip().splitlines()
    assert line.startswith("megalabel: ")
    for word in words:
        assert word in line, line


HUGE = ["--set", "encoder.options.dim=4194304"]  # a table of 2 TiB, a layer of 64


def test_train_refuses_what_cannot_fit_and_leaves_nothing_behind(call, tmp_path):
    code, out, err = call("train", "unidec-cpu", *SMALL, "--out", tmp_path / "run", *HUGE)
    assert (code, out) == (2, "")
    line = err.strip().splitlines()[-1]
    assert re.search(
        r"would take [\d.,]+ TiB of memory, there is [\d.,]+ \w+; --set encoder\.options\.dim=\d+ takes", line
    )
    assert line.endswith("or --force to try anyway")
    assert "Traceback" not in err
    assert not (tmp_path / "run").exists()


def test_the_remedy_of_a_refusal_is_a_training_that_runs(call, tmp_path):
    _, _, err = call("train", "unidec-cpu", *SMALL, "--out", tmp_path / "run", *HUGE)
    dim = int(re.search(r"--set encoder\.options\.dim=(\d+)", err)[1])
    assert dim < 4194304
    small = ["--set", "encoder.options.dim=8", "--set", "training.epochs=1"]
    code, _, err = call("train", "unidec-cpu", *SMALL, "--out", tmp_path / "run", *small, "--no-report")
    assert code == 0, err


def test_force_trains_anyway(call, tmp_path, monkeypatch):
    from megalabel.plan import check_memory

    monkeypatch.setattr(check_memory, "main_memory", lambda swap: 1e6)
    small = ["--set", "encoder.options.dim=8", "--set", "training.epochs=1", "--no-report"]
    assert call("train", "unidec-cpu", *SMALL, "--out", tmp_path / "run", *small)[0] == 2
    code, _, err = call("train", "unidec-cpu", *SMALL, "--out", tmp_path / "run", *small, "--force")
    assert code == 0, err


def test_commands_of_the_page_run(call):
    blocks = re.findall(r"^```sh\n(.*?)^```", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    commands = [line for block in blocks for line in block.replace("\\\n", " ").splitlines()]
    plans = [command for command in commands if command.startswith("megalabel plan")]
    assert len(plans) >= 3
    for command in plans:
        code, _, err = call(*shlex.split(command)[1:])
        assert code == 0, (command, err)
