// The list of predicted labels. A label that stays keeps its element, and so its focus and open panel.

import { make, unseen } from "./dom.js";
import { decimal, percent, plural } from "./numbers.js";
import { openWhy } from "./why.js";

const SECONDS_TO_MOVE = 0.2;
const VERDICTS = [["accepted", "✓"], ["rejected", "✗"]];
let rows = new Map(); // uid -> element, for the text shown
let shownText = null;

/** Format a score according to its scale. */
export const formatScore = (score, scale) => (scale === "probability" ? percent(score) : decimal(score));

/**
 * Show labels, best first.
 *
 * `context` holds the text, the scale of scores, the uids added from this page, and what `openWhy` needs.
 */
export function show(list, labels, context) {
  if (context.text !== shownText) {
    list.replaceChildren();
    rows = new Map();
    shownText = context.text;
  }
  const before = new Map([...rows].map(([uid, row]) => [uid, row.offsetTop]));
  list.style.setProperty("--digits", Math.max(2, String(labels.length).length));
  const share = shares(labels, context.scale);
  const kept = new Map();
  labels.forEach((label, index) => {
    const row = rows.get(label.uid) ?? newRow(label, context);
    kept.set(label.uid, row);
    fill(row, label, index, share(label.score), context);
    if (list.children[index] !== row) list.insertBefore(row, list.children[index] ?? null);
  });
  for (const [uid, row] of rows) if (!kept.has(uid)) row.remove();
  rows = kept;
  move(before);
}

/** Remove all labels from the list. */
export function clear(list) {
  list.replaceChildren();
  rows = new Map();
  shownText = null;
}

/** Return a function from score to the filled share of its bar: a probability as is, other scores relative to each other. */
function shares(labels, scale) {
  if (scale === "probability") return (score) => score;
  const scores = labels.map((label) => label.score);
  const max = Math.max(...scores);
  const min = Math.min(0, ...scores);
  return (score) => (max > min ? (score - min) / (max - min) : 1);
}

function newRow(label, context) {
  const row = make("li", { class: "label" });
  const panel = make("div", { class: "panel", id: `why-${label.id}`, hidden: true });
  const why = make("button", { type: "button", class: "why", "aria-expanded": "false", "aria-controls": panel.id });
  why.addEventListener("click", () => {
    const open = why.getAttribute("aria-expanded") !== "true";
    why.setAttribute("aria-expanded", String(open));
    panel.hidden = !open;
    if (open) openWhy(panel, label.uid, context);
  });
  row.append(
    make("span", { class: "rank" }),
    make("span", { class: "text", dir: "auto" }),
    make("span", { class: "meta" }),
    make("span", { class: "score" }, make("span", { class: "bar" }, make("span")), make("span", { class: "number" })),
    why,
    make("span", { class: "verdict" }, ...VERDICTS.map(([said, sign]) => verdictButton(label, said, sign, context))),
    panel,
  );
  return row;
}

function verdictButton(label, said, sign, context) {
  const element = make("button", { type: "button", class: said, "aria-pressed": "false" });
  element.append(make("span", { "aria-hidden": "true" }, sign), unseen(said === "accepted" ? "Accept " : "Reject "), make("span", { class: "unseen name" }));
  element.title = said === "accepted" ? "Accept: the label is right" : "Reject: the label is wrong";
  element.addEventListener("click", () => context.onVerdict(label, said));
  return element;
}

/** Show what the user says about each label: `verdict` maps a uid to accepted, rejected or null. */
export function showVerdicts(verdict) {
  for (const [uid, row] of rows) {
    const said = verdict(uid);
    row.classList.toggle("is-accepted", said === "accepted");
    row.classList.toggle("is-rejected", said === "rejected");
    for (const [name] of VERDICTS) row.querySelector(`:scope > .verdict > .${name}`).setAttribute("aria-pressed", String(said === name));
  }
}

function fill(row, label, index, share, context) {
  const part = (name) => row.querySelector(`:scope > .${name}`);
  part("rank").textContent = index + 1;
  part("text").textContent = label.text;
  part("meta").replaceChildren(
    mark(label.frequency),
    make("span", { class: "points" }, plural(label.points, "training text")),
    ...(context.added.has(label.uid) ? [make("span", { class: "mark new" }, "new")] : []),
    make("code", { class: "uid" }, label.uid),
  );
  part("score").querySelector(".bar > span").style.width = `${(100 * Math.min(Math.max(share, 0), 1)).toFixed(2)}%`;
  part("score").querySelector(".number").replaceChildren(unseen("score "), formatScore(label.score, context.scale));
  part("why").replaceChildren("Why", unseen(` ${label.text}`));
  for (const name of part("verdict").querySelectorAll(".name")) name.textContent = label.text;
}

/** Return the mark of the training frequency; its word carries the meaning, colour and shape only support it. */
export function mark(frequency) {
  return make("span", { class: `mark ${frequency === "unseen" ? "unseen-label" : frequency}` }, frequency);
}

/** Animate labels that change rank, unless the user prefers reduced motion. */
function move(before) {
  if (matchMedia("(prefers-reduced-motion: reduce)").matches) return;
  for (const [uid, row] of rows) {
    const offset = (before.get(uid) ?? row.offsetTop) - row.offsetTop;
    if (offset) {
      row.animate([{ transform: `translateY(${offset}px)` }, { transform: "none" }], {
        duration: 1000 * SECONDS_TO_MOVE,
        easing: "ease-out",
      });
    }
  }
}
