// What the user says about labels of texts: kept in this browser, downloaded as training rows.

import { written } from "./csv.js";
import { keep, kept, onOtherTab } from "./store.js";

const NAME = "megalabel-corrections";
const listeners = [];
let texts = read(); // text -> {accepted: uid -> label text, rejected: uid -> label text}, oldest first
let lasting = true;

function read() {
  try {
    const rows = kept(NAME) ?? [];
    return new Map(rows.map(([text, accepted, rejected]) => [text, { accepted: new Map(accepted), rejected: new Map(rejected) }]));
  } catch {
    return new Map(); // not what this page has written
  }
}

function changed() {
  const rows = [...texts].map(([text, { accepted, rejected }]) => [text, [...accepted], [...rejected]]);
  lasting = keep(NAME, rows.length ? rows : null);
  for (const listener of listeners) listener();
}

/** Call back after each change, in this tab or another. */
export function onCorrections(callback) {
  listeners.push(callback);
}
onOtherTab(NAME, () => {
  texts = read();
  for (const listener of listeners) listener();
});

/** Return the corrected texts as `[text, {accepted, rejected}]`, newest first. */
export const corrections = () => [...texts].reverse();

/** Return whether the corrections outlive this page. */
export const areLasting = () => lasting;

/** Return the labels accepted and rejected for a text. */
export const correction = (text) => texts.get(text.trim()) ?? { accepted: new Map(), rejected: new Map() };

/** Return what is said about a label: accepted, rejected or null. */
export function verdict(text, uid) {
  const { accepted, rejected } = correction(text);
  return accepted.has(uid) ? "accepted" : rejected.has(uid) ? "rejected" : null;
}

/** Say about labels of a text that they are accepted, rejected or, with null, neither. */
export function judge(text, labels, said) {
  const row = correction(text);
  for (const label of labels) {
    row.accepted.delete(label.uid);
    row.rejected.delete(label.uid);
    if (said) row[said].set(label.uid, label.text);
  }
  if (row.accepted.size + row.rejected.size) texts.set(text.trim(), row);
  else texts.delete(text.trim());
  changed();
}

/** Forget what is said about a text, or about all. */
export function forget(text = null) {
  if (text === null) texts.clear();
  else texts.delete(text);
  changed();
}

/**
 * Return the texts with an accepted label as rows to train on, with columns `text` and `labels`.
 *
 * The labels of a row are the uids as a JSON list: whatever they contain, it is read back as it is.
 */
export function trainingRows() {
  const rows = [...texts].filter(([, { accepted }]) => accepted.size);
  return [["text", "labels"], ...rows.map(([text, { accepted }]) => [text, JSON.stringify([...accepted.keys()])])]
    .map((cells) => `${written(cells, ",")}\n`)
    .join("");
}
