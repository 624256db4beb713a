from pathlib import Path

import pytest

from megalabel.data.builtin.settings import Setting, parse_settings
from megalabel.errors import SettingError

ALLOWED = {
    "points": Setting("whole", 100, "number of points", low=2, high=1_000),
    "kind": Setting("choice", "zipf", "kind", choices=("zipf", "easy-positive")),
    "packages": Setting("names", (), "packages"),
    "path": Setting("path", None, "folder"),
}


def test_defaults_and_every_kind():
    assert parse_settings("x", "", ALLOWED) == {"points": 100, "kind": "zipf", "packages": (), "path": None}
    settings = parse_settings("x", "points=7, kind=easy-positive ,packages=numpy+scipy+numpy,path=/a/b:c", ALLOWED)
    assert settings == {"points": 7, "kind": "easy-positive", "packages": ("numpy", "scipy"), "path": Path("/a/b:c")}


def test_home_in_a_path(monkeypatch):
    monkeypatch.setenv("HOME", "/home/someone")
    assert parse_settings("x", "path=~/dict", ALLOWED)["path"] == Path("/home/someone/dict")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("point=7", "x has no setting 'point'; did you mean 'points'?"),
        ("zzz=7", "x has no setting 'zzz'; choose one of: points, kind, packages, path"),
        ("points=many", "x: points must be a whole number, not 'many'"),
        ("points=1.5", "x: points must be a whole number, not '1.5'"),
        ("points=1", "x: points must lie in 2..1000, not 1"),
        ("points=1001", "x: points must lie in 2..1000, not 1001"),
        ("kind=zip", "x: kind cannot be 'zip'; did you mean 'zipf'?"),
        ("packages=num py", "x: packages: 'num py' is not a name; join names with +"),
        ("packages=numpy+", "x: packages: '' is not a name; join names with +"),
        ("points", "x: 'points' is not a setting; write x:key=value,key=value with keys points, kind, packages, path"),
        ("points=", "x: 'points=' is not a setting; write"),
        ("points=3,,", "x: '' is not a setting; write"),
        ("points=3,points=4", "x: points is set twice"),
    ],
)
def test_mistakes_give_one_line(text, said):
    with pytest.raises(SettingError) as error:
        parse_settings("x", text, ALLOWED)
    assert str(error.value).startswith(said)
    assert "\n" not in str(error.value)
