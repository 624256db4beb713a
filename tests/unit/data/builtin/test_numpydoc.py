import pytest

from megalabel.data.builtin._numpydoc import LONGEST_SUMMARY, see_also, summary


def doc(body: str) -> str:
    return f"Sort an array.\n\nSee Also\n--------\n{body}\n\nNotes\n-----\nnot : a name\n"


@pytest.mark.parametrize(
    ("body", "names"),
    [
        ("argsort : Indirect sort.", ["argsort"]),
        ("argsort: Indirect sort.", ["argsort"]),
        ("argsort, lexsort", ["argsort", "lexsort"]),
        ("argsort, lexsort : Both.\nndarray.sort", ["argsort", "lexsort", "ndarray.sort"]),
        ("argsort\n    Indirect sort, with words.\nlexsort", ["argsort", "lexsort"]),
        (":func:`argsort`, :meth:`~numpy.ndarray.sort`", ["argsort", "numpy.ndarray.sort"]),
        (":func:`argsort` : text\n:py:func:`sorted <builtins.sorted>`", ["argsort", "builtins.sorted"]),
        ("argsort,\nlexsort,\n    searchsorted", ["argsort", "lexsort", "searchsorted"]),
        ("`argsort`\n``lexsort``\n.sort_complex\n~numpy.sort", ["argsort", "lexsort", "sort_complex", "numpy.sort"]),
        ("argsort()\nargsort : again", ["argsort"]),
        ("see the user guide for more", []),
        ("argsort : one: two, three", ["argsort"]),
        ("", []),
    ],
)
def test_see_also(body, names):
    assert see_also(doc(body)) == names


def test_see_also_needs_its_heading():
    assert see_also("Sort.\n\nSee also argsort.\n") == []
    assert see_also("Sort.\n\n    See also\n    --------\n    argsort\n        Indirect.\n") == ["argsort"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("Sort an array.", "Sort an array."),
        ("Sort an array\nin place.\n\nMore.", "Sort an array in place."),
        ("sin(x, /, out=None)\n\nSine, element-wise.", "Sine, element-wise."),
        ("sin(x,\n    out=None)\n\nSine, element-wise.", "Sine, element-wise."),
        ("f(x) -> float\nSine of *x* and `~.Axes`.", "Sine of x and Axes."),
        ("Use :class:`~numpy.ndarray` and ``a * b`` [1]_.", "Use numpy.ndarray and a * b."),
        ("Take *args and **kwargs.", "Take *args and **kwargs."),
        ("Parameters\n----------\nx : int\n\nMore words.", ""),
        (".. deprecated:: 1.0\n\nSort.", "Sort."),
        ("Row(a, b)", ""),
        ("", ""),
    ],
)
def test_summary(text, said):
    assert summary(text) == said


def test_long_summaries_are_cut_at_a_word():
    said = summary("word " * 200)
    assert len(said) <= LONGEST_SUMMARY
    assert said.endswith("word…")
