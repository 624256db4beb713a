"""Every recipe file: found by glob, valid, short, rebuilt from what it prints; wrong keys are named."""

import re
from pathlib import Path

import pytest
import yaml

import megalabel.recipes
from megalabel.errors import DataError, SettingError
from megalabel.recipes import list_recipes, load_recipe
from megalabel.recipes.load_recipe import dump_recipe, make_recipe
from megalabel.recipes.published import load_published
from megalabel.recipes.schema import switch_labels

FILES = sorted(Path(megalabel.recipes.__file__).parent.rglob("*.yaml"))


def test_all_files_are_listed():
    assert sorted(path.stem for path in FILES) == list_recipes()
    assert len(FILES) >= 5


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_recipe_is_valid_short_and_rebuilds_itself(path):
    recipe = load_recipe(path.stem)
    assert recipe.name == path.stem
    assert len(path.read_text().splitlines()) <= 40
    assert make_recipe(yaml.safe_load(dump_recipe(recipe))) == recipe
    assert recipe.paper
    assert all(figure.source for figure in load_published(path.stem))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("training.epocs=3", "did you mean 'epochs'?"),
        ("heads.dual.los.kind=softmax", "did you mean 'loss'?"),
        ("heads.dual.temperature.valu=1", "did you mean 'value'?"),
        ("traning.epochs=3", "did you mean 'training'?"),
        ("training.epochs=many", "training.epochs"),
        ("heads.dual.loss.kind=softmx", "'softmax'"),
        ("batching.negatives.mind=3", "did you mean 'mined'?"),
        ("heads.words={kind: memory, neighbor: 3}", "did you mean 'neighbours'?"),
        ("training.encoder.lrr=1", "did you mean 'lr'?"),
        ("training.tables={kind: adamw, lrs: 1}", "did you mean 'lr'?"),
        ("stages=[{names: one}]", "did you mean 'name'?"),
        ("augment={del: 0.5}", "did you mean 'delta'?"),
        ("heads.dual.loss.cells=true", "unknown key"),
        ("training", "key=value"),
        ("seed.x=1", "seed"),
        ("predict.weights={dual: 1, other: 2}", "predict.weights"),
        ("seed=[", "not YAML"),
    ],
)
def test_wrong_changes_give_one_line(change, words):
    with pytest.raises(SettingError) as error:
        load_recipe("unidec-cpu", [change])
    assert words in str(error.value)
    assert "\n" not in str(error.value)


def test_unknown_recipe_offers_the_nearest():
    with pytest.raises(SettingError, match="did you mean 'unidec'"):
        load_recipe("unidc")


def test_a_recipe_from_a_file(tmp_path):
    (tmp_path / "mine.yaml").write_text(dump_recipe(load_recipe("unidec-cpu")))
    assert load_recipe(tmp_path / "mine.yaml") == load_recipe("unidec-cpu")
    (tmp_path / "broken.yaml").write_text("a: [1,")
    with pytest.raises(SettingError, match=r"broken\.yaml"):
        load_recipe(tmp_path / "broken.yaml")


@pytest.mark.parametrize(
    ("points", "size", "without"),
    [(100_000, 1021, 1021), (8192, 1024, 1024), (8191, 911, 1024), (60, 7, 1024), (5, 1, 1024)],
)
def test_min_batches_makes_batches_smaller_on_small_sets(points, size, without):
    assert load_recipe("auto").batching.size(points) == size
    assert load_recipe("unidec-cpu").batching.size(points) == without


def test_published_figures_of_a_recipe_file_are_beside_it(tmp_path):
    assert load_published(tmp_path / "mine.yaml") == []
    (tmp_path / "published").mkdir()
    path = tmp_path / "published" / "mine.json"
    path.write_text('[{"data": "EURLex-4K", "metrics": {"P@1": 80}, "source": "nowhere"}]')
    (figures,) = load_published(tmp_path / "mine.yaml")
    assert (figures.data, figures.metrics, figures.changes) == ("EURLex-4K", {"P@1": 80.0}, ())
    for text, words in (
        ("[", "mine.json"),
        ('[{"data": 3}]', "0.data"),
        ('[{"dat": "x"}]', "unknown key '0.dat'; did you mean 'data'"),
    ):
        path.write_text(text)
        with pytest.raises(DataError, match=words) as error:
            load_published(tmp_path / "mine.yaml")
        assert "\n" not in str(error.value)


def test_every_file_of_published_figures_belongs_to_a_recipe():
    names = {path.stem for path in (FILES[0].parent / "published").glob("*.json")}
    assert names <= set(list_recipes())
    assert all(load_published(name) for name in names)


def test_gandalf_is_reproduced_in_the_form_of_the_paper():
    variants = [
        (name, figures) for name in list_recipes() for figures in load_published(name) if "gandalf" in figures.variant
    ]
    assert len(variants) > 20
    for name, figures in variants:
        augment = load_recipe(name, figures.changes).augment
        assert (augment.kind, augment.known, augment.max_targets) == ("gandalf", "ignore", None)
        assert (augment.targets, augment.graph, augment.delta, augment.below_delta) == (
            "conditional", "counts", 0.1, "negative",
        )  # fmt: skip


def test_first_refresh_as_in_the_sources():
    """DEXML: epochs from 0, mined from epoch 6 on (epoch > hard_neg_start = 5); UniDEC: epochs from 1, from 5 on."""
    first = {name: load_recipe(name).batching.refresh for name in ("dexml-hnm", "depsl", "unidec")}
    assert {name: refresh.start for name, refresh in first.items()} == {"dexml-hnm": 6, "depsl": 4, "unidec": 4}
    assert all(refresh.every == 5 for refresh in first.values())


def test_gradients_are_clipped_only_if_the_recipe_says_so():
    clips = {name: clip for name in list_recipes() if (clip := load_recipe(name).training.clip) is not None}
    assert clips == {"dpr": 2.0, "dpr-cpu": 2.0}  # the released code of DPR clips; no source of the others does


def test_unidec_and_depsl_decay_all_groups():
    for name in ("depsl", "unidec"):
        training = load_recipe(name).training
        groups = [group for group in (training.encoder, training.heads, training.tables) if group is not None]
        assert [group.weight_decay for group in groups] == [0.05] * len(groups)
    assert load_recipe("unidec").training.tables.weight_decay == 0.05


def test_changing_batching_labels_drops_keys_of_the_old_kind():
    batching = {"batch_size": 8, "order": "clustered", "cap": 3, "negatives": {"mined": 2}, "refresh": {"start": 1}}
    assert switch_labels(batching, "all") == {
        "batch_size": 8, "order": "clustered", "refresh": {"start": 1}, "labels": "all",
    }  # fmt: skip
    shuffled = switch_labels(batching | {"order": "shuffled"}, "candidates")
    assert shuffled["refresh"] == {"start": 1}
    assert "cap" not in shuffled
    assert "refresh" not in switch_labels(batching | {"order": "shuffled"}, "all")


def test_a_stage_may_name_another_kind():
    """Keys of the kind it replaces are gone; the same kind is changed key by key."""
    stages = [
        {"name": "one", "batching": {"order": {"kind": "by_label", "power": 0.5}, "refresh": {"start": 3}}},
        {"name": "two", "batching": {"order": {"double_at": [2]}}, "training": {"tables": {"kind": "sgd", "lr": 0.1}}},
    ]
    document = {"order": {"kind": "clustered", "size": 4}, "negatives": {"mined": 1}}
    recipe = load_recipe("unidec-cpu", [f"batching={document}", f"stages={stages}"])
    one, two = (stage for _, stage in recipe.stage_recipes())
    assert (one.batching.order.kind, one.batching.order.power, one.batching.refresh.start) == ("by_label", 0.5, 3)
    assert (two.batching.order.size, two.batching.order.double_at, two.training.tables.lr) == (4, (2,), 0.1)


def test_a_stage_may_pick_other_positives():
    stages = [{"name": "one", "batching": {"positives": {"pick": "one"}}}, {"name": "two"}]
    recipe = load_recipe("depsl-cpu", [f"stages={stages}"])
    one, two = (stage.batching.positives for _, stage in recipe.stage_recipes())
    assert (one.pick, two.pick, two.count) == ("one", "some", 3)


def test_keys_of_a_stage_are_named_by_the_stage():
    recipe = load_recipe("astec", ["stages.surrogate.training.encoder.lr=0.5", "stages.extreme.training.epochs=16"])
    surrogate, extreme, reranker = (stage.training for _, stage in recipe.stage_recipes())
    assert (surrogate.encoder.lr, surrogate.epochs) == (0.5, 20)
    assert (extreme.encoder.lr, extreme.epochs) == (0.001, 16)
    assert (reranker.encoder.lr, reranker.epochs) == (0.002, 10)
    for change, words in (
        ("stages.surogate.training.epochs=3", "there is no stage 'surogate'; did you mean 'surrogate'?"),
        ("stages.surrogate=3", "'stages.surrogate' is a whole stage"),
        ("stages.surrogate.traning.epochs=3", "did you mean 'training'?"),
    ):
        with pytest.raises(SettingError, match=re.escape(words)):
            load_recipe("astec", [change])


def test_published_settings_by_data_set():
    """DeepXML's learning rates and sizes; one positive drawn per text and step in the code of DEXML."""
    astec = {entry.data: load_recipe("astec", entry.changes) for entry in load_published("astec") if not entry.variant}
    stages = {data: [stage.training for _, stage in recipe.stage_recipes()] for data, recipe in astec.items()}
    rates = {data: tuple(training.encoder.lr for training in each) for data, each in stages.items()}
    assert rates["LF-AmazonTitles-131K"] == (0.03, 0.001, 0.002)
    assert rates["LF-AmazonTitles-1.3M"] == (0.003, 0.0005, 0.002)
    assert rates["LF-WikiSeeAlsoTitles-320K"] == rates["LF-WikiSeeAlso-320K"] == (0.005, 0.002, 0.002)
    assert rates["LF-WikiTitles-500K"] == (0.005, 0.0005, 0.002)
    assert rates["LF-Amazon-131K"] == (0.02, 0.0005, 0.001)
    epochs = {data: [(training.epochs, *training.milestones) for training in each] for data, each in stages.items()}
    assert epochs["LF-AmazonTitles-131K"] == epochs["LF-WikiSeeAlsoTitles-320K"] == [(20, 14), (15, 14), (10, 8)]
    assert epochs["LF-WikiTitles-500K"] == [(20, 14), (15, 10), (10, 8)]
    assert epochs["LF-Amazon-131K"] == [(20, 14), (20, 14), (15, 8)]
    assert {training.schedule for each in stages.values() for training in each} == {"constant"}
    assert {training.warmup for each in stages.values() for training in each} == {0}
    shortlists = {data: recipe.stage_recipes()[2][1].batching.negatives.top for data, recipe in astec.items()}
    assert [shortlists[data] for data in ("LF-AmazonTitles-131K", "LF-WikiTitles-500K", "LF-AmazonTitles-1.3M")] == [
        200, 300, 350,
    ]  # fmt: skip
    sizes = {data: {part.options.dim for part in recipe.encoders.values()} for data, recipe in astec.items()}
    assert {data for data, dims in sizes.items() if dims == {512}} == {"LF-Amazon-131K", "LF-WikiSeeAlso-320K"}
    inception = {e.data: load_recipe("inceptionxml", e.changes) for e in load_published("inceptionxml")}
    dropped = {data: recipe.heads["classifier"].query_dropout for data, recipe in inception.items()}
    assert (dropped.pop("LF-WikiTitles-500K"), set(dropped.values())) == (0.4, {0.5})
    for name in ("dexml", "dexml-hnm"):
        drawn = {e.variant: load_recipe(name, e.changes).batching.loss_positives for e in load_published(name)}
        assert drawn.pop("bce", "all") == "all"
        assert (drawn.pop("soft top-5", 5), drawn.pop("soft top-100", 100)) == (5, 100)
        assert set(drawn.values()) == {"one"}
    mined = {
        (e.data, e.variant): load_recipe("dexml-hnm", e.changes).batching.negatives.mined
        for e in load_published("dexml-hnm")
    }
    assert mined == {
        ("EURLex-4K", ""): 1, ("LF-AmazonTitles-131K", ""): 1, ("LF-Wikipedia-500K", ""): 10,
        ("LF-Wikipedia-500K", "released code"): 5, ("LF-AmazonTitles-1.3M", ""): 10,
    }  # fmt: skip


def test_a_tree_combines_two_heads():
    with pytest.raises(SettingError, match=r"predict.weights is tree, which combines at least two heads"):
        load_recipe("depsl-cpu", ["predict={weights: tree}"])
    with pytest.raises(SettingError, match=r"beta has no effect: weights is not tree"):
        load_recipe("unidec-cpu", ["predict={weights: fusion, beta: 2}"])


def test_changing_batching_labels_keeps_shared_keys():
    everything = load_recipe("dexml-hnm-cpu", ["batching.labels=all"]).batching
    assert (everything.labels, everything.batch_size) == ("all", 1024)
    with pytest.raises(SettingError, match=r"unknown key 'batching.negatives'"):
        load_recipe("dexml-hnm-cpu", ["batching.labels=all", "batching.negatives={mined: 3}"])
    astec = load_recipe("astec")
    surrogate = astec.stage_recipes()[0][1].batching
    assert (surrogate.labels, surrogate.batch_size) == ("all", 255)
