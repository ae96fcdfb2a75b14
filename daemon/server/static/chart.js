// Charts of hours, drawn by hand as SVG: columns for amounts, a curve for averages.

import { el, svg } from "./dom.js";

const HEIGHT = 190;
const TOP = 10;
const BOTTOM = 22;
const LEFT = 38;

/** The next number people count in: 1, 2, 5, 10, 20, 50… */
export function roundUp(value) {
  const power = 10 ** Math.floor(Math.log10(Math.max(value, 1e-9)));
  return [1, 2, 5, 10].find((step) => step * power >= value * 0.999) * power;
}

const words = (value) => (value >= 1000 ? `${Math.round(value / 100) / 10}k` : String(Math.round(value * 100) / 100));

/**
 * A chart of `hours` [{start, …}] into `place`. `value(hour)`: number, or null for nothing known; `say(hour)`: the
 * sentence for one hour; `kind`: "columns" or "curve"; `empty`: what is said where no hour has a value.
 */
export function draw(place, hours, { value, say, kind, empty, label }) {
  const known = hours.map(value);
  const most = Math.max(0, ...known.filter((one) => one !== null));
  if (!most) {
    place.replaceChildren(el("div.chart-none", {}, empty));
    return;
  }
  const width = Math.max(240, place.clientWidth);
  const top = roundUp(most);
  const slot = (width - LEFT) / hours.length;
  const x = (at) => LEFT + at * slot;
  const y = (amount) => TOP + (HEIGHT - TOP - BOTTOM) * (1 - amount / top);
  const said = el("p.chart-said", { "aria-hidden": "true" });
  const shape = kind === "columns" ? columns(known, x, y, slot) : curve(known, x, y, slot);
  const picture = svg(
    "svg",
    { viewBox: `0 0 ${width} ${HEIGHT}`, role: "img", "aria-label": `${label}. ${summary(hours, known, say)}` },
    [0, top / 2, top].map((amount) => [
      svg("line", { class: "grid", x1: LEFT, x2: width, y1: y(amount), y2: y(amount) }),
      svg("text", { x: LEFT - 8, y: y(amount) + 4, "text-anchor": "end" }, words(amount)),
    ]),
    times(hours, x, slot),
    shape,
    hours.map((hour, at) =>
      svg("rect", {
        class: "bar-hit", x: x(at), y: TOP, width: slot, height: HEIGHT - TOP - BOTTOM,
        onpointerenter: () => (said.textContent = say(hour)),
        onpointerleave: () => (said.textContent = ""),
      }),
    ),
  );
  place.replaceChildren(picture, said);
}

function summary(hours, known, say) {
  const best = known.reduce((found, amount, at) => (amount !== null && amount > (known[found] ?? -1) ? at : found), 0);
  return `Most: ${say(hours[best])}`;
}

function columns(known, x, y, slot) {
  const gap = Math.min(3, slot * 0.25);
  return known.map((amount, at) => {
    if (!amount) return null;
    const height = Math.max(1.5, y(0) - y(amount));
    return svg("rect", { class: "bar-shape", x: x(at) + gap / 2, y: y(0) - height, width: Math.max(1, slot - gap), height, rx: Math.min(2, slot / 4) });
  });
}

function curve(known, x, y, slot) {
  const runs = [];
  known.forEach((amount, at) => {
    if (amount === null) return;
    const point = [x(at) + slot / 2, y(amount)];
    if (at && known[at - 1] !== null) runs.at(-1).push(point);
    else runs.push([point]);
  });
  return runs.map((run) => [
    run.length > 1 ? svg("polyline", { class: "curve", points: run.map((point) => point.join(",")).join(" ") }) : null,
    run.length > 48 ? null : run.map(([cx, cy]) => svg("circle", { class: "point", cx, cy, r: 3.5 })),
  ]);
}

const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const day = new Intl.DateTimeFormat("en", { weekday: "short", day: "numeric" });

/** Six labels or fewer; at midnight, or with many days, the day. */
function times(hours, x, slot) {
  const every = [3, 6, 12, 24, 48, 96].find((step) => (hours.length / step) * 60 <= x(hours.length)) ?? 168;
  return hours.map((hour, at) => {
    const date = new Date(hour.start * 1000);
    const inDay = date.getHours();
    if (every < 24 ? inDay % every : inDay || (Math.round(hour.start / 86_400) % (every / 24))) return null;
    const text = inDay === 0 ? day.format(date) : clock.format(date);
    const at_px = x(at);
    if (at_px > x(hours.length) - 24 || at_px < x(0)) return null;
    return svg("text", { x: at_px, y: HEIGHT - 6, "text-anchor": "start" }, text);
  });
}
