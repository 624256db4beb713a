// The views of the page: one text, a file, the labels, the corrections.

import { byId } from "./dom.js";

/** Show a view. A part of the page names the views it belongs to. */
export function showView(view) {
  byId("main").dataset.view = view;
  for (const part of document.querySelectorAll("[data-views]")) part.hidden = !part.dataset.views.split(" ").includes(view);
  for (const link of document.querySelectorAll("#views a")) {
    if (link.dataset.view === view) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}

/** Call `onView` with the view whose link is followed in this tab. */
export function wireViews(onView) {
  byId("views").addEventListener("click", (event) => {
    const link = event.target.closest("a");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault(); // the hash keeps the text and settings as well
    onView(link.dataset.view);
  });
}
