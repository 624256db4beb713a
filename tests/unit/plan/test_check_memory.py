import time

import pytest

from megalabel import load
from megalabel.plan import check_memory as module
from megalabel.plan.check_memory import NoRoomError, check_memory
from megalabel.plan.machine import main_memory, measured_flops
from megalabel.recipes import load_recipe

DATA = load("synthetic:points=500,labels=60")


def test_ordinary_trainings_pass_quickly():
    for name in ("unidec-cpu", "dexml-cpu", "auto", "unidec"):
        recipe = load_recipe(name)
        start = time.perf_counter()
        check_memory(recipe, DATA)
        assert time.perf_counter() - start < 1


def test_a_training_that_cannot_fit_is_refused_with_numbers_and_a_remedy():
    recipe = load_recipe("unidec-cpu", ["encoder.options.dim=4194304"])  # a table of 2 TiB, a layer of 64
    with pytest.raises(NoRoomError) as error:
        check_memory(recipe, DATA)
    line = str(error.value)
    assert "this training would take" in line
    assert "TiB of memory, there is" in line
    assert "--set encoder.options.dim=" in line
    assert "--force" in line


def test_only_above_all_memory_and_swap(monkeypatch):
    recipe = load_recipe("unidec-cpu")
    monkeypatch.setattr(module, "main_memory", lambda swap: 4e9 if swap else 1e5)
    check_memory(recipe, DATA)
    monkeypatch.setattr(module, "main_memory", lambda swap: 4e8)
    with pytest.raises(NoRoomError):
        check_memory(recipe, DATA)
    monkeypatch.setattr(module, "main_memory", lambda swap: None)
    check_memory(recipe, DATA)


def test_processes_on_one_machine_share_its_memory(monkeypatch):
    recipe = load_recipe("unidec-cpu")
    monkeypatch.setattr(module, "main_memory", lambda swap: 4e9)
    monkeypatch.setenv("WORLD_SIZE", "8")
    check_memory(recipe, DATA)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "8")
    with pytest.raises(NoRoomError, match="for each process"):
        check_memory(recipe, DATA)


def test_an_unknown_size_does_not_refuse_the_run(monkeypatch):
    monkeypatch.setattr(module, "main_memory", lambda swap: 1.0)
    check_memory(load_recipe("unidec", ["encoder.source=org/unheard-of"]), DATA)
    monkeypatch.setenv("WORLD_SIZE", "some")
    check_memory(load_recipe("unidec-cpu"), DATA)


def test_this_machine():
    assert 1e8 < main_memory() <= main_memory(swap=True)
    assert 1e8 < measured_flops() < 1e16
