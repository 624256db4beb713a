// Connects the parts of the page: controls, URL, requests and results.

import { added, wireLabels } from "./labels.js";
import { wireBrowse } from "./browse.js";
import { button, byId, debounce, make } from "./dom.js";
import { wireFile } from "./file.js";
import { remember, wireHistory } from "./history.js";
import { showCode, wireCode } from "./code.js";
import { plural } from "./numbers.js";
import { clear, formatScore, show } from "./results.js";
import { callWithRetry } from "./retry.js";
import { press, showReview, wireReview } from "./review.js";
import { ANY, cutOf, defaultCut, fromHash, request, scale, tailApplies, toHash } from "./state.js";
import { showControls, wireControls } from "./controls.js";
import { showView, wireViews } from "./views.js";

const PAUSE = 250; // milliseconds between the last key press and the request
const SETTLED = 2000; // milliseconds without a key press until a text belongs to the last texts
const EXAMPLES = 5;
const SCALES = {
  probability: "Scores are calibrated probabilities.",
  weighted: "Scores are probabilities times a weight that grows with rarity; bars are relative.",
  sum: "Scores of the heads are added up; bars are relative.",
  head: "Scores of this head alone; bars are relative.",
};

let state = fromHash(location.hash);
let model = null;
let pending = new AbortController();
let labelActions; // rename and remove
let showLabelList; // of the view of all labels

/** Show an error message with an optional button, or hide it if `text` is empty. */
function showMessage(text, onPress = null, name = "Try now") {
  const message = byId("message");
  message.hidden = !text;
  message.replaceChildren(text);
  if (text && onPress) message.append(" ", button(name, onPress, { class: "quiet" }));
}

const announce = debounce((text) => (byId("live").textContent = text), 600);

/** Call the server for anything but predictions. Requests that change labels are not repeated. */
async function send(method, path, body) {
  let waited = false;
  const onWait = (text, retryNow) => {
    waited = true;
    showMessage(text, retryNow);
  };
  try {
    return await callWithRetry(method, path, body, { onWait, repeat: method === "GET" || path === "explain" });
  } finally {
    if (waited) showMessage("");
  }
}

function showModel() {
  const heads = plural(model.heads.length, "head");
  byId("model").textContent = `${model.name}, ${plural(model.labels, "label")}, ${heads}${model.fused ? ", fused" : ""}`;
  byId("version").textContent = `megalabel ${model.version}`;
  if (model.read_only) {
    for (const field of byId("add").elements) field.disabled = true;
    byId("add-hint").textContent = "This server is read-only: labels cannot be added, renamed or removed.";
  }
}

async function refreshModel() {
  model = await send("GET", "model");
  showModel();
}

/** Offer the texts of labels spread over the whole list, since neighbours are often similar. */
async function showExamples() {
  const list = byId("examples");
  if (list.children.length) return;
  const offsets = Array.from({ length: EXAMPLES }, (_, part) => Math.floor(((part + 0.5) * model.labels) / EXAMPLES));
  const answers = await Promise.all(offsets.map((offset) => send("GET", `labels?limit=1&offset=${offset}`)));
  const texts = new Set(answers.flatMap((answer) => answer.labels.map((label) => label.text)));
  const item = (text) => make("li", {}, button(text, () => predictText(text), { dir: "auto" }));
  list.replaceChildren(...[...texts].map(item));
}

/** Predict labels for another text, as if it was typed. */
function predictText(text) {
  state = { ...state, text, view: "text" };
  showView(state.view);
  showControls(state, model);
  byId("text").focus();
  remember(text);
  return predict();
}

/** Show a view, and in it what belongs to the state. */
function go(view) {
  state = { ...state, view };
  showView(view);
  keepInUrl();
  if (view === "labels") showLabelList();
}

function keepInUrl() {
  const hash = toHash(state);
  history.replaceState(null, "", hash ? `#${hash}` : location.pathname + location.search);
}

const rememberSoon = debounce(remember, SETTLED);

/** Predict labels for the current state and return them; the answer to an older request is never shown. */
async function predict() {
  predictSoon.cancel();
  pending.abort();
  pending = new AbortController();
  const { signal } = pending;
  const requested = state;
  keepInUrl();
  showCode(state, model);
  byId("empty").hidden = requested.text.trim() !== "";
  if (!requested.text.trim()) {
    showNothing("");
    showExamples().catch((problem) => showMessage(problem.message));
    return [];
  }
  byId("results").setAttribute("aria-busy", "true");
  try {
    const body = { ...request(requested, model), details: true };
    const onWait = (text, retryNow) => {
      showNothing(""); // the labels on screen belong to another request
      showMessage(text, retryNow);
    };
    const answer = await callWithRetry("POST", "predict", body, { signal, onWait });
    if (signal.aborted) return null;
    showLabels(answer.predictions[0], requested);
    rememberSoon(requested.text);
    return answer.predictions[0];
  } catch (problem) {
    if (signal.aborted) return null;
    showNothing("");
    showMessage(problem.message, predict, "Try again");
    return null;
  }
}

const predictSoon = debounce(predict, PAUSE);

function showLabels(labels, requested) {
  if (!labels.length) {
    const cut = cutOf(requested, model);
    showNothing(cut === null ? "No labels." : `No label reaches the minimum score of ${Number(cut.toFixed(4))}.`);
    if (cut !== null) byId("summary").append(" ", button("Show them all", showAll, { class: "quiet" }));
    showReview(requested.text, []);
    return;
  }
  showMessage("");
  byId("results").removeAttribute("aria-busy");
  byId("legend").hidden = false;
  const kind = scale(requested, model);
  byId("scale").textContent = SCALES[kind];
  byId("summary").textContent = plural(labels.length, "label");
  const context = {
    ...labelActions, text: requested.text, scale: kind, added, send, readOnly: model.read_only, onPredict: predictText, onVerdict: press,
  };
  show(byId("list"), labels, context);
  showReview(requested.text, labels);
  announce(`${plural(labels.length, "label")}. Best: ${labels[0].text}, score ${formatScore(labels[0].score, kind)}.`);
}

/** Show the labels below the minimum score as well. */
function showAll() {
  byId("results").focus(); // the button disappears
  setState({ min: defaultCut(state, model) === null ? null : ANY }, { now: true });
}

function showNothing(text) {
  showMessage("");
  byId("results").removeAttribute("aria-busy");
  byId("legend").hidden = true;
  byId("summary").textContent = text;
  clear(byId("list"));
  showReview("", []);
  announce(text);
}

/** Change the state, and predict after a pause, or now. */
function setState(values, { now = false } = {}) {
  state = { ...state, ...values };
  showControls(state, model, { leave: document.activeElement });
  if (now) predict();
  else predictSoon();
}

function wire() {
  labelActions = wireLabels({
    send,
    predictText,
    text: () => state.text,
    onChange: async () => {
      await refreshModel();
      return predict();
    },
  });
  wireControls({
    onChange: setState,
    onSubmit: () => {
      remember(state.text);
      return predict();
    },
  });
  wireViews(go);
  wireHistory(predictText);
  wireReview({ send, open: predictText });
  wireFile({
    current: () => ({ state, model }),
    ask: (body, signal, onWait) => callWithRetry("POST", "predict", body, { signal, onWait }),
    open: predictText,
  });
  showLabelList = wireBrowse({ send, predictText });
  wireCode(() => [state, model]);
  addEventListener("hashchange", () => {
    state = fromHash(location.hash);
    start();
  });
}

/** Show the state and predict. */
function start() {
  if (state.head !== "all" && !model.heads.includes(state.head)) state.head = "all";
  state.k = Math.min(state.k, model.limits.k);
  if (!tailApplies(state, model)) state.tail = null;
  showControls(state, model);
  predict();
  go(state.view);
}

async function begin() {
  try {
    showMessage("");
    await refreshModel();
  } catch (problem) {
    byId("model").textContent = "";
    showMessage(problem.message, begin, "Try again");
    return;
  }
  state.text ||= byId("text").value; // typed before the server answered
  wire();
  start();
}

begin();
