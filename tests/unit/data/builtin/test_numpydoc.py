import pytest

from megalabel.data.builtin._numpydoc import LONGEST_SUMMARY, Names, see_also, summary


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


PATHS = [
    ["pandas:merge"],  # 0
    ["pandas:DataFrame.merge"],  # 1
    ["pandas:Series.abs", "pandas:DataFrame.abs"],  # 2
    ["pandas:DataFrame.sum"],  # 3
    ["pandas:Series.sum"],  # 4
    ["numpy:sum"],  # 5
    ["matplotlib.pyplot:plot", "matplotlib.axes:Axes.plot"],  # 6
    ["matplotlib.axes:Axes.bar"],  # 7
    ["scipy.linalg:inv"],  # 8
    ["scipy.sparse.linalg:inv"],  # 9
    ["scipy.stats:zscore"],  # 10
    ["pandas:Series.str.upper"],  # 11
    ["pandas:Series.str.lower"],  # 12
]
NAMES = Names(PATHS)


def test_from_the_inside_out():
    assert NAMES.find("sum", 1) == 3  # same class
    assert NAMES.find("sum", 2) == 4  # the best name of the origin first
    assert NAMES.find("DataFrame.sum", 2) == 3  # same module
    assert NAMES.find("stats.zscore", 8) == 10  # a module further out
    assert NAMES.find("Series.str.lower", 11) == 12
    assert NAMES.find("lower", 11) == 12


def test_the_origin_is_never_returned():
    assert NAMES.find("merge", 1) == 0
    assert NAMES.find("pandas.merge", 0) is None


def test_whole_names_and_their_short_forms():
    assert NAMES.find("numpy.sum", 3) == 5
    assert NAMES.find("np.sum", 3) == 5
    assert NAMES.find("plt.plot", 7) == 6
    assert NAMES.find("sum", 10) is None  # numpy's is another package's


def test_only_ending_of_the_package():
    assert NAMES.find("Axes.bar", 6) == 7
    assert NAMES.find("zscore", 9) == 10
    assert NAMES.find("inv", 8) == 9  # the origin does not count
    assert NAMES.find("inv", 10) is None  # two end so
