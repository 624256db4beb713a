import builtins
import shutil

import pytest

from megalabel.errors import DataError, MissingExtraError, WriteError
from megalabel.report import write_report
from megalabel.report.write_report import write_page


@pytest.fixture
def run(runs, tmp_path):
    folder, model = next(iter(runs.items()))
    return shutil.copytree(folder, tmp_path / "run"), model


def test_page_and_plots(run, data):
    folder, model = run
    page = write_report(folder, model, data, png=True)
    assert page == folder / "report.html"
    assert page.stat().st_size < 200_000
    plots = sorted((folder / "plots").iterdir())
    assert [path.stem for path in plots] == [
        "frequency-bins", "frequency-groups", "loss", "p-against-psp", "validation",
    ]  # fmt: skip
    for path in plots:
        assert path.read_bytes().startswith(b"\x89PNG") and path.stat().st_size > 5000


def test_several_runs_with_nasty_names(results, tmp_path):
    write_page(tmp_path / "new" / "page.html", results, png=True)
    assert len(list((tmp_path / "new" / "plots").glob("*.png"))) == 6


def test_without_matplotlib_there_are_no_png_files_but_a_page(results, tmp_path, monkeypatch):
    real = builtins.__import__

    def hidden(name, *more, **others):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return real(name, *more, **others)

    monkeypatch.setattr(builtins, "__import__", hidden)
    with pytest.raises(MissingExtraError, match="megalabel\\[plot\\]"):
        write_page(tmp_path / "page.html", results, png=True)
    assert not (tmp_path / "page.html").exists()
    write_page(tmp_path / "page.html", results)
    assert "<svg" in (tmp_path / "page.html").read_text()


def test_mistakes(run, data, results, tmp_path):
    folder, model = run
    with pytest.raises(DataError, match=r"run: .*no val rows"):
        write_report(folder, model, data, split="val")
    (tmp_path / "file").write_text("keep")
    with pytest.raises(WriteError):
        write_page(tmp_path / "file" / "page.html", results)
    assert (tmp_path / "file").read_text() == "keep"
