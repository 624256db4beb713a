"""``megalabel serve``: serve a model over HTTP."""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from megalabel.cli._options import DeviceOption, TailOption, say
from megalabel.wording import counted

__all__ = ["serve"]


def serve(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="A run folder or a saved model.")],
    host: Annotated[
        str, typer.Option(help="Address to listen on; 0.0.0.0 means all addresses of this machine.")
    ] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port to listen on; 0 picks a free one and prints it.")
    ] = 8000,
    save: Annotated[
        bool, typer.Option("--save", help="Save label changes made by requests to RUN, each before it is answered.")
    ] = False,
    read_only: Annotated[bool, typer.Option("--read-only", help="Refuse requests that change labels.")] = False,
    api_key_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Require the API key in this file; by default that of MEGALABEL_API_KEY, if set."
        ),
    ] = None,
    allow_host: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME", help="Also accept this host name, as behind a proxy; * accepts any. Repeat for several."
        ),
    ] = None,
    max_texts: Annotated[int, typer.Option(min=1, help="Maximum texts per request.")] = 1_000,
    max_k: Annotated[int, typer.Option(min=1, help="Maximum labels per text.")] = 1_000,
    max_characters: Annotated[int, typer.Option(min=1, help="Maximum characters per text.")] = 100_000,
    max_body: Annotated[int, typer.Option(min=1, metavar="MIB", help="Maximum size of a request, in MiB.")] = 16,
    max_added: Annotated[int, typer.Option(min=1, help="Maximum labels added since the start.")] = 100_000,
    queue: Annotated[int, typer.Option(min=1, help="Maximum texts waiting; further requests get status 429.")] = 4_096,
    batch: Annotated[int, typer.Option(min=1, help="Maximum texts per call of the model.")] = 256,
    timeout: Annotated[
        float, typer.Option(min=0.01, metavar="SECONDS", help="Time limit to read a request, and to answer it.")
    ] = 30.0,
    annif: Annotated[
        bool, typer.Option("--annif", help="Also offer Annif's REST API, with the model as a project.")
    ] = False,
    language: Annotated[
        str | None, typer.Option(metavar="CODE", help="With --annif: the language of the labels; en by default.")
    ] = None,
    log_requests: Annotated[bool, typer.Option("--log-requests", help="Log each request on standard error.")] = False,
    unbatched: Annotated[
        bool, typer.Option("--unbatched", hidden=True, help="One request per call of the model.")
    ] = False,
    tail: TailOption = None,
    exact: Annotated[
        bool, typer.Option("--exact", help="Ignore the index saved with the model and search exactly.")
    ] = False,
    device: DeviceOption = "auto",
) -> None:
    """Serve a model over HTTP, with a web page to try it.

    The API predicts, explains, and changes labels. Label changes stay in memory unless --save
    is given. If the labels are in an engine (megalabel index --kind pgvector), changes are made
    there. Ctrl-C finishes the current requests and stops.

    Example: megalabel serve runs/first

    Example: megalabel serve runs/first --annif

    Example: curl -H 'Content-Type: application/json' -d '{"texts": ["inverse of a matrix"]}' localhost:8000/predict
    """
    from megalabel.errors import SettingError

    _need_extra()
    if language is not None and not annif:
        raise SettingError("--language has no effect without --annif", remedy="add --annif, or leave it out")
    from megalabel.serve.server import bind, is_loopback, run_server
    from megalabel.serve.settings import LOOPBACK, Settings, project_id

    settings = Settings(
        texts=max_texts, k=max_k, text_characters=max_characters, body_bytes=max_body << 20,
        held_bytes=max(512, 4 * max_body) << 20, added=max_added, queue=queue, batch=batch, batched=not unbatched,
        timeout=timeout, read_only=read_only, save=run if save else None, api_key=_api_key(api_key_file),
        hosts=(*LOOPBACK, host, *(allow_host or ())), any_address=host in ("0.0.0.0", "::"), log_requests=log_requests,
        annif=project_id(run.resolve().name) if annif else None, language=language or "en",
    )  # fmt: skip
    socket = bind(host, port)

    from megalabel.model import Model
    from megalabel.model.changing import changing
    from megalabel.model.store import find_model

    with ExitStack() as locks:
        if save:
            folder = find_model(run, change=True)
            settings = replace(settings, save=folder)
            locks.enter_context(changing(folder, say))
        model = Model.load(run, tail=tail, device=device, exact=exact)
        if save and model.live.shared is not None:
            what = (
                f"the labels of this model are in the table {model.live.shared.table.place}, and so are their changes"
            )
            raise SettingError(what, remedy="leave out --save")
        if settings.api_key is None and not is_loopback(host):
            warning = f"anyone who can reach {host} can use this server and change its labels"
            say(f"{warning}; see --api-key-file, --read-only")
        os.environ["MEGALABEL_PROGRESS"] = "0"  # no progress bar for each request
        _log_to_stderr(log_requests)

        def ready(address: str) -> None:
            if settings.annif is not None:
                say(f"Annif's http backend: endpoint={address}v1/projects/{settings.annif}/suggest")
                if settings.api_key is not None:
                    say("this server wants an API key, which Annif's http backend cannot send; see docs/annif.md")
            labels = counted(model.state.alive, "label")
            typer.echo(f"serving {run} ({labels}): {address} (API: {address}docs); Ctrl-C stops it")

        run_server(model, settings, socket, ready)


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
        raise DataError("cannot read the API key file", path=path) from error
    if not key or key.split() != [key]:
        raise SettingError("expected one API key without spaces in this file", path=path)
    return key


def _log_to_stderr(requests: bool) -> None:
    import logging

    logging.basicConfig(format="%(asctime)s %(message)s")
    logging.getLogger("megalabel.serve").setLevel(logging.INFO if requests else logging.WARNING)
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
