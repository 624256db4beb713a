import json

from megalabel.data.dataset import Dataset, Labels, Split
from megalabel.data.formats._raw import read_raw, write_raw


def written(folder, texts, uids=None):
    base = Dataset.from_lists([(text, [0]) for text in texts], [("x", [0])], ["y"])
    train = Split(texts, base.train.targets, uids or base.train.uids)
    folder.mkdir(exist_ok=True)
    write_raw(base.replace(train=train, labels=Labels(["y"], ["lbl-0"])), folder)
    return folder / "raw"


def test_the_side_file_is_written_only_when_needed(tmp_path):
    raw = written(tmp_path / "plain", ["a", "b -> c", "  \u2028\t"])
    assert sorted(path.name for path in raw.iterdir()) == ["Y.txt", "trn_X.txt", "tst_X.txt"]


def test_a_line_break_goes_to_the_side_file_and_becomes_a_space(tmp_path):
    raw = written(tmp_path / "broken", ["a", "b\r\nc\rd", "e"])
    assert (raw / "trn_X.txt").read_bytes() == b"a\nb c d\ne\n"
    rows = [json.loads(line) for line in (raw / "trn_X.rows.jsonl").read_text().splitlines()]
    assert rows == [{"uid": "trn-0"}, {"uid": "trn-1", "text": "b\r\nc\rd"}, {"uid": "trn-2"}]
    assert read_raw(raw / "trn_X.txt", "trn") == (["a", "b\r\nc\rd", "e"], ["trn-0", "trn-1", "trn-2"])


def test_uids_and_arrows_on_every_line_need_it_too(tmp_path):
    raw = written(tmp_path / "uids", ["a", "b"], ["x", "y"])
    assert read_raw(raw / "trn_X.txt", "trn") == (["a", "b"], ["x", "y"])
    raw = written(tmp_path / "arrows", ["a->b", "c->d"])
    assert read_raw(raw / "trn_X.txt", "trn") == (["a->b", "c->d"], ["trn-0", "trn-1"])
