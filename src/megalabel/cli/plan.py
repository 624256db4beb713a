"""``megalabel plan``: estimate memory and time of a training run before it starts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from megalabel.cli._options import FormatOption, JsonOption, OwnDeviceOption, print_json, say, table_command
from megalabel.wording import counted

if TYPE_CHECKING:
    from rich.table import Table

    from megalabel.data.formats import Options
    from megalabel.plan import Plan
    from megalabel.plan.machine import Machine

__all__ = ["plan"]

_WIDTH = 120  # of tables, if standard output is not a terminal


@table_command
def plan(
    recipe: Annotated[str, typer.Argument(metavar="RECIPE", help="A name from `megalabel recipes`, or a YAML file.")],
    points: Annotated[str | None, typer.Option(metavar="N", help="Number of training points: 2248619 or 2.2M.")] = None,
    labels: Annotated[str | None, typer.Option(metavar="L", help="Number of labels: 1305265 or 1.3M.")] = None,
    data: Annotated[
        str | None, typer.Option("--data", "-d", metavar="D", help="Take the sizes from this data set instead.")
    ] = None,
    labels_per_point: Annotated[
        str | None, typer.Option(metavar="X", help="Mean labels per point; 5 by default.")
    ] = None,
    query_tokens: Annotated[str | None, typer.Option(metavar="X", help="Mean tokens per text; 12 by default.")] = None,
    label_tokens: Annotated[
        str | None, typer.Option(metavar="X", help="Mean tokens per label text; 12 by default.")
    ] = None,
    dim: Annotated[
        str | None, typer.Option(metavar="D", help="Dimension of label vectors; overrides the recipe.")
    ] = None,
    batch: Annotated[
        str | None, typer.Option(metavar="B", help="Texts per step, over all devices; overrides the recipe.")
    ] = None,
    devices: Annotated[str, typer.Option(metavar="W", help="Number of devices that share labels and batch.")] = "1",
    memory: Annotated[
        str | None,
        typer.Option(
            "--memory-per-device",
            metavar="GB",
            help="Memory per device: 32, 32GB or 24GiB; that of this machine by default.",
        ),
    ] = None,
    host_memory: Annotated[
        str | None,
        typer.Option("--host-memory", metavar="GB", help="Main memory for all processes, beside GPU memory."),
    ] = None,
    device: OwnDeviceOption = None,
    flops: Annotated[
        str | None, typer.Option(metavar="F", help="FLOP/s of one device: 14T; measured on this machine by default.")
    ] = None,
    bandwidth: Annotated[
        str | None, typer.Option(metavar="GB/s", help="Bandwidth of one device: 12GB/s; 10GB/s by default.")
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Override a setting of the recipe: training.epochs=3"),
    ] = None,
    data_format: FormatOption = None,
    as_json: JsonOption = False,
    *,
    table: Options,
) -> None:
    """Estimate memory and time of a training run before it starts.

    Shows memory by part, operations, bytes sent between devices and time, and suggests
    changes if the run does not fit.

    Example: megalabel plan dexml --points 2.2M --labels 1.3M --device cuda --memory-per-device 40
    """
    from megalabel.data.load import load
    from megalabel.plan import plan as make_plan
    from megalabel.plan.machine import has_gpu, measured_flops
    from megalabel.plan.numbers import read_amount, read_bytes, read_speed
    from megalabel.recipes.load_recipe import load_recipe

    def amount(text: str | None, name: str, minimum: float = 1.0) -> float | None:
        return None if text is None else read_amount(text, name, minimum=minimum)

    def whole(text: str | None, name: str) -> int | None:
        return None if text is None else round(read_amount(text, name))

    def size(text: str | None, name: str) -> float | None:
        return None if text is None else read_bytes(text, name)

    speed = amount(flops, "--flops")
    this_machine = memory is None and (device == "cpu" or (device in (None, "auto") and not has_gpu()))
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
    loaded = load_recipe(recipe, changes or ())  # an unknown name is an error before the data is read
    dataset = None if data is None else load(data, format=data_format, options=table, say=say)
    if speed is None and this_machine:
        speed = measured_flops()
    result = make_plan(loaded, data=dataset, flops=speed, **settings)
    if as_json:
        print_json(result.document())
    else:
        _show(result)


def _show(plan: Plan) -> None:
    """Print the plan as tables and lines."""
    import sys

    from rich.console import Console

    console = Console(width=None if sys.stdout.isatty() else _WIDTH, highlight=False, markup=False)
    sizes, machine = plan.sizes, plan.machine
    many = f"{machine.devices:,} x " if machine.devices > 1 else ""
    product = f"{counted(sizes.points, 'point')} x {counted(sizes.labels, 'label')}"
    scored = f"{counted(plan.workload.width, 'label')} scored per text"
    console.print(
        f"{plan.recipe}{f', stage {plan.stage}' if plan.stage else ''}: {product}, batch {plan.workload.batch:,}, "
        f"{scored}, {many}{machine.kind}"
    )
    console.print(_parts(plan))
    for line in _lines(plan):
        console.print(line, soft_wrap=True)
    console.print(_published(plan))
    console.print(f"{plan.verdict}", soft_wrap=True)
    for change in plan.changes[1:]:
        console.print(f"  or {change.options}: {_bytes(change.device_bytes)}", soft_wrap=True)


def _bytes(amount: float) -> str:
    from megalabel.plan.numbers import show_bytes

    return show_bytes(amount)


def _table(*columns: str) -> Table:
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE, pad_edge=False, show_edge=False, header_style="bold")
    for column, name in enumerate(columns):
        table.add_column(name, justify="right" if column == 1 else "left", no_wrap=column < 3)
    return table


def _parts(plan: Plan) -> Table:
    """Return memory by part, at its peak."""
    machine, memory = plan.machine, plan.memory
    table = _table("memory", f"on one {machine.kind}", "when", "details")
    sides = [(False, "")] if not machine.gpu else [(False, ""), (True, "main memory of one process")]
    for host, title in sides:
        moment, total = memory.peak(host=host)
        if title:
            table.add_section()
            table.add_row(title, "", "", "")
        for when, part in plan.parts:
            if not machine.gpu or part.host == host:
                table.add_row(part.name, _bytes(part.bytes), when, part.how)
        kept = memory.kept(moment) if host or not machine.gpu else 0.0
        if kept >= 1e6:
            table.add_row(
                "kept by the C library",
                _bytes(kept),
                moment,
                "small blocks of other moments, not returned to the system",
            )
        table.add_row("peak", _bytes(total), moment, _others(plan, host), style="bold")
        if host and machine.devices > 1:
            table.add_row("all processes", _bytes(machine.devices * total), moment, f"{machine.devices:,} of them")
    return table


def _others(plan: Plan, host: bool) -> str:
    """Name the other moments with their memory."""
    memory = plan.memory
    top = memory.peak(host=host)[0]
    totals = {name: memory.total(name, host=host or not memory.gpu) for name in memory.moments if name != top}
    best = sorted(totals, key=lambda name: -totals[name])[:3]
    return ", ".join(f"{name} {_bytes(totals[name])}" for name in best)


def _lines(plan: Plan) -> list[str]:
    """Return work, communication, time and the size of the index."""
    from megalabel.plan.numbers import show_count, show_seconds

    work, machine = plan.work, plan.machine
    shares = {"encoder": work.encoder, "products": work.loss, "refresh": work.refresh, "evaluation": work.evaluate}
    operations = ", ".join(f"{name} {show_count(value)}" for name, value in shares.items() if value)
    lines = [
        f"{counted(work.steps, 'step')} per epoch, {counted(work.epochs, 'epoch')}; operations per epoch: {operations}"
    ]
    if work.sent:
        parts = ", ".join(f"{name} {_bytes(size)}" for name, size in work.sent.items())
        lines.append(f"each device sends {_bytes(sum(work.sent.values()))} per step: {parts}")
    if plan.seconds is None:
        lines.append("time: unknown; give --flops, the FLOP/s of one device")
    else:
        many = f"{machine.devices:,} x " if machine.devices > 1 else ""
        speed = f"{many}{show_count(machine.flops or 0)}FLOP/s"
        lines.append(
            f"time: {show_seconds(plan.seconds)} per epoch, {show_seconds(plan.seconds * work.epochs)} in total, "
            f"for arithmetic alone at {speed}{_between(machine)}"
        )
    index = plan.index_bytes
    codes = f"with codes (ivf, pq) {_bytes(index['pq'])}, vectors on disk"
    lines.append(f"index after training: exact {_bytes(index['exact'])}; {codes}")
    return lines


def _between(machine: Machine) -> str:
    return f" and {(machine.bandwidth or 0) / 1e9:g} GB/s between devices" if machine.devices > 1 else ""


def _published(plan: Plan) -> Table:
    """Return published systems and the estimates for their recipes here."""
    table = _table(
        "published", "GPU memory", "hours", "data, batch x labels per step, source", "estimated here, one GPU"
    )
    for line in plan.published:
        size = "" if line.gigabytes is None else f"{line.gigabytes} GB"
        ours = line.ours()
        pool = "" if line.pool is None else f" x {line.pool:,}"
        hardware = f", {line.hardware}" if line.hardware else ""
        setting = f"{line.data}, {line.batch:,}{pool}{hardware}; {line.source}"
        table.add_row(
            line.system, size, "" if line.hours is None else f"{line.hours:g}", setting,
            "" if ours is None else f"{line.recipe} {_bytes(ours)}",
        )  # fmt: skip
    return table
