import random
import time

import pandas as pd
import pytest

from megalabel import from_frames
from megalabel.data.formats import Options, get_format
from megalabel.data.formats._separator import AmbiguousError, choose_separator, split_items
from megalabel.data.load import load
from megalabel.errors import DataError

COUNTRIES = [
    "Bolivia, Plurinational State of", "Chile", "Congo", "Congo, Democratic Republic of the", "Cuba", "France",
    "Germany", "Iran, Islamic Republic of", "Italy", "Japan", "Kenya", "Korea, Republic of", "Malta", "Mexico",
    "Nepal", "Norway", "Oman", "Peru", "Poland", "Qatar", "Spain", "Sweden", "Togo", "Uganda", "Yemen",
]  # fmt: skip
TAGS = [f"tag {number}" for number in range(40)]


def join(mark, names, rows=200, most=4):
    """Cells with one to ``most`` of the names."""
    draw = random.Random(1)
    return [mark.join(draw.sample(names, draw.randint(1, most))) for _ in range(rows)]


@pytest.mark.parametrize(
    ("cells", "separator"),
    [
        ([], None),
        (["a", "b"], None),
        (COUNTRIES, None),
        (COUNTRIES * 9, None),
        (join("|", TAGS), "|"),
        (join(";", TAGS), ";"),
        (join("; ", TAGS), ";"),
        (join(",", TAGS), ","),
        (join(", ", TAGS), ","),
        ([*join(",", TAGS), "AC|DC,tag 1"], ","),
        ([*join(", ", TAGS), "AC|DC, tag 1"], ","),
        (["a,d", "a,e", "b,d", "b,e", "c,d", "c,e|x"], ","),
        (join("|", COUNTRIES), "|"),
        (join("; ", COUNTRIES), ";"),
        ([*TAGS, "AC|DC"], None),
        ([*join(",", TAGS), "tag 3, tag 7"], ","),  # a space now and then
        (['"navy, dark",red', "red", "blue"], ","),
        (["red;", "blue;"], ";"),
        (["red|blue"], "|"),
        (["3,17", "17,5", "5"], ","),
    ],
)
def test_separator_follows_from_all_cells(cells, separator):
    assert choose_separator(cells) == separator


@pytest.mark.parametrize(
    ("cells", "marks"),
    [
        (["a;b|c", "b"], ("|", ";")),
        (["Paris, France", "Lyon, France", "Nice, France", "Rome, Italy"], (",",)),
        (["a, b", "c"], (",",)),
        ([f"{a}|{b}" for a in join(";", TAGS, most=2) for b in TAGS[:3]], ("|", ";")),
        ([*join(",", TAGS), *join(",", [f"{a}, {b}" for a, b in zip("abcdefgh", "stuvwxyz", strict=True)])], (",",)),
    ],
)
def test_cells_that_leave_it_open(cells, marks):
    with pytest.raises(AmbiguousError) as error:
        choose_separator(cells)
    assert error.value.marks == marks
    assert error.value.example in cells


def test_names_from_lists_count_as_evidence():
    assert choose_separator(["a, b", "c"], ["a", "b"]) == ","


@pytest.mark.parametrize(
    ("cell", "separator", "items"),
    [
        ('"a, b", c', ",", ["a, b", "c"]),
        ('c,"a ""b"", d"', ",", ["c", 'a "b", d']),
        ('"a, b"', None, ["a, b"]),
        ('5" pipe, 3" pipe', ",", ['5" pipe', '3" pipe']),
        ('"a" b, c', ",", ['"a" b', "c"]),
        (' a ,, b , ""', ",", ["a", "b"]),
        ('"a::b"::c', "::", ["a::b", "c"]),
        ('"a\nb";c', ";", ["a\nb", "c"]),
    ],
)
def test_quotes_keep_a_separator_inside_an_item(cell, separator, items):
    assert split_items(cell, separator) == items


def test_many_quotes_take_no_time():
    start = time.monotonic()
    split_items('"' * 20_001 + "x", ",")
    split_items('"a,' * 5_000, ",")
    assert time.monotonic() - start < 5


def table(cells):
    quoted = ("".join(['"', cell.replace('"', '""'), '"']) for cell in cells)
    return "text,labels\n" + "".join(f"text {number},{cell}\n" for number, cell in enumerate(quoted))


def test_names_with_commas_stay_whole_and_this_is_said(make):
    lines = []
    data = load(make({"all.csv": table(COUNTRIES * 3)}) / "all.csv", say=lines.append)
    assert data.labels.texts == sorted(COUNTRIES)
    assert lines[-2] == "every row has one label; ',' belongs to names"


def test_separator_is_said(make):
    lines = []
    data = load(make({"all.csv": table(join(",", TAGS) + ["AC|DC,tag 1"] * 2)}) / "all.csv", say=lines.append)
    assert data.labels.texts == sorted([*TAGS, "AC|DC"])
    assert lines[-2] == "labels are separated by ','"


def test_lists_and_quoted_items_in_cells(make):
    cells = ['["a", "b, c"]', '"b, c", a', "a", '["b, c"]']
    data = get_format("csv").read(make({"all.csv": table(cells * 5)}) / "all.csv", Options(test_share=0.2))
    assert data.labels.texts == ["a", "b, c"]


def test_open_question_is_asked_with_an_example(refused):
    text = refused("csv", {"all.csv": table(["x", "a;b|c", "b"])}, "all.csv:3: it is not clear", file="all.csv")
    assert "--separator '|' for ['a;b', 'c'], --separator ';' for ['a', 'b|c'], or --separator ''" in text


def test_frames_and_parquet_follow_the_same_rule(tmp_path):
    frame = pd.DataFrame({"text": [f"text {number}" for number in range(75)], "labels": COUNTRIES * 3})
    assert from_frames(frame).labels.texts == sorted(COUNTRIES)
    frame.to_parquet(tmp_path / "all.parquet")
    assert load(tmp_path / "all.parquet").labels.texts == sorted(COUNTRIES)
    with pytest.raises(DataError, match="the train frame:1: it is not clear what separates the labels"):
        from_frames(pd.DataFrame({"text": ["a", "b", "c"], "labels": ["a, b", "c", "c"]}))
