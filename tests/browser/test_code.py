"""Copied code runs and returns what the page shows."""

import json
import shutil
import subprocess
import sys
from urllib.parse import urlencode

import pytest

TRICKY = [
    "plain words",
    """it's "quoted", $HOME `id` $(id) \\ back\\slash !! %41 {x} 'twice''""",
    "two\nlines\tand\r\na tab, ünïcode 漢字 🦉 \u2028 \x7f",
    "-d @/etc/passwd",
]


@pytest.fixture
def copied(open_page):
    """Press copy buttons in a given state; yield the clipboard after each."""

    def copied(server, *kinds, **state):
        page = open_page(server, urlencode(state), permissions=["clipboard-read", "clipboard-write"])
        page.locator("#list > li").first.wait_for()
        for kind in kinds:
            page.get_by_role("button", name=f"Copy as {kind}").click()
            page.locator("#copy-status", has_text=f"Copied as {kind}.").wait_for()
            code = page.evaluate("navigator.clipboard.readText()")
            assert page.locator("#code").text_content()[:9_000] == code[:9_000]
            yield code

    return copied


def run(*command, text):
    """Run a command that reads a script from standard input."""
    process = subprocess.run(command, input=text, capture_output=True, timeout=60, encoding="utf-8")
    assert process.returncode == 0, process.stderr
    return process.stdout


@pytest.mark.parametrize("words", TRICKY, ids=["plain", "shell", "unicode", "option"])
def test_copied_code_runs(server, copied, words):
    expected = server.best(words.replace("\r\n", "\n"), k=4, tail=0.5)  # as text fields normalise it
    python, curl = copied(server, "Python", "curl", text=words, k=4, tail=0.5)
    lines = run(sys.executable, "-", text=python).splitlines()
    assert lines == [f"{label['score']:.4f}  {label['uid']}  {label['text']}" for label in expected]
    if not shutil.which("curl"):
        pytest.skip("no curl")
    (answer,) = json.loads(run("sh", text=curl))["predictions"]
    assert [label["uid"] for label in answer] == [label["uid"] for label in expected]
    assert [label["score"] for label in answer] == pytest.approx([label["score"] for label in expected], abs=1e-5)


@pytest.mark.skipif(not shutil.which("curl"), reason="no curl")
def test_long_texts_are_not_command_line_arguments(server, copied):
    (command,) = copied(server, "curl", text="word " * 20_000, k=1)
    assert "<<'END'" in command
    assert '"predictions"' in run("sh", text=command)


def test_without_a_clipboard_the_code_is_selected(server, open_page, text):
    page = open_page(server, urlencode({"text": text}))
    page.locator("#list > li").first.wait_for()
    page.evaluate("() => { navigator.clipboard.writeText = () => Promise.reject(new Error('not secure')); }")
    page.get_by_role("button", name="Copy as Python").click()
    page.locator("#copy-status:not(:empty)").wait_for()
    assert page.evaluate("String(getSelection())").startswith("import json\n")
