import sys
import time

import numpy as np
import pytest

from megalabel.data.builtin import build, pydocs
from megalabel.data.builtin._walk import walk
from megalabel.data.items import match_items, reverse_share
from megalabel.errors import DataError, MissingExtraError, SettingError


@pytest.fixture(scope="module")
def real(tmp_path_factory):
    """Numpy and scipy, read once: (set, what was said, cache folder)."""
    said = []
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("cache")
        patch.setenv("MEGALABEL_CACHE", str(folder))
        return build("pydocs:packages=numpy+scipy", say=said.append), said, folder


def labels_of(data, uid):
    split = next(split for split in data.splits.values() if uid in split.uids)
    return {data.labels.uids[i] for i in split.targets[split.uids.index(uid)].indices}


def test_size(real):
    data, said, _ = real
    assert len(data.train) + len(data.test) > 1_000
    assert len(data.labels) > 1_000
    assert 0.1 < len(data.test) / (len(data.train) + len(data.test)) < 0.2
    assert "See Also pairs from numpy, scipy" in said[0]


def test_texts_read_well(real):
    data, _, _ = real
    texts = dict(zip(data.labels.uids, data.labels.texts, strict=True))
    assert texts["numpy.argsort"] == "numpy argsort: Returns the indices that would sort an array."
    assert texts["scipy.linalg.inv"] == "scipy inv: Compute the inverse of a matrix."
    assert texts["numpy.ma.allclose"].startswith("numpy ma.allclose: ")  # not to look like numpy.allclose
    assert texts["numpy.cos"] == "numpy cos: Cosine element-wise."  # a ufunc, below its signature
    assert texts["numpy.ndarray.sort"].startswith("numpy ndarray.sort: ")
    assert len(set(data.labels.texts)) == len(data.labels)
    assert all(text.isprintable() and len(text) < 400 for text in data.labels.texts)


def test_names_are_public_and_the_shortest(real):
    data, _, _ = real
    uids = {*data.labels.uids, *data.train.uids, *data.test.uids}
    assert {"numpy.linalg.norm", "numpy.sort", "scipy.stats.norm"} <= uids
    assert not any(part.startswith("_") for uid in uids for part in uid.split("."))
    assert not any(
        uid.startswith(("numpy.core.", "numpy.ma.core.")) and uid.replace(".core", "") in uids for uid in uids
    )


def test_truth(real):
    data, _, _ = real
    points = {*data.train.uids, *data.test.uids}
    assert "numpy.sort" in points
    assert labels_of(data, "numpy.sort") <= {
        "numpy.ndarray.sort",
        "numpy.argsort",
        "numpy.lexsort",
        "numpy.searchsorted",
        "numpy.partition",
    }
    assert all(uid not in labels_of(data, uid) for uid in data.test.uids)


def test_split_rule(real):
    data, _, _ = real
    assert reverse_share(data, data.test) == 0
    assert reverse_share(data, data.train) > 0.3
    assert data.counts.min() >= 1
    assert not set(data.train.uids) & set(data.test.uids)
    for split in data.splits.values():
        items = match_items(split, data.labels)
        assert {(row, items[row]) for row in np.flatnonzero(items >= 0)} <= set(map(tuple, split.filter.tolist()))
        assert np.diff(split.targets.indptr).min() >= 1


def test_second_time_comes_from_the_cache(real, monkeypatch, fingerprint):
    data, _, folder = real
    monkeypatch.setenv("MEGALABEL_CACHE", str(folder))
    monkeypatch.setattr(pydocs, "_walk", lambda package, step: pytest.fail("walked again"))
    start = time.process_time()
    again = build("pydocs:packages=scipy+numpy")
    assert time.process_time() - start < 1
    assert fingerprint(again) == fingerprint(data)
    with pytest.raises(BaseException, match="walked again"):
        build("pydocs:packages=scipy+numpy,seed=1")


def test_packages_are_imported_in_another_process(numpydoc_package, cache, monkeypatch, capfd):
    monkeypatch.syspath_prepend(str(numpydoc_package))
    build("pydocs:packages=tinydoc")
    assert "tinydoc" not in sys.modules
    assert capfd.readouterr() == ("", "")
    assert not list(cache.rglob("*"))  # a package without a version is read anew


@pytest.mark.filterwarnings("ignore:noise")
def test_modules_that_misbehave(numpydoc_package, monkeypatch, capfd):
    monkeypatch.syspath_prepend(str(numpydoc_package))
    monkeypatch.setattr(sys, "modules", sys.modules.copy())
    seen = []
    docs = walk("tinydoc", seen.append)
    capfd.readouterr()
    paths = {path for members in docs.values() for path in members}
    assert seen == ["tinydoc", "tinydoc.inner", "tinydoc.noisy", "tinydoc.things"]
    assert {"tinydoc:f0", "tinydoc.things:f0", "tinydoc.things:Thing.turn", "tinydoc.things:Thing.size"} <= paths
    own = {path: mine for members in docs.values() for path, mine in members.items()}
    assert own["tinydoc.things:Thing.turn"]
    assert not own["tinydoc.things:Child.turn"]
    assert "tinydoc.things:Thing.text.upper" in paths  # through an accessor
    assert not any("hidden" in path or "join" in path or "OrderedDict" in path for path in paths)


def test_a_package_that_crashes(numpydoc_package, cache, monkeypatch):
    (numpydoc_package / "crashdoc").mkdir()
    (numpydoc_package / "crashdoc" / "__init__.py").write_text("import os\nos._exit(7)\n")
    monkeypatch.syspath_prepend(str(numpydoc_package))
    monkeypatch.setattr(pydocs, "_version", lambda package: "1.0")
    said = []
    data = build("pydocs:packages=tinydoc+crashdoc", say=said.append)
    assert said[0] == "pydocs: crashdoc is skipped, it could not be read"
    assert len(data.train) > 10
    assert not list(cache.rglob("entry.json"))  # another time it may work
    with pytest.raises(DataError, match="no See Also section in crashdoc"):
        build("pydocs:packages=crashdoc")


def test_no_interpreter(numpydoc_package, cache, monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(str(numpydoc_package))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "no-python"))
    with pytest.raises(DataError, match="no See Also section in tinydoc"):
        build("pydocs:packages=tinydoc")


def test_none_installed(monkeypatch):
    monkeypatch.setattr(pydocs, "_there", lambda package: False)
    with pytest.raises(MissingExtraError, match=r"the built-in set pydocs needs .*pip install 'megalabel\[demo\]'"):
        build("pydocs")
    with pytest.raises(MissingExtraError, match="pydocs:packages=sklearn needs the package scikit-learn"):
        build("pydocs:packages=sklearn")


def test_unknown_package():
    with pytest.raises(SettingError, match="there is no package 'numpi'; did you mean 'numpy'"):
        build("pydocs:packages=numpi")
