"""What this package uses of other packages beyond their documented API exists, and docs/dependencies.md lists it."""

import ast
import inspect
import re
from importlib import import_module
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SECTION = (ROOT / "docs" / "dependencies.md").read_text().partition("## Beyond the documented API")[2]
LISTED = {
    "torch._C._current_graph_task_id": [],
    "torch._C._distributed_c10d.PrefixStore": ["prefix", "store"],
    "torch.distributed.rendezvous.rendezvous": ["url", "rank", "world_size"],
    "torch._softmax_backward_data": [],
    "torch.Tensor._indices": [],
    "torch.Tensor._values": [],
    "transformers.integrations.sdpa_attention.sdpa_attention_forward": ["module", "query", "key", "value"],
    "transformers.masking_utils.sdpa_mask": [],
    "transformers.PretrainedConfig._attn_implementation": [],
    "uvicorn.Server.startup": ["self", "sockets"],
    "uvicorn.Server.capture_signals": ["self"],
    "uvicorn.Server.handle_exit": ["self", "sig", "frame"],
    "uvicorn.server.ServerState": ["self"],
}


def resolve(name):
    parts = name.split(".")
    for cut in range(len(parts), 0, -1):
        try:
            thing = import_module(".".join(parts[:cut]))
        except ImportError:
            continue
        for part in parts[cut:]:
            thing = getattr(thing, part)
        return thing
    raise ImportError(name)


@pytest.mark.parametrize("name", LISTED)
def test_each_exists_and_is_listed(name):
    thing = resolve(name)
    assert f"`{name}`" in SECTION
    if LISTED[name] and not inspect.isbuiltin(thing):
        try:
            parameters = list(inspect.signature(thing).parameters)
        except ValueError:  # written in C
            return
        wanted = [parameter for parameter in LISTED[name] if parameter != "self" or "self" in parameters]
        assert [parameter for parameter in parameters if parameter in wanted] == wanted


def test_the_state_of_a_uvicorn_server():
    from uvicorn.server import ServerState

    assert {"connections", "tasks", "default_headers"} <= vars(ServerState()).keys()


def test_no_other_private_part_is_used():
    used = set()
    for path in (ROOT / "src" / "megalabel").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ImportFrom) and node.module and not node.module.startswith(("megalabel", "__")):
                names = [f"{node.module}.{alias.name}" for alias in node.names]
                used.update(name for name in names if re.search(r"\._[a-zA-Z]", name))
            elif isinstance(node, ast.Attribute):
                used.update(
                    re.findall(r"^(?:torch|np|scipy|uvicorn|httptools|faiss)(?:\.\w+)*\._[a-z]\w*$", ast.unparse(node))
                )
    used.discard("torch._C")
    assert {name for name in used if name not in LISTED and not name.endswith(".Store")} == set()
