// Accepts and rejects labels of the text shown, adds others to it, and lists and downloads what was said.

import { button, byId, confirmed, make, shortened, unseen } from "./dom.js";
import { areLasting, correction, corrections, forget, judge, onCorrections, trainingRows, verdict } from "./corrections.js";
import { count, plural } from "./numbers.js";
import { showVerdicts } from "./results.js";
import { save } from "./save.js";
import { wireSearch } from "./search.js";

const SHOWN = 200; // texts in the list; the download has all
const CHARACTERS = 300; // of a text

let shown = { text: "", labels: [] };

/** Show what was said about the labels of a text; without labels, nothing. */
export function showReview(text, labels) {
  shown = { text: text.trim(), labels };
  byId("review").hidden = !shown.text;
  const { accepted, rejected } = correction(shown.text);
  const open = labels.filter((label) => !verdict(shown.text, label.uid));
  showVerdicts((uid) => verdict(shown.text, uid));
  const said = accepted.size + rejected.size;
  byId("review-said").textContent = said
    ? `${count(accepted.size)} accepted, ${count(rejected.size)} rejected, ${count(open.length)} undecided.`
    : `${labels.length ? "Tick" : "Add"} the labels that are right. Together they become a training row.`;
  byId("review-rest").hidden = !said || !open.length;
  byId("review-none").hidden = !said;
  const listed = new Set(labels.map((label) => label.uid));
  const others = [...accepted].filter(([uid]) => !listed.has(uid));
  byId("review-others").replaceChildren(...others.map(([uid, name]) => make("li", {}, chip(shown.text, uid, name))));
}

/** Return an accepted label with a button that takes it back. */
function chip(text, uid, name) {
  const cross = button("✕", () => judge(text, [{ uid, text: name }], null), { class: "quiet" });
  cross.prepend(unseen(`Take back ${name} `));
  return make("span", { class: "chip" }, make("span", { dir: "auto", title: uid }, name), cross);
}

function showCorrections(open) {
  const all = corrections();
  const rows = all.filter(([, { accepted }]) => accepted.size).length;
  byId("corrections-count").textContent = all.length ? count(all.length) : "";
  byId("corrections-said").textContent = all.length
    ? `${plural(all.length, "text")}, ${plural(rows, "training row")}.` +
      (rows < all.length ? " A text without an accepted label is no training row." : "") +
      (areLasting() ? "" : " This browser keeps nothing: download them before you close the page.")
    : "None yet. Under “One text”, tick the labels that are right.";
  byId("corrections-download").disabled = !rows;
  byId("corrections-clear").disabled = !all.length;
  byId("corrections-list").replaceChildren(
    ...all.slice(0, SHOWN).map(([text, { accepted, rejected }]) =>
      make(
        "li",
        {},
        make(
          "div",
          { class: "under" },
          button(shortened(text, CHARACTERS), () => open(text), { class: "link", dir: "auto", title: "Open this text" }),
          removal(text),
        ),
        accepted.size
          ? make("ul", { class: "choices" }, ...[...accepted].map(([uid, name]) => make("li", {}, chip(text, uid, name))))
          : make("p", { class: "hint" }, `No label accepted, ${count(rejected.size)} rejected.`),
      ),
    ),
  );
  byId("corrections-more").textContent = all.length > SHOWN ? `… and ${plural(all.length - SHOWN, "older text")}.` : "";
}

function removal(text) {
  const remove = button("Remove", () => {
    forget(text);
    byId("corrections").focus(); // the button is gone
  }, { class: "quiet" });
  remove.append(unseen(` ${shortened(text, 60)}`));
  return remove;
}

/** Connect the parts. `send` calls the server; `open` shows a text with its labels. */
export function wireReview({ send, open }) {
  const field = byId("review-find");
  wireSearch({
    field,
    list: byId("review-matches"),
    send,
    onPick: (label) => judge(shown.text, [label], "accepted"),
  });
  byId("review-rest").addEventListener("click", () => {
    judge(shown.text, shown.labels.filter((label) => !verdict(shown.text, label.uid)), "accepted");
    byId("review-none").focus(); // the button is gone
  });
  byId("review-none").addEventListener("click", () => {
    forget(shown.text);
    field.focus();
  });
  byId("corrections-download").addEventListener("click", () => {
    save(new Blob([trainingRows()], { type: "text/csv" }), "corrections.csv");
  });
  byId("corrections-clear").addEventListener("click", async () => {
    byId("forget-text").textContent = `${plural(corrections().length, "text")} will be forgotten by this browser.`;
    if (!(await confirmed(byId("forget-dialog")))) return;
    forget();
    byId("corrections").focus();
  });
  onCorrections(() => {
    showReview(shown.text, shown.labels);
    showCorrections(open);
  });
  showCorrections(open);
}

/** Say of a label of the text shown what the pressed button says, or take it back. */
export function press(label, said) {
  judge(shown.text, [label], verdict(shown.text, label.uid) === said ? null : said);
}
