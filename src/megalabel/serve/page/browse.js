// Browses and searches the labels of the model, a page at a time.

import { button, byId, debounce, make, unseen } from "./dom.js";
import { count, plural } from "./numbers.js";
import { mark } from "./results.js";

const PAUSE = 200; // milliseconds
const ROWS = 50; // on a page

/** Connect the view; return a function that shows it anew. `send` calls the server, `predictText` predicts a text. */
export function wireBrowse({ send, predictText }) {
  const [find, sort, status, rows] = ["browse-find", "browse-sort", "browse-status", "browse-rows"].map(byId);
  let offset = 0;
  let asked = 0;

  async function show() {
    soon.cancel();
    const mine = ++asked;
    const query = new URLSearchParams({ sort: sort.value, offset, limit: ROWS });
    if (find.value.trim()) query.set("find", find.value.trim());
    byId("browse-table").setAttribute("aria-busy", "true");
    try {
      const answer = await send("GET", `labels?${query}`);
      if (mine === asked) fill(answer);
    } catch (problem) {
      if (mine !== asked) return;
      fill({ total: 0, labels: [] });
      status.textContent = problem.message;
    }
  }

  function fill({ total, labels }) {
    const last = offset + labels.length;
    byId("browse-table").removeAttribute("aria-busy");
    status.textContent = total ? `${count(offset + 1)} to ${count(last)} of ${plural(total, "label")}` : "No label has this in its text or uid.";
    byId("browse-table").hidden = !total;
    rows.replaceChildren(...labels.map(row));
    byId("browse-before").disabled = byId("browse-first").disabled = !offset;
    byId("browse-after").disabled = byId("browse-last").disabled = last >= total;
    byId("browse-last").onclick = () => go(Math.floor((total - 1) / ROWS) * ROWS);
  }

  function row(label) {
    const ask = button("Try its text", () => predictText(label.text), { class: "quiet" });
    ask.append(unseen(` ${label.text}`));
    return make(
      "tr",
      {},
      make("th", { scope: "row" }, make("span", { dir: "auto" }, label.text), make("code", { class: "uid" }, label.uid)),
      make("td", { class: "number" }, count(label.points)),
      make("td", {}, mark(label.frequency)),
      make("td", {}, ask),
    );
  }

  /** Show the page from another label on. */
  async function go(to) {
    offset = Math.max(0, to);
    await show();
    byId("browse-title").scrollIntoView({ block: "nearest" });
  }

  const soon = debounce(() => go(0), PAUSE);
  find.addEventListener("input", soon);
  byId("browse").addEventListener("submit", (event) => {
    event.preventDefault();
    go(0);
  });
  sort.addEventListener("change", () => go(0));
  byId("browse-first").addEventListener("click", () => go(0));
  byId("browse-before").addEventListener("click", () => go(offset - ROWS));
  byId("browse-after").addEventListener("click", () => go(offset + ROWS));
  return show;
}
