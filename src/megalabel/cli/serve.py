"""``megalabel serve``: a model as an HTTP server."""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from megalabel.cli._options import DeviceOption, TailOption, say

__all__ = ["serve"]


def serve(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder or a saved model.")],
    host: Annotated[
        str, typer.Option(help="The address to listen on; 0.0.0.0 is every address of this machine.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port; 0 takes any free one and says which.")] = 8000,
    save: Annotated[
        bool, typer.Option("--save", help="Write labels changed by requests to RUN, soon after and at the end.")
    ] = False,
    read_only: Annotated[bool, typer.Option("--read-only", help="Refuse to change labels.")] = False,
    api_key_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Ask for the key in this file; else for that of MEGALABEL_API_KEY, if set."),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="Answer to this name too, as a proxy may use; * is any. Several times."),
    ] = None,
    max_texts: Annotated[int, typer.Option(min=1, help="Texts in one request.")] = 1_000,
    max_k: Annotated[int, typer.Option(min=1, help="Labels for one text.")] = 1_000,
    max_characters: Annotated[int, typer.Option(min=1, help="Characters of one text.")] = 100_000,
    max_body: Annotated[int, typer.Option(min=1, metavar="MIB", help="Mebibytes of one request.")] = 16,
    max_added: Annotated[int, typer.Option(min=1, help="Labels added since the start.")] = 100_000,
    queue: Annotated[int, typer.Option(min=1, help="Texts that may wait; further requests get 429.")] = 4_096,
    batch: Annotated[int, typer.Option(min=1, help="Texts in one call of the model.")] = 256,
    timeout: Annotated[
        float, typer.Option(min=0.01, metavar="SECONDS", help="Time to read a request, and to answer it.")
    ] = 30.0,
    log_requests: Annotated[bool, typer.Option("--log-requests", help="A line on standard error for each.")] = False,
    unbatched: Annotated[bool, typer.Option("--unbatched", hidden=True, help="One request in each call.")] = False,
    tail: TailOption = None,
    exact: Annotated[
        bool, typer.Option("--exact", help="Search exactly, though an index is saved with the model.")
    ] = False,
    device: DeviceOption = "auto",
) -> None:
    """Serve a model: predictions, live labels, explanations, and a page to try them.

    Ctrl-C stops it: requests under way are finished first. Labels changed by requests live in memory unless --save.

    Example: megalabel serve runs/first

    Example: curl -H 'Content-Type: application/json' -d '{"texts": ["inverse of a matrix"]}' localhost:8000/predict
    """
    _need_extra()
    from megalabel.serve.server import bind, is_loopback, run_server
    from megalabel.serve.settings import LOOPBACK, Settings

    settings = Settings(
        texts=max_texts, k=max_k, text_characters=max_characters, body_bytes=max_body << 20,
        held_bytes=max(512, 4 * max_body) << 20, added=max_added, queue=queue, batch=batch, batched=not unbatched,
        timeout=timeout, read_only=read_only, save=run if save else None, api_key=_api_key(api_key_file),
        hosts=(*LOOPBACK, host, *(allow_host or ())), any_address=host in ("0.0.0.0", "::"), log_requests=log_requests,
    )  # fmt: skip
    place = bind(host, port)

    from megalabel.model import Model
    from megalabel.model.changing import changing
    from megalabel.model.store import find_model

    with ExitStack() as held:
        if save:
            folder = find_model(run)
            settings = replace(settings, save=folder)
            held.enter_context(changing(folder, say))
        model = Model.load(run, tail=tail, device=device, exact=exact)
        if settings.api_key is None and not is_loopback(host):
            who = f"anyone who can reach {host}"
            say(f"{who} can use this server and change its labels; see --api-key-file, --read-only")
        os.environ["MEGALABEL_PROGRESS"] = "0"  # no bar for every request
        _log_to_stderr(log_requests)

        def ready(address: str) -> None:
            typer.echo(f"serving {run} ({model.state.alive:,} labels): {address} (API: {address}docs); Ctrl-C stops it")

        run_server(model, settings, place, ready)


def _need_extra() -> None:
    from importlib.util import find_spec

    from megalabel.errors import MissingExtraError

    for package in ("fastapi", "uvicorn", "httptools", "prometheus_client"):
        if find_spec(package) is None:
            raise MissingExtraError(package, extra="serve", what="the server")


def _api_key(path: Path | None) -> str | None:
    from megalabel.errors import DataError, SettingError

    if path is None:
        key = os.environ.get("MEGALABEL_API_KEY", "").strip()
        return key or None
    try:
        key = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError("this file with the API key cannot be read", path=path) from error
    if not key or key.split() != [key]:
        raise SettingError("this file should hold one API key without spaces", path=path)
    return key


def _log_to_stderr(requests: bool) -> None:
    import logging

    logging.basicConfig(format="%(asctime)s %(message)s")
    logging.getLogger("megalabel.serve").setLevel(logging.INFO if requests else logging.WARNING)
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
