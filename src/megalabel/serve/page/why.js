// Explains why a label fits a text: contributions of the heads, nearest training texts, related labels.

import { button, make } from "./dom.js";
import { decimal, percent, plural, signed } from "./numbers.js";
import { mark } from "./results.js";

const SHOWN = 5; // training texts and related labels

/**
 * Fetch an explanation and show it in a panel.
 *
 * `context` holds the text, `send` (calls the server), `readOnly`, `onRename`, `onRemove` and `onPredict` (predicts
 * another text).
 */
export async function openWhy(panel, uid, context) {
  panel.replaceChildren(make("p", { class: "hint", role: "status" }, "Loading explanation …"));
  try {
    const explanation = await context.send("POST", "explain", { text: context.text, label: uid, k: SHOWN });
    panel.replaceChildren(summary(explanation), heads(explanation), nearest(explanation), related(explanation, context));
    if (!context.readOnly) panel.append(changes(explanation, context));
  } catch (problem) {
    panel.replaceChildren(make("p", { class: "message", role: "alert" }, problem.message));
  }
}

function summary(explanation) {
  const origin = explanation.added
    ? ", added after training and known by its text alone"
    : ` with ${plural(explanation.points, "training text")}`;
  const probability = explanation.probability === null ? "" : ` Its probability is ${percent(explanation.probability)}.`;
  return make(
    "p",
    {},
    `All heads together rank it number ${explanation.rank} among their candidates.${probability} It is a `,
    mark(explanation.frequency),
    ` label${origin}.`,
  );
}

function heads(explanation) {
  const parts = explanation.heads.map((part) => ({ name: part.head, score: decimal(part.score), adds: part.adds }));
  if (explanation.rest_by !== null) parts.push({ name: explanation.rest_by, score: "", adds: explanation.rest });
  const max = Math.max(...parts.map((part) => Math.abs(part.adds)), 1e-9);
  const cell = (text, kind = "td") => make(kind, kind === "th" ? { scope: "row" } : {}, text);
  const total = explanation.rest_by === "frequency" ? "log-odds" : "sum";
  return make(
    "table",
    {},
    make("caption", {}, "Score and contribution of each head"),
    make("thead", {}, make("tr", {}, ...["head", "score", "adds"].map((name) => make("th", { scope: "col" }, name)), make("td"))),
    make(
      "tbody",
      {},
      ...parts.map((part) =>
        make("tr", {}, cell(part.name, "th"), cell(part.score), cell(signed(part.adds)), make("td", { class: "bar-cell" }, contributionBar(part.adds / max))),
      ),
    ),
    make("tfoot", {}, make("tr", {}, cell(total, "th"), cell(""), cell(signed(explanation.total)), make("td"))),
  );
}

/** Return a bar from the middle: to the right for a positive contribution, to the left for a negative one. */
function contributionBar(share) {
  const bar = make("span", { class: share < 0 ? "against" : "for" });
  bar.style.width = `${50 * Math.abs(share)}%`;
  bar.style.left = share < 0 ? `${50 - 50 * Math.abs(share)}%` : "50%";
  return make("span", { class: "contribution", "aria-hidden": "true" }, bar);
}

function nearest(explanation) {
  const rows = explanation.nearest.map((near) =>
    make("li", {}, make("span", { dir: "auto" }, near.text), make("span", { class: "aside" }, `cosine ${decimal(near.similarity)}`)),
  );
  const none = explanation.texts_kept
    ? "No training text has this label."
    : "The model was saved without its training texts.";
  return block("Nearest training texts with this label", rows, none);
}

function related(explanation, context) {
  const rows = explanation.related.map((other) =>
    make(
      "li",
      {},
      button(other.text, () => context.onPredict(other.text), { class: "link", dir: "auto", title: "Find labels for this text" }),
      make("span", { class: "aside" }, `${plural(other.together, "text")}, ${percent(other.share)}`),
    ),
  );
  const none = explanation.texts_kept
    ? "No other label occurs with it."
    : "The model was saved without its training texts.";
  return block("Labels that occur with it", rows, none);
}

function block(title, rows, none) {
  const content = rows.length ? make("ol", { role: "list" }, ...rows) : make("p", { class: "hint" }, none);
  return make("div", { class: "block" }, make("h3", {}, title), content);
}

function changes(explanation, context) {
  return make(
    "div",
    { class: "choices" },
    button("Rename …", () => context.onRename(explanation), { class: "quiet" }),
    button("Remove …", () => context.onRemove(explanation), { class: "quiet" }),
  );
}
