import os

import pytest

from megalabel.documents import (
    check_regular,
    inside,
    parse_json,
    parse_number,
    parse_whole,
    parse_yaml,
    read_json,
    read_yaml,
)
from megalabel.errors import DataError, SettingError


@pytest.mark.parametrize("text", ["1_0", "\u0661", "1.0", "", " 1", "+1", "1e3", "0x1", "--1", "9" * 5000])
def test_what_int_accepts_but_no_file_should_hold(text):
    with pytest.raises(ValueError, match="not a whole number"):
        parse_whole(text)


@pytest.mark.parametrize("text", ["1_0.5", "\u0661", "", "1e", ".", "0x1p3", " 1", "1e99999"])
def test_what_float_accepts_but_no_file_should_hold(text):
    with pytest.raises(ValueError, match="not a number"):
        parse_number(text.encode())


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b'{"a": 1, "a": 2}', "duplicate key 'a'"),
        (b'{"a": {"b": 1, "b": 2}}', "duplicate key 'b'"),
        (b'{"a": NaN}', "NaN is not valid in JSON"),
        (b'{"a": -Infinity}', "-Infinity is not valid in JSON"),
        (b"[" * 100_000, "nested"),
        (b"[" * 200 + b"]" * 200, "nested over 100 deep"),
        (b'{"a": ' + b"7" * 6_000 + b"}", "card.json:1: a number of 6,000 digits is too long$"),
        (b'{"a": 1,\n"b": [\n2, -' + b"7" * 6_000 + b"]}", "card.json:3: a number of 6,000 digits is too long$"),
        (b"\xff", "UTF-8"),
        (b'{"a": 1,}', "invalid JSON"),
        (b"", "invalid JSON"),
        (b"[1]", "expected a JSON object"),
    ],
)
def test_json_that_is_refused(tmp_path, content, what):
    path = tmp_path / "card.json"
    path.write_bytes(content)
    with pytest.raises(DataError, match=what) as error:
        read_json(path)
    assert error.value.path == path and "\n" not in str(error.value)


def test_an_error_in_a_json_line_names_the_line():
    with pytest.raises(DataError, match=r"rows.jsonl:7: invalid JSON"):
        parse_json(b'{"a": 1, "a": 2}', "rows.jsonl", 7)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("a: 1\nb: 2\na: 3\n", "recipe.yaml:3: .*duplicate key 'a'"),
        ("x:\n  a: 1\n  a: 3\n", "recipe.yaml:3: .*duplicate key 'a'"),
        ("a: &x [1]\nb: *x\n", "recipe.yaml:2: .*aliases"),
        ("a: &x [*x]\n", "recipe.yaml:1: .*aliases"),
        ("[" * 3_000 + "]" * 3_000, "nested over 100 deep"),
        ("".join(" " * depth + "a:\n" for depth in range(3_000)), "nested over 100 deep"),
        (f"a: 1\nseed: {'7' * 6_000}", "recipe.yaml:2: a number of 6,000 digits is too long"),
        ("a: 1\ndate: 2020-99-99", "recipe.yaml:2: .*'2020-99-99' cannot be read, month must be in 1..12"),
        ("a: !!int ''", "recipe.yaml:1: .*cannot be read"),
        ("a: !!bool maybe", "recipe.yaml:1: .*'maybe' cannot be read"),
        ("a: !!python/object/apply:os.system [ls]", "not YAML"),
        ("a: [", "not YAML"),
        ("a: \x00", "not YAML"),
        ("? {a: 1}\n: 2", "not YAML"),
    ],
)
def test_yaml_that_is_refused(tmp_path, text, what):
    path = tmp_path / "recipe.yaml"
    path.write_text(text)
    with pytest.raises(SettingError, match=what) as error:
        read_yaml(path)
    assert "\n" not in str(error.value)


def test_plain_yaml():
    assert parse_yaml("a: {b: [1, 2.5, null, true, text]}") == {"a": {"b": [1, 2.5, None, True, "text"]}}


@pytest.mark.parametrize(
    "name", ["/etc/passwd", "../x", "a/../b", "", ".", "a//b", "a/", "C:x", "..\\x", "a\0b", 7, None, ["a"]]
)
def test_names_that_lead_elsewhere(tmp_path, name):
    with pytest.raises(DataError, match="is not the name of a file in this folder"):
        inside(tmp_path, name)


def test_names_inside(tmp_path):
    assert inside(tmp_path, "encoders/encoder/x.json") == tmp_path / "encoders" / "encoder" / "x.json"


def test_pipes_and_devices_are_not_opened(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "zero").symlink_to("/dev/zero")
    for name in ("pipe", "zero"):
        with pytest.raises(DataError, match="not a regular file"):
            read_json(tmp_path / name)
        with pytest.raises(DataError, match="not a regular file"):
            check_regular(tmp_path / name)
        with pytest.raises(DataError, match="not a regular file"):
            read_yaml(tmp_path / name)
