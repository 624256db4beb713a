import pytest

from megalabel.data.propensity_constants import propensity_constants


@pytest.mark.parametrize(
    ("name", "constants"),
    [
        ("Wikipedia-500K", (0.5, 0.4)),
        ("LF-Wikipedia-500K", (0.5, 0.4)),
        ("WikipediaLarge-500K", (0.5, 0.4)),
        ("data/LF-WikiTitles-500K", (0.5, 0.4)),
        ("wikilshtc_325k", (0.5, 0.4)),
        ("Amazon-670K", (0.6, 2.6)),
        ("AmazonTitles-670K", (0.6, 2.6)),
        ("Amazon-3M", (0.6, 2.6)),
        ("LF-Amazon-131K", (0.6, 2.6)),
        ("LF-AmazonTitles-131K", (0.6, 2.6)),
        ("lf-amazontitles-1.3m", (0.6, 2.6)),
        ("AmazonCat-13K", (0.55, 1.5)),
        ("LF-WikiSeeAlso-320K", (0.55, 1.5)),
        ("LF-WikiSeeAlsoTitles-320K", (0.55, 1.5)),
        ("Wiki10-31K", (0.55, 1.5)),
        ("EURLex-4K", (0.55, 1.5)),
        ("pydocs", (0.55, 1.5)),
        ("", (0.55, 1.5)),
    ],
)
def test_constants_of_known_sets(name, constants):
    assert propensity_constants(name) == constants
