"""Write build/sbom.cdx.json, a bill of materials of this environment; print licences and known vulnerabilities.

The bill is CycloneDX 1.5 JSON. Vulnerabilities come from pip-audit (``--pip-audit COMMAND``), if it is installed and
reaches its database of advisories; otherwise one line says so.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import sysconfig
from collections import Counter
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any

from packaging.utils import canonicalize_name

TARGET = Path("build") / "sbom.cdx.json"


def licence(package: Distribution) -> str:
    """Return the licence that a package declares: its expression, its classifiers, or the first line of its text."""
    about = package.metadata
    if about.get("License-Expression"):
        return str(about["License-Expression"])
    classifiers = [line for line in about.get_all("Classifier") or () if line.startswith("License ::")]
    names = [line.rpartition(" :: ")[2] for line in classifiers if not line.endswith("OSI Approved")]
    text = str(about.get("License") or "").strip().splitlines()
    return " AND ".join(names) or (text[0][:60] if text else "not declared")


def component(package: Distribution) -> dict[str, Any]:
    """Return the entry of a package."""
    name = canonicalize_name(package.metadata["Name"])
    url = f"pkg:pypi/{name}@{package.version}"
    about = {"type": "library", "bom-ref": url, "name": name, "version": package.version, "purl": url}
    return {**about, "licenses": [{"license": {"name": licence(package)}}]}


def vulnerabilities(command: str | None) -> str:
    """Return one line on what pip-audit knows of the packages installed here."""
    if command is None or not Path(command).is_file():
        return "pip-audit is not installed; vulnerabilities were not checked"
    place = sysconfig.get_path("purelib")
    options = ["--path", place, "--format", "json", "--progress-spinner", "off", "--timeout", "10"]
    try:
        done = subprocess.run([command, *options], capture_output=True, text=True, timeout=300)
        packages = json.loads(done.stdout)["dependencies"]
    except (OSError, ValueError, KeyError, subprocess.TimeoutExpired):
        return "pip-audit could not reach its database; vulnerabilities were not checked"
    audited = [package for package in packages if "skip_reason" not in package]
    bad = [f"{part['name']} {part['version']} ({v['id']})" for part in audited for v in part.get("vulns", ())]
    if not audited:
        return "pip-audit found none of the packages in its database; vulnerabilities were not checked"
    return f"{len(audited)} of {len(packages)} packages checked: {', '.join(bad) or 'no known vulnerability'}"


def main() -> None:
    """Write the bill and print the rest."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pip-audit", help="command of pip-audit")
    packages = {canonicalize_name(package.metadata["Name"]): package for package in distributions()}
    components = [component(packages[name]) for name in sorted(packages)]
    document = {"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1, "components": components}
    TARGET.parent.mkdir(exist_ok=True)
    TARGET.write_text(json.dumps(document, indent=1) + "\n")
    print(f"{TARGET}: {len(components)} packages")
    for name, count in Counter(licence(package) for package in packages.values()).most_common():
        print(f"  {count:4}  {name}")
    print(vulnerabilities(parser.parse_args(sys.argv[1:]).pip_audit))


if __name__ == "__main__":
    main()
