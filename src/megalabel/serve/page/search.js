// A field that searches labels as one types, and offers those that match in a list below it.

import { debounce, make } from "./dom.js";
import { plural } from "./numbers.js";

const PAUSE = 200; // milliseconds
const OFFERED = 8;

/**
 * Connect a field and its list. `send` calls the server, `onPick` receives the label chosen.
 *
 * Arrow keys move through the list, Enter chooses, Escape closes.
 */
export function wireSearch({ field, list, send, onPick }) {
  let labels = [];
  let active = -1;
  let asked = 0;

  function close() {
    asked++; // an answer that is under way is not shown
    list.hidden = true;
    field.setAttribute("aria-expanded", "false");
    field.removeAttribute("aria-activedescendant");
    active = -1;
  }

  function open(total) {
    list.replaceChildren(
      ...labels.map((label, index) => {
        const option = make(
          "li",
          { role: "option", id: `${list.id}-${index}`, "aria-selected": "false" },
          make("span", { dir: "auto" }, label.text),
          make("span", { class: "aside" }, make("code", {}, label.uid), ` ${plural(label.points, "training text")}`),
        );
        option.addEventListener("mousedown", (event) => event.preventDefault()); // the field keeps the focus
        option.addEventListener("click", () => pick(index));
        return option;
      }),
      ...(total > labels.length || !total
        ? [make("li", { role: "option", "aria-disabled": "true", class: "aside" }, total ? `of ${plural(total, "label")}; type more to narrow them down` : "No label has this in its text or uid.")]
        : []),
    );
    active = -1;
    list.hidden = false;
    field.setAttribute("aria-expanded", "true");
  }

  function mark(index) {
    active = (index + labels.length) % labels.length;
    [...list.children].forEach((option, place) => option.setAttribute("aria-selected", String(place === active)));
    field.setAttribute("aria-activedescendant", list.children[active].id);
    list.children[active].scrollIntoView({ block: "nearest" });
  }

  function pick(index) {
    const label = labels[index];
    close();
    field.value = "";
    onPick(label);
  }

  const search = debounce(async () => {
    const words = field.value.trim();
    const mine = ++asked;
    if (!words) return close();
    const query = new URLSearchParams({ find: words, limit: OFFERED });
    try {
      const answer = await send("GET", `labels?${query}`);
      if (mine !== asked) return;
      labels = answer.labels;
      open(answer.total);
    } catch (problem) {
      if (mine !== asked) return;
      labels = [];
      list.replaceChildren(make("li", { role: "option", "aria-disabled": "true", class: "aside" }, problem.message));
      list.hidden = false;
    }
  }, PAUSE);

  field.addEventListener("input", search);
  field.addEventListener("blur", () => {
    search.cancel();
    close();
  });
  field.addEventListener("keydown", (event) => {
    if (event.key === "Enter") event.preventDefault(); // no form is submitted
    if (list.hidden) return;
    if (event.key === "ArrowDown" && labels.length) mark(active + 1);
    else if (event.key === "ArrowUp" && labels.length) mark(active < 0 ? labels.length - 1 : active - 1);
    else if (event.key === "Enter" && (active >= 0 || labels.length === 1)) pick(Math.max(active, 0));
    else if (event.key === "Escape") close();
    else return;
    event.preventDefault();
  });
}
