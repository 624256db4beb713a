"""Random generators by position in a run."""

import pytest

from megalabel.batching import generator
from megalabel.errors import SettingError


def test_the_same_position_gives_the_same_numbers():
    assert generator(3, "pool", 1, 2).random() == generator(3, "pool", 1, 2).random()


def test_different_positions_give_different_numbers():
    places = [(0,), (1,), (0, 0), (0, 1), (0, 0, 0), (0, "order", 0), (0, "pool", 0), (0, "pool", 0, 0)]
    assert len({generator(*place).random() for place in places}) == len(places)


@pytest.mark.parametrize("place", [(-1,), (0, -1)])
def test_negative_numbers_are_refused(place):
    with pytest.raises(SettingError, match="must not be negative"):
        generator(*place)
