import bz2
import gzip
import lzma
import shutil
import subprocess

import pytest

from megalabel.data.builtin import build, debian
from megalabel.data.items import reverse_share
from megalabel.errors import DataError


def labels_of(data, uid):
    split = next(split for split in data.splits.values() if uid in split.uids)
    return {data.labels.uids[i] for i in split.targets[split.uids.index(uid)].indices}


@pytest.fixture
def data(packages_file, cache):
    return build(f"debian:path={packages_file}")


def test_small_list(data):
    texts = dict(zip([*data.train.uids, *data.test.uids], [*data.train.texts, *data.test.texts], strict=True))
    assert texts["prog7"] == "prog7 program number 7"
    assert len(data.test) == pytest.approx(0.2 * 560, abs=10)
    assert "libc6" not in data.labels.uids  # 480 train points name it
    assert "libc6" in debian._names("libc6 (>= 2.34)")
    assert reverse_share(data, data.test) == 0


def test_relations(data):
    uid = next(uid for uid in data.train.uids if uid.startswith("prog"))
    number = int(uid[4:])
    wanted = {f"libthing{number % 40}", f"libthing{(number + 1) % 40}", f"prog{(number + 1) % 560}"}
    assert labels_of(data, uid) == wanted & set(data.labels.uids)  # the first alternative that exists


@pytest.mark.parametrize("pack", [gzip.compress, lzma.compress, bz2.compress], ids=["gz", "xz", "bz2"])
def test_packed_lists(pack, data, packages_file, tmp_path, fingerprint):
    lists = tmp_path / "lists"
    lists.mkdir()
    (lists / "deb.example.org_dists_main_binary-amd64_Packages.xy").write_bytes(pack(packages_file.read_bytes()))
    (lists / "deb.example.org_dists_InRelease").write_text("not a list")
    assert fingerprint(build(f"debian:path={lists}")) == fingerprint(data)


@pytest.mark.parametrize("tool", ["lz4", "zstd"])
def test_lists_packed_as_apt_does(tool, data, packages_file, tmp_path, fingerprint):
    if shutil.which(tool) is None:
        pytest.skip(f"{tool} is not here to pack a file with")
    packed = tmp_path / f"one_Packages.{tool}"
    packed.write_bytes(subprocess.run([tool, "-c", str(packages_file)], capture_output=True, check=True).stdout)
    assert fingerprint(build(f"debian:path={packed}")) == fingerprint(data)


def test_no_program_to_unpack(packages_file, tmp_path, monkeypatch, cache):
    monkeypatch.setattr(debian, "APT", str(tmp_path / "no-apt"))
    monkeypatch.setattr(debian, "UNPACKERS", {b"\x04\x22\x4d\x18": "no-such-tool"})
    path = tmp_path / "x_Packages.lz4"
    path.write_bytes(b"\x04\x22\x4d\x18 and more")
    with pytest.raises(DataError, match="no program to unpack no-such-tool files"):
        build(f"debian:path={path}")


def test_two_lists_make_one_set(packages_file, tmp_path, cache):
    lines = packages_file.read_text().split("\n\n")
    (tmp_path / "a_Packages").write_text("\n\n".join(lines[:300]))
    (tmp_path / "b_Packages").write_text("\n\n".join(lines[250:]))
    packages_file.unlink()
    data = build(f"debian:path={tmp_path}")
    assert len(data.train) + len(data.test) > 550


def test_missing_source(tmp_path, monkeypatch):
    monkeypatch.setattr(debian, "LISTS", tmp_path / "lists")
    with pytest.raises(DataError, match="lists: no such file or folder; run apt-get update"):
        build("debian")
    (tmp_path / "lists").mkdir()
    with pytest.raises(DataError, match="there are no package lists here; run apt-get update"):
        build("debian")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "the file is empty"),
        (gzip.compress(b"Package: a\n" * 50, mtime=0)[:-9], "the compressed file is damaged"),
        (lzma.compress(b"Package: a\n" * 50)[:-9], "the compressed file is damaged"),
        (b"\x04\x22\x4d\x18 broken", "the compressed file is damaged|nothing here to unpack"),
        (b"Package: a\nDescription: \xff\xfe\n", "not UTF-8"),
        (b"hello\n", "no package in these lists depends on another"),
        (b"Package: aa\nDepends: aa, ghost\n", "debian: 0 points are too few"),
    ],
)
def test_bad_lists(content, said, tmp_path, cache):
    path = tmp_path / "Packages"
    path.write_bytes(content)
    with pytest.raises(DataError, match=said):
        build(f"debian:path={path}")
