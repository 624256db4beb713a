from megalabel.data.builtin._see_also import Names

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


def test_the_origin_is_never_meant():
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
