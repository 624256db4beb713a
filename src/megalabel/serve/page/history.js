// The last texts, kept in this browser only. Where nothing can be kept, there is no history.

import { button, byId, make, shortened } from "./dom.js";
import { canKeep, keep, kept, onOtherTab } from "./store.js";

const NAME = "megalabel-history";
const TEXTS = 20;
const LONGEST = 10_000; // characters; a longer text is not kept
const SHOWN = 90; // characters

/** Return the texts kept, newest first. */
function texts() {
  const value = kept(NAME);
  return Array.isArray(value) ? value.filter((text) => typeof text === "string").slice(0, TEXTS) : [];
}

/** Put a text first. It replaces the newest one if it only goes on with it. */
export function remember(text) {
  const wanted = text.trim();
  if (!wanted || wanted.length > LONGEST || !canKeep()) return;
  const others = texts().filter((other, index) => other !== wanted && !(index === 0 && wanted.startsWith(other)));
  keep(NAME, [wanted, ...others].slice(0, TEXTS));
  show();
}

let predictText = () => {};

/** Show the history; `onPick` predicts one of its texts. */
export function wireHistory(onPick) {
  predictText = onPick;
  byId("history-clear").addEventListener("click", () => {
    keep(NAME, null);
    show();
    byId("text").focus(); // the button is gone
  });
  onOtherTab(NAME, show);
  show();
}

function show() {
  const all = canKeep() ? texts() : [];
  byId("history").hidden = !all.length;
  byId("history-count").textContent = all.length;
  byId("history-list").replaceChildren(
    ...all.map((text) => make("li", {}, button(shortened(text, SHOWN), () => predictText(text), { class: "link", dir: "auto" }))),
  );
}
