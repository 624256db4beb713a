// Calls the server, retries while it is busy or down, and asks the user for the API key.

import { Problem, call, storeKey, key } from "./api.js";
import { byId, confirmed } from "./dom.js";

const MAX_WAIT = 10; // seconds between two attempts

let asking = null; // one dialog for all calls that wait for the key

/** Ask for the key; resolve to false if the user has none. */
function askForKey() {
  asking ??= (async () => {
    const field = byId("key");
    if (key()) byId("key-why").textContent = "The server rejected that key. Try another.";
    field.value = "";
    const given = (await confirmed(byId("key-dialog"))) && field.value !== "";
    if (given) storeKey(field.value);
    asking = null;
    return given;
  })();
  return asking;
}

/** Wait; `onStart` receives a function that ends the wait at once. */
function pause(seconds, signal, onStart) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, 1000 * seconds);
    onStart(() => {
      clearTimeout(timer);
      resolve();
    });
    signal?.addEventListener("abort", () => {
      clearTimeout(timer);
      reject(signal.reason);
    });
  });
}

/**
 * Call the server until it answers or refuses.
 *
 * Each wait calls `onWait(text, retryNow)`. Without `repeat`, only a busy server is called again: it did not start the
 * work, while a server that went away may have done it.
 */
export async function callWithRetry(method, path, body, { signal, onWait, repeat = true }) {
  for (let attempt = 0; ; attempt++) {
    const used = key();
    try {
      return await call(method, path, body, signal);
    } catch (problem) {
      if (!(problem instanceof Problem)) throw problem;
      if (problem.kind === "key") {
        if (used === key() && !(await askForKey())) throw new Problem("key", "This request needs the API key.");
        signal?.throwIfAborted();
      } else if (problem.kind === "busy" || (problem.kind === "gone" && repeat)) {
        const seconds = Math.min(problem.wait || 2 ** attempt, MAX_WAIT);
        await pause(seconds, signal, (retryNow) => onWait(`${problem.message} Trying again in ${seconds} s.`, retryNow));
      } else {
        throw problem;
      }
    }
  }
}
