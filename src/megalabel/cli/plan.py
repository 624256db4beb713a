"""``megalabel plan``: memory and time of a training before it starts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from megalabel.cli._options import FormatOption, JsonOption, OwnDeviceOption, print_json, say

if TYPE_CHECKING:
    from rich.table import Table

    from megalabel.plan import Plan
    from megalabel.plan.machine import Machine

__all__ = ["plan"]

_WIDTH = 120  # of tables where nobody looks at a terminal


def plan(
    recipe: Annotated[str, typer.Argument(metavar="RECIPE", help="A name from `megalabel recipes`, or a YAML file.")],
    points: Annotated[str | None, typer.Option(metavar="N", help="Training points: 2248619, 2.2M.")] = None,
    labels: Annotated[str | None, typer.Option(metavar="L", help="Labels: 1305265, 1.3M.")] = None,
    data: Annotated[
        str | None, typer.Option("--data", "-d", metavar="D", help="Read the sizes from this set instead.")
    ] = None,
    labels_per_point: Annotated[str | None, typer.Option(metavar="X", help="Mean labels of a point (5).")] = None,
    query_tokens: Annotated[str | None, typer.Option(metavar="X", help="Mean tokens of a text (12).")] = None,
    label_tokens: Annotated[str | None, typer.Option(metavar="X", help="Mean tokens of a label text (12).")] = None,
    dim: Annotated[
        str | None, typer.Option(metavar="D", help="Size of label vectors, in place of the recipe's.")
    ] = None,
    batch: Annotated[str | None, typer.Option(metavar="B", help="Texts of a step over all devices.")] = None,
    devices: Annotated[str, typer.Option(metavar="W", help="Devices that share labels and batch.")] = "1",
    memory: Annotated[
        str | None,
        typer.Option("--memory-per-device", metavar="GB", help="32, 32GB, 24GiB; this machine's if left out."),
    ] = None,
    host_memory: Annotated[
        str | None, typer.Option("--host-memory", metavar="GB", help="Main memory beside GPUs, for all processes.")
    ] = None,
    device: OwnDeviceOption = None,
    flops: Annotated[
        str | None, typer.Option(metavar="F", help="FLOP/s one device reaches: 14T; this machine's if left out.")
    ] = None,
    bandwidth: Annotated[
        str | None, typer.Option(metavar="GB/s", help="What one device sends a second: 12GB/s (10).")
    ] = None,
    changes: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change the recipe: training.epochs=3")
    ] = None,
    data_format: FormatOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say what a training takes: memory by part, operations, bytes between devices, time, and what to change.

    Example: megalabel plan dexml --points 2.2M --labels 1.3M --device cuda --memory-per-device 40
    """
    from megalabel.data.load import load
    from megalabel.plan import plan as make
    from megalabel.plan.machine import has_gpu, measured_flops
    from megalabel.plan.numbers import read_amount, read_bytes, read_speed
    from megalabel.recipes.load_recipe import load_recipe

    def amount(text: str | None, name: str, least: float = 1.0) -> float | None:
        return None if text is None else read_amount(text, name, least=least)

    def whole(text: str | None, name: str) -> int | None:
        return None if text is None else round(read_amount(text, name))

    def size(text: str | None, name: str) -> float | None:
        return None if text is None else read_bytes(text, name)

    speed = amount(flops, "--flops")
    here = memory is None and (device == "cpu" or (device in (None, "auto") and not has_gpu()))
    settings: dict[str, Any] = {
        "points": whole(points, "--points"),
        "labels": whole(labels, "--labels"),
        "labels_per_point": amount(labels_per_point, "--labels-per-point", 1e-9),
        "query_tokens": amount(query_tokens, "--query-tokens"),
        "label_tokens": amount(label_tokens, "--label-tokens"),
        "dim": whole(dim, "--dim"),
        "batch": whole(batch, "--batch"),
        "devices": whole(devices, "--devices"),
        "memory": size(memory, "--memory-per-device"),
        "host_memory": size(host_memory, "--host-memory"),
        "bandwidth": None if bandwidth is None else read_speed(bandwidth, "--bandwidth"),
        "device": device,
    }
    wanted = load_recipe(recipe, changes or ())  # a wrong name is told before data is read
    dataset = None if data is None else load(data, format=data_format, say=say)
    found = make(wanted, data=dataset, flops=measured_flops() if speed is None and here else speed, **settings)
    if as_json:
        print_json(found.document())
    else:
        _show(found)


def _show(found: Plan) -> None:
    """Print tables and lines for people."""
    import sys

    from rich.console import Console

    console = Console(width=None if sys.stdout.isatty() else _WIDTH, highlight=False, markup=False)
    sizes, machine = found.sizes, found.machine
    many = f"{machine.devices:,} x " if machine.devices > 1 else ""
    console.print(
        f"{found.recipe}{f', stage {found.stage}' if found.stage else ''}: {sizes.points:,} points x {sizes.labels:,} "
        f"labels, batch {found.case.batch:,}, {found.case.width:,} labels against each text, {many}{machine.kind}"
    )
    console.print(_parts(found))
    for line in _lines(found):
        console.print(line, soft_wrap=True)
    console.print(_published(found))
    console.print(f"{found.verdict}", soft_wrap=True)
    for change in found.changes[1:]:
        console.print(f"  or {change.options}: {_bytes(change.device_bytes)}", soft_wrap=True)


def _bytes(amount: float) -> str:
    from megalabel.plan.numbers import show_bytes

    return show_bytes(amount)


def _table(*columns: str) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE, pad_edge=False, show_edge=False, header_style="bold")
    for place, name in enumerate(columns):
        table.add_column(name, justify="right" if place == 1 else "left", no_wrap=place < 3)
    return table


def _parts(found: Plan) -> Table:
    """Return memory by part, at the moment when there is most of it."""
    machine, memory = found.machine, found.memory
    table = _table("memory", f"on one {machine.kind}", "when", "which is")
    sides = [(False, "")] if not machine.gpu else [(False, ""), (True, "main memory of one process")]
    for host, title in sides:
        moment, total = memory.peak(host=host)
        if title:
            table.add_section()
            table.add_row(title, "", "", "")
        for when, part in found.parts:
            if not machine.gpu or part.host == host:
                table.add_row(part.name, _bytes(part.bytes), when, part.how)
        kept = memory.kept(moment) if host or not machine.gpu else 0.0
        if kept >= 1e6:
            table.add_row(
                "kept by the C library", _bytes(kept), moment, "small pieces of other moments, not given back"
            )
        table.add_row("at the most", _bytes(total), moment, _others(found, host), style="bold")
        if host and machine.devices > 1:
            table.add_row("of all processes", _bytes(machine.devices * total), moment, f"{machine.devices:,} of them")
    return table


def _others(found: Plan, host: bool) -> str:
    """Name the other moments with what they take."""
    memory = found.memory
    top = memory.peak(host=host)[0]
    totals = {name: memory.total(name, host=host or not memory.gpu) for name in memory.moments if name != top}
    best = sorted(totals, key=lambda name: -totals[name])[:3]
    return ", ".join(f"{name} {_bytes(totals[name])}" for name in best)


def _lines(found: Plan) -> list[str]:
    """Return work, exchange, time and the index."""
    from megalabel.plan.numbers import show_count, show_seconds

    work, machine = found.work, found.machine
    shares = {"encoder": work.encoder, "products": work.loss, "refresh": work.refresh, "evaluation": work.evaluate}
    told = ", ".join(f"{name} {show_count(value)}" for name, value in shares.items() if value)
    lines = [f"{work.steps:,} steps an epoch, {work.epochs} epochs; operations of an epoch: {told}"]
    if work.sent:
        parts = ", ".join(f"{name} {_bytes(size)}" for name, size in work.sent.items())
        lines.append(f"each device sends {_bytes(sum(work.sent.values()))} in a step: {parts}")
    if found.seconds is None:
        lines.append("time: give --flops, what one device reaches")
    else:
        many = f"{machine.devices:,} x " if machine.devices > 1 else ""
        speed = f"{many}{show_count(machine.flops or 0)}FLOP/s"
        lines.append(
            f"time: {show_seconds(found.seconds)} an epoch, {show_seconds(found.seconds * work.epochs)} in all, "
            f"by arithmetic alone at {speed}{_between(machine)}"
        )
    index = found.index_bytes
    codes = f"with codes (ivf, pq) {_bytes(index['pq'])}, vectors on disk"
    lines.append(f"index when trained: exact {_bytes(index['exact'])}; {codes}")
    return lines


def _between(machine: Machine) -> str:
    return f" and {(machine.bandwidth or 0) / 1e9:g} GB/s between devices" if machine.devices > 1 else ""


def _published(found: Plan) -> Table:
    """Return published systems beside what their recipes take here."""
    table = _table("published", "GPU memory", "hours", "data, batch x labels of a step, source", "here, on one GPU")
    for line in found.published:
        size = "" if line.gigabytes is None else f"{line.gigabytes} GB"
        own = line.ours()
        pool = "" if line.pool is None else f" x {line.pool:,}"
        hardware = f", {line.hardware}" if line.hardware else ""
        where = f"{line.data}, {line.batch:,}{pool}{hardware}; {line.source}"
        table.add_row(
            line.system, size, "" if line.hours is None else f"{line.hours:g}", where,
            "" if own is None else f"{line.recipe} {_bytes(own)}",
        )  # fmt: skip
    return table
