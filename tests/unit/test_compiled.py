"""Compiled code works without a cache folder, and numba is loaded only if it is used."""

import subprocess
import sys
from importlib import import_module

from megalabel.compiled import compiled

module = import_module("megalabel.compiled")


def test_without_a_cache_folder_code_is_compiled_each_time(monkeypatch):
    def njit(**options):
        if options.get("cache"):
            raise RuntimeError("cannot cache function: no locator available")
        return lambda function: function

    monkeypatch.setattr(module, "njit", njit)
    assert compiled(len)([1, 2]) == 2


def test_numba_is_loaded_on_first_use_only():
    names = ", ".join(f"megalabel.{name}" for name in ("heads", "encoders", "graphs", "model"))
    code = f"import sys, {names}; sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
