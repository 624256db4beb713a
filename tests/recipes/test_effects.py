"""Settings that have no effect are refused in one line that names the key and the reason."""

import pytest

from megalabel.errors import SettingError
from megalabel.recipes import load_recipe
from megalabel.recipes.effects import mines_once
from megalabel.recipes.load_recipe import make_recipe

BAG = {"kind": "bag", "source": None, "options": {"dim": 8, "words": 64, "bigrams": 0, "characters": 0}}
TEXT = {"kind": "text", "loss": "decoupled_softmax"}
FREE = {"kind": "free", "loss": "bce"}


def recipe(**sections):
    document = {"name": "mine", "paper": "none", "about": "a recipe", "encoder": BAG, "heads": {"dual": TEXT}}
    training = {"epochs": 1, "encoder": {"lr": 0.1}} | sections.pop("training", {})
    if "encoders" in sections:
        del document["encoder"]
    return make_recipe(document | {"training": training} | sections)


def refusal(make):
    with pytest.raises(SettingError) as error:
        make()
    assert "\n" not in str(error.value)
    return str(error.value)


@pytest.mark.parametrize(
    ("name", "change", "words"),
    [
        ("unidec-cpu", "heads.dual.loss.margin=0.5", "unknown key 'heads.dual.loss.margin'"),
        ("unidec-cpu", "heads.dual.row_dropout=0.5", "unknown key 'heads.dual.row_dropout'"),
        ("unidec-cpu", "heads.dual.init=points", "unknown key 'heads.dual.init'"),
        ("dexml-cpu", "batching.cap=500", "unknown key 'batching.cap'"),
        ("dexml-cpu", "batching.log_q=true", "unknown key 'batching.log_q'"),
        ("astec-cpu", "batching.log_q=true", "unknown key 'batching.log_q'"),
        ("dexml-cpu", "batching.positives={pick: one}", "unknown key 'batching.positives'"),
        ("dexml-cpu", "batching.negatives={mined: 3}", "unknown key 'batching.negatives'"),
        ("dexml-cpu", "batching.refresh={start: 2}", "batching: refresh has no effect: batches are shuffled"),
        ("unidec-cpu", "heads.dual.dropout=0.5", "heads.dual: dropout has no effect: projection is none"),
        ("unidec-cpu", "heads.dual.dim=64", "heads.dual: dim has no effect: projection is none"),
        ("unidec-cpu", "predict.tail=0.5", "predict: tail has no effect: weights is not fusion"),
        ("unidec-cpu", "ngrams={min_df: 2}", "ngrams has no effect: no head reads n-grams"),
    ],
)
def test_pointless_changes(name, change, words):
    assert words in refusal(lambda: load_recipe(name, [change]))


def test_biases_of_mined_labels():
    mined = {"negatives": {"mined": 2, "bias": True}, "refresh": {}}
    words = refusal(lambda: recipe(batching=mined))
    assert words == "batching.negatives.bias has no effect: dual, which finds the labels, has no bias"
    words = refusal(lambda: recipe(heads={"a": FREE | {"bias": True}}, batching={"negatives": {"bias": True}}))
    assert words == "batching.negatives: bias has no effect: mined is 0"
    recipe(heads={"a": FREE | {"bias": True}}, batching=mined)


def test_negatives_of_vectors_that_are_not_trained_are_mined_once():
    stages = [{"name": "one", "heads": ["dual"]}, {"name": "two", "freeze": ["encoder"]}]
    heads = {"dual": TEXT, "free": FREE}

    def make(refresh, **more):
        second = {"negatives": {"mined": 2}, "refresh": refresh, **more}
        return recipe(heads=heads, stages=[stages[0], stages[1] | {"batching": second}])

    words = refusal(lambda: make({"start": 0, "every": 2}))
    assert words.startswith("stage two: batching.refresh.every has no effect: dual, which finds the negatives")
    assert "every_steps has no effect" in refusal(lambda: make({"start": 0, "every_steps": 2}))
    assert [mines_once(staged) for _, staged in make({"start": 0}).stage_recipes()] == [False, True]
    clustered = make({"start": 0, "every": 2}, order="clustered")  # other clusters each time
    assert not mines_once(clustered.stage_recipes()[1][1])
    trained = recipe(heads=heads, batching={"negatives": {"mined": 2}, "refresh": {"every": 2}})
    assert not mines_once(trained)


@pytest.mark.parametrize(
    ("batching", "idle"),
    [
        ({"loss_positives": "one"}, True),
        ({"loss_positives": 1}, True),
        ({"loss_positives": 2}, False),
        ({"labels": "candidates", "positives": {"pick": "one"}, "negatives": {"uniform": 2}}, True),
        ({"positives": {"pick": "one"}}, False),  # labels that other texts bring may be positives too
    ],
)
@pytest.mark.parametrize(
    "loss",
    [
        {"kind": "softmax", "positives": "sum"},
        {"kind": "sup_con", "balanced": True},
        {"kind": "triplet", "positives": 2},
    ],
    ids=lambda loss: loss["kind"],
)
def test_what_a_loss_does_with_several_positives(batching, idle, loss):
    def make(**more):
        return recipe(heads={"dual": TEXT | {"loss": loss | more}}, batching=batching)

    if idle:
        assert "has no effect: it sees one positive of each text" in refusal(make)
    else:
        make()
    if batching.get("labels") != "candidates":
        make(symmetric=0.5)  # a label still has several texts


def test_encoders_of_stages():
    """A stage has the first encoder and those its heads read; one that is trained is not left out in between."""
    heads = {"a": FREE, "b": FREE | {"encoder": "second"}, "c": FREE | {"encoder": "second"}}
    encoders = {"first": BAG, "second": BAG}
    made = recipe(encoders=encoders, heads=heads, stages=[{"name": "one", "heads": ["a"]}, {"name": "two"}])
    assert [list(staged.encoders) for _, staged in made.stage_recipes()] == [["first"], ["first", "second"]]
    stages = [{"name": "one", "heads": ["a", "b"]}, {"name": "two", "heads": ["a"]}, {"name": "three"}]
    words = refusal(lambda: recipe(encoders=encoders, heads=heads, stages=stages))
    assert words == "stage two: no head reads second, which a later stage takes over"


def test_dropout_of_token_vectors_that_are_not_trained():
    encoder = {"kind": "inceptionxml", "source": None, "options": {"token_dropout": 0.1}}
    words = refusal(lambda: recipe(encoder=encoder, heads={"a": FREE}, freeze=["encoder"]))
    assert words == "encoder.options.token_dropout has no effect: encoder is not trained"


def test_groups_of_parameters_that_nothing_belongs_to():
    transformer = {"kind": "transformer", "source": "minilm"}
    rates = {"kind": "row_adagrad", "lr": 0.1}
    words = refusal(lambda: recipe(encoder=transformer, training={"tables": rates}))
    assert words == "training.tables has no effect: no head and no encoder that is trained has a table"
    words = refusal(lambda: recipe(training={"heads": rates}))
    assert words.startswith("training.heads has no effect: no head learns a projection, a query matrix")
    biased = {"dual": TEXT | {"bias": True}}
    words = refusal(lambda: recipe(heads=biased, training={"heads": rates | {"weight_decay": 0.1}}))
    assert words == "training.heads.weight_decay has no effect: only matrices decay, and no head learns one"
    assert recipe(heads=biased, training={"heads": rates}).training.heads.lr == 0.1
    matrix = {"dual": TEXT | {"query_matrix": True}}
    assert recipe(heads=matrix, training={"heads": rates | {"weight_decay": 0.1}}).training.heads.weight_decay == 0.1


def test_an_optimiser_of_encoders_that_have_no_layers():
    plain = BAG | {"options": BAG["options"] | {"residual": False}}
    decay = {"encoder": {"lr": 0.1, "weight_decay": 0.1}, "tables": {"kind": "row_adagrad", "lr": 0.1}}
    words = refusal(lambda: recipe(encoder=plain, training=decay))
    assert words.startswith("training.encoder.weight_decay has no effect: no encoder layer is trained")
    assert recipe(encoder=plain, training=decay | {"tables": None}).training.tables is None  # tables follow
    words = refusal(lambda: recipe(encoder=plain, training={"encoder": {"kind": "sgd", "lr": 0.1}}))
    assert words == "training.encoder.kind is 'sgd', but only tables are trained: set training.tables"
    words = refusal(lambda: recipe(encoder=plain, training={"precision": "bfloat16"}))
    assert words == "training.precision has no effect: the encoders have no layers to compute"


@pytest.mark.parametrize(
    ("sections", "words"),
    [
        ({"freeze": ["dual"]}, "freeze has no effect on 'dual': it has nothing to learn"),
        ({"freeze": ["free"], "heads": {"dual": TEXT, "free": FREE | {"loss": None, "init": "points"}}},
         "freeze has no effect on 'free': it has nothing to learn"),
        ({"freeze": ["encoder"]}, "freeze leaves nothing to train"),
        ({"freeze": ["free"], "heads": {"dual": TEXT, "free": FREE | {"row_dropout": 0.1}}},
         "heads.free.row_dropout has no effect: free is not trained"),
        ({"freeze": ["encoder"], "encoder": BAG | {"options": BAG["options"] | {"thin": 0.1}}, "heads": {"free": FREE}},
         "encoder.options.thin has no effect: encoder is not trained"),
        ({"predict": {"weights": "validation"}}, "predict.weights is validation, but there is only one head"),
    ],
)  # fmt: skip
def test_parts_that_are_not_trained(sections, words):
    assert words in refusal(lambda: recipe(**sections))


@pytest.mark.parametrize(
    ("sides", "words"),
    [
        ({"query": {"label_length": 5}}, "encoders.query.label_length has no effect: it reads no label texts"),
        ({"label": {"query_length": 5}}, "encoders.label.query_length has no effect: it reads no query texts"),
        ({"label": {"label_length": 5, "options": BAG["options"] | {"max_length": 9}}},
         "encoders.label.options.max_length has no effect: texts are cut by label_length"),
    ],
)  # fmt: skip
def test_lengths_of_texts_that_are_not_read(sides, words):
    encoders = {name: BAG | sides.get(name, {}) for name in ("query", "label")}
    heads = {"dual": TEXT | {"encoder": "query", "label_encoder": "label"}}
    assert words in refusal(lambda: recipe(encoders=encoders, heads=heads))
    assert recipe(encoder=BAG | {"label_length": 5}, heads={"free": FREE}).encoder.label_length == 5  # of new labels


@pytest.mark.parametrize(
    ("sections", "stages", "words"),
    [
        ({}, [{"training": {"validation": 0.2}}, {}],
         "stage a: training.validation holds for the whole run: set it in training"),
        ({}, [{}, {"training": {"refit": True}}], "stage b: training.refit holds for the whole run"),
        ({"heads": {"dual": TEXT, "free": FREE}}, [{"heads": ["dual"]}, {"heads": ["dual"]}],
         "heads.free has no effect: no stage has it"),
        ({"training": {"warmup": 0.3}}, [{"training": {"warmup": 0.1}}, {"training": {"warmup": 0.2}}],
         "training.warmup has no effect: every stage sets its own"),
        ({"batching": {"min_batches": 3}}, [{"batching": {"min_batches": 4}}, {"batching": {"min_batches": 5}}],
         "batching.min_batches has no effect: every stage sets its own"),
        ({"batching": {"positives": {"count": 2}}},
         [{"batching": {"positives": {"pick": "one"}}}, {"batching": {"positives": {"pick": "all"}}}],
         "batching.positives.count has no effect: every stage sets its own"),
        ({"batching": {"positives": {"pick": "one"}}},
         [{"batching": {"positives": {"pick": "all"}}}, {"batching": {"positives": "all"}}],
         "batching.positives.pick has no effect: every stage sets its own"),
        ({}, [{}, {"training": {"heads": {"lr": 0.1}}}], "stage b: training.heads has no effect: no head learns"),
        ({}, [{}, {"freeze": ["dual"]}], "stage b: freeze has no effect on 'dual'"),
        ({}, [{"drop": ["dual"]}, {}], "stage a: drop has no effect on 'dual': it has no weights"),
    ],
)  # fmt: skip
def test_stages(sections, stages, words):
    named = [{"name": name} | stage for name, stage in zip("ab", stages, strict=True)]
    assert words in refusal(lambda: recipe(**sections, stages=named))


@pytest.mark.parametrize("sections", [{"drop": ["dual"]}, {"space": "groups", "spaces": {"groups": {"size": 3}}}])
def test_what_a_recipe_without_stages_does_not_have(sections):
    assert "space and drop belong to a stage, and this recipe has none" in refusal(lambda: recipe(**sections))


@pytest.mark.parametrize("name", ["half", "forward", "a.b", "", "all"])
def test_names_with_a_meaning_of_their_own(name):
    words = f"choose another name, {name!r} is reserved"
    assert words in refusal(lambda: recipe(heads={name: TEXT}))
    if name != "all":
        assert words in refusal(lambda: recipe(encoders={name: BAG}))


@pytest.mark.parametrize("name", ["/tmp/elsewhere", "a/b", "a\\b", "C:x", "a\0b", "a\nb", "x" * 101, "\ud800"])
def test_names_that_no_folder_can_have(name):
    """Encoders, fitted heads and spaces are folders of a model; a name must not lead out of it."""
    for sections in ({"heads": {name: TEXT}}, {"encoders": {name: BAG}}, {"spaces": {name: {"size": 3}}}):
        assert "cannot be the name of a folder" in refusal(lambda sections=sections: recipe(**sections))
    assert "stages" in refusal(lambda: recipe(stages=[{"name": name}]))


@pytest.mark.parametrize("name", ["", ".", ".."])
def test_names_of_spaces_that_lead_elsewhere(name):
    assert "cannot be the name of a folder" in refusal(lambda: recipe(spaces={name: {"size": 3}}))


def test_stages_may_each_set_what_a_recipe_must_have():
    stages = [{"name": "a", "training": {"epochs": 2}}, {"name": "b", "training": {"epochs": 3}}]
    assert [staged.training.epochs for _, staged in recipe(stages=stages).stage_recipes()] == [2, 3]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (["freeze=[encoder]"], "detach_epochs has no effect: the encoders it reads are not trained"),
        (["heads.classifier.detach_epochs=6"], "training ends after 5 epochs"),
    ],
)
def test_epochs_without_a_gradient_for_the_encoder_must_be_epochs_in_which_it_learns(changes, words):
    detached = ["heads.classifier.detach_epochs=2"]
    load_recipe("inceptionxml-cpu", detached)
    with pytest.raises(SettingError, match=words):
        load_recipe("inceptionxml-cpu", [*detached, *changes, "batching.refresh={}", "batching.negatives={uniform: 5}"])


def test_a_head_without_weights_cannot_learn_alone():
    with pytest.raises(SettingError, match=r"heads.dual.detach_epochs: it has no weights of its own"):
        load_recipe("dexml-cpu", ["heads.dual.query_matrix=false", "heads.dual.detach_epochs=1"])


GROUPS = {"groups": {"kind": "free", "space": "coarse", "loss": "bce"}, "dual": TEXT}


@pytest.mark.parametrize(
    ("spaces", "words"),
    [
        ({"coarse": {"size": 3, "of": "fin"}, "fine": {"size": 9}}, "spaces.coarse.of is 'fin'; did you mean 'fine'"),
        ({"coarse": {"size": 9, "of": "fine"}, "fine": {"size": 9}}, "spaces.coarse.size must be below that of 'fine'"),
        ({"coarse": {"size": 3, "of": "coarse"}}, "spaces.coarse.of is 'coarse'"),
        ({"coarse": {"size": 3}, "fine": {"size": 9}}, "spaces.fine has no effect: no head scores it"),
        ({"coarse": {"size": 3, "of": "fine", "features": "texts"}, "fine": {"size": 9}}, "features has no effect"),
    ],
)
def test_spaces_made_of_others(spaces, words):
    assert words in refusal(lambda: recipe(spaces=spaces, heads=GROUPS))


def test_spaces_of_a_stage_and_what_they_are_made_of():
    spaces = {"coarse": {"size": 3, "of": "fine"}, "fine": {"size": 9, "features": "ngrams"}}
    stages = [{"name": "a", "space": "coarse", "heads": {"groups": FREE}, "drop": ["groups"]}, {"name": "b"}]
    whole = recipe(spaces=spaces, ngrams={"words": 64}, stages=stages)
    (_, first), (_, second) = whole.stage_recipes()
    assert (list(first.spaces), first.ngrams.words) == (["coarse", "fine"], 64)
    assert (list(second.spaces), second.ngrams.words) == ([], None)


def test_a_shortlist_is_spread_over_groups():
    with pytest.raises(SettingError, match=r"heads.classifier.candidates.graph: 'meta' must score all groups"):
        load_recipe("eclare-cpu", ["heads.meta.space=null", "spaces={}", "stages=[]", "heads.meta.init=text"])
