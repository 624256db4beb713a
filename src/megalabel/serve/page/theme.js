// Runs before the first paint, so that the page does not flash in the wrong theme.
// Modules read and write the choice through window.megalabelTheme.
"use strict";
window.megalabelTheme = {
  get() {
    try {
      return localStorage.getItem("megalabel-theme") || "";
    } catch {
      return ""; // no storage: use the system's theme
    }
  },
  set(name) {
    try {
      localStorage.setItem("megalabel-theme", name);
    } catch {
      // no storage: the choice is lost on reload
    }
    this.show(name);
  },
  show(name) {
    if (name) document.documentElement.dataset.theme = name;
    else delete document.documentElement.dataset.theme;
  },
};
window.megalabelTheme.show(window.megalabelTheme.get());
