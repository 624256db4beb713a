// Why a label fits a text: what every head adds, the nearest training texts, labels seen together.

import { button, make } from "./dom.js";
import { counted, decimal, percent, signed } from "./numbers.js";
import { mark } from "./results.js";

const NAMED = 5; // training texts and related labels

/**
 * Ask for an explanation and show it in a panel.
 *
 * `context` has the text, `send` (call the server, with key and patience), `readOnly`, `onRename`, `onRemove`
 * and `onAsk` (for the text of another label).
 */
export async function openWhy(panel, uid, context) {
  panel.replaceChildren(make("p", { class: "hint", role: "status" }, "Asking why …"));
  try {
    const found = await context.send("POST", "explain", { text: context.text, label: uid, k: NAMED });
    panel.replaceChildren(inWords(found), heads(found), nearest(found), related(found, context));
    if (!context.readOnly) panel.append(changes(found, context));
  } catch (problem) {
    panel.replaceChildren(make("p", { class: "message", role: "alert" }, problem.message));
  }
}

function inWords(found) {
  const seen = found.added
    ? "added after training, known by its text alone"
    : `seen with ${counted(found.points, "training text")}`;
  const likely = found.probability === null ? "" : ` Its probability is ${percent(found.probability)}.`;
  return make(
    "p",
    {},
    `By all heads together it is number ${found.rank} among the labels they propose.${likely} It is a `,
    mark(found.frequency),
    ` label, ${seen}.`,
  );
}

function heads(found) {
  const parts = found.heads.map((part) => ({ name: part.head, score: decimal(part.score), adds: part.adds }));
  if (found.probability !== null) parts.push({ name: "frequency", score: "", adds: found.rest });
  const most = Math.max(...parts.map((part) => Math.abs(part.adds)), 1e-9);
  const cell = (text, kind = "td") => make(kind, kind === "th" ? { scope: "row" } : {}, text);
  const total = found.probability === null ? "sum" : "log-odds";
  return make(
    "table",
    {},
    make("caption", {}, "What each head says, and adds"),
    make("thead", {}, make("tr", {}, ...["head", "score", "adds"].map((name) => make("th", { scope: "col" }, name)), make("td"))),
    make(
      "tbody",
      {},
      ...parts.map((part) =>
        make("tr", {}, cell(part.name, "th"), cell(part.score), cell(signed(part.adds)), make("td", { class: "way" }, way(part.adds / most))),
      ),
    ),
    make("tfoot", {}, make("tr", {}, cell(total, "th"), cell(""), cell(signed(found.total)), make("td"))),
  );
}

/** Return a bar to the right of the middle for what speaks for the label, to the left for what speaks against. */
function way(share) {
  const bar = make("span", { class: share < 0 ? "against" : "for" });
  bar.style.width = `${50 * Math.abs(share)}%`;
  bar.style.left = share < 0 ? `${50 - 50 * Math.abs(share)}%` : "50%";
  return make("span", { class: "ways", "aria-hidden": "true" }, bar);
}

function nearest(found) {
  const rows = found.nearest.map((near) =>
    make("li", {}, make("span", { dir: "auto" }, near.text), make("span", { class: "aside" }, `cosine ${decimal(near.similarity)}`)),
  );
  const none = found.texts_kept
    ? "No training text carries this label."
    : "The model was saved without its training texts.";
  return block("Nearest training texts with this label", rows, none);
}

function related(found, context) {
  const rows = found.related.map((other) =>
    make(
      "li",
      {},
      button(other.text, () => context.onAsk(other.text), { class: "link", dir: "auto", title: "Find labels for this text" }),
      make("span", { class: "aside" }, `${counted(other.together, "text")}, ${percent(other.share)}`),
    ),
  );
  const none = found.texts_kept
    ? "No other label was seen together with it."
    : "The model was saved without its training texts.";
  return block("Labels seen together with it", rows, none);
}

function block(title, rows, none) {
  const content = rows.length ? make("ol", { role: "list" }, ...rows) : make("p", { class: "hint" }, none);
  return make("div", { class: "block" }, make("h3", {}, title), content);
}

function changes(found, context) {
  return make(
    "div",
    { class: "choices" },
    button("Rename …", () => context.onRename(found), { class: "quiet" }),
    button("Remove …", () => context.onRemove(found), { class: "quiet" }),
  );
}
