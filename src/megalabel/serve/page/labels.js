// Adds, renames and removes labels.

import { button, byId, confirmed } from "./dom.js";

export const added = new Set(); // uids added from this page

/**
 * Connect the form that adds labels; return the functions that rename and remove one.
 *
 * `send` calls the server; `onChange` predicts again and returns the labels; `predictText` predicts another text.
 */
export function wireLabels({ send, onChange, predictText, text }) {
  const status = byId("add-status");
  const field = byId("add-text");

  /** Show what was done, with an optional button for the next step. */
  function report(message, { error = false, next = null } = {}) {
    status.classList.toggle("error", error);
    status.replaceChildren(message);
    if (next) status.append(" ", button(next.name, next.onPress, { class: "quiet" }));
  }

  async function attempt(work) {
    try {
      return await work();
    } catch (problem) {
      report(problem.message, { error: true });
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
      predictText(label.text); // no text yet: show that the label is predicted
      report(`Added “${label.text}” as ${label.uid}.`);
      return true;
    }
    const index = (await onChange())?.findIndex((shown) => shown.uid === label.uid) ?? -1;
    const rank = index >= 0 ? `It is number ${index + 1} for this text.` : "It is not among the labels shown for this text.";
    const next = { name: "Try its own text", onPress: () => predictText(label.text) };
    report(`Added “${label.text}” as ${label.uid}. ${rank}`, { next });
    return true;
  }

  byId("add").addEventListener("submit", async (event) => {
    event.preventDefault();
    field.setAttribute("aria-invalid", String(!field.value.trim()));
    if (!field.value.trim()) {
      report("Enter a text for the label.", { error: true });
      field.focus();
    } else if (await add(field.value.trim(), byId("add-uid").value.trim())) {
      field.value = byId("add-uid").value = "";
    }
  });
  field.addEventListener("input", () => field.removeAttribute("aria-invalid"));

  async function onRename(label) {
    const field = byId("rename-text");
    field.value = label.label;
    if (!(await confirmed(byId("rename-dialog"))) || !field.value.trim() || field.value === label.label) return;
    const path = `labels/${encodeURIComponent(label.uid)}`;
    if (!(await attempt(() => send("PATCH", path, { text: field.value.trim() })))) return;
    label.label = field.value.trim();
    report(`Renamed ${label.uid} to “${label.label}”.`);
    await onChange();
  }

  async function onRemove(label) {
    byId("remove-text").textContent = `“${label.label}” (${label.uid})`;
    if (!(await confirmed(byId("remove-dialog")))) return;
    if (!(await attempt(() => send("DELETE", "labels", { uids: [label.uid] })))) return;
    const next = { name: "Add it again, as a new label", onPress: () => add(label.label) };
    report(`Removed “${label.label}”.`, { next });
    await onChange();
    byId("results").focus(); // the focused button is gone
  }

  return { onRename, onRemove };
}
