"""GET /metrics, /health and /model."""

import re

import megalabel as ml

LINE = re.compile(r'^[a-z_]+(\{[a-z]+="[^"\\]*"(,[a-z]+="[^"\\]*")*\})? [0-9.]+(e[+-][0-9]+)?$')
TYPES = {
    "megalabel_requests_total": "counter",
    "megalabel_request_seconds": "histogram",
    "megalabel_texts_total": "counter",
    "megalabel_batch_texts": "histogram",
    "megalabel_batch_seconds": "histogram",
    "megalabel_saves_total": "counter",
    "megalabel_queue_texts": "gauge",
    "megalabel_labels": "gauge",
}


def test_counters(run, serving):
    with serving(ml.Model.load(run)) as client, serving(ml.Model.load(run)) as other:
        for texts in (["a"], ["a", "b", "c"]):
            client.post("/predict", json={"texts": texts})
        client.post("/predict", json={})
        client.delete("/labels/some/uid")
        client.get("/no/such/place")
        answer = client.get("/metrics")
        assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        lines = answer.text.splitlines()
        assert all(LINE.match(line) for line in lines if not line.startswith("#")), lines
        assert dict(line.split()[2:] for line in lines if line.startswith("# TYPE")) == TYPES
        samples = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
        values = {name: float(value) for name, value in samples}
        assert values['megalabel_requests_total{method="POST",route="/predict",status="200"}'] == 2
        assert values['megalabel_requests_total{method="POST",route="/predict",status="422"}'] == 1
        assert values['megalabel_requests_total{method="DELETE",route="/labels/{uid}",status="404"}'] == 1
        assert values['megalabel_requests_total{method="GET",route="other",status="404"}'] == 1
        assert values['megalabel_request_seconds_count{route="/predict"}'] == 3
        assert values["megalabel_texts_total"] == 4
        assert values['megalabel_batch_texts_bucket{le="+Inf"}'] == values["megalabel_batch_texts_count"] == 2
        assert values['megalabel_saves_total{done="yes"}'] == values['megalabel_saves_total{done="no"}'] == 0
        assert other.engine.metrics.value("megalabel_texts_total") == 0  # metrics of another server in this process
        assert (values["megalabel_queue_texts"], values["megalabel_labels"]) == (0, 60)


def test_model(client, model):
    assert client.get("/model").json() == {
        "name": "auto", "labels": 60, "heads": model.heads, "fused": True, "tail": model.tail,
        "threshold": model.thresholds.to_dict(),
        "limits": {"texts": 1000, "k": 1000, "body_bytes": 16 << 20, "text_characters": 100_000},
        "version": ml.__version__, "read_only": False,
    }  # fmt: skip


def test_stopping(run, serving):
    with serving(ml.Model.load(run)) as client:
        assert client.get("/health").json() == {"status": "ok"}
        client.engine.stopping = True
        for answer in (client.get("/health"), client.post("/predict", json={"texts": ["a"]})):
            assert (answer.status_code, answer.json()["error"]["code"]) == (503, "stopping")
            assert answer.headers["connection"] == "close"
