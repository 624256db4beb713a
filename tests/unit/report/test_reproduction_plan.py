"""What a reproduction takes: the plan of its training, and hours on this CPU."""

import pytest

from megalabel.data.official_sets import find_official_set
from megalabel.report.reproduction_plan import STEP, plan_reproduction

TITLES, TEXTS = find_official_set("LF-AmazonTitles-131K"), find_official_set("LF-Amazon-131K")


def test_all_labels_are_read_in_every_step():
    result = plan_reproduction("dexml", TITLES, changes=["batching.batch_size=1000", "training.epochs=2"])
    assert (result.to_dict()["steps"], result.to_dict()["texts_encoded"]) == (578, 578 * (1000 + 131_073))
    assert result.to_dict()["memory_bytes"] == round(result.cost.device_bytes)


def test_hours_are_arithmetic_and_steps():
    short, long = (plan_reproduction("depsl", TITLES, changes=[f"training.epochs={n}"]) for n in (10, 20))
    work = short.cost.work
    assert short.cpu_hours * 3600 == pytest.approx(10 * (work.flops / short.cpu_flops + STEP * work.steps))
    assert long.cost.total_steps == 2 * short.cost.total_steps
    assert long.cpu_hours * long.cpu_flops > 1.5 * short.cpu_hours * short.cpu_flops


def test_texts_with_content_are_as_long_as_the_recipe_reads_them():
    titles, texts = (plan_reproduction("dexml", official) for official in (TITLES, TEXTS))
    assert titles.cost.workload.encoders[0].query_items < texts.cost.workload.encoders[0].query_items


def test_stages_count_too():
    cost = plan_reproduction("astec", TITLES).cost
    stages = cost.whole.stages()
    assert [stage.recipe.training.epochs for stage in stages] == [20, 15, 10]
    assert cost.total_steps == sum(stage.recipe.training.epochs * stage.steps for stage in stages)


def test_an_encoder_of_unknown_size_leaves_the_cost_open(capsys):
    from megalabel.__main__ import main

    change = "encoder.source=org/unheard-of"
    result = plan_reproduction("dexml", TITLES, changes=[change])
    assert (result.cost, result.to_dict()["steps"], result.problems) == (None, None, ())
    assert main(["reproduce", "dexml", "--as", TITLES.name, "--dry", "--set", change]) == 0
    assert "our cost: unknown" in capsys.readouterr().out
