import ctypes

from megalabel import memory


def test_memory_of_another_c_library_is_left_alone(monkeypatch):
    def missing(name):
        raise OSError("no C library")

    memory._malloc_trim.cache_clear()
    monkeypatch.setattr(ctypes, "CDLL", missing)
    assert memory._malloc_trim()(0) == 0
    memory.trim_memory()
    monkeypatch.undo()
    memory._malloc_trim.cache_clear()
