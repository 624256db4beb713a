// Keeps values in this browser: in its local storage, or, where that is off or full, in memory until the page is closed.

const memory = new Map();

/** Return the value kept under a name, or null. */
export function kept(name) {
  if (memory.has(name)) return memory.get(name);
  try {
    return JSON.parse(localStorage.getItem(name));
  } catch {
    return null;
  }
}

/** Keep a value, null for none; return whether it outlives the page. */
export function keep(name, value) {
  try {
    if (value === null) localStorage.removeItem(name);
    else localStorage.setItem(name, JSON.stringify(value));
    memory.delete(name);
    return true;
  } catch {
    memory.set(name, value);
    return false;
  }
}

/** Return whether local storage can be used. */
export function canKeep() {
  try {
    const name = "megalabel-probe";
    localStorage.setItem(name, "");
    localStorage.removeItem(name);
    return true;
  } catch {
    return false;
  }
}

/** Call back when another tab changes what is kept under a name. */
export function onOtherTab(name, callback) {
  addEventListener("storage", (event) => {
    if (event.key === name || event.key === null) callback();
  });
}
