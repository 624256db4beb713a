import pytest

from megalabel.errors import SettingError
from megalabel.plan.numbers import read_amount, read_bytes, read_speed, show_bytes, show_count, show_seconds


@pytest.mark.parametrize(
    ("text", "value"),
    [("5", 5), ("1,305,265", 1_305_265), ("52_029_024", 52_029_024), ("450M", 450e6), ("1.3 m", 1.3e6), ("2e6", 2e6),
     ("3K", 3000), ("2G", 2e9), ("2B", 2e9), ("14T", 14e12), ("312 TFLOP/s", 312e12), ("60gflops", 60e9)],
)  # fmt: skip
def test_amounts(text, value):
    assert read_amount(text, "--x") == pytest.approx(value)


@pytest.mark.parametrize(
    ("text", "value"),
    [("32", 32 * 2**30), ("32GB", 32 * 2**30), ("24GiB", 24 * 2**30), ("500 mb", 500 * 2**20), ("1.5TB", 1.5 * 2**40),
     ("100B", 100), ("64K", 64 * 2**10)],
)  # fmt: skip
def test_memory_is_counted_as_it_is_sold(text, value):
    assert read_bytes(text, "--memory") == value


@pytest.mark.parametrize(("text", "value"), [("12", 12e9), ("12GB/s", 12e9), ("900 MB/s", 9e8), ("100B/s", 100)])
def test_speeds(text, value):
    assert read_speed(text, "--bandwidth") == value


@pytest.mark.parametrize("read", [read_amount, read_bytes, read_speed])
@pytest.mark.parametrize("text", ["-5", "0", "many", "", "5 bananas", "1.2.3", "nan", "1e999", "5GX", "--5", "I"])
def test_an_invalid_number_names_its_option(read, text):
    with pytest.raises(SettingError, match="--what") as error:
        read(text, "--what")
    assert error.value.remedy


def test_shown_with_three_digits():
    assert [show_bytes(x) for x in (0, 999, 2048, 5 * 2**20, 99.94 * 2**30, 640 * 2**30, 3 * 2**40, 2**55)] == [
        "0 B", "999 B", "2 KiB", "5 MiB", "99.9 GiB", "640 GiB", "3.0 TiB", "32.0 PiB",
    ]  # fmt: skip
    assert [show_count(x) for x in (7, 1234, 454_608_650, 3.03e18)] == ["7", "1.23 K", "455 M", "3.03 E"]
    assert [show_seconds(x) for x in (0.25, 45, 600, 3 * 3600, 86400 * 21)] == [
        "250 ms", "45 s", "10 min", "3.0 h", "21.0 days",
    ]  # fmt: skip
