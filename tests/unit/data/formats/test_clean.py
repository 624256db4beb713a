"""Odd rows of a table are counted and said, left out of a single table, and errors with ``strict``."""

import pytest

from megalabel import load
from megalabel.data.formats import Options
from megalabel.errors import DataError

PLAIN = "".join(f"text {i},{'r' if i % 2 else 'g'}\n" for i in range(10))


@pytest.fixture
def read(tmp_path):
    """Read a table of these rows beside ten plain ones; return the data and what was said."""

    def read(lines, **options):
        (tmp_path / "t.csv").write_text("text,labels\n" + lines + PLAIN)
        lines = []
        data = load(tmp_path / "t.csv", options=Options(**options), say=lines.append)
        return data, [line.replace(f"{tmp_path}/", "") for line in lines]

    return read


def rows(data):
    """Return the labels of every text, wherever it is."""
    return {
        text: [data.labels.texts[label] for label in part.targets[row].indices]
        for part in data.splits.values()
        for row, text in enumerate(part.texts)
    }


def test_what_was_read_is_said(read):
    data, lines = read("")
    assert lines[1:] == [
        "t.csv: text from the column 'text', labels from 'labels'",
        "every row has one label",
        "1 of 10 rows are held out as test rows",
    ]
    assert len(rows(data)) == 10


@pytest.mark.parametrize(
    ("row", "said", "strict"),
    [
        (",r\n", "t.csv: 1 row has no text and is left out (the first on line 2)", "t.csv:2: this row has no text"),
        ("a,\n", "t.csv: 1 row has no label and is left out (the first on line 2)", "t.csv:2: this row has no label"),
        (
            "a,N/A\n",
            "t.csv: 'N/A' stands for no label, in 1 row (the first on line 2)",
            "t.csv:2: the label 'N/A' stands for a missing value",
        ),
        ("a,R\n", "t.csv: labels that look odd: 'R', 'r'", "t.csv: labels that look odd: 'R', 'r'"),
        ("a,none\n", "t.csv: labels that look odd: 'none'", "t.csv: labels that look odd: 'none'"),
    ],
)
def test_each_kind(read, row, said, strict):
    assert said in read(row)[1]
    with pytest.raises(DataError) as caught:
        read(row, strict=True)
    assert strict in str(caught.value)


def test_rows_with_the_same_text_are_merged(read):
    data, lines = read("a,r\nb,g\na,g\na,r\n")
    assert "t.csv: 2 rows have the text of an earlier one and are merged with it (the first on line 4)" in lines
    assert rows(data)["a"] == ["g", "r"]
    assert len(data.train) + len(data.test) == 12
    with pytest.raises(DataError, match=r"t\.csv:4: this row has the text of line 2"):
        read("a,r\nb,g\na,g\n", strict=True)


def test_a_repeated_label_counts_once(read):
    data, lines = read("a,r|g|r\n")
    assert "t.csv: 1 row has a label twice; it counts once (the first on line 2)" in lines
    assert rows(data)["a"] == ["g", "r"]
    with pytest.raises(DataError, match=r"t\.csv:2: duplicate label 'r' in one row"):
        read("a,r|g|r\n", strict=True)


def test_a_label_only_of_rows_that_are_left_out_is_none(read):
    assert read(",only here\n")[0].labels.texts == ["g", "r"]


def test_rows_to_measure_on_are_kept(read):
    data, lines = read("a,\na,r\n", rows="test")
    assert "t.csv: 1 row has no label and is kept (the first on line 2)" in lines
    assert len(data.test) == 12


def test_a_folder_of_tables_is_kept_as_it_is(tmp_path):
    (tmp_path / "train.csv").write_text("text,labels\na,r|r\n,g\nb,\n" + PLAIN)
    (tmp_path / "test.csv").write_text("text,labels\na,r\n")
    lines = []
    data = load(tmp_path, say=lines.append)
    said = " ".join(lines)
    assert len(data.train) == 13
    for words in (
        "no text and is kept",
        "no label and is kept",
        "a label twice",
        "1 row of test has the text of a train",
    ):
        assert words in said


def test_weights_of_a_repeated_label(tmp_path):
    (tmp_path / "t.csv").write_text("text,labels,weights\na,r|r|g,0.5|1|0.25\n" + PLAIN.replace("\n", ",1\n"))
    data = load(tmp_path / "t.csv", options=Options(rows="test"))
    assert data.test.targets[0].toarray().tolist() == [[0.25, 0.5]]
