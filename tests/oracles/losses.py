"""Naive loops in double precision, one cell at a time, straight from the formulas."""

import math


def softplus(x):
    return x + math.log1p(math.exp(-x)) if x > 0 else math.log1p(math.exp(x))


def sigmoid(x):
    return 1 / (1 + math.exp(-x)) if x > 0 else math.exp(x) / (1 + math.exp(x))


def logsumexp(xs):
    xs = list(xs)
    if not xs:
        return -math.inf
    top = max(xs)
    return top + math.log(sum(math.exp(x - top) for x in xs))


def cells(s, y, mask, log_q):
    """Positives as (score, y) and scores of negatives of one row."""
    positives, negatives = [], []
    for col in range(len(s)):
        if mask is not None and not mask[col]:
            continue
        if y[col] > 0:
            positives.append((s[col], y[col]))
        else:
            negatives.append(s[col] - (0.0 if log_q is None else log_q[col]))
    return positives, negatives


def shares(positives, how="mean"):
    total = {"mean": sum(y for _, y in positives), "count": len(positives), "sum": 1}[how]
    return [y / total for _, y in positives]


def bce(positives, negatives):
    return sum(softplus(s) for s in negatives) + sum(y * softplus(-s) + (1 - y) * softplus(s) for s, y in positives)


def squared_hinge(positives, negatives, margin=1.0):
    return sum(max(0, margin + s) ** 2 for s in negatives) + sum(
        y * max(0, margin - s) ** 2 + (1 - y) * max(0, margin + s) ** 2 for s, y in positives
    )


def softmax(positives, negatives, how="mean", balanced=False):
    count = math.log(len(positives)) if balanced and positives else 0.0
    lse = logsumexp([s - count for s, _ in positives] + negatives)
    return sum(a * (lse - s) for a, (s, _) in zip(shares(positives, how), positives, strict=True))


def decoupled_softmax(positives, negatives, how="mean"):
    total = 0.0
    for a, (s, _) in zip(shares(positives, how), positives, strict=True):
        total -= a * (s - logsumexp([s, *negatives]))
    return total


def soft_top_k(positives, negatives, k, alpha=2.0):
    scores = [s for s, _ in positives] + negatives
    k = len(positives) if k == "positives" else k
    if k >= len(scores) or not positives:
        return 0.0
    lo, hi = (-max(scores) - 50 / alpha, -min(scores) + 50 / alpha)
    for _ in range(200):
        t = (lo + hi) / 2
        lo, hi = (t, hi) if sum(sigmoid(alpha * (s + t)) for s in scores) < k else (lo, t)
    return sum(a * softplus(-alpha * (s + t)) for a, (s, _) in zip(shares(positives), positives, strict=True))


def triplet(positives, negatives, margin=0.3, k=10, temperature=0.1, hardest_positives=None, weights="score"):
    hardest = sorted(negatives, reverse=True)[:k]
    pairs = list(zip(shares(positives), positives, strict=True))
    if hardest_positives is not None:
        chosen = sorted(positives, key=lambda pair: pair[0])[:hardest_positives]
        pairs = [(y / hardest_positives, (s, y)) for s, y in chosen]
    total = 0.0
    for a, (s, _) in pairs:
        hinges = [max(0.0, n - s + margin) for n in hardest]
        raised = []
        for n, h in zip(hardest, hinges, strict=True):
            if weights == "score":
                raised.append(math.exp(n / temperature if h > 0 else 0.0))
            else:
                raised.append(math.exp(h if weights == "hinge" else n / temperature) if h > 0 else 0.0)
        total += a * sum(e * h for e, h in zip(raised, hinges, strict=True)) / (sum(raised) or 1.0)
    return total


def truncated_softmax(positives, negatives, scale):
    lse = logsumexp([s for s, _ in positives] + negatives)
    chances = [min(1.0, scale * math.exp(s - lse)) for s, _ in positives]
    return -sum(share * math.log(chance) for share, chance in zip(shares(positives), chances, strict=True))


def probabilistic_contrastive(positives, negatives, c=0.75, d=3.0, k=None, threshold=0.05, scaled=True):
    scale = 1 / d if scaled else 1.0
    negatives = negatives if k is None else sorted(negatives, reverse=True)[:k]
    terms = [-scale * math.log(1 - c * math.exp(d * (s - 1))) for s in negatives]
    return sum(t for t in terms if t >= threshold) + sum(y * scale * (d * (1 - s) - math.log(c)) for s, y in positives)
