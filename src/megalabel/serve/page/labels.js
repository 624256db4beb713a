// Labels added, renamed and removed from the page.

import { button, byId, confirmed } from "./dom.js";

export const added = new Set(); // uids added from this page

/**
 * Wire the form that adds labels; return what renames and removes one.
 *
 * `send` calls the server; `changed` finds labels again and returns those shown; `ask` asks for another text.
 */
export function wireLabels({ send, changed, ask, text }) {
  const status = byId("add-status");
  const field = byId("add-text");

  /** Say what was done, with a button for what may be wanted next. */
  function say(words, wrong = false, next = null) {
    status.classList.toggle("wrong", wrong);
    status.replaceChildren(words);
    if (next) status.append(" ", button(next.name, next.press, { class: "quiet" }));
  }

  async function attempt(work) {
    try {
      return await work();
    } catch (problem) {
      say(problem.message, true);
      return null;
    }
  }

  async function add(labelText, uid) {
    const body = { texts: [labelText] };
    if (uid) body.uids = [uid];
    const answer = await attempt(() => send("POST", "labels", body));
    if (!answer) return false;
    const [label] = answer.labels;
    added.add(label.uid);
    if (!text().trim()) {
      ask(label.text); // nothing was asked yet: show that it is found
      say(`Added “${label.text}” as ${label.uid}.`);
      return true;
    }
    const place = (await changed())?.findIndex((found) => found.uid === label.uid) ?? -1;
    const where = place >= 0 ? `It is number ${place + 1} for this text.` : "It is not among the labels shown for this text.";
    say(`Added “${label.text}” as ${label.uid}. ${where}`, false, { name: "Ask for its own text", press: () => ask(label.text) });
    return true;
  }

  byId("add").addEventListener("submit", async (event) => {
    event.preventDefault();
    field.setAttribute("aria-invalid", String(!field.value.trim()));
    if (!field.value.trim()) {
      say("Give the label a text.", true);
      field.focus();
    } else if (await add(field.value.trim(), byId("add-uid").value.trim())) {
      field.value = byId("add-uid").value = "";
    }
  });
  field.addEventListener("input", () => field.removeAttribute("aria-invalid"));

  async function onRename(label) {
    const wanted = byId("rename-text");
    wanted.value = label.label;
    if (!(await confirmed(byId("rename-dialog"))) || !wanted.value.trim() || wanted.value === label.label) return;
    const path = `labels/${encodeURIComponent(label.uid)}`;
    if (!(await attempt(() => send("PATCH", path, { text: wanted.value.trim() })))) return;
    label.label = wanted.value.trim();
    say(`Renamed ${label.uid} to “${label.label}”.`);
    await changed();
  }

  async function onRemove(label) {
    byId("remove-text").textContent = `“${label.label}” (${label.uid})`;
    if (!(await confirmed(byId("remove-dialog")))) return;
    if (!(await attempt(() => send("DELETE", "labels", { uids: [label.uid] })))) return;
    say(`Removed “${label.label}”.`, false, { name: "Add it again, as a new label", press: () => add(label.label) });
    await changed();
    byId("found").focus(); // its button is gone
  }

  return { onRename, onRemove };
}
