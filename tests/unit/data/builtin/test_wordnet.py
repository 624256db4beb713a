import pytest

from megalabel.data.builtin import build, wordnet
from megalabel.data.items import reverse_share
from megalabel.errors import DataError


def labels_of(data, uid):
    split = next(split for split in data.splits.values() if uid in split.uids)
    return {data.labels.uids[i] for i in split.targets[split.uids.index(uid)].indices}


def test_small_wordnet(wordnet_folder, cache):
    data = build(f"wordnet:path={wordnet_folder}")
    texts = dict(zip([*data.train.uids, *data.test.uids], [*data.train.texts, *data.test.texts], strict=True))
    assert texts["n00000003"] == 'thing 3, object3: noun number 3; "a thing"'
    assert texts["a00000001"] == "huge: very big"
    assert 2 <= len(data.test) <= 4
    assert reverse_share(data, data.test) == 0
    assert reverse_share(data, data.train) > 0.9
    row = next(uid for uid in data.train.uids if uid.startswith("n0000004"))
    number = int(row[1:])
    assert labels_of(data, row) <= {f"n{number - 1:08d}", f"n{number + 1:08d}"}
    assert data.licence.startswith("WordNet")


def test_all_pointers_count(wordnet_folder):
    pointers = {
        uid: others
        for part, name in wordnet.FILES.items()
        for uid, _, others in wordnet._synsets(wordnet_folder / name, part)
    }
    assert pointers["n00000005"] == ["n00000004", "n00000006", "v00000005"]
    assert pointers["v00000005"] == ["n00000005"]
    assert pointers["a00000001"] == ["a00000000"]  # a satellite is an adjective
    assert pointers["r00000000"] == ["a00000001"]


def test_folder_above_dict(wordnet_folder, cache):
    assert len(build(f"wordnet:path={wordnet_folder.parent}").labels) > 50


def test_content_is_the_key(wordnet_folder, cache):
    first = build(f"wordnet:path={wordnet_folder}")
    path = wordnet_folder / "data.adv"
    path.write_text(path.read_text().replace("in a huge way", "in a very huge way"))
    again = build(f"wordnet:path={wordnet_folder}")
    assert "hugely: in a huge way" in [*first.train.texts, *first.test.texts]
    assert "hugely: in a very huge way" in [*again.train.texts, *again.test.texts]


def test_missing_source(tmp_path, monkeypatch):
    with pytest.raises(DataError, match=r"there are no data.noun.*apt install wordnet-base, or give wordnet:path="):
        build(f"wordnet:path={tmp_path}")
    monkeypatch.setattr(wordnet, "FOLDERS", (str(tmp_path),))
    with pytest.raises(DataError, match="there is no WordNet on this machine; on Debian apt install wordnet-base"):
        build("wordnet")


def test_broken_line(wordnet_folder, cache):
    (wordnet_folder / "data.verb").write_text("00000000 29 v zz\n")
    with pytest.raises(DataError, match=r"data.verb:1: this is not a line of a WordNet data file"):
        build(f"wordnet:path={wordnet_folder}")
