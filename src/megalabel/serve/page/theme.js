// Runs before anything is drawn, so that a chosen theme does not flash.
// Modules read and write the choice through window.megalabelTheme.
"use strict";
window.megalabelTheme = {
  get() {
    try {
      return localStorage.getItem("megalabel-theme") || "";
    } catch {
      return ""; // storage is switched off: the system's theme
    }
  },
  set(name) {
    try {
      localStorage.setItem("megalabel-theme", name);
    } catch {
      // it holds for this page only
    }
    this.show(name);
  },
  show(name) {
    if (name) document.documentElement.dataset.theme = name;
    else delete document.documentElement.dataset.theme;
  },
};
window.megalabelTheme.show(window.megalabelTheme.get());
