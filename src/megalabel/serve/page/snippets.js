// The request as code to copy.

const LONG = 100_000; // bytes; Linux allows 131,072 in one command-line argument

const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

/** Return a command for a POSIX shell, without a body if `json` is null. A key is read from the environment, never copied. */
export function curl(method, address, json, withKey) {
  const implied = json === null ? "GET" : "POST";
  const lines = [`curl -sS ${method === implied ? "" : `-X ${method} `}${quoted(address)}`];
  if (withKey) lines.push('-H "Authorization: Bearer $MEGALABEL_API_KEY"');
  if (json === null) return lines.join(" \\\n  ");
  lines.push("-H 'Content-Type: application/json'");
  if (new TextEncoder().encode(json).length > LONG) {
    return [...lines, `--data-binary @- <<'END'\n${json}\nEND`].join(" \\\n  ");
  }
  return [...lines, `--data-raw ${quoted(json)}`].join(" \\\n  ");
}

/** Return a script for Python's standard library. Strings and numbers in JSON are valid Python. */
export function python(address, body, withKey) {
  const fields = Object.entries(body).map(([name, value]) => `    ${JSON.stringify(name)}: ${JSON.stringify(value)},`);
  const headers = ['"Content-Type": "application/json"'];
  if (withKey) headers.push('"Authorization": "Bearer " + os.environ["MEGALABEL_API_KEY"]');
  return [
    "import json",
    ...(withKey ? ["import os"] : []),
    "from urllib.request import Request, urlopen",
    "",
    "body = {",
    ...fields,
    "}",
    `headers = {${headers.join(", ")}}`,
    `request = Request(${JSON.stringify(address)}, json.dumps(body).encode(), headers)`,
    "with urlopen(request) as answer:",
    '    for label in json.load(answer)["predictions"][0]:',
    '        print(f"{label[\'score\']:.4f}  {label[\'uid\']}  {label[\'text\']}")',
    "",
  ].join("\n");
}

/** Copy a text. Browsers allow this for https and localhost only; otherwise show and select the whole text. */
export async function copy(text, shown) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    shown.textContent = text;
    getSelection().selectAllChildren(shown);
    return document.execCommand("copy");
  }
}
