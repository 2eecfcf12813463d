// A form made from a JSON Schema: fields for what it can express, a JSON text for the rest. It checks nothing by itself; what is
// wrong with the values is the pipeline's word, and `complain` puts each of its sentences beside the field it is about.

import { button, freshId, h } from "./dom.js";

const DEEPEST = 6;

/** `{node, value(), fill(values), complain(details)}` for a tool's parameters. */
export function schemaForm(schema) {
  const root = schema ?? { type: "object" };
  const group = objectField(root, { root, depth: 0, pointer: "", label: null, required: true });
  return {
    node: group.node,
    value: () => group.value() ?? {},
    fill: (values) => group.fill(values),
    complain: (details) => complain(group, details),
  };
}

/** Shows each problem at its field; gives those that no field took. */
function complain(group, details) {
  const places = [];
  group.walk((field) => places.push(field));
  for (const field of places) field.problem?.(null);
  const left = [];
  let first = null;
  for (const detail of details) {
    const pointer = detail.pointer ?? "";
    const missing =
      /required property '?"?([\w-]+)/.exec(detail.message ?? "")?.[1] ?? detail.property ?? detail.missing;
    const field = find(places, missing ? `${pointer}/${missing}` : pointer) ?? find(places, pointer);
    if (field) {
      field.problem(detail.message ?? "This value is not accepted.");
      first ??= field;
    } else left.push(detail);
  }
  first?.focus?.();
  return left;
}

/** The field of a pointer, or the nearest one around it that can show a problem. */
function find(places, pointer) {
  for (let at = pointer; at !== ""; at = at.slice(0, at.lastIndexOf("/"))) {
    const field = places.find((one) => one.pointer() === at && one.problem);
    if (field) return field;
  }
  return null;
}

function resolve(schema, root, depth = 0) {
  if (typeof schema !== "object" || schema === null) return {};
  if (typeof schema.$ref !== "string" || depth > 20) return schema;
  if (!schema.$ref.startsWith("#/")) return {};
  const target = schema.$ref
    .slice(2)
    .split("/")
    .reduce((at, part) => at?.[part.replaceAll("~1", "/").replaceAll("~0", "~")], root);
  const { $ref: _, ...beside } = schema;
  return { ...resolve(target, root, depth + 1), ...beside };
}

function fieldFor(schema, options) {
  const plain = resolve(schema, options.root);
  const type = Array.isArray(plain.type) ? plain.type.find((one) => one !== "null") : plain.type;
  if (plain.const !== undefined) return enumField({ ...plain, enum: [plain.const] }, options);
  if (Array.isArray(plain.enum)) return enumField(plain, options);
  if (options.depth > DEEPEST || plain.oneOf || plain.anyOf || plain.allOf) return jsonField(plain, options);
  if (type === "boolean") return booleanField(plain, options);
  if (type === "integer" || type === "number") return numberField(plain, { ...options, whole: type === "integer" });
  if (type === "string") return plain.format === "date-time" ? momentField(plain, options) : textField(plain, options);
  if (type === "array") return arrayField(plain, options);
  if (type === "object" && plain.properties) return objectField(plain, options);
  return jsonField(plain, options);
}

// ------------------------------------------------------------------------------------------------ one control
/** A label, a control, what it is for, and the place for a problem. */
function control(schema, options, input, extra = []) {
  const id = freshId("field");
  input.id = id;
  const helpText = help(schema);
  const helpNode = helpText && h("p", { class: "help", id: `${id}-help`, text: helpText });
  const problemNode = h("p", { class: "problem", id: `${id}-problem`, hidden: true });
  const describe = () => {
    const by = [helpNode && helpNode.id, !problemNode.hidden && problemNode.id].filter(Boolean).join(" ");
    if (by) input.setAttribute("aria-describedby", by);
    else input.removeAttribute("aria-describedby");
  };
  if (options.required) input.setAttribute("aria-required", "true");
  const node = h(
    "div",
    { class: "field" },
    h("label", { for: id }, title(options)),
    input,
    ...extra,
    helpNode,
    problemNode,
  );
  describe();
  return {
    node,
    problem(text) {
      saidIn(problemNode)(text);
      if (text) input.setAttribute("aria-invalid", "true");
      else input.removeAttribute("aria-invalid");
      describe();
    },
  };
}

/** Says a problem in its place, or that there is none. */
const saidIn = (node) => (text) => {
  node.textContent = text ?? "";
  node.hidden = !text;
};

function title({ label, required }) {
  return [h("span", { text: label ?? "value" }), required && h("span", { class: "required", text: "required" })].filter(
    Boolean,
  );
}

function help(schema) {
  const limits = [];
  const { minimum, maximum, minLength, maxLength } = schema;
  if (minimum !== undefined && maximum !== undefined) limits.push(`${minimum} to ${maximum}`);
  else if (minimum !== undefined) limits.push(`at least ${minimum}`);
  else if (maximum !== undefined) limits.push(`at most ${maximum}`);
  if (maxLength !== undefined && maxLength <= 1000 && !schema.format)
    limits.push(minLength > 1 ? `${minLength} to ${maxLength} characters` : `at most ${maxLength} characters`);
  if (schema.default !== undefined) limits.push(`${JSON.stringify(schema.default)} if left empty`);
  return [schema.description, limits.length ? `(${limits.join("; ")})` : ""].filter(Boolean).join(" ");
}

function leaf(options, shell, input, value, fill) {
  const field = {
    node: shell.node,
    problem: shell.problem,
    pointer: options.at,
    value,
    fill,
    focus: () => input.focus(),
    walk: (visit) => visit(field),
  };
  return field;
}

const placed = (options) => ({ ...options, at: options.at ?? (() => options.pointer) });

function textField(schema, options) {
  const types = { email: "email", uri: "url", date: "date", time: "text" };
  const long = (schema.maxLength ?? 0) > 250 || schema.contentMediaType;
  const secret = schema.writeOnly === true;
  const input =
    long && !secret
      ? h("textarea", { rows: 3 })
      : h("input", { type: secret ? "password" : (types[schema.format] ?? "text") });
  input.setAttribute("autocomplete", "off");
  if (Array.isArray(schema.examples) && typeof schema.examples[0] === "string") input.placeholder = schema.examples[0];
  return leaf(
    placed(options),
    control(schema, options, input),
    input,
    () => (input.value === "" ? undefined : input.value),
    (value) => (input.value = value === undefined || value === null ? "" : String(value)),
  );
}

function numberField(schema, options) {
  const input = h("input", {
    type: "number",
    min: schema.minimum,
    max: schema.maximum,
    step: options.whole ? 1 : "any",
    inputmode: options.whole ? "numeric" : "decimal",
  });
  return leaf(
    placed(options),
    control(schema, options, input),
    input,
    () => (input.value === "" ? undefined : Number(input.value)),
    (value) => (input.value = value ?? ""),
  );
}

function enumField(schema, options) {
  const values = schema.enum;
  const input = h(
    "select",
    null,
    !options.required || schema.default === undefined
      ? h("option", { value: "", text: options.required ? "Choose…" : "—" })
      : null,
    values.map((value, place) =>
      h("option", { value: String(place), text: typeof value === "string" ? value : JSON.stringify(value) }),
    ),
  );
  if (schema.const !== undefined && options.required) input.value = "0";
  return leaf(
    placed(options),
    control(schema, options, input),
    input,
    () => (input.value === "" ? undefined : values[Number(input.value)]),
    (value) => {
      const place = values.findIndex((one) => JSON.stringify(one) === JSON.stringify(value));
      input.value = place < 0 ? "" : String(place);
    },
  );
}

/** Yes, no, or not given: a tick box cannot say the third. */
function booleanField(schema, options) {
  const input = h(
    "select",
    null,
    h("option", { value: "", text: options.required ? "Choose…" : "—" }),
    h("option", { value: "true", text: "yes" }),
    h("option", { value: "false", text: "no" }),
  );
  return leaf(
    placed(options),
    control(schema, options, input),
    input,
    () => (input.value === "" ? undefined : input.value === "true"),
    (value) => (input.value = value === undefined ? "" : String(value)),
  );
}

/** A date and time of the reader's own zone, sent with its offset; what does not fit the picker is kept as it was given. */
function momentField(schema, options) {
  const input = h("input", { type: "datetime-local", step: 60 });
  const sent = h("p", { class: "help sent" });
  let given = null;
  const value = () => (input.value === "" ? undefined : (given ?? withOffset(input.value)));
  const tell = () => (sent.textContent = value() ? `Sent as ${value()}` : "");
  input.addEventListener("input", () => {
    given = null;
    tell();
  });
  return leaf(placed(options), control(schema, options, input, [sent]), input, value, (text) => {
    const date = new Date(text ?? "");
    given = Number.isNaN(date.getTime()) ? null : text;
    input.value = given ? local(date) : "";
    tell();
  });
}

const two = (value) => String(value).padStart(2, "0");
const local = (date) =>
  `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}T${two(date.getHours())}:${two(date.getMinutes())}`;

function withOffset(text) {
  const minutes = -new Date(text).getTimezoneOffset();
  const size = Math.abs(minutes);
  return `${text.length === 16 ? `${text}:00` : text}${minutes < 0 ? "-" : "+"}${two(Math.floor(size / 60))}:${two(size % 60)}`;
}

function jsonField(schema, options) {
  const input = h("textarea", { rows: 3, spellcheck: "false", class: "mono", placeholder: "JSON" });
  const shell = control(
    { ...schema, description: `${schema.description ?? ""} Written as JSON.`.trim() },
    options,
    input,
  );
  const read = () => {
    if (input.value.trim() === "") return undefined;
    try {
      return JSON.parse(input.value);
    } catch {
      return input.value; // the pipeline says what is wrong with it
    }
  };
  return leaf(
    placed(options),
    shell,
    input,
    read,
    (value) => (input.value = value === undefined ? "" : JSON.stringify(value, null, 2)),
  );
}

// ----------------------------------------------------------------------------------------------------- groups
function objectField(schema, options) {
  const at = options.at ?? (() => options.pointer);
  const required = new Set(schema.required ?? []);
  const names = Object.keys(schema.properties ?? {});
  names.sort((a, b) => Number(required.has(b)) - Number(required.has(a)));
  const fields = names.map((name) => [
    name,
    fieldFor(schema.properties[name], {
      root: options.root,
      depth: options.depth + 1,
      label: name,
      required: required.has(name),
      at: () => `${at()}/${name.replaceAll("~", "~0").replaceAll("/", "~1")}`,
    }),
  ]);
  const problem = h("p", { class: "problem", hidden: true });
  const content = [
    schema.description && options.label && h("p", { class: "help", text: schema.description }),
    ...fields.map(([, field]) => field.node),
    problem,
  ];
  const node =
    options.label === null
      ? h("div", { class: "fields" }, content)
      : h("fieldset", { class: "fields" }, h("legend", null, title(options)), content);
  if (!fields.length && options.label === null)
    node.append(h("p", { class: "quiet", text: "This tool takes no arguments." }));
  const field = {
    node,
    pointer: at,
    problem: options.label === null ? undefined : saidIn(problem),
    value() {
      const given = fields.map(([name, one]) => [name, one.value()]).filter(([, value]) => value !== undefined);
      return given.length || options.required ? Object.fromEntries(given) : undefined;
    },
    fill: (values) => fields.forEach(([name, one]) => one.fill(values?.[name])),
    focus: () => fields[0]?.[1].focus(),
    walk: (visit) => {
      fields.forEach(([, one]) => one.walk(visit));
      visit(field);
    },
  };
  return field;
}

function arrayField(schema, options) {
  const items = resolve(schema.items ?? {}, options.root);
  if (Array.isArray(items.enum) && items.enum.length <= 12) return choicesField(schema, items, options);
  const at = options.at ?? (() => options.pointer);
  const rows = [];
  const list = h("div", { class: "rows" });
  const problem = h("p", { class: "problem", hidden: true });
  const more = button(`Add to ${options.label}`, () => add().field.focus(), { kind: "small", sign: "plus" });
  const node = h(
    "fieldset",
    { class: "fields list" },
    h("legend", null, title(options)),
    schema.description && h("p", { class: "help", text: schema.description }),
    list,
    more,
    problem,
  );

  function add(value) {
    const row = {};
    row.field = fieldFor(schema.items ?? {}, {
      root: options.root,
      depth: options.depth + 1,
      label: `${options.label} ${rows.length + 1}`,
      required: false,
      at: () => `${at()}/${rows.indexOf(row)}`,
    });
    row.node = h(
      "div",
      { class: "row" },
      row.field.node,
      button(
        `Remove ${options.label} ${rows.length + 1}`,
        () => {
          rows.splice(rows.indexOf(row), 1);
          row.node.remove();
          more.focus();
        },
        { kind: "bare", sign: "failed" },
      ),
    );
    if (value !== undefined) row.field.fill(value);
    rows.push(row);
    list.append(row.node);
    return row;
  }

  const field = {
    node,
    pointer: at,
    problem: saidIn(problem),
    value() {
      const given = rows.map((row) => row.field.value()).filter((value) => value !== undefined);
      return given.length ? given : undefined;
    },
    fill(values) {
      for (const row of rows.splice(0)) row.node.remove();
      if (Array.isArray(values)) values.forEach(add);
      else if (options.required) add();
    },
    focus: () => (rows[0]?.field ?? more).focus(),
    walk: (visit) => {
      rows.forEach((row) => row.field.walk(visit));
      visit(field);
    },
  };
  if (options.required) add();
  return field;
}

/** A list of known values: one tick box each. */
function choicesField(schema, items, options) {
  const boxes = items.enum.map((value) => [value, h("input", { type: "checkbox" })]);
  const problem = h("p", { class: "problem", hidden: true });
  const node = h(
    "fieldset",
    { class: "fields choices" },
    h("legend", null, title(options)),
    help(schema) && h("p", { class: "help", text: help(schema) }),
    h(
      "div",
      { class: "boxes" },
      boxes.map(([value, box]) => h("label", { class: "box" }, box, h("span", { text: String(value) }))),
    ),
    problem,
  );
  const field = {
    node,
    pointer: options.at ?? (() => options.pointer),
    problem: saidIn(problem),
    value() {
      const given = boxes.filter(([, box]) => box.checked).map(([value]) => value);
      return given.length ? given : undefined;
    },
    fill: (values) => boxes.forEach(([value, box]) => (box.checked = Array.isArray(values) && values.includes(value))),
    focus: () => boxes[0]?.[1].focus(),
    walk: (visit) => visit(field),
  };
  return field;
}
