// What was asked, kept in the address of the page so that a link shows the same.

export const START = Object.freeze({ text: "", k: 10, head: "all", tail: null, min: null });

const number = (value) => (value === null || value.trim() === "" || !Number.isFinite(Number(value)) ? null : Number(value));

/** Read a state from `#text=…&k=…`; what is missing or makes no sense is as at the start. */
export function fromHash(hash) {
  const given = new URLSearchParams(hash.replace(/^#/, ""));
  const k = number(given.get("k"));
  const tail = number(given.get("tail"));
  return {
    text: given.get("text") ?? START.text,
    k: Number.isInteger(k) && k >= 1 ? k : START.k,
    head: given.get("head") || START.head,
    tail: tail !== null && tail >= 0 && tail <= 1 ? tail : START.tail,
    min: number(given.get("min")),
  };
}

/** Write a state; what is as at the start is left out. */
export function toHash(state) {
  const given = new URLSearchParams();
  for (const name of Object.keys(START)) {
    if (state[name] !== START[name]) given.set(name, state[name]);
  }
  return given.toString();
}

/** Return the body of POST /predict for a state; settings the model does not have are left out. */
export function request(state, model) {
  const body = { texts: [state.text], k: state.k };
  if (state.head !== "all") body.heads = state.head;
  if (state.tail !== null && slides(state, model)) body.tail = state.tail;
  if (state.min !== null) body.min_score = state.min;
  return body;
}

/** Does the tail setting count? Only where all heads of a fused model are asked. */
export const slides = (state, model) => model.fused && state.head === "all";

/** How scores are to be read: probability, weighted (by rarity), sum (of all heads) or head (one alone). */
export function scale(state, model) {
  if (state.head !== "all") return "head";
  if (!model.fused) return "sum";
  return (state.tail ?? model.tail ?? 0) > 0 ? "weighted" : "probability";
}
