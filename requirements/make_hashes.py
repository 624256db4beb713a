"""Write requirements/demo.txt: what the demo and the server need, each with its version and the hash of its file.

Versions are those installed here. The hashes are those of the wheels that pip picks on this machine (Linux x86_64,
Python 3.11). torch itself is left out: its file depends on the device, so it is installed first.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

TARGET = Path(__file__).parent / "demo.txt"
EXTRAS = ("demo", "serve")
APART = "torch"
HEAD = """\
# Written by `make hashes` for Linux x86_64 and Python 3.11. Install torch first, then:
#   pip install --require-hashes -r requirements/demo.txt
#   pip install --no-deps .
"""


def needed(name: str, extras: tuple[str, ...], names: set[tuple[str, str]]) -> None:
    """Collect (package, extra) of everything a package needs."""
    for extra in ("", *extras):
        if (name, extra) in names:
            continue
        names.add((name, extra))
        for line in distribution(name).requires or ():
            requirement = Requirement(line)
            other = canonicalize_name(requirement.name)
            wanted = requirement.marker is None or requirement.marker.evaluate({"extra": extra})
            if wanted:
                needed(other, tuple(sorted(requirement.extras)), names)


def hashes(pins: list[str]) -> dict[str, str]:
    """Return the SHA-256 of the file that pip picks for each ``name==version``; nothing is installed."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed", "--no-deps"]
        subprocess.run([*command, "--only-binary", ":all:", "--report", str(report), *pins], check=True)
        items = json.loads(report.read_bytes())["install"]
    return {
        canonicalize_name(item["metadata"]["name"]): item["download_info"]["archive_info"]["hashes"]["sha256"]
        for item in items
    }


def main() -> None:
    """Resolve, look the hashes up, write the file."""
    found: set[tuple[str, str]] = set()
    needed("megalabel", EXTRAS, found)
    names = sorted({name for name, _ in found} - {"megalabel", APART})
    versions = {name: re.sub(r"\+.*", "", distribution(name).version) for name in names}
    digests = hashes([f"{name}=={version}" for name, version in versions.items()])
    lines = [f"{name}=={versions[name]} --hash=sha256:{digests[name]}\n" for name in names]
    TARGET.write_text(HEAD + "".join(lines))
    print(f"{TARGET}: {len(lines)} packages")


if __name__ == "__main__":
    main()
