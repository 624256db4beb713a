// Finds and creates elements. Text is always set as text, never as markup, so labels may hold any characters.

export const byId = (id) => document.getElementById(id);

/** Return a new element with these attributes (false and null omit one) and children (elements or text). */
export function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === true) element.setAttribute(name, "");
    else if (value !== false && value != null) element.setAttribute(name, String(value));
  }
  element.append(...children.filter((child) => child != null));
  return element;
}

/** Return a button that calls back when pressed. */
export function button(text, onPress, attributes = {}) {
  const element = make("button", { type: "button", ...attributes }, text);
  element.addEventListener("click", onPress);
  return element;
}

/** Return text for screen readers only. */
export const unseen = (text) => make("span", { class: "unseen" }, text);

/** Return the beginning of a text, on one line. */
export function shortened(text, characters) {
  const line = text.slice(0, 2 * characters).replaceAll(/\s+/g, " ").trim();
  return line.length > characters ? `${line.slice(0, characters)}…` : line;
}

/** Return a function that calls back once after a pause in its calls; `cancel` drops a pending call. */
export function debounce(callback, milliseconds) {
  let timer = 0;
  const later = (...values) => {
    clearTimeout(timer);
    timer = setTimeout(() => callback(...values), milliseconds);
  };
  later.cancel = () => clearTimeout(timer);
  return later;
}

/** Open a dialog; resolve to true if the user confirms it, false if the user closes it. */
export function confirmed(dialog) {
  dialog.returnValue = "";
  dialog.querySelector("[data-close]").onclick = () => dialog.close(""); // not a submit button: Enter confirms
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "ok"), { once: true });
  });
}
