"""Which packages are worth fetching for the set of manual pages, and what is kept of one."""

import hashlib
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))
manpages = import_module("_fetch_manpages")
sys.path.remove(str(BENCHMARKS))

CONTENTS = """\
usr/share/man/man1/a.1.gz    utils/tools,admin/more-tools
usr/share/man/man1/b c.1.gz  utils/tools
usr/share/man/man8/d.8.gz    utils/tools
usr/share/man/fr/man1/a.1.gz utils/translated
usr/bin/a                    utils/tools
"""


def stanza(name, size):
    return f"Package: {name}\nVersion: 1:2\nSize: {size}\nSHA256: 0\nFilename: pool/{name}.deb\nDescription: x\n"


def test_packages_with_many_pages_for_their_size_are_chosen():
    counts = manpages.count_pages(CONTENTS)
    assert counts == {"tools": 3, "more-tools": 1}
    listed = "\n".join([stanza("tools", 300_000), stanza("more-tools", 10), stanza("unknown", 10)])
    assert [package["Package"] for package in manpages.choose(listed, counts)] == ["tools"]
    assert manpages.choose(stanza("tools", 300_001), counts) == []


@pytest.mark.skipif(shutil.which("dpkg-deb") is None, reason="no dpkg-deb")
def test_only_manual_pages_are_kept(tmp_path, monkeypatch):
    tree = tmp_path / "tree"
    for name in ("DEBIAN/control", "usr/share/man/man1/a.1.gz", "usr/share/man/fr/man1/a.1.gz", "usr/bin/a"):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text("Package: a\nVersion: 1\nArchitecture: all\nMaintainer: x <x@x.x>\nDescription: x\n")
    subprocess.run(["dpkg-deb", "--build", str(tree), str(tmp_path / "a.deb")], check=True, stdout=subprocess.DEVNULL)
    content = (tmp_path / "a.deb").read_bytes()
    monkeypatch.setattr(manpages, "download", lambda path: content)
    pages = tmp_path / "set" / "pages"
    pages.mkdir(parents=True)
    package = {"Package": "a", "Version": "1:2", "Filename": "a.deb", "SHA256": hashlib.sha256(content).hexdigest()}
    assert manpages.fetch(package, pages) == ""
    found = [path.relative_to(pages).as_posix() for path in pages.rglob("*") if path.is_file()]
    assert found == ["a_1%3a2/usr/share/man/man1/a.1.gz"]
    assert [path.name for path in pages.parent.iterdir()] == ["pages"]
    assert manpages.fetch({**package, "Version": "2", "SHA256": "0"}, pages) == "a_2: its checksum is wrong"
