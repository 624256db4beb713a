import shutil
from pathlib import Path

import numpy as np
import pytest

from megalabel.data import load, save
from megalabel.data.builtin import build, manpages
from megalabel.data.card import card
from megalabel.data.items import match_items, reverse_share
from megalabel.errors import DataError


def labels_of(data, uid):
    split = next(split for split in data.splits.values() if uid in split.uids)
    return {data.labels.uids[i] for i in split.targets[split.uids.index(uid)].indices}


@pytest.fixture
def pages(manual_folder):
    """Every page and its pairs, before the split."""
    book = manpages._Pages()
    for file in manpages._folder(manual_folder):
        book.add(file, file.page() or manpages.Page() if not file.link else manpages.Page())
    book.link()
    uids = [f"{entry.name}({entry.section})" for entry in book.entries]
    related = {uid: set() for uid in uids}
    for i, j in book.pairs():
        related[uids[i]].add(uids[j])
    return dict(zip(uids, manpages._texts(book.entries), strict=True)), related


def test_pages_and_pairs(pages):
    texts, related = pages
    tools, modules = {f"tool{i}(1)" for i in range(30)} - {"tool5(1)"}, {f"Some::Module{i}(3pm)" for i in range(30)}
    others = {"copy(3)", "tool5(1other)", "Carp(3perl)", "same(1)", "same(8)"}
    assert set(texts) == tools | modules | others
    assert texts["tool6(1)"] == "tool6: use number 6"
    assert related["tool6(1)"] == {"tool7(1)", "tool13(1)", "copy(3)"}  # shared.3 and copy.3 are one page
    assert related["Some::Module6(3pm)"] == {"Some::Module7(3pm)", "Carp(3perl)", "tool6(1)"}
    assert related["Carp(3perl)"] == {"Some::Module3(3pm)"}


def test_aliases_are_one_page(pages):
    texts, related = pages
    assert texts["copy(3)"] == "shared: share things"
    assert related["copy(3)"] == {"tool0(1)", "tool3(1)"}
    assert related["tool1(1)"] == {"tool2(1)", "copy(3)"}  # itself, .so link, name in NAME section


def test_pages_of_several_packages(pages):
    texts, related = pages
    assert texts["tool4(1)"] == "tool4: an other tool of that name"  # "other" comes before "tools"
    assert related["tool4(1)"] == {"tool9(1)"}
    assert related["tool5(1other)"] == {
        "tool4(1)",
        "tool6(1)",
        "tool12(1)",
        "copy(3)",
    }  # both say the same of themselves
    assert texts["same(8)"] == "same(8): look alike"


@pytest.fixture
def data(manual_folder, cache):
    return build(f"manpages:path={manual_folder}")


def test_split_rule(data):
    assert 8 <= len(data.test) <= 12
    assert data.counts.min() >= 1
    assert reverse_share(data, data.test) == 0
    assert not set(data.train.uids) & set(data.test.uids)
    for split in data.splits.values():
        items = match_items(split, data.labels)
        assert {(row, items[row]) for row in np.flatnonzero(items >= 0)} <= set(map(tuple, split.filter.tolist()))
        assert all(uid not in labels_of(data, uid) for uid in split.uids)


def test_packages_are_kept_with_the_set(data, tmp_path):
    packages = {"libshared-dev": "1.0", "libsome-perl": "0.5", "other": "3", "perl": "5", "tools": "1:2.0-1"}
    assert data.sources == packages
    save(data, tmp_path / "set")
    again = load(tmp_path / "set")
    assert again.sources == packages
    assert "libshared-dev 1.0, libsome-perl 0.5, other 3 and 2 more packages" in card(again).table()
    save(data, tmp_path / "beir", format="beir")
    assert load(tmp_path / "beir").sources == packages
    (tmp_path / "set" / "card.json").write_text('{"sources": ["perl"]}')
    with pytest.raises(DataError, match=r"card\.json: sources must be"):
        load(tmp_path / "set")


def test_second_time_comes_from_the_cache(data, manual_folder, monkeypatch, fingerprint):
    monkeypatch.setattr(manpages, "read_page", lambda text: pytest.fail("read again"))
    said = []
    again = build(f"manpages:path={manual_folder}", say=said.append)
    assert "read from the cache" in said[0]
    assert fingerprint(again) == fingerprint(data)
    (manual_folder / "other_3/usr/share/man/man1/tool4.1.gz").unlink()
    with pytest.raises(BaseException, match="read again"):
        build(f"manpages:path={manual_folder}")


def test_what_is_said(manual_folder, cache):
    said = []
    build(f"manpages:path={manual_folder}", say=said.append)
    assert said[0].startswith("manpages: 64 pages with ")
    assert said[0].endswith("files of 5 packages; damaged files left out: 1")


@pytest.fixture
def machine(manual_folder, tmp_path, monkeypatch):
    """The same pages installed, with the lists of dpkg."""
    root = tmp_path / "machine"
    (root / "var/lib/dpkg/info").mkdir(parents=True)
    status = []
    for package in sorted(manual_folder.iterdir()):
        name, version = package.name.split("_")[:2]
        shutil.copytree(package, root, symlinks=True, dirs_exist_ok=True)
        files = [f"/{path.relative_to(package).as_posix()}" for path in package.rglob("*") if not path.is_dir()]
        (root / f"var/lib/dpkg/info/{name}{':amd64' if name == 'perl' else ''}.list").write_text(
            "\n".join(["/.", *files])
        )
        status.append(f"Package: {name}\nStatus: install ok installed\nVersion: {version}\n")
    (root / "var/lib/dpkg/status").write_text("\n".join(status))
    monkeypatch.setattr(manpages, "MACHINE", root)
    return root


def test_pages_of_this_machine(machine, cache):
    chosen = machine / "etc/alternatives/pick.1.gz"
    chosen.parent.mkdir(parents=True)
    chosen.symlink_to("/usr/share/man/man1/tool7.1.gz")
    (machine / "usr/share/man/man1/pick.1.gz").symlink_to("/etc/alternatives/pick.1.gz")
    extra = machine / "usr/local/share/man/man1/extra.1"
    extra.parent.mkdir(parents=True)
    extra.write_text(".SH NAME\nextra \\- more\n.SH SEE ALSO\npick(1), tool8(1)\n")
    data = build("manpages")
    assert set(data.sources) == {"libshared-dev", "libsome-perl", "other", "perl", "tools"}
    assert labels_of(data, "extra(1)") == {"tool7(1)", "tool8(1)"}


def test_alternatives_of_this_machine_do_not_count_in_a_folder(manual_folder, machine, cache, fingerprint):
    before = fingerprint(build(f"manpages:path={manual_folder}"))
    chosen = machine / "etc/alternatives/tool9.1other.gz"
    chosen.parent.mkdir(parents=True)
    chosen.symlink_to("/usr/share/man/man1/tool7.1.gz")
    (manual_folder / "other_3/usr/share/man/man1/pick.1.gz").symlink_to("/etc/alternatives/tool9.1other.gz")
    assert fingerprint(build(f"manpages:path={manual_folder}")) == before


def test_a_manual_without_packages(manual_folder, cache):
    data = build(f"manpages:path={manual_folder / 'tools_1:2.0-1/usr/share/man'}")
    assert data.sources == {}
    assert labels_of(data, "tool8(1)") == {"tool9(1)", "tool15(1)"}


def test_no_pages(tmp_path, monkeypatch, cache):
    with pytest.raises(DataError, match="nowhere: no such folder; install packages with their manual pages, or give"):
        build(f"manpages:path={tmp_path / 'nowhere'}")
    with pytest.raises(DataError, match="there are no manual pages in this folder; install packages"):
        build(f"manpages:path={tmp_path}")
    monkeypatch.setattr(manpages, "MACHINE", tmp_path)
    with pytest.raises(DataError, match="there are no manual pages on this machine; install packages"):
        build("manpages")
    (tmp_path / "man1").mkdir()
    (tmp_path / "man1/alone.1").write_text(".SH NAME\nalone \\- by itself\n.SH SEE ALSO\nghost(1), alone(1)\n")
    (tmp_path / "man1/loop.1").symlink_to("loop.1")
    with pytest.raises(DataError, match="no manual page here names another under SEE ALSO"):
        build(f"manpages:path={tmp_path}")


def test_unreadable_page(manual_folder, cache, monkeypatch):
    """A page that may not be read is left out; root may read everything, so reading is made to fail."""
    page, plain = manual_folder / "other_3/usr/share/man/man1/tool4.1.gz", Path.read_bytes

    def refuse(path):
        if path.name == page.name:
            raise PermissionError(13, "Permission denied", str(path))
        return plain(path)

    monkeypatch.setattr(Path, "read_bytes", refuse)
    data = build(f"manpages:path={manual_folder}")
    assert not any("tool4(1)" in split.uids for split in data.splits.values()) and len(data.train)
