// Elements by id, and new ones. Text is only ever set as text, so labels may hold any characters.

export const byId = (id) => document.getElementById(id);

/** Return a new element with these attributes (false and null leave one out) and children (elements or text). */
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

/** Return text that only screen readers see. */
export const unseen = (text) => make("span", { class: "unseen" }, text);

/** Call back after a pause, however often it is called meanwhile; `cancel` forgets it. */
export function afterPause(callback, milliseconds) {
  let timer = 0;
  const later = (...values) => {
    clearTimeout(timer);
    timer = setTimeout(() => callback(...values), milliseconds);
  };
  later.cancel = () => clearTimeout(timer);
  return later;
}

/** Open a dialog and return true if it was confirmed, false if it was closed in any other way. */
export function confirmed(dialog) {
  dialog.returnValue = "";
  dialog.querySelector("[data-close]").onclick = () => dialog.close(""); // not a submit button: Enter confirms
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => resolve(dialog.returnValue === "ok"), { once: true });
  });
}
