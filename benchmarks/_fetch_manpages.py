"""Fetch the manual pages behind the set ``manpages``: Debian packages with many of them, without installing any.

Run: python benchmarks/_fetch_manpages.py FOLDER      1 GB to download, 0.5 GB on the disk, half an hour at most
     megalabel data build manpages:path=FOLDER/pages --out FOLDER/manpages
Chosen are the packages of a Debian release (main, amd64 and all) with at least three files below usr/share/man/man* and
at most 100 kB of package for each. Of every package only these files are kept, in FOLDER/pages/NAME_VERSION; the
package itself is deleted at once. Packages that are there already are skipped, so a run that was stopped goes on. Needs
dpkg-deb and tar.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import lzma
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from urllib.parse import quote
from urllib.request import urlopen

MIRROR = "https://deb.debian.org/debian"
LEAST_FILES = 3
MOST_BYTES = 100_000  # of package for each of its manual pages
MANUAL = "usr/share/man/man"
FIELDS = re.compile(r"^(Package|Version|Size|SHA256|Filename): *(.*)$", re.MULTILINE)


def count_pages(contents: str) -> Counter[str]:
    """Return how many manual pages each package has, from the text of a Contents file; translations do not count.

    >>> count_pages("usr/share/man/man1/ls.1.gz  utils/coreutils")
    Counter({'coreutils': 1})
    """
    counts: Counter[str] = Counter()
    for line in contents.splitlines():
        if line.startswith(MANUAL):
            _, _, owners = line.rpartition(" ")
            counts.update(owner.rpartition("/")[2] for owner in owners.split(","))
    return counts


def choose(packages: str, pages: Mapping[str, int]) -> list[dict[str, str]]:
    """Return the packages worth fetching, by name, from the text of a Packages file."""
    stanzas = [dict(FIELDS.findall(stanza)) for stanza in packages.split("\n\n")]
    known = {stanza["Package"]: stanza for stanza in stanzas if len(stanza) == 5}
    return [
        stanza
        for name, stanza in sorted(known.items())
        if pages.get(name, 0) >= LEAST_FILES and int(stanza["Size"]) <= MOST_BYTES * pages[name]
    ]


def download(path: str) -> bytes:
    """Return a file of the mirror."""
    with urlopen(f"{MIRROR}/{quote(path)}", timeout=60) as answer:
        content: bytes = answer.read()
    return content


def fetch(package: Mapping[str, str], pages: Path) -> str:
    """Extract the manual pages of one package, and say what went wrong; empty if nothing did."""
    folder = pages / f"{package['Package']}_{package['Version'].replace(':', '%3a')}"
    if folder.is_dir():
        return ""
    try:
        content = download(package["Filename"])
    except OSError as error:
        return f"{folder.name}: {error}"
    if hashlib.sha256(content).hexdigest() != package["SHA256"]:
        return f"{folder.name}: its checksum is wrong"
    with tempfile.TemporaryDirectory(dir=pages.parent) as place:
        deb, part = Path(place) / "package.deb", Path(place) / "part"
        deb.write_bytes(content)
        part.mkdir()
        files = subprocess.run(["dpkg-deb", "--fsys-tarfile", str(deb)], stdout=subprocess.PIPE, check=True).stdout
        keep = ["tar", "-x", "-C", str(part), "--no-same-owner", "--wildcards", f"./{MANUAL}*"]
        done = subprocess.run(keep, input=files, stderr=subprocess.PIPE, check=False)
        if done.returncode:
            return f"{folder.name}: {done.stderr.decode(errors='replace').splitlines()[0]}"
        part.rename(folder)
    return ""


def main() -> int:
    """Fetch what is not there yet."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--release", default="bookworm")
    options = parser.parse_args()
    pages = options.folder / "pages"
    pages.mkdir(parents=True, exist_ok=True)
    main_part = f"dists/{options.release}/main"
    counts: Counter[str] = Counter()
    for kind in ("all", "amd64"):
        counts += count_pages(gzip.decompress(download(f"{main_part}/Contents-{kind}.gz")).decode(errors="replace"))
    listed = lzma.decompress(download(f"{main_part}/binary-amd64/Packages.xz")).decode()
    chosen = choose(listed, counts)
    print(f"{len(chosen):,} packages, {sum(int(package['Size']) for package in chosen) / 1e9:.2f} GB", flush=True)
    failed = 0
    with ThreadPoolExecutor(4) as pool:
        for done, problem in enumerate(pool.map(partial(fetch, pages=pages), chosen), start=1):
            failed += bool(problem)
            if problem or done % 500 == 0:
                print(problem or f"{done:,} packages", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
