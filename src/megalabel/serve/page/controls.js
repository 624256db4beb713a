// The settings beside the text: heads, how far rare labels come forward, how many labels.

import { byId, make } from "./dom.js";
import { count } from "./numbers.js";
import { slides } from "./state.js";

/** Show a state in the controls; the one in use (`leave`) is not written to. */
export function showControls(state, model, { leave = null } = {}) {
  const put = (field, value) => {
    if (field !== leave) field.value = value;
  };
  put(byId("text"), state.text);
  put(byId("k"), state.k);
  put(byId("min"), state.min ?? "");
  byId("k").max = model.limits.k;
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
  const works = slides(state, model);
  field.disabled = !works;
  put(field, value);
  byId("tail-value").textContent = works ? value.toFixed(2) : "";
  const own = byId("tail-own");
  own.hidden = !works || state.tail === null;
  own.textContent = `Back to ${(model.tail ?? 0).toFixed(2)}`;
  byId("tail-hint").textContent = tailHint(state, model);
}

function tailHint(state, model) {
  if (!model.fused) {
    return "For fused models only (recipe auto): this one adds up what its heads say, so there are no probabilities to weigh.";
  }
  if (state.head !== "all") return `For all heads together: “${state.head}” alone has no probabilities to weigh.`;
  return `Ranks by probability × rarity to this power. The model’s own is ${(model.tail ?? 0).toFixed(2)}.`;
}

/** Call `onChange` with what was changed, `onSubmit` when an answer is wanted at once. */
export function wireControls({ onChange, onSubmit }) {
  const [text, tail, k, min] = ["text", "tail", "k", "min"].map(byId);
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
  byId("tail-own").addEventListener("click", () => {
    tail.focus(); // the button goes away
    onChange({ tail: null }, { now: true });
  });
  k.addEventListener("input", () => valid() && onChange({ k: Number(k.value) }));
  min.addEventListener("input", () => valid() && onChange({ min: min.value === "" ? null : Number(min.value) }));

  byId("skip").addEventListener("click", (event) => {
    event.preventDefault(); // the address holds the state
    byId("found").focus();
  });
  byId("theme").value = window.megalabelTheme.get();
  byId("theme").addEventListener("change", (event) => window.megalabelTheme.set(event.target.value));

  /** Say in words what is wrong with the numbers. */
  function valid() {
    const wrong = [k, min].filter((field) => !field.checkValidity());
    for (const field of [k, min]) field.setAttribute("aria-invalid", String(wrong.includes(field)));
    byId("k-hint").hidden = !wrong.length;
    byId("k-hint").textContent = wrong.includes(k)
      ? `Labels to show: a whole number from 1 to ${count(Number(k.max))}.`
      : "Lowest score: a number, or nothing.";
    return !wrong.length;
  }
}
