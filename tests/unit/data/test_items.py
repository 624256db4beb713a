import numpy as np
from scipy import sparse

from megalabel.data import Dataset, Labels, Split
from megalabel.data.items import match_items, reverse_share


def points(texts, uids):
    return Split(texts, sparse.csr_matrix((len(texts), 3)), uids)


def test_numbers_that_only_look_shared_do_not_match():
    labels = Labels(["x", "y", "z"], ["0", "1", "2"])
    assert match_items(points(["a", "b"], ["0", "1"]), labels).tolist() == [-1, -1]


def test_longer_text_of_the_same_item_matches():
    labels = Labels(["lamp", "chair", "table"], ["l", "c", "t"])
    assert match_items(points(["chair made of oak", "lamp"], ["c", "l"]), labels).tolist() == [1, 0]


def test_equal_texts_match_where_no_uid_is_shared():
    labels = Labels(["lamp", "chair", "table"], ["lbl-0", "lbl-1", "lbl-2"])
    assert match_items(points(["chair", "sofa"], ["trn-0", "trn-1"]), labels).tolist() == [1, -1]
    assert match_items(points(["chair", "sofa", "bed"], ["trn-0", "trn-1", "trn-2"]), labels).tolist() == [-1] * 3


def test_reverse_share():
    labels = Labels(["a", "b", "c"], ["a", "b", "c"])
    train = Split(["a", "b"], sparse.csr_matrix(np.array([[0, 1, 1], [1, 0, 0]], dtype=np.float32)), ["a", "b"])
    test = Split(["c"], sparse.csr_matrix(np.array([[1, 1, 0]], dtype=np.float32)), ["c"])
    data = Dataset(train=train, test=test, labels=labels)
    assert reverse_share(data, data.train) == 2 / 3  # a-b and b-a
    assert reverse_share(data, data.test) == 1 / 2  # c-a, for a-c is in train
