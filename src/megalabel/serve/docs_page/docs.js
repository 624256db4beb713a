// Shows openapi.json and sends requests. Text is always set as text, never as markup.

import { copy, curl } from "../page/snippets.js";

const KEY = "megalabel-key"; // shared with the playground
const CHANGES = new Set(["post /labels", "delete /labels", "delete /labels/{uid}", "patch /labels/{uid}"]);
const $ = (id) => document.getElementById(id);

function make(tag, text = "", className = "") {
  const element = document.createElement(tag);
  element.textContent = text;
  if (className) element.className = className;
  return element;
}

/** Return an element with a text in which `words` between backticks are code. */
function prose(tag, text, className = "") {
  const element = make(tag, "", className);
  text.split(/`+/).forEach((part, index) => part && element.append(index % 2 ? make("code", part) : part));
  return element;
}

function headers(more = {}) {
  const key = sessionStorage.getItem(KEY);
  return key ? { ...more, Authorization: `Bearer ${key}` } : more;
}

/** Resolve a reference inside the document. */
function resolve(schema, all) {
  return schema?.$ref ? all.components.schemas[schema.$ref.split("/").pop()] : (schema ?? {});
}

/** Describe the type and limits of a value. */
function describe(schema, all) {
  if (schema.$ref) return schema.$ref.split("/").pop();
  if (schema.anyOf) return schema.anyOf.map((option) => describe(option, all)).join(" or ");
  if (schema.enum) return schema.enum.join(" | ");
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.type === "array") return `list of ${describe(schema.items ?? {}, all)}${limits(schema)}`;
  return `${schema.type ?? "any"}${limits(schema)}`;
}

function limits(schema) {
  const parts = [
    ["minimum", "at least"], ["maximum", "at most"], ["maxItems", "at most"], ["maxLength", "max. characters"],
  ].filter(([name]) => schema[name] !== undefined).map(([name, text]) => `${text} ${schema[name].toLocaleString("en")}`);
  return parts.length ? ` (${parts.join(", ")})` : "";
}

/** Build an example from the examples and defaults of a schema. */
function example(schema, all) {
  const resolved = resolve(schema, all);
  if (resolved.examples) return resolved.examples[0];
  if (resolved.default !== undefined) return resolved.default;
  if (resolved.enum) return resolved.enum[0];
  if (resolved.const !== undefined) return resolved.const;
  if (resolved.anyOf) return example(resolved.anyOf[0], all);
  if (resolved.type === "array") return [example(resolved.items ?? {}, all)];
  if (resolved.type === "object") {
    const needed = ([name, part]) => resolved.required?.includes(name) || part.default !== undefined;
    const parts = Object.entries(resolved.properties ?? {}).filter(needed);
    return Object.fromEntries(parts.map(([name, part]) => [name, example(part, all)]));
  }
  return { string: "text", integer: 1, number: 0.5, boolean: true }[resolved.type] ?? null;
}

function table(head, rows) {
  const element = make("table");
  const first = element.createTHead().appendChild(make("tr"));
  for (const text of head) first.appendChild(make("th", text)).scope = "col";
  const body = element.createTBody();
  for (const row of rows) {
    const line = body.appendChild(make("tr"));
    row.forEach((text, place) => line.append(place ? prose("td", text) : make("th", text)));
    line.firstChild.scope = "row";
  }
  return element;
}

function fields(schema, all) {
  const resolved = resolve(schema, all);
  return table(["field", "type", "meaning"], Object.entries(resolved.properties ?? {}).map(([name, part]) => [
    name + (resolved.required?.includes(name) ? " *" : ""), describe(part, all), part.description ?? "",
  ]));
}

/** Return a form that sends the request, and shows it as a command. */
function requestForm(method, path, operation, body, all) {
  const form = make("form");
  form.noValidate = true;
  const inputs = (operation.parameters ?? []).map((parameter) => {
    const label = form.appendChild(make("label", parameter.name, "parameter"));
    const input = label.appendChild(make("input"));
    const schema = resolve(parameter.schema, all);
    input.value = parameter.required ? (schema.examples?.[0] ?? "") : "";
    input.placeholder = schema.default ?? "";
    return [parameter, input];
  });
  const area = body ? form.appendChild(make("textarea")) : null;
  if (area) {
    area.value = JSON.stringify(example(body, all), null, 2);
    area.rows = area.value.split("\n").length;
    area.spellcheck = false;
    area.setAttribute("aria-label", `Body of ${method.toUpperCase()} ${path}`);
  }
  const command = make("pre", "", "command");
  command.tabIndex = 0;
  command.setAttribute("role", "group");
  command.setAttribute("aria-label", "The request as a curl command");
  const status = make("p", "", "status");
  status.setAttribute("role", "status");
  const out = make("pre", "", "answer");
  out.tabIndex = 0;
  out.setAttribute("role", "group");
  out.setAttribute("aria-label", "Answer");
  out.hidden = true;
  const buttons = make("div", "", "buttons");
  const copyButton = make("button", "Copy as curl");
  copyButton.type = "button";
  buttons.append(make("button", "Send", "strong"), copyButton);
  if (CHANGES.has(`${method} ${path}`)) buttons.append(make("span", "This changes the labels of the model.", "warning"));
  form.append(buttons, command, status, out);

  /** Return the address relative to the page. */
  function target() {
    const query = new URLSearchParams();
    let url = path.slice(1);
    for (const [parameter, input] of inputs) {
      if (parameter.in === "path") url = url.replace(`{${parameter.name}}`, () => encodeURIComponent(input.value));
      else if (input.value) query.set(parameter.name, input.value);
    }
    return url + (query.size ? `?${query}` : "");
  }

  function showCommand() {
    const withKey = sessionStorage.getItem(KEY) !== null;
    command.textContent = curl(method.toUpperCase(), new URL(target(), document.baseURI).href, area ? compact(area.value) : null, withKey);
  }

  form.addEventListener("input", showCommand);
  copyButton.addEventListener("click", async () => {
    status.textContent = (await copy(command.textContent, command)) ? "Copied." : "Copy the selected text yourself.";
  });
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    out.hidden = true;
    const missing = inputs.find(([parameter, input]) => parameter.required && !input.value);
    if (missing) {
      status.textContent = `Enter ${missing[0].name}.`;
      missing[1].focus();
      return;
    }
    status.textContent = "…";
    const start = performance.now();
    try {
      const answer = await fetch(target(), {
        method: method.toUpperCase(),
        headers: headers(area ? { "Content-Type": "application/json" } : {}),
        body: area?.value,
      });
      const text = await answer.text();
      status.textContent = `${answer.status} ${answer.statusText}, ${Math.round(performance.now() - start)} ms`;
      out.textContent = pretty(text);
      out.hidden = false;
    } catch {
      status.textContent = "The server is not responding.";
    }
  });
  showCommand();
  return form;
}

/** Return JSON on one line; what is no JSON stays as it is. */
function compact(text) {
  try {
    return JSON.stringify(JSON.parse(text));
  } catch {
    return text;
  }
}

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return text;
  }
}

function show(method, path, operation, all) {
  const element = make("details");
  element.id = `${method}${path}`;
  const summary = element.appendChild(make("summary"));
  summary.append(make("span", method.toUpperCase(), "method"), make("h2", path), make("span", operation.summary, "soft"));
  element.append(prose("p", operation.description ?? ""));
  if (operation.parameters?.length) {
    element.append(make("h3", "Parameters"), table(["name", "in", "type", "meaning"], operation.parameters.map((parameter) => [
      parameter.name + (parameter.required ? " *" : ""), parameter.in, describe(parameter.schema, all), parameter.description ?? "",
    ])));
  }
  const body = operation.requestBody?.content["application/json"]?.schema;
  if (body) element.append(make("h3", "Body"), fields(body, all));
  element.append(make("h3", "Try it"), requestForm(method, path, operation, body, all));
  element.append(make("h3", "Answers"));
  for (const [status, answer] of Object.entries(operation.responses)) {
    if (status >= 400) continue;
    element.append(prose("p", `${status}: ${answer.description}`));
    const schema = answer.content?.["application/json"]?.schema;
    if (schema) element.append(make("pre", JSON.stringify(example(schema, all), null, 2)));
  }
  const failed = Object.entries(operation.responses).filter(([status]) => status >= 400);
  element.append(table(["status", "meaning"], failed.map(([status, answer]) => [status, answer.description])));
  return element;
}

async function load() {
  $("error").textContent = "";
  let answer;
  try {
    answer = await fetch("openapi.json", { headers: headers() });
  } catch {
    $("error").textContent = "The server is not responding.";
    return;
  }
  if (answer.status === 401) {
    $("key").hidden = false;
    if (sessionStorage.getItem(KEY)) $("error").textContent = "The server rejected that key.";
    return;
  }
  const all = await answer.json();
  $("key").hidden = true;
  $("title").textContent = `${all.info.title} ${all.info.version} API`;
  $("about").replaceChildren(...prose("p", all.info.description).childNodes);
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
