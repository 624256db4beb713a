"""The requests and limits in docs/serve.md are right."""

import re
import shlex
from pathlib import Path

import megalabel as ml

PAGE = Path(__file__).parents[2] / "docs" / "serve.md"
CALLS = [line for line in PAGE.read_text().splitlines() if line.startswith("curl ")]


def test_every_request_works(run, serving):
    with serving(ml.Model.load(run)) as client:
        answers = {}
        for line in CALLS:
            arguments = shlex.split(line)[1:]
            options = dict(zip(arguments[:-1:2], arguments[1:-1:2], strict=True))
            body = options.get("-d")
            headers = dict([options["-H"].split(": ")]) if body else {}
            method = options.get("-X", "POST" if body else "GET")
            path = arguments[-1].removeprefix("localhost:8000")
            answer = client.request(method, path, content=body, headers=headers)
            assert answer.is_success, (line, answer.text)
            answers[method, path.partition("?")[0]] = answer
        assert answers["PATCH", "/labels/new"].json() == {"id": 60, "uid": "new", "text": "a better text"}
        assert len(answers) == 9


def test_limits_are_those_of_the_settings():
    from megalabel.serve.settings import Settings

    settings, guide = Settings(), re.sub(r"\s+", " ", PAGE.read_text())
    for statement in (
        f"| texts in a request | {settings.texts:,} |", f"| labels for a text | {settings.k:,} |",
        f"| characters of a text | {settings.text_characters:,} |", f"| {settings.body_bytes >> 20} MiB |",
        f"{settings.queue:,} | `--queue`", f"| {settings.requests:,}; {settings.held_bytes >> 20} MiB |",
        f"| {settings.timeout:g} | `--timeout`", f"| {settings.header_seconds:g}; {settings.header_bytes >> 10} KiB |",
        f"| {settings.added:,} | `--max-added`", f"at most {settings.share} texts to a call of {settings.batch}",
    ):  # fmt: skip
        assert statement in guide, statement
