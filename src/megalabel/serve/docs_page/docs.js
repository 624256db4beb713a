// Shows openapi.json and sends requests by it. All text goes in as text, none as markup.

const KEY = "megalabel-key"; // the page at / keeps it under the same name
const $ = (id) => document.getElementById(id);

function make(tag, words = "", kind = "") {
  const found = document.createElement(tag);
  found.textContent = words;
  if (kind) found.className = kind;
  return found;
}

function headers(more = {}) {
  const key = sessionStorage.getItem(KEY);
  return key ? { ...more, Authorization: `Bearer ${key}` } : more;
}

/** Follow a reference inside the document. */
function follow(schema, all) {
  return schema?.$ref ? all.components.schemas[schema.$ref.split("/").pop()] : (schema ?? {});
}

/** Say what a value is: its type and limits. */
function kind(schema, all) {
  if (schema.$ref) return schema.$ref.split("/").pop();
  if (schema.anyOf) return schema.anyOf.map((one) => kind(one, all)).join(" or ");
  if (schema.enum) return schema.enum.join(" | ");
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.type === "array") return `list of ${kind(schema.items ?? {}, all)}${limits(schema)}`;
  return `${schema.type ?? "any"}${limits(schema)}`;
}

function limits(schema) {
  const said = [
    ["minimum", "at least"], ["maximum", "at most"], ["maxItems", "at most"], ["maxLength", "characters up to"],
  ].filter(([name]) => schema[name] !== undefined).map(([name, words]) => `${words} ${schema[name].toLocaleString("en")}`);
  return said.length ? ` (${said.join(", ")})` : "";
}

/** Make an example out of the examples and defaults of a schema. */
function example(schema, all) {
  const real = follow(schema, all);
  if (real.examples) return real.examples[0];
  if (real.default !== undefined) return real.default;
  if (real.enum) return real.enum[0];
  if (real.const !== undefined) return real.const;
  if (real.anyOf) return example(real.anyOf[0], all);
  if (real.type === "array") return [example(real.items ?? {}, all)];
  if (real.type === "object") {
    const needed = ([name, part]) => real.required?.includes(name) || part.default !== undefined;
    const parts = Object.entries(real.properties ?? {}).filter(needed);
    return Object.fromEntries(parts.map(([name, part]) => [name, example(part, all)]));
  }
  return { string: "text", integer: 1, number: 0.5, boolean: true }[real.type] ?? null;
}

function table(head, rows) {
  const found = make("table");
  const first = found.appendChild(make("tr"));
  for (const words of head) first.append(make("th", words));
  for (const row of rows) {
    const line = found.appendChild(make("tr"));
    for (const words of row) line.append(make("td", words));
  }
  return found;
}

function fields(schema, all) {
  const real = follow(schema, all);
  return table(["field", "type", "meaning"], Object.entries(real.properties ?? {}).map(([name, part]) => [
    name + (real.required?.includes(name) ? " *" : ""), kind(part, all), part.description ?? "",
  ]));
}

/** A form that sends the request. */
function trial(method, path, operation, body, all) {
  const form = make("form");
  const inputs = (operation.parameters ?? []).map((parameter) => {
    const label = form.appendChild(make("label", `${parameter.name} `));
    const input = label.appendChild(make("input"));
    label.append(" ");
    return [parameter, input];
  });
  const area = body ? form.appendChild(make("textarea")) : null;
  if (area) {
    area.rows = 8;
    area.setAttribute("aria-label", "Body of the request");
    area.value = JSON.stringify(example(body, all), null, 2);
  }
  form.append(make("button", "Send"));
  const out = form.appendChild(make("pre"));
  out.hidden = true;
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const query = new URLSearchParams();
    let address = path.slice(1);
    for (const [parameter, input] of inputs) {
      if (parameter.in === "path") address = address.replace(`{${parameter.name}}`, encodeURIComponent(input.value));
      else if (input.value) query.set(parameter.name, input.value);
    }
    out.hidden = false;
    out.textContent = "…";
    try {
      const answer = await fetch(address + (query.size ? `?${query}` : ""), {
        method: method.toUpperCase(),
        headers: headers(area ? { "Content-Type": "application/json" } : {}),
        body: area?.value,
      });
      out.textContent = `${answer.status}\n${pretty(await answer.text())}`;
    } catch {
      out.textContent = "The server does not answer.";
    }
  });
  return form;
}

function pretty(words) {
  try {
    return JSON.stringify(JSON.parse(words), null, 2);
  } catch {
    return words;
  }
}

function show(method, path, operation, all) {
  const found = make("details");
  found.id = `${method}${path}`;
  const summary = found.appendChild(make("summary"));
  summary.append(make("span", method.toUpperCase(), "method"), make("h2", path), make("span", operation.summary, "soft"));
  found.append(make("p", operation.description ?? ""));
  if (operation.parameters?.length) {
    found.append(make("h3", "Parameters"), table(["name", "in", "type", "meaning"], operation.parameters.map((one) => [
      one.name + (one.required ? " *" : ""), one.in, kind(one.schema, all), one.description ?? "",
    ])));
  }
  const body = operation.requestBody?.content["application/json"]?.schema;
  if (body) found.append(make("h3", "Body"), fields(body, all));
  found.append(make("h3", "Try it"), trial(method, path, operation, body, all));
  found.append(make("h3", "Answers"));
  for (const [status, answer] of Object.entries(operation.responses)) {
    if (status >= 400) continue;
    found.append(make("p", `${status}: ${answer.description}`));
    const schema = answer.content?.["application/json"]?.schema;
    if (schema) found.append(make("pre", JSON.stringify(example(schema, all), null, 2)));
  }
  const failed = Object.entries(operation.responses).filter(([status]) => status >= 400);
  found.append(table(["status", "meaning"], failed.map(([status, answer]) => [status, answer.description])));
  return found;
}

async function load() {
  $("trouble").textContent = "";
  let answer;
  try {
    answer = await fetch("openapi.json", { headers: headers() });
  } catch {
    $("trouble").textContent = "The server does not answer.";
    return;
  }
  if (answer.status === 401) {
    $("key").hidden = false;
    if (sessionStorage.getItem(KEY)) $("trouble").textContent = "That was not the key.";
    return;
  }
  const all = await answer.json();
  $("key").hidden = true;
  $("title").textContent = `${all.info.title} ${all.info.version} API`;
  $("about").textContent = all.info.description;
  const list = Object.entries(all.paths).flatMap(([path, item]) =>
    Object.entries(item).map(([method, operation]) => show(method, path, operation, all)));
  $("operations").replaceChildren(...list);
}

$("key").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem(KEY, $("key-text").value);
  load();
});
load();
