// Talks to the server: JSON, uploads, and events as they happen.

/** A failure the server told of: `message`, `remedy`, `code`, `status` (0: it could not be reached). */
export class Told extends Error {
  constructor(message, { remedy = null, code = null, status = 0 } = {}) {
    super(message);
    Object.assign(this, { remedy, code, status });
  }
}

const UNREACHABLE = () =>
  new Told("The server does not answer", { remedy: "See whether `ocrd serve` or `ocrd watch --serve` is still running" });

function told(status, body) {
  if (status === 401) location.reload(); // the page itself then asks for the token
  const error = body?.error;
  return new Told(error?.message ?? `The server answered ${status}`, { remedy: error?.remedy, code: error?.code, status });
}

async function ask(path, options) {
  let answer;
  try {
    answer = await fetch(path, { headers: { Accept: "application/json", ...options.headers }, ...options });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw UNREACHABLE();
  }
  const body = await answer.json().catch(() => null);
  if (!answer.ok) throw told(answer.status, body);
  return body;
}

/** The JSON at `path`; `values` become its query, empty ones left out. Raises `Told`, or AbortError. */
export function get(path, values = {}, signal = undefined) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) {
    for (const one of [value].flat()) if (one !== "" && one !== null && one !== undefined) query.append(name, one);
  }
  return ask(query.size ? `${path}?${query}` : path, { signal });
}

/** What the server answers to `body`, sent as JSON. Raises `Told`. */
export function post(path, body = {}) {
  return ask(path, { method: "POST", headers: { "Content-Type": "application/json", Accept: "application/json" }, body: JSON.stringify(body) });
}

/** Send one file; `onProgress` hears the share that is through. Raises `Told`. */
export function upload(path, file, onProgress) {
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest(); // fetch cannot tell how far an upload is
    const form = new FormData();
    form.append("file", file, file.name);
    request.upload.addEventListener("progress", (event) => event.lengthComputable && onProgress(event.loaded / event.total));
    request.addEventListener("error", () => reject(UNREACHABLE()));
    request.addEventListener("load", () => {
      let body = null;
      try {
        body = JSON.parse(request.responseText);
      } catch {
        // Told by its status.
      }
      if (request.status < 300) resolve(body);
      else reject(told(request.status, body));
    });
    request.open("POST", path);
    request.setRequestHeader("Accept", "application/json");
    request.send(form);
  });
}

/**
 * Hear events as they happen: `handlers` by event name; `onConnected(isConnected)` when that changes.
 * EventSource connects again by itself, except after an answer that is no stream: then we do, slower each time.
 * A page in the background keeps no connection: browsers allow six to one server, for all its tabs together.
 */
export function listen(path, handlers, onConnected = () => {}) {
  let source = null;
  let wait_s = 1;
  let timer = 0;
  const close = () => {
    clearTimeout(timer);
    source?.close();
    source = null;
  };
  const open = () => {
    close();
    source = new EventSource(path);
    source.addEventListener("open", () => {
      wait_s = 1;
      onConnected(true);
    });
    source.addEventListener("error", () => {
      onConnected(false);
      if (source?.readyState !== EventSource.CLOSED) return;
      timer = setTimeout(open, wait_s * 1000);
      wait_s = Math.min(30, wait_s * 2);
    });
    for (const [name, handle] of Object.entries(handlers)) {
      source.addEventListener(name, (event) => handle(JSON.parse(event.data)));
    }
  };
  document.addEventListener("visibilitychange", () => (document.hidden ? close() : open()));
  addEventListener("pagehide", close);
  addEventListener("pageshow", (event) => event.persisted && open());
  if (!document.hidden) open();
}
