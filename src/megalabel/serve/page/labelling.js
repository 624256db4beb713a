// Labels the rows of a delimited file: read twice, piece by piece, first to check it, then to send its texts in batches.

import { CsvError, Reader, pieces, quoted, sniff, written } from "./csv.js";
import { count } from "./numbers.js";

const FIRST_BATCH = 16; // texts
const [QUICK, SLOW] = [0.7, 3]; // seconds for a batch; then the next is larger or smaller
const MAX_RESULT = 1 << 30; // bytes
const SHOWN = 5; // rows of the preview
const ADDED = ["labels", "label_texts", "scores"]; // as `megalabel predict` calls them
const FORMULA = /^[=+\-@\t\r\n]/;
const SEPARATOR = "|";

/** Yield every row of a file with `{row, read}`: `read` counts the bytes so far. The header comes first. */
async function* rows(file, delimiter, signal) {
  let reader = null;
  let start = "";
  for await (const { text, read } of pieces(file, signal)) {
    start += text;
    if (!reader) {
      const header = start.replace(/^[\r\n]+/, "");
      if (!/[\r\n]/.test(header) && read < file.size) continue; // the header is not complete
      reader = new Reader(delimiter ?? sniff(header));
    }
    for (const row of reader.push(start)) yield { row, read, delimiter: reader.delimiter };
    start = "";
  }
  for (const row of reader.finish()) yield { row, read: file.size, delimiter: reader.delimiter };
}

/**
 * Check a file; return `{delimiter, header, rows, sample, empty, tooLong}`.
 *
 * `sample` is the first row; `empty` counts the blank cells of each column; `tooLong` holds for each column what is
 * wrong with its first cell of more than `characters`, or null.
 */
export async function inspect(file, { characters, onProgress, signal }) {
  let table = null;
  for await (const { row, read, delimiter } of rows(file, null, signal)) {
    if (!table) {
      const zeros = row.cells.map(() => 0);
      table = { delimiter, header: row.cells, rows: 0, sample: null, empty: zeros, tooLong: row.cells.map(() => null) };
      continue;
    }
    if (row.cells.length !== table.header.length) {
      throw new CsvError(`${row.cells.length} cells, but the header has ${table.header.length}`, row.line);
    }
    row.cells.forEach((cell, place) => {
      if (!cell.trim()) table.empty[place]++;
      if (cell.length > characters && [...cell].length > characters) {
        const what = `${count([...cell].length)} characters, but at most ${count(characters)} are accepted`;
        table.tooLong[place] ??= new CsvError(what, row.line, table.header[place]);
      }
    });
    table.sample ??= row.cells;
    table.rows++;
    if (table.rows % 1000 === 0) onProgress(read / file.size);
  }
  if (!table) throw new CsvError("this file is empty");
  if (!table.rows) throw new CsvError("there are no rows below the header");
  return table;
}

/**
 * Label the rows of a checked file; return `{blob, preview, rows, labelled, guarded}`.
 *
 * Every row is returned as it was written, and three cells are added: the uids of its labels, their texts and scores.
 * An own column with the name of an added one is called `input_NAME`.
 *
 * - `place` is the column of the texts. `ask(texts, signal)` returns the labels of each; a batch that takes the server
 *   too long is tried again in halves.
 * - `limits` are those of the server. `onProgress` receives the number of rows done.
 * - With `guard`, an added cell that a spreadsheet would take for a formula begins with an apostrophe.
 */
export async function label(file, table, { place, ask, limits, guard, onProgress, signal }) {
  const { delimiter } = table;
  const parts = [];
  const done = { preview: [], rows: 0, labelled: 0, guarded: 0, size: 0 };
  let end = "\n";
  let batch = [];
  let [bytes, size] = [0, Math.min(FIRST_BATCH, limits.texts)];

  const safe = (cell) => {
    if (!guard || !FORMULA.test(cell)) return cell;
    done.guarded++;
    return `'${cell}`;
  };

  async function flush() {
    for (let from = 0; from < batch.length; ) {
      const rows = batch.slice(from, from + size);
      const start = performance.now();
      const answers = await answered(rows);
      if (!answers) continue; // too slow: in halves
      from += rows.length;
      write(rows, answers);
      const seconds = (performance.now() - start) / 1000;
      if (seconds < QUICK) size = Math.min(2 * size, limits.texts);
      if (seconds > SLOW) size = Math.max(1, size >> 1);
      done.rows += rows.length;
      onProgress(done.rows);
    }
    batch = [];
    bytes = 0;
  }

  /** Return the labels of rows; nothing if it took too long, and fewer are to be tried. */
  async function answered(rows) {
    const texts = rows.map((row) => row.cells[place]).filter((text) => text.trim());
    try {
      const answers = texts.length ? await ask(texts, signal) : [];
      return rows.map((row) => (row.cells[place].trim() ? answers.shift() : []));
    } catch (problem) {
      if (problem.kind !== "slow" || size === 1) throw problem;
      size >>= 1;
      return null;
    }
  }

  function write(rows, answers) {
    const lines = rows.map((row, index) => {
      const labels = answers[index];
      const cells = [
        safe(joined(labels.map((label) => label.uid))),
        safe(joined(labels.map((label) => label.text))),
        joined(labels.map((label) => String(Number(label.score.toPrecision(6))))),
      ];
      done.labelled += labels.length > 0;
      if (done.preview.length < SHOWN) done.preview.push({ text: row.cells[place], labels });
      return `${row.raw}${delimiter}${written(cells, delimiter)}${row.end || end}`;
    });
    add(lines.join(""));
  }

  function add(text) {
    const part = new Blob([text]); // the browser may put it on disk
    parts.push(part);
    done.size += part.size;
    if (done.size > MAX_RESULT) throw new CsvError("the result exceeds 1 GiB; ask for fewer labels, or use `megalabel predict`");
  }

  let first = true;
  for await (const { row } of rows(file, delimiter, signal)) {
    if (first) {
      end = row.end || end;
      const own = ADDED.some((name) => row.cells.includes(name)) ? written(renamed(row.cells), delimiter) : row.raw;
      add(`${(await hasMark(file)) ? "\ufeff" : ""}${own}${delimiter}${written(ADDED, delimiter)}${end}`);
      first = false;
      continue;
    }
    const length = new TextEncoder().encode(JSON.stringify(row.cells[place])).length + 1;
    if (batch.length === size || (batch.length && bytes + length > limits.body_bytes / 2)) await flush();
    batch.push(row);
    bytes += length;
  }
  await flush();
  return { ...done, blob: new Blob(parts, { type: "text/csv" }) };
}

/** Join items as tables of `megalabel` are read: one that could be taken for something else is quoted. */
const joined = (items) =>
  items.map((item) => (/^["[]/.test(item) ? `"${item.replaceAll('"', '""')}"` : quoted(item, SEPARATOR))).join(SEPARATOR);

/** Return the own columns, none with the name of an added one. */
function renamed(header) {
  return header.map((name) => {
    let free = name;
    while (ADDED.includes(free) || (free !== name && header.includes(free))) free = `input_${free}`;
    return free;
  });
}

/** Return whether a file begins with a byte order mark, which spreadsheets look for. */
async function hasMark(file) {
  const bytes = new Uint8Array(await file.slice(0, 3).arrayBuffer());
  return bytes[0] === 0xef && bytes[1] === 0xbb && bytes[2] === 0xbf;
}
