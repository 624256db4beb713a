import pytest

from megalabel import load, save
from megalabel.errors import WriteError


def test_overwrite_replaces_a_data_set_but_nothing_else(tmp_path):
    first, second = load("synthetic:points=100,labels=20"), load("synthetic:points=50,labels=10")
    save(first, tmp_path / "set")
    with pytest.raises(WriteError, match="not empty"):
        save(second, tmp_path / "set")
    assert len(load(tmp_path / "set").labels) == 20
    save(second, tmp_path / "set", overwrite=True)
    assert len(load(tmp_path / "set").labels) == 10
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("years of work")
    with pytest.raises(WriteError, match="something other than a data set"):
        save(second, tmp_path / "thesis", overwrite=True)
    assert (tmp_path / "thesis" / "chapter.tex").read_text() == "years of work"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["set", "thesis"]
