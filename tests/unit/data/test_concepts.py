import pytest

from megalabel.data.concepts import Concept, find_cycle, read_concepts, root_path
from megalabel.errors import DataError


@pytest.mark.parametrize(
    ("parents", "cycle"),
    [
        ([], None),
        ([[], [], []], None),
        ([[1, 2], [3], [3], []], None),  # two ways to the same root are no circle
        ([[0]], [0, 0]),
        ([[], [0, 2], [1]], [1, 2, 1]),
        ([[1], [2], [3], [1]], [1, 2, 3, 1]),
    ],
)
def test_cycles(parents, cycle):
    assert find_cycle(parents) == cycle


def test_a_chain_of_any_length_is_no_recursion():
    chain = [[label + 1] for label in range(20_000)]
    assert find_cycle([*chain, []]) is None
    assert find_cycle([*chain, [0]])[0] == 0
    assert root_path(0, [*chain, []]) == list(range(20_000, 0, -1))


def test_rows_of_labels():
    rows = [(1, {"uid": "a"}), (2, {"name": "b", "notation": "2", "parents": [0]}), (3, {"parents": []})]
    concepts = read_concepts(rows, "lbl.jsonl")
    assert concepts[1] == Concept("b", "2", (0,))
    assert concepts[1].to_dict() == {"name": "b", "notation": "2", "parents": [0]}
    assert Concept().to_dict() == {}


@pytest.mark.parametrize(
    ("row", "what"),
    [
        ({"parents": [5]}, "list of label ids from 0 to 1"),
        ({"parents": [-1]}, "list of label ids"),
        ({"parents": [True]}, "list of label ids"),
        ({"parents": "0"}, "list of label ids"),
        ({"name": 5}, '"name" must be a text'),
        ({"notation": [1]}, '"notation" must be a text'),
        ({"parents": [1]}, "run in a circle: 1 < 1"),
    ],
)
def test_wrong_rows_name_file_and_line(row, what):
    with pytest.raises(DataError, match=what) as error:
        read_concepts([(1, {}), (2, row)], "lbl.jsonl")
    assert str(error.value).startswith("lbl.jsonl:2: ")
