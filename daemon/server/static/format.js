// Numbers, times and states as people say them.

const number = new Intl.NumberFormat("en");
const short = new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 });
const relative = new Intl.RelativeTimeFormat("en", { numeric: "auto" });
const day = new Intl.DateTimeFormat("en", { day: "numeric", month: "short", year: "numeric" });
const moment = new Intl.DateTimeFormat("en", { dateStyle: "medium", timeStyle: "short" });
const clock = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });

export const STATES = {
  queued: "Waiting",
  running: "Being read",
  done: "Read",
  failed: "Failed",
  needs_password: "Locked",
  missing: "File gone",
};

export const count = (value) => number.format(value);
export const compact = (value) => (value < 10_000 ? number.format(value) : short.format(value));
export const plural = (value, one, many = `${one}s`) => `${count(value)} ${value === 1 ? one : many}`;
export const when = (seconds) => moment.format(seconds * 1000);
export const hour = (seconds) => clock.format(seconds * 1000);

/** "5 minutes ago"; a date once that is longer ago than a week. */
export function ago(seconds, now = Date.now() / 1000) {
  const passed = Math.max(0, now - seconds);
  if (passed < 60) return "just now";
  if (passed < 3600) return relative.format(-Math.round(passed / 60), "minute");
  if (passed < 86_400) return relative.format(-Math.round(passed / 3600), "hour");
  if (passed < 7 * 86_400) return relative.format(-Math.round(passed / 86_400), "day");
  return day.format(seconds * 1000);
}

/** "3 min", "1 h 20 min". */
export function duration(seconds) {
  if (seconds < 60) return `${Math.max(1, Math.round(seconds))} s`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 60) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  if (hours < 48) return minutes % 60 ? `${hours} h ${minutes % 60} min` : `${hours} h`;
  return `${Math.round(hours / 24)} days`;
}

/** "1.4 MB". */
export function size(bytes) {
  if (bytes < 1000) return `${bytes} B`;
  const units = ["kB", "MB", "GB", "TB"];
  const power = Math.min(units.length, Math.floor(Math.log10(bytes) / 3));
  const value = bytes / 1000 ** power;
  return `${value < 10 ? value.toFixed(1) : Math.round(value)} ${units[power - 1]}`;
}

/** What names who read a page. */
export function reader(engine) {
  return { "text-layer": "Text layer", tesseract: "Tesseract", rapidocr: "RapidOCR", classic: "Classic OCR" }[engine] ?? engine;
}
