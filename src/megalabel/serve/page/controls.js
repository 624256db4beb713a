// The settings: heads, boost of rare labels, number of labels, minimum score.

import { byId, make } from "./dom.js";
import { count } from "./numbers.js";
import { ANY, cutOf, defaultCut, tailApplies } from "./state.js";

/** Show a state in the controls, except in the one the user is editing (`leave`). */
export function showControls(state, model, { leave = null } = {}) {
  const put = (field, value) => {
    if (field !== leave) field.value = value;
  };
  put(byId("text"), state.text);
  put(byId("k"), state.k);
  byId("k").max = model.limits.k;
  showCut(state, model, put);
  showHeads(state, model);
  showTail(state, model, put);
}

function showHeads(state, model) {
  const list = byId("heads-list");
  const names = ["all", ...model.heads];
  if (list.children.length !== names.length) {
    list.replaceChildren(
      ...names.map((name) =>
        make("label", { class: "choice" }, make("input", { type: "radio", name: "head", value: name }), make("span", {}, name)),
      ),
    );
  }
  for (const field of list.querySelectorAll("input")) field.checked = field.value === state.head;
}

function showTail(state, model, put) {
  const field = byId("tail");
  const value = state.tail ?? model.tail ?? 0;
  const enabled = tailApplies(state, model);
  field.disabled = !enabled;
  put(field, value);
  byId("tail-value").textContent = enabled ? value.toFixed(2) : "";
  const reset = byId("tail-reset");
  reset.hidden = !enabled || state.tail === null;
  reset.textContent = `Reset to ${(model.tail ?? 0).toFixed(2)}`;
  byId("tail-hint").textContent = tailHint(state, model);
}

/** Show the minimum score; where the model has a threshold, say so, with a slider if scores are probabilities. */
function showCut(state, model, put) {
  const [cut, chosen] = [cutOf(state, model), defaultCut(state, model)];
  put(byId("min"), cut === null ? "" : Number(cut.toFixed(4)));
  put(byId("cut"), cut ?? 0);
  byId("cut").hidden = !model.fused;
  byId("cut-field").hidden = chosen === null;
  if (chosen === null) return;
  const reset = byId("cut-reset");
  reset.hidden = state.min === null;
  reset.textContent = `Reset to ${chosen.toFixed(2)}`;
  byId("cut-value").textContent = cut === null ? "none" : cut.toFixed(2);
  byId("cut-hint").textContent = `${chosen.toFixed(2)} was chosen on validation texts for ${model.threshold.goal}.`;
}

function tailHint(state, model) {
  if (!model.fused) {
    return "For fused models only (such as recipe auto): this model adds up the scores of its heads and has no probabilities.";
  }
  if (state.head !== "all") return `For all heads together only: “${state.head}” alone has no probabilities.`;
  return `Ranks by probability × rarity to this power. The default of this model is ${(model.tail ?? 0).toFixed(2)}.`;
}

/** Call `onChange` with changed values, `onSubmit` when the user wants an answer at once. */
export function wireControls({ onChange, onSubmit }) {
  const [text, tail, k, min, cut] = ["text", "tail", "k", "min", "cut"].map(byId);
  text.addEventListener("input", () => onChange({ text: text.value }));
  text.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      onSubmit();
    }
  });
  byId("ask").addEventListener("submit", (event) => {
    event.preventDefault();
    onSubmit();
  });
  byId("heads-list").addEventListener("change", (event) => onChange({ head: event.target.value }, { now: true }));
  tail.addEventListener("input", () => onChange({ tail: Number(tail.value) }));
  byId("tail-reset").addEventListener("click", () => {
    tail.focus(); // the button disappears
    onChange({ tail: null }, { now: true });
  });
  k.addEventListener("input", () => valid() && onChange({ k: Number(k.value) }));
  min.addEventListener("input", () => valid() && onChange({ min: min.value !== "" ? Number(min.value) : byId("cut-field").hidden ? null : ANY }));
  cut.addEventListener("input", () => onChange({ min: Number(cut.value) }));
  byId("cut-reset").addEventListener("click", () => {
    (cut.hidden ? min : cut).focus(); // the button disappears
    onChange({ min: null }, { now: true });
  });

  byId("skip").addEventListener("click", (event) => {
    event.preventDefault(); // the hash holds the state
    [...document.querySelectorAll(".output > section")].find((section) => !section.hidden).focus();
  });
  byId("theme").value = window.megalabelTheme.get();
  byId("theme").addEventListener("change", (event) => window.megalabelTheme.set(event.target.value));

  /** Show which of the numbers is invalid; return whether both are valid. */
  function valid() {
    const invalid = [k, min].filter((field) => !field.checkValidity());
    for (const field of [k, min]) field.setAttribute("aria-invalid", String(invalid.includes(field)));
    byId("k-hint").hidden = !invalid.length;
    byId("k-hint").textContent = invalid.includes(k)
      ? `Labels to show: a whole number from 1 to ${count(Number(k.max))}.`
      : "Minimum score: a number, or empty.";
    return !invalid.length;
  }
}
