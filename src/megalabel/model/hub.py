"""Models on the Hugging Face hub: ``hf://owner/name`` where a model is read, and ``Model.push_to_hub``."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple

from megalabel._version import __version__
from megalabel.errors import DataError, MegalabelError, MissingExtraError, SettingError, WriteError
from megalabel.model.about import ABOUT, write_readme
from megalabel.progress import track

if TYPE_CHECKING:
    from megalabel.model.model import Model

__all__ = ["Name", "OnHub", "download", "hub_name"]

_NAME = re.compile(r"hf:/{1,2}(?P<repo>[^/@]+/[^/@]+)(@(?P<revision>[^@]+))?/?")  # a Path drops one of the slashes
_LIBRARY: dict[str, Any] = {"library_name": "megalabel", "library_version": __version__}


class Name(NamedTuple):
    """A repository on the hub, and a branch, tag or commit of it."""

    repo: str
    revision: str | None = None

    def __str__(self) -> str:
        return f"hf://{self.repo}" + (f"@{self.revision}" if self.revision else "")


def hub_name(folder: str | PathLike[str]) -> Name | None:
    """Return the repository that a name stands for; None for the name of a folder.

    >>> hub_name("hf://owner/name@v1"), hub_name("runs/first")
    (Name(repo='owner/name', revision='v1'), None)
    """
    text = os.fspath(folder)
    if not text.startswith("hf:"):
        return None
    match = _NAME.fullmatch(text)
    if match is None:
        raise SettingError(f"{text!r} is not the name of a model on the hub", remedy="hf://owner/name[@revision]")
    return Name(match["repo"], match["revision"])


def download(name: Name, **options: Any) -> Path:
    """Return the folder of a model in the cache of huggingface_hub; what is there already is not fetched again.

    Only the files that the card of the model names are fetched, all of one commit. They are as untrusted as any
    others: what loads them checks hashes, and no file is a pickle. ``options`` are those of ``hf_hub_download``:
    token, cache_dir, local_files_only, force_download.
    """
    from megalabel.model.store import read_card

    _need_extra()
    from huggingface_hub import hf_hub_download
    from huggingface_hub.errors import EntryNotFoundError, LocalEntryNotFoundError

    with _explained(name):
        try:
            first = hf_hub_download(name.repo, "model.json", revision=name.revision, **_LIBRARY, **options)
        except EntryNotFoundError as error:
            if isinstance(error, LocalEntryNotFoundError):
                raise
            raise DataError("this repository holds no model of megalabel", path=str(name)) from error
    folder = Path(first).parent
    files = list(read_card(folder / "model.json")["sha256"])
    with _explained(name):
        for file in track(files, f"fetching {name}", unit="files"):
            hf_hub_download(name.repo, file, revision=folder.name, **_LIBRARY, **options)
        for file in (ABOUT, "README.md"):
            try:
                hf_hub_download(name.repo, file, revision=folder.name, **_LIBRARY, **options)
            except EntryNotFoundError:
                continue
    return folder


def from_pretrained(
    cls: type[Model],
    /,
    repo_or_folder: str | PathLike[str],
    *,
    revision: str | None = None,
    token: str | bool | None = None,
    cache_dir: str | Path | None = None,
    local_files_only: bool = False,
    force_download: bool = False,
    **options: Any,
) -> Model:
    """Return a model from a folder, or from the hub by ``owner/name``.

    A name that is a folder here is read from there. A private model needs a token: that of ``hf auth login``, the
    environment variable HF_TOKEN, or ``token``. ``options`` are those of :meth:`Model.load`.
    """
    text = os.fspath(repo_or_folder)
    name = hub_name(text)
    if name is None and Path(text).exists():
        return cls.load(text, **options)
    name = name or hub_name(f"hf://{text}")
    assert name is not None
    fetch = {"cache_dir": cache_dir, "local_files_only": local_files_only, "force_download": force_download}
    return cls.load(download(Name(name.repo, revision or name.revision), token=token, **fetch), **options)


def save_pretrained(
    model: Model,
    save_directory: str | PathLike[str],
    *,
    repo_id: str | None = None,
    push_to_hub: bool = False,
    **options: Any,
) -> None:
    """Write the model as :meth:`Model.save` does, in place of what is there; ``push_to_hub`` also uploads it."""
    model.save(save_directory, overwrite=True)
    if push_to_hub:
        model.push_to_hub(repo_id or Path(save_directory).name, **options)


def push_to_hub(
    model: Model,
    repo_id: str,
    *,
    private: bool | None = None,
    texts: bool = False,
    revision: str | None = None,
    commit_message: str = "Upload a megalabel model",
    create_pr: bool = False,
    token: str | bool | None = None,
) -> str:
    """Upload the model in one commit, and return the address of the commit.

    Args:
        model: the model.
        repo_id: ``owner/name``; it is made if there is none.
        private: whether a new repository can be seen by its owners only.
        texts: upload the training texts too, which ``explain`` shows.
        revision: the branch.
        commit_message: the first line of the commit.
        create_pr: propose the change instead of making it.
        token: by default that of ``hf auth login``, or of the environment variable HF_TOKEN.
    """
    _need_extra()
    from huggingface_hub import HfApi

    name = Name(repo_id.removeprefix("hf://"), revision)
    if hub_name(str(name)) != name:
        raise SettingError(f"{repo_id!r} is not the name of a repository", remedy="give owner/name")
    with TemporaryDirectory() as folder:
        place = Path(folder) / "model"
        model.save(place, texts=texts)
        write_readme(place, model, f"hf://{name.repo}", texts=texts)
        with _explained(name, error=WriteError):
            api = HfApi(token=token, **_LIBRARY)
            api.create_repo(name.repo, private=private, exist_ok=True)
            done = api.upload_folder(
                repo_id=name.repo, folder_path=place, revision=revision, create_pr=create_pr,
                commit_message=commit_message,
                delete_patterns=["encoders/**", "fitted/**", "spaces/**", "index/**", "train/**"],  # of another model
            )  # fmt: skip
    return str(done.pr_url or done.commit_url)


class OnHub:
    """The methods of a model that huggingface_hub gives to its own: the same names and arguments."""

    push_to_hub, save_pretrained = push_to_hub, save_pretrained
    from_pretrained = classmethod(from_pretrained)


def _need_extra() -> None:
    if find_spec("huggingface_hub") is None:
        raise MissingExtraError("huggingface_hub", extra="hub", what="the Hugging Face hub")


@contextmanager
def _explained(name: Name, error: type[MegalabelError] = DataError) -> Iterator[None]:
    """Turn what huggingface_hub and its HTTP library raise into one line, which never shows a token."""
    from huggingface_hub import errors

    login = "log in (hf auth login) or set HF_TOKEN"
    try:
        yield
        return
    except MegalabelError:
        raise
    except Exception as problem:  # of the hub, or of the HTTP library, whichever it is
        cause = problem
    chain: list[Any] = [cause]
    while (inner := chain[-1].__cause__ or chain[-1].__context__) is not None:
        chain.append(inner)
    status = next((each.response.status_code for each in chain if type(each) is errors.HfHubHTTPError), None)
    kinds: list[tuple[type[Exception], str, str]] = [
        (errors.GatedRepoError, "access to this model is on request", f"ask for it on its page, then {login}"),
        (errors.RepositoryNotFoundError, "there is no such model, or you may not see it",
         f"check the name; if it is private, {login}"),
        (errors.RevisionNotFoundError, "there is no such revision", "give a branch, a tag or a commit"),
        (errors.HFValidationError, "this is not a name on the hub", "give owner/name"),
        (errors.OfflineModeIsEnabled, "HF_HUB_OFFLINE forbids to ask the hub", "unset it"),
        (errors.LocalEntryNotFoundError, "the hub cannot be reached, and the cache does not hold this model",
         "check the connection, and that HF_HUB_OFFLINE is not set"),
        (errors.EntryNotFoundError, "a file of the model is missing there", "upload it again"),
    ]  # fmt: skip
    answers = {
        401: ("the hub does not accept the token", login),
        403: ("your token may not do this", "use one with the right to write"),
    }
    what, remedy = f"the transfer failed ({type(cause).__name__})", "check the connection, then try again"
    if status is not None:
        what, remedy = answers.get(status, (f"the hub answered with status {status}", "try again later"))
    else:
        what, remedy = next(((one, other) for kind, one, other in kinds if isinstance(cause, kind)), (what, remedy))
    raise error(what, path=str(name), remedy=remedy) from cause
