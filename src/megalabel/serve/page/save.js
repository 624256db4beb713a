// Lets the user save what the page made.

const SECONDS = 60; // for the browser to read it

/** Offer a blob under a file name. */
export function save(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000 * SECONDS);
}
