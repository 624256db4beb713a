// Calls of the server. Addresses are relative to the page, so it works behind any path.

const KEY = "megalabel-key";

export const base = new URL(".", document.baseURI.split("#")[0]).href;

/** What went wrong, in words. `kind` is busy, key, gone, slow or refused; `wait` is in seconds. */
export class Problem extends Error {
  constructor(kind, message, wait = 0) {
    super(message);
    this.kind = kind;
    this.wait = wait;
  }
}

// The key lives as long as the tab; where storage is switched off, as long as the page.
let keptKey = "";
export function key() {
  try {
    return sessionStorage.getItem(KEY) ?? keptKey;
  } catch {
    return keptKey;
  }
}
export function keepKey(value) {
  keptKey = value;
  try {
    sessionStorage.setItem(KEY, value);
  } catch {
    // kept above
  }
}

/** Send a request and return the answer; every failure but an abort is a Problem. */
export async function call(method, path, body, signal) {
  const headers = {};
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (key()) headers.Authorization = `Bearer ${key()}`;
  let response;
  try {
    response = await fetch(base + path, { method, headers, signal, body: body && JSON.stringify(body) });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Problem("gone", "The server does not answer.");
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
    if (response.ok) throw new Problem("gone", "The answer of the server broke off.");
    return null; // an error page of something in between
  }
}

function problem(response, answer) {
  const said = answer?.error?.message;
  const words = said ? said[0].toUpperCase() + said.slice(1) : `The server answered ${response.status}.`;
  const wait = Number(response.headers.get("Retry-After")) || 0;
  switch (response.status) {
    case 401: return new Problem("key", words);
    case 429: return new Problem("busy", "The server is busy.", wait || 1);
    case 502:
    case 503: return new Problem("gone", "The server is not ready.", wait);
    case 504: return new Problem("slow", words);
    default: return new Problem("refused", words);
  }
}
