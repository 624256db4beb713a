// The text and settings, kept in the hash of the URL so that a link reproduces the view.

export const VIEWS = ["text", "file", "labels", "corrections"];
export const ANY = "any"; // a minimum score that every label reaches
export const DEFAULTS = Object.freeze({ view: "text", text: "", k: 10, head: "all", tail: null, min: null });

const number = (value) => (value === null || value.trim() === "" || !Number.isFinite(Number(value)) ? null : Number(value));

/** Read a state from `#text=…&k=…`; missing and invalid values get their defaults. */
export function fromHash(hash) {
  const values = new URLSearchParams(hash.replace(/^#/, ""));
  const k = number(values.get("k"));
  const tail = number(values.get("tail"));
  return {
    view: VIEWS.includes(values.get("view")) ? values.get("view") : DEFAULTS.view,
    text: values.get("text") ?? DEFAULTS.text,
    k: Number.isInteger(k) && k >= 1 ? k : DEFAULTS.k,
    head: values.get("head") || DEFAULTS.head,
    tail: tail !== null && tail >= 0 && tail <= 1 ? tail : DEFAULTS.tail,
    min: values.get("min") === ANY ? ANY : number(values.get("min")),
  };
}

/** Write a state, without the values that are defaults. */
export function toHash(state) {
  const values = new URLSearchParams();
  for (const name of Object.keys(DEFAULTS)) {
    if (state[name] !== DEFAULTS[name]) values.set(name, state[name]);
  }
  return values.toString();
}

/** Return the body of POST /predict for a state; settings that do not apply to the model are omitted. */
export function request(state, model) {
  const body = { texts: [state.text], k: state.k };
  if (state.head !== "all") body.heads = state.head;
  if (state.tail !== null && tailApplies(state, model)) body.tail = state.tail;
  const cut = cutOf(state, model);
  if (cut !== null) body.min_score = cut;
  return body;
}

/** Return whether the tail setting applies: it needs all heads of a fused model. */
export const tailApplies = (state, model) => model.fused && state.head === "all";

/** Return what scores mean: probability, weighted (by rarity), sum (of all heads) or head (one alone). */
export function scale(state, model) {
  if (state.head !== "all") return "head";
  if (!model.fused) return "sum";
  return (state.tail ?? model.tail ?? 0) > 0 ? "weighted" : "probability";
}

/** Return the threshold chosen on validation rows, null if there is none for such scores: it is for all heads, without a tail. */
export const defaultCut = (state, model) =>
  ["probability", "sum"].includes(scale(state, model)) ? (model.threshold?.value ?? null) : null;

/** Return the minimum score of a state, null for none. */
export const cutOf = (state, model) => (state.min === ANY ? null : (state.min ?? defaultCut(state, model)));
