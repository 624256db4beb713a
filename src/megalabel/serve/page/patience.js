// Calls that wait for a busy or absent server, and ask for the key when one is wanted.

import { Problem, call, keepKey, key } from "./api.js";
import { byId, confirmed } from "./dom.js";

const MOST = 10; // seconds between two tries

let asking = null; // one dialog, however many calls wait for it

/** Ask for the key; false if the user has none. */
function askForKey() {
  asking ??= (async () => {
    const field = byId("key");
    if (key()) byId("key-why").textContent = "The server did not take that key. Try another.";
    field.value = "";
    const given = (await confirmed(byId("key-dialog"))) && field.value !== "";
    if (given) keepKey(field.value);
    asking = null;
    return given;
  })();
  return asking;
}

/** Wait; `hurry` is given a function that ends the wait at once. */
function pause(seconds, signal, hurry) {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, 1000 * seconds);
    hurry(() => {
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
 * Call the server until it answers, or says what is wrong.
 *
 * `say(words, hurry)` is told of every wait. Without `again`, only a busy server is asked again: it has
 * not begun, while one that went away may have done what was asked.
 */
export async function patiently(method, path, body, { signal, say, again = true }) {
  for (let tries = 0; ; tries++) {
    const used = key();
    try {
      return await call(method, path, body, signal);
    } catch (problem) {
      if (!(problem instanceof Problem)) throw problem;
      if (problem.kind === "key") {
        if (used === key() && !(await askForKey())) throw new Problem("key", "The server wants a key for this.");
        signal?.throwIfAborted();
      } else if (problem.kind === "busy" || (problem.kind === "gone" && again)) {
        const seconds = Math.min(problem.wait || 2 ** tries, MOST);
        await pause(seconds, signal, (hurry) => say(`${problem.message} Trying again in ${seconds} s.`, hurry));
      } else {
        throw problem;
      }
    }
  }
}
