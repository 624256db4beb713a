"""Shared by the tests of the formats: files from a dict, and errors that must be one line."""

import gzip
import shutil

import pytest

from megalabel.data.formats import Options, get_format
from megalabel.errors import DataError


@pytest.fixture
def make(tmp_path):
    """Write {name: text or bytes} into a folder; names ending in .gz are compressed (text only)."""

    def write(files, folder="set"):
        root = tmp_path / folder
        shutil.rmtree(root, ignore_errors=True)
        for name, content in files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            if isinstance(content, str):
                content = content.encode()
                content = gzip.compress(content) if name.endswith(".gz") else content
            path.write_bytes(content)
        return root

    return write


@pytest.fixture
def refused(make):
    """Read files in a format; return the one line of the DataError, which must hold every part."""

    def read(name, files, *parts, options=None, file=None):
        root = make(files)
        with pytest.raises(DataError) as error:
            get_format(name).read(root if file is None else root / file, options or Options())
        text = str(error.value)
        assert "\n" not in text
        for part in parts:
            assert part in text, text
        return text

    return read
