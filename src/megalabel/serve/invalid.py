"""What is wrong with a request, told as a Problem."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from megalabel.errors import nearest
from megalabel.serve.bodies import Explain, Predict
from megalabel.serve.problem import Problem
from megalabel.serve.settings import Settings

__all__ = ["check_explain", "check_labels", "check_predict", "check_text", "check_uids", "from_validation"]

_UID_CHARACTERS = 1_000
_SHOWN = 60  # characters of a request that are repeated in a message


def from_validation(errors: Sequence[Mapping[str, Any]], fields: Sequence[str] = ()) -> Problem:
    """Return the first of the errors that FastAPI found; ``fields`` are those the body may have.

    >>> from_validation([{"type": "missing", "loc": ("body", "texts"), "msg": "Field required"}]).message
    'texts is missing'
    >>> from_validation([{"type": "string_type", "loc": ("body", "texts", 3), "msg": "…"}]).where
    'texts[3]'
    """
    first = next((one for one in errors if one["type"] == "extra_forbidden"), errors[0])
    kind, place = first["type"], tuple(first["loc"])
    where = _where(place[1:])
    if kind == "json_invalid":
        return Problem(400, f"the body is not JSON: {first.get('ctx', {}).get('error', '')}, at character {place[-1]}")
    if len(place) < 2:
        what = "the body is empty" if kind == "missing" else "the body is no JSON object"
        return Problem(422, f'{what}; send one such as {{"texts": ["some text"]}}')
    name = _shorten(str(place[-1]))
    if kind == "missing":
        return Problem(422, f"{where} is missing", where=where)
    if kind == "extra_forbidden":
        return Problem(422, f"{name!r} is unknown here; {nearest(name, fields)}", where=where)
    said = str(first.get("msg", "not valid"))
    return Problem(422, f"{where}: {said[:1].lower()}{said[1:]}", where=where)


def check_predict(body: Predict, settings: Settings, heads: Sequence[str], fused: bool) -> None:
    """Raise a Problem for a request that the model could not or should not answer."""
    _check_texts(body.texts, settings)
    _check_k(body.k, settings)
    if body.heads not in heads:
        name = _shorten(body.heads)
        raise Problem(422, f"this model has no head {name!r}; {nearest(name, heads)}", where="heads")
    if body.tail is not None and not fused:
        raise Problem(422, "tail is for fused models, this one adds scores; leave it out", where="tail")


def check_explain(body: Explain, settings: Settings) -> None:
    """Raise a Problem for a text or a k beyond the limits."""
    _check_length(body.text, "text", settings)
    _check_k(body.k, settings)


def check_text(text: str, settings: Settings) -> None:
    """Raise a Problem for the text of a label that is blank or too long."""
    _check_length(text, "text", settings)
    if not text.strip():
        raise Problem(422, "text is blank; a label has a text", where="text")


def check_uids(uids: Sequence[str], settings: Settings) -> None:
    """Raise a Problem for too many uids."""
    _check_texts(uids, settings, "uids")


def check_labels(texts: Sequence[str], uids: Sequence[str] | None, settings: Settings) -> None:
    """Raise a Problem for label texts or uids beyond the limits, or blank ones."""
    _check_texts(texts, settings)
    _blank(texts, "texts")
    if uids is None:
        return
    if len(uids) != len(texts):
        raise Problem(422, f"{len(uids):,} uids for {len(texts):,} labels; give one for each text", where="uids")
    _blank(uids, "uids")
    for place, uid in enumerate(uids):
        if len(uid) > _UID_CHARACTERS:
            raise Problem(422, f"a uid has at most {_UID_CHARACTERS:,} characters", where=f"uids[{place}]")


def _blank(values: Sequence[str], name: str) -> None:
    for place, value in enumerate(values):
        if not value.strip():
            raise Problem(422, f"{name}[{place}] is blank; a label has a text and a name", where=f"{name}[{place}]")


def _check_texts(texts: Sequence[str], settings: Settings, name: str = "texts") -> None:
    if len(texts) > settings.texts:
        raise Problem(
            422,
            f"{len(texts):,} {name} are more than the {settings.texts:,} of one request; "
            "send several requests, or start the server with --max-texts",
            where=name,
        )
    for place, text in enumerate(texts):
        _check_length(text, f"{name}[{place}]", settings)


def _check_length(text: str, where: str, settings: Settings) -> None:
    if len(text) > settings.text_characters:
        raise Problem(
            422,
            f"{where} has {len(text):,} characters, at most {settings.text_characters:,} are read; "
            "shorten it, or start the server with --max-characters",
            where=where,
        )


def _check_k(k: int, settings: Settings) -> None:
    if k > settings.k:
        few = f"k is {k if k < 10**9 else float(k):,}, at most {settings.k:,} labels are given"
        raise Problem(422, f"{few}; ask for fewer, or start the server with --max-k", where="k")


def _where(place: Sequence[Any]) -> str | None:
    """Return a path such as texts[3]."""
    parts = [f"[{one}]" if isinstance(one, int) else f".{_shorten(str(one))}" for one in place]
    return "".join(parts).lstrip(".") or None


def _shorten(words: str) -> str:
    return words if len(words) <= _SHOWN else f"{words[:_SHOWN]}…"
