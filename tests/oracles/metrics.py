"""Every metric as a plain loop over rows, ranks and labels: slow, and easy to compare with its formula."""

from math import log, log2


def inverse_propensity(counts, points, A, B):
    C = (log(points) - 1) * (B + 1) ** A
    return [1 + C * (n + B) ** -A for n in counts]


def drop_filtered(ids, pairs):
    banned = {(int(row), int(label)) for row, label in pairs}
    out = []
    for i, row in enumerate(ids):
        kept = [int(label) for label in row if (i, int(label)) not in banned]
        out.append(kept + [-1] * (len(row) - len(kept)))
    return out


def measure(ids, truth, labels, inverse, k):
    """All metrics at one k. ids: list of rankings (-1 = no prediction); truth: list of sets; fractions out."""
    n = len(ids)
    tops = [[label for label in row[:k] if label != -1] for row in ids]
    ideal = [sum(1 / log2(j + 2) for j in range(min(k, len(t)))) for t in truth]
    out = {"P": 0.0, "R": 0.0, "RP": 0.0, "nDCG": 0.0, "MRR": 0.0, "hits": 0.0}
    psp, psp_best, psn, psn_best = 0.0, 0.0, 0.0, 0.0
    for top, t, norm in zip(tops, truth, ideal, strict=True):
        right = [label in t for label in top]
        out["P"] += sum(right) / k / n
        if not t:
            continue
        out["R"] += sum(right) / len(t) / n
        out["RP"] += sum(right) / min(k, len(t)) / n
        out["nDCG"] += sum(1 / log2(j + 2) for j, hit in enumerate(right) if hit) / norm / n
        out["MRR"] += next((1 / (j + 1) for j, hit in enumerate(right) if hit), 0) / n
        out["hits"] += any(right) / n
        best = sorted((inverse[label] for label in t), reverse=True)[:k]
        psp += sum(inverse[label] for label in top if label in t)
        psp_best += sum(best)
        psn += sum(inverse[label] / log2(j + 2) for j, label in enumerate(top) if label in t) / norm
        psn_best += sum(weight / log2(j + 2) for j, weight in enumerate(best)) / norm
    out["PSP"] = psp / psp_best if psp_best else 0.0
    out["PSnDCG"] = psn / psn_best if psn_best else 0.0
    relevant = {label for t in truth for label in t}
    covered = {label for top, t in zip(tops, truth, strict=True) for label in top if label in t}
    out["coverage"] = len(covered) / len(relevant) if relevant else 0.0
    return out | _macro(tops, truth, labels)


def _macro(tops, truth, labels):
    sums = {"macroP": 0.0, "macroR": 0.0, "macroF1": 0.0}
    for label in range(labels):
        tp = sum(label in top and label in t for top, t in zip(tops, truth, strict=True))
        fp = sum(label in top and label not in t for top, t in zip(tops, truth, strict=True))
        fn = sum(label not in top and label in t for top, t in zip(tops, truth, strict=True))
        sums["macroP"] += tp / (tp + fp) if tp + fp else 0
        sums["macroR"] += tp / (tp + fn) if tp + fn else 0
        sums["macroF1"] += 2 * tp / (2 * tp + fp + fn) if tp + fp + fn else 0
    return {name: value / labels for name, value in sums.items()}


def equal_volume(counts, bins):
    """Bin number (0 = head) of each label: walk down the labels and see where the middle positive falls."""
    total = sum(counts)
    group, before = [bins - 1] * len(counts), 0
    for label in sorted(range(len(counts)), key=lambda l: (-counts[l], l)):  # noqa: E741
        if counts[label]:
            group[label] = min(bins - 1, int((before + counts[label] / 2) * bins // total))
        before += counts[label]
    return group
