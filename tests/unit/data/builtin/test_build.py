import os
import subprocess
import sys
from pathlib import Path

import pytest

from megalabel.data import load
from megalabel.data.builtin import BUILTIN, build, get_builder, unknown_name
from megalabel.data.builtin.settings import Setting
from megalabel.errors import DataError, MegalabelError, SettingError


def test_every_set_is_a_module_with_settings():
    for name in BUILTIN:
        builder = get_builder(name)
        assert builder.SETTINGS
        assert all(isinstance(setting, Setting) and setting.about for setting in builder.SETTINGS.values())


def test_load_knows_the_names(tmp_path, monkeypatch):
    assert len(load("synthetic:points=10,labels=6").labels) == 6
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match="'sinthetic' is neither a built-in set nor a path that exists; did you mean"):
        load("sinthetic")
    with pytest.raises(SettingError, match="synthetic has no setting 'size'"):
        load("synthetic:size=3")


def test_unknown_name_offers_the_nearest():
    assert str(unknown_name("wordnets:path=x")).endswith("did you mean 'wordnet'?")
    assert str(unknown_name("qqq")).endswith("choose one of: pydocs, manpages, wordnet, debian, hpo, genes, synthetic")
    assert str(unknown_name("set.csv")) == "set.csv: no such file or folder"
    assert isinstance(unknown_name("qqq"), MegalabelError)
    with pytest.raises(DataError):
        build("qqq")


def test_say_receives_messages(wordnet_folder, cache):
    said = []
    build(f"wordnet:path={wordnet_folder}", say=said.append)
    build(f"wordnet:path={wordnet_folder}", say=said.append)
    assert said[0].startswith("wordnet: 73 synsets")
    assert "read from the cache" in said[1]


SCRIPT = """
import sys
sys.path.insert(0, sys.argv[1])
from conftest import fingerprint_of
from megalabel.data.builtin import build
for spec in sys.argv[2:]:
    print(fingerprint_of(build(spec)))
print("torch" in sys.modules)
"""


def test_same_set_in_every_process(
    wordnet_folder,
    packages_file,
    hpo_folder,
    genes_folder,
    manual_folder,
    numpydoc_package,
    tmp_path,
    fingerprint,
    monkeypatch,
):
    monkeypatch.syspath_prepend(str(numpydoc_package))
    specs = [
        f"wordnet:path={wordnet_folder},seed=4",
        f"debian:path={packages_file}",
        f"hpo:path={hpo_folder},seed=2",
        f"genes:path={genes_folder}",
        f"manpages:path={manual_folder}",
        "pydocs:packages=tinydoc",
        "synthetic:points=200,labels=30,seed=2",
        "synthetic:points=200,labels=30,kind=random-pairs",
    ]
    seen = set()
    for seed in ("1", "77"):
        surroundings = os.environ | {
            "PYTHONHASHSEED": seed,
            "MEGALABEL_CACHE": str(tmp_path / seed),
            "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        }
        command = [sys.executable, "-c", SCRIPT, str(Path(__file__).parent), *specs]
        done = subprocess.run(command, env=surroundings, capture_output=True, text=True, check=True)
        seen.add(done.stdout)
    assert len(seen) == 1
    assert seen.pop().splitlines() == [fingerprint(build(spec)) for spec in specs] + ["False"]
