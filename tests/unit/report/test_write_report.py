import shutil

import pytest

from megalabel.errors import DataError, WriteError
from megalabel.report import write_report
from megalabel.report.write_report import write_page


@pytest.fixture
def fresh(runs, tmp_path):
    folder, model = next(iter(runs.items()))
    return shutil.copytree(folder, tmp_path / "run"), model


def test_page_and_charts(fresh, data):
    folder, model = fresh
    page = write_report(folder, model, data, png=True)
    assert page == folder / "report.html"
    assert page.stat().st_size < 200_000
    charts = sorted((folder / "plots").iterdir())
    assert [path.stem for path in charts] == [
        "frequency-bins", "frequency-groups", "loss", "p-against-psp", "validation",
    ]  # fmt: skip
    for path in charts:
        assert path.read_bytes().startswith(b"\x89PNG") and path.stat().st_size > 5000


def test_several_runs_with_hostile_names(results, tmp_path):
    write_page(tmp_path / "new" / "page.html", results, png=True)
    assert len(list((tmp_path / "new" / "plots").glob("*.png"))) == 6


def test_mistakes(fresh, data, results, tmp_path):
    folder, model = fresh
    with pytest.raises(DataError, match=r"run: .*no val rows"):
        write_report(folder, model, data, split="val")
    (tmp_path / "file").write_text("keep")
    with pytest.raises(WriteError):
        write_page(tmp_path / "file" / "page.html", results)
    assert (tmp_path / "file").read_text() == "keep"
