// Puts the page together: controls, the address, questions to the server and what it answers.

import { base, key } from "./api.js";
import { added, wireLabels } from "./labels.js";
import { afterPause, button, byId, make } from "./dom.js";
import { counted } from "./numbers.js";
import { patiently } from "./patience.js";
import { clear, show, written } from "./results.js";
import { copy, curl, python } from "./snippets.js";
import { fromHash, request, scale, slides, toHash } from "./state.js";
import { showControls, wireControls } from "./controls.js";

const PAUSE = 250; // milliseconds without a key pressed before the server is asked
const EXAMPLES = 5;
const MOST = 10_000; // characters of code shown
const SCALES = {
  probability: "Scores are calibrated probabilities.",
  weighted: "Scores are probabilities times a weight that grows with rarity; bars compare them.",
  sum: "Scores are what the heads say, added up; bars compare them.",
  head: "Scores are what this head says; bars compare them.",
};

let state = fromHash(location.hash);
let model = null;
let underWay = new AbortController();
let labels; // what renames and removes

/** Say what is wrong, or nothing; with a button where something can be done. */
function say(words, press = null, name = "Try now") {
  const message = byId("message");
  message.hidden = !words;
  message.replaceChildren(words);
  if (words && press) message.append(" ", button(name, press, { class: "quiet" }));
}

const announce = afterPause((words) => (byId("live").textContent = words), 600);

/** Call the server outside the search for labels. What changes labels is not sent twice. */
async function send(method, path, body) {
  let waited = false;
  const onWait = (words, hurry) => {
    waited = true;
    say(words, hurry);
  };
  try {
    return await patiently(method, path, body, { say: onWait, again: method === "GET" || path === "explain" });
  } finally {
    if (waited) say("");
  }
}

function showModel() {
  const heads = counted(model.heads.length, "head");
  byId("model").textContent = `${model.name}, ${counted(model.labels, "label")}, ${heads}${model.fused ? ", fused" : ""}`;
  byId("version").textContent = `megalabel ${model.version}`;
  if (model.read_only) {
    for (const field of byId("add").elements) field.disabled = true;
    byId("add-hint").textContent = "This server is read-only: labels can be neither added, renamed nor removed.";
  }
}

async function refreshModel() {
  model = await send("GET", "model");
  showModel();
}

/** Offer texts of labels to begin with, from all over the list: neighbours are often alike. */
async function showExamples() {
  const list = byId("examples");
  if (list.children.length) return;
  const places = Array.from({ length: EXAMPLES }, (_, part) => Math.floor(((part + 0.5) * model.labels) / EXAMPLES));
  const found = await Promise.all(places.map((place) => send("GET", `labels?limit=1&offset=${place}`)));
  const texts = new Set(found.flatMap((answer) => answer.labels.map((label) => label.text)));
  const offer = (text) => make("li", {}, button(text, () => ask(text), { dir: "auto" }));
  list.replaceChildren(...[...texts].map(offer));
}

/** Ask about another text, as if it was typed. */
function ask(text) {
  state = { ...state, text };
  showControls(state, model);
  byId("text").focus();
  return find();
}

/** Find labels for what is asked now; an answer to an older question is never shown. Return them. */
async function find() {
  soon.cancel();
  underWay.abort();
  underWay = new AbortController();
  const { signal } = underWay;
  const asked = state;
  const hash = toHash(asked);
  history.replaceState(null, "", hash ? `#${hash}` : location.pathname + location.search);
  showCode();
  byId("empty").hidden = asked.text.trim() !== "";
  if (!asked.text.trim()) {
    showNothing("");
    showExamples().catch((problem) => say(problem.message));
    return [];
  }
  byId("found").setAttribute("aria-busy", "true");
  try {
    const body = { ...request(asked, model), details: true };
    const onWait = (words, hurry) => {
      showNothing(""); // what stands there answers another question
      say(words, hurry);
    };
    const answer = await patiently("POST", "predict", body, { signal, say: onWait });
    if (signal.aborted) return null;
    showFound(answer.predictions[0], asked);
    return answer.predictions[0];
  } catch (problem) {
    if (signal.aborted) return null;
    showNothing("");
    say(problem.message, find, "Try again");
    return null;
  }
}

const soon = afterPause(find, PAUSE);

function showFound(found, asked) {
  if (!found.length) {
    showNothing(asked.min === null ? "No label was found." : "No label has so high a score.");
    return;
  }
  say("");
  byId("found").removeAttribute("aria-busy");
  byId("legend").hidden = false;
  const kind = scale(asked, model);
  byId("scale").textContent = SCALES[kind];
  byId("summary").textContent = counted(found.length, "label");
  const context = { ...labels, text: asked.text, scale: kind, added, send, readOnly: model.read_only, onAsk: ask };
  show(byId("list"), found, context);
  announce(`${counted(found.length, "label")}. Best: ${found[0].text}, score ${written(found[0].score, kind)}.`);
}

function showNothing(words) {
  say("");
  byId("found").removeAttribute("aria-busy");
  byId("legend").hidden = true;
  byId("summary").textContent = words;
  clear(byId("list"));
  announce(words);
}

function showCode() {
  const body = request(state.text.trim() ? state : { ...state, text: "your text" }, model);
  const texts = { curl: curl(`${base}predict`, body, key() !== ""), python: python(`${base}predict`, body, key() !== "") };
  const text = texts[byId("code").dataset.kind ?? "curl"];
  byId("code").textContent = text.length > MOST ? `${text.slice(0, MOST)}\n… copied in full` : text;
  return texts;
}

async function copyAs(kind, name) {
  byId("code").dataset.kind = kind;
  const done = await copy(showCode()[kind], byId("code"));
  const withKey = key() ? " Put the key into the environment as MEGALABEL_API_KEY." : "";
  byId("copy-status").textContent = done ? `Copied as ${name}.${withKey}` : "Copy the selected text by hand.";
}

function wire() {
  labels = wireLabels({
    send,
    ask,
    text: () => state.text,
    changed: async () => {
      await refreshModel();
      return find();
    },
  });
  wireControls({
    onChange: (values, { now = false } = {}) => {
      state = { ...state, ...values };
      showControls(state, model, { leave: document.activeElement });
      if (now) find();
      else soon();
    },
    onSubmit: find,
  });
  byId("copy-curl").addEventListener("click", () => copyAs("curl", "curl"));
  byId("copy-python").addEventListener("click", () => copyAs("python", "Python"));
  addEventListener("hashchange", () => {
    state = fromHash(location.hash);
    start();
  });
}

/** Show the state as it is, and ask. */
function start() {
  if (state.head !== "all" && !model.heads.includes(state.head)) state.head = "all";
  state.k = Math.min(state.k, model.limits.k);
  if (!slides(state, model)) state.tail = null;
  showControls(state, model);
  find();
}

async function begin() {
  try {
    say("");
    await refreshModel();
  } catch (problem) {
    byId("model").textContent = "";
    say(problem.message, begin, "Try again");
    return;
  }
  state.text ||= byId("text").value; // typed before the server answered
  wire();
  start();
}

begin();
