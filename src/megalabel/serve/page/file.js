// Labels a file that the user chooses or drops: its column, progress, cancel, the result.

import { CsvError, delimiterName } from "./csv.js";
import { byId, button, make, shortened } from "./dom.js";
import { inspect, label } from "./labelling.js";
import { count, plural } from "./numbers.js";
import { formatScore } from "./results.js";
import { save } from "./save.js";
import { cutOf, request, scale } from "./state.js";

const MAX_BYTES = 256 << 20;
const LIKELY = "text title query sentence content document question description body abstract".split(" ");
const SAMPLE = 160; // characters

/**
 * Connect the view. `ask(body, signal, onWait)` predicts, `current()` returns `{state, model}`, `open` shows a text
 * with its labels.
 */
export function wireFile({ ask, current, open }) {
  const [input, drop, form, column, work, bar, status, done] =
    ["file-input", "file-drop", "file-form", "file-column", "file-work", "file-bar", "file-status", "file-done"].map(byId);
  let [file, table, stop] = [null, null, new AbortController()];

  function fail(problem) {
    const message = byId("file-message");
    message.textContent = problem.message;
    if (problem instanceof CsvError) message.textContent = `${[file.name, problem.where].filter(Boolean).join(", ")}: ${problem.message}.`;
    if (problem instanceof DOMException) message.textContent = `${file.name} cannot be read, or has changed; choose it again.`;
    message.hidden = false;
  }

  /** Run work that can be cancelled; show what goes wrong. */
  async function run(title, task) {
    stop.abort();
    const mine = (stop = new AbortController());
    byId("file-message").hidden = done.hidden = true;
    bar.removeAttribute("value");
    status.textContent = title;
    work.hidden = false;
    try {
      await task(mine.signal);
    } catch (problem) {
      if (mine.signal.aborted) return;
      fail(problem);
    } finally {
      if (mine === stop) work.hidden = true;
    }
  }

  async function choose(chosen) {
    if (!chosen) return;
    [file, table] = [chosen, null];
    form.hidden = true;
    byId("file-name").textContent = chosen.name;
    await run(`Reading ${chosen.name} …`, async (signal) => {
      if (chosen.size > MAX_BYTES) {
        throw new CsvError(`this file has ${count(chosen.size >> 20)} MiB, but at most ${MAX_BYTES >> 20} are accepted here; use megalabel predict RUN --input ${chosen.name}`);
      }
      const { model } = current();
      const checked = await inspect(chosen, { characters: model.limits.text_characters, onProgress: (share) => (bar.value = share), signal });
      signal.throwIfAborted();
      table = checked;
      offer();
    });
  }

  function offer() {
    const names = table.header.map((name) => name.trim().toLowerCase());
    const likely = LIKELY.map((name) => names.indexOf(name)).find((place) => place >= 0) ?? 0;
    byId("file-about").textContent =
      `${plural(table.rows, "row")}, ${plural(table.header.length, "column")}${table.header.length > 1 ? `, separated by ${delimiterName(table.delimiter)}` : ""}`;
    column.replaceChildren(...table.header.map((name, place) => make("option", { value: place }, name.trim() || `column ${place + 1}`)));
    column.value = likely;
    form.hidden = false;
    showColumn();
    column.focus();
  }

  function showColumn() {
    const place = Number(column.value);
    const sample = table.sample[place];
    const empty = table.empty[place];
    byId("file-sample").textContent = shortened(sample, SAMPLE) || "(empty)";
    byId("file-empty").textContent = empty ? `${plural(empty, "row")} without a text: no labels there.` : "";
    byId("file-message").hidden = !table.tooLong[place];
    if (table.tooLong[place]) fail(table.tooLong[place]);
    byId("file-start").disabled = Boolean(table.tooLong[place]) || empty === table.rows;
    byId("file-start").textContent = `Label ${plural(table.rows - empty, "row")}`;
  }

  async function start() {
    const { state, model } = current();
    const body = request(state, model);
    const total = table.rows;
    const began = performance.now();
    form.hidden = true;
    await run(`0 of ${plural(total, "row")}`, async (signal) => {
      const onProgress = (rows) => {
        bar.value = rows / total;
        const left = ((performance.now() - began) / rows) * (total - rows);
        status.textContent = `${count(rows)} of ${plural(total, "row")}${left > 2000 ? `, about ${time(left)} left` : ""}`;
      };
      const onWait = (text) => (status.textContent = text);
      const result = await label(file, table, {
        place: Number(column.value), guard: byId("file-guard").checked, limits: model.limits, onProgress, signal,
        ask: async (texts) => (await ask({ ...body, texts }, signal, onWait)).predictions,
      });
      show(result, state, model);
    });
    form.hidden = false;
  }

  function show(result, state, model) {
    const name = file.name.replace(/\.(csv|tsv|txt)$/i, "");
    const ending = table.delimiter === "\t" ? "tsv" : "csv";
    const kind = scale(state, model);
    const cut = cutOf(state, model);
    byId("file-result").textContent =
      `${count(result.labelled)} of ${plural(result.rows, "row")} have labels: up to ${count(state.k)} each` +
      `${cut === null ? "" : `, with a score of at least ${cut}`}.` +
      (result.guarded ? ` ${plural(result.guarded, "cell")} got an apostrophe.` : "");
    byId("file-download").textContent = `Download ${name}-labelled.${ending}`;
    byId("file-download").onclick = () => save(result.blob, `${name}-labelled.${ending}`);
    byId("file-preview").replaceChildren(
      ...result.preview.map(({ text, labels }) =>
        make(
          "li",
          {},
          button(shortened(text, SAMPLE) || "(empty)", () => open(text), { class: "link", dir: "auto", title: "Open this text", disabled: !text.trim() }),
          labels.length
            ? make("ul", { class: "choices" }, ...labels.slice(0, 3).map((best) =>
                make("li", { class: "chip" }, make("span", { dir: "auto" }, best.text), make("span", { class: "aside" }, formatScore(best.score, kind)))),
                ...(labels.length > 3 ? [make("li", { class: "aside" }, `and ${labels.length - 3} more`)] : []))
            : make("p", { class: "hint" }, "No labels."),
        ),
      ),
    );
    done.hidden = false;
    byId("file-download").focus();
  }

  input.addEventListener("change", () => choose(input.files[0]));
  input.addEventListener("click", () => (input.value = "")); // the same file may be chosen again
  column.addEventListener("change", showColumn);
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    start();
  });
  byId("file-cancel").addEventListener("click", () => {
    stop.abort();
    work.hidden = true;
    form.hidden = !table;
    (table ? byId("file-start") : input).focus();
  });
  drop.addEventListener("dragover", (event) => {
    event.preventDefault();
    drop.classList.add("over");
  });
  drop.addEventListener("dragleave", () => drop.classList.remove("over"));
  drop.addEventListener("drop", (event) => {
    event.preventDefault();
    drop.classList.remove("over");
    choose(event.dataTransfer.files[0]);
  });
}

/** 75,000 milliseconds -> "1 min" */
function time(milliseconds) {
  const seconds = Math.ceil(milliseconds / 1000);
  return seconds < 90 ? `${seconds} s` : seconds < 5400 ? `${Math.round(seconds / 60)} min` : `${(seconds / 3600).toFixed(1)} h`;
}
