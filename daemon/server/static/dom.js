// Builds elements. What is written into them is always text: nothing here parses HTML.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "data") Object.assign(node.dataset, value);
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

/** An HTML element: `el("a.title", {href}, "text", child, …)`. */
export function el(spec, attributes = {}, ...children) {
  const [tag, ...classes] = spec.split(".");
  const node = document.createElement(tag || "div");
  if (classes.length) node.className = classes.join(" ");
  return fill(node, attributes, children);
}

/** An SVG element. */
export function svg(tag, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}

/** One of the pictures in icons.svg. */
export function icon(name) {
  return svg("svg", { class: "icon", "aria-hidden": "true" }, svg("use", { href: `/static/icons.svg#${name}` }));
}

/** What stands where there is nothing to show: a picture, a heading, sentences or elements. */
export function blank(picture, title, ...lines) {
  const said = lines.map((line) => (typeof line === "string" ? el("p", {}, line) : line));
  return el("div.blank", {}, icon(picture), el("h2", {}, title), ...said);
}

/** What stands where something could not be fetched, with a way to try again. */
export function trouble(error, again) {
  return el(
    "div.trouble",
    { role: "alert" },
    icon("alert"),
    el("div", {}, el("p", {}, sentence(error.message)), error.remedy ? el("p", {}, sentence(error.remedy)) : null),
    again ? el("button.button.is-small", { type: "button", onclick: again }, "Try again") : null,
  );
}

/** Grey bars in the shape of what is coming. */
export function bones(count) {
  const one = () => el("div", {}, el("div.bone.is-half"), el("div.bone.is-long"));
  return el("div.bones", { "aria-hidden": "true" }, Array.from({ length: count }, one));
}

/** The text with a capital (unless it begins with a name) and a full stop. */
export function sentence(text) {
  const trimmed = String(text ?? "").trim();
  if (!trimmed) return "";
  const begun = /^[a-z]+([\s,;:]|$)/.test(trimmed) ? trimmed[0].toUpperCase() + trimmed.slice(1) : trimmed;
  return begun + (/[.!?…]$/.test(trimmed) ? "" : ".");
}

/** `run` once nothing has called for `delay_ms`. */
export function debounced(run, delay_ms) {
  let timer = 0;
  const later = (...values) => {
    clearTimeout(timer);
    timer = setTimeout(run, delay_ms, ...values);
  };
  later.now = (...values) => {
    clearTimeout(timer);
    run(...values);
  };
  return later;
}
