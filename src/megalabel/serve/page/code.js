// The request of the page as code: shown, and copied.

import { base, key } from "./api.js";
import { byId } from "./dom.js";
import { copy, curl, python } from "./snippets.js";
import { request } from "./state.js";

const MAX_CODE = 10_000; // characters shown

/** Show the request of a state in the language copied last; return it in each. */
export function showCode(state, model) {
  const body = request(state.text.trim() ? state : { ...state, text: "your text" }, model);
  const withKey = key() !== "";
  const texts = { curl: curl("POST", `${base}predict`, JSON.stringify(body), withKey), python: python(`${base}predict`, body, withKey) };
  const text = texts[byId("code").dataset.kind ?? "curl"];
  byId("code").textContent = text.length > MAX_CODE ? `${text.slice(0, MAX_CODE)}\n… copied in full` : text;
  return texts;
}

/** Connect the buttons; `current` returns the state and the model. */
export function wireCode(current) {
  async function copyAs(kind, name) {
    byId("code").dataset.kind = kind;
    const done = await copy(showCode(...current())[kind], byId("code"));
    const withKey = key() ? " Set MEGALABEL_API_KEY to the key." : "";
    byId("copy-status").textContent = done ? `Copied as ${name}.${withKey}` : "Copy the selected text yourself.";
  }
  byId("copy-curl").addEventListener("click", () => copyAs("curl", "curl"));
  byId("copy-python").addEventListener("click", () => copyAs("python", "Python"));
}
