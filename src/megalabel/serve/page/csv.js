// Reads and writes delimited text. Reading is strict, as `megalabel` reads tables, and keeps each row as it was written.

const DELIMITERS = [",", ";", "\t", "|"];
const NAMES = { ",": "commas", ";": "semicolons", "\t": "tabs", "|": "vertical bars" };
const KNOWN = new Set(
  ("text title query sentence content document question description body abstract " +
    "labels label tags tag categories category targets target classes class topics uid id _id guid name split").split(" "),
);
const [START, PLAIN, QUOTED, CLOSED] = [0, 1, 2, 3]; // where in a cell: before it, in it, inside quotes, after them
const [LF, CR, QUOTE] = [10, 13, 34];

/** What is wrong with a file, with the line and, if it is about one cell, the column. */
export class CsvError extends Error {
  constructor(what, line = null, column = null) {
    super(what);
    this.where = [line && `line ${line.toLocaleString("en")}`, column !== null && `column “${column}”`].filter(Boolean).join(", ");
  }
}

/** `;` -> "semicolons" */
export const delimiterName = (delimiter) => NAMES[delimiter];

/** Splits text that arrives in pieces into rows `{line, cells, raw, end}`; `raw` is the row as written, `end` its line break. */
export class Reader {
  #text = ""; // from the beginning of the current row, or before it
  #begin = 0; // of the current row
  #from = 0; // where the current cell begins
  #at = 0; // the next character
  #place = START;
  #cells = [];
  #line = 1;
  #first = 1; // line of the current row

  constructor(delimiter) {
    this.delimiter = delimiter;
  }

  /** Yield the rows that are complete. Blank lines are no rows. */
  *push(piece) {
    this.#text = this.#text.slice(this.#begin) + piece;
    this.#from -= this.#begin;
    this.#at -= this.#begin;
    this.#begin = 0;
    yield* this.#scan(this.#text.endsWith("\r") ? this.#text.length - 1 : this.#text.length); // a line feed may follow
  }

  /** Yield the last row. */
  *finish() {
    yield* this.#scan(this.#text.length);
    if (this.#place === QUOTED) {
      throw new CsvError("a quote is opened and never closed; double every quote inside a quoted cell", this.#first);
    }
    if (this.#begin < this.#text.length) yield* this.#row("");
  }

  *#scan(end) {
    const delimiter = this.delimiter.charCodeAt(0);
    while (this.#at < end) {
      const code = this.#text.charCodeAt(this.#at);
      if (this.#place === QUOTED) {
        if (code === QUOTE) this.#place = CLOSED;
        else if (code === LF) this.#line++;
        this.#at++;
      } else if (code === delimiter) {
        this.#cells.push(this.#cell());
        this.#from = ++this.#at;
        this.#place = START;
      } else if (code === LF || code === CR) {
        yield* this.#row(code === CR && this.#text.charCodeAt(this.#at + 1) === LF ? "\r\n" : this.#text[this.#at]);
      } else if (this.#place === CLOSED) {
        if (code !== QUOTE) {
          throw new CsvError("text after a closing quote; double every quote inside a quoted cell", this.#line);
        }
        this.#place = QUOTED;
        this.#at++;
      } else {
        this.#place = code === QUOTE && this.#place === START ? QUOTED : PLAIN;
        this.#at++;
      }
    }
  }

  #cell() {
    const cell = this.#text.slice(this.#from, this.#at);
    return this.#place === CLOSED ? cell.slice(1, -1).replaceAll('""', '"') : cell;
  }

  *#row(end) {
    const row = { line: this.#first, cells: [...this.#cells, this.#cell()], raw: this.#text.slice(this.#begin, this.#at), end };
    this.#begin = this.#from = this.#at += end.length;
    this.#cells = [];
    this.#place = START;
    this.#first = ++this.#line;
    if (row.raw) yield row;
  }
}

/** Return the delimiter that makes most sense of the first row: known names of columns first, then the most columns. */
export function sniff(text) {
  let best = { known: -1, columns: 0, delimiter: "," };
  for (const delimiter of DELIMITERS) {
    let header;
    try {
      header = new Reader(delimiter).push(`${text}\n`).next().value?.cells ?? [];
    } catch (error) {
      if (!(error instanceof CsvError)) throw error;
      continue;
    }
    const known = header.filter((name) => KNOWN.has(name.trim().toLowerCase())).length;
    if (known > best.known || (known === best.known && header.length > best.columns)) {
      best = { known, columns: header.length, delimiter };
    }
  }
  return best.delimiter;
}

/** Return a cell as it is written: quoted if it has to be. */
export const quoted = (cell, delimiter) =>
  cell.includes(delimiter) || /["\r\n]|^\s|\s$/.test(cell) ? `"${cell.replaceAll('"', '""')}"` : cell;

/** Return a line of cells. */
export const written = (cells, delimiter) => cells.map((cell) => quoted(cell, delimiter)).join(delimiter);

/** Yield the text of a file piece by piece, with `{text, read}`; anything but UTF-8 is a CsvError with its line. */
export async function* pieces(file, signal) {
  const decoder = new TextDecoder("utf-8", { fatal: true }); // drops a byte order mark
  const reader = file.stream().getReader();
  let [read, line] = [0, 1];
  try {
    for (;;) {
      signal?.throwIfAborted();
      const { value, done } = await reader.read();
      if (!read && value && ((value[0] === 0xff && value[1] === 0xfe) || (value[0] === 0xfe && value[1] === 0xff))) {
        throw new CsvError("this file is UTF-16; save it as “CSV UTF-8”");
      }
      let text;
      try {
        text = done ? decoder.decode() : decoder.decode(value, { stream: true });
      } catch {
        throw new CsvError("this is not UTF-8; save the file as “CSV UTF-8”", line + breaksBefore(value ?? new Uint8Array()));
      }
      read += value?.length ?? 0;
      line += text.split("\n").length - 1;
      yield { text, read };
      if (done) return;
    }
  } finally {
    reader.cancel().catch(() => {}); // nothing more is read
  }
}

/** Count the line breaks before the first byte that is not UTF-8; the bytes may begin inside a character. */
function breaksBefore(bytes) {
  const first = bytes.findIndex((byte) => (byte & 0xc0) !== 0x80);
  const text = new TextDecoder().decode(bytes.subarray(Math.min(Math.max(first, 0), 3)));
  const wrong = text.indexOf("\ufffd");
  return text.slice(0, wrong < 0 ? text.length : wrong).split("\n").length - 1;
}
