// Calls the server. URLs are relative to the page, so it works behind any path.

const KEY = "megalabel-key";

export const base = new URL(".", document.baseURI.split("#")[0]).href;

/** An error with a message for the user. `kind` is busy, key, gone, slow or refused; `wait` is in seconds. */
export class Problem extends Error {
  constructor(kind, message, wait = 0) {
    super(message);
    this.kind = kind;
    this.wait = wait;
  }
}

// The key is kept until the tab is closed; without session storage, until the page is closed.
let memoryKey = "";
export function key() {
  try {
    return sessionStorage.getItem(KEY) ?? memoryKey;
  } catch {
    return memoryKey;
  }
}
export function storeKey(value) {
  memoryKey = value;
  try {
    sessionStorage.setItem(KEY, value);
  } catch {
    // kept in memory
  }
}

/** Send a request and return the answer; every failure except an abort throws a Problem. */
export async function call(method, path, body, signal) {
  const headers = {};
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (key()) headers.Authorization = `Bearer ${key()}`;
  let response;
  try {
    response = await fetch(base + path, { method, headers, signal, body: body && JSON.stringify(body) });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem("gone", "The server is not responding.");
  }
  const answer = await read(response, signal);
  if (response.ok) return answer;
  throw problem(response, answer);
}

async function read(response, signal) {
  try {
    return await response.json();
  } catch {
    signal?.throwIfAborted();
    if (response.ok) throw new Problem("gone", "The answer of the server was incomplete.");
    return null; // an error page of a proxy
  }
}

function problem(response, answer) {
  const reason = answer?.error?.message;
  const message = reason ? reason[0].toUpperCase() + reason.slice(1) : `The server returned status ${response.status}.`;
  const wait = Number(response.headers.get("Retry-After")) || 0;
  switch (response.status) {
    case 401: return new Problem("key", message);
    case 429: return new Problem("busy", "The server is busy.", wait || 1);
    case 502:
    case 503: return new Problem("gone", "The server is not ready.", wait);
    case 504: return new Problem("slow", message);
    default: return new Problem("refused", message);
  }
}
