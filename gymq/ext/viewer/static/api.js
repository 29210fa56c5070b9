// What the bridge knows, as JSON or as a stream of events. The key is kept for this tab only.

const KEY = "gymq-key";

export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export const setKey = (key) => sessionStorage.setItem(KEY, key);

function headers() {
  const key = sessionStorage.getItem(KEY);
  return key ? { Authorization: `Bearer ${key}` } : {};
}

async function request(parts, query, signal, accept, body) {
  const path = "api/" + parts.map((part) => encodeURIComponent(part)).join("/");
  const asked = new URLSearchParams(Object.entries(query || {}).filter(([, value]) => value !== "" && value !== null && value !== undefined));
  const ask = () => fetch(asked.size ? `${path}?${asked}` : path, {
    method: body === undefined ? "GET" : "POST", body, signal, cache: "no-store",
    headers: { ...headers(), Accept: accept, ...(body === undefined ? {} : { "Content-Type": "application/json" }) },
  });
  let answer;
  // A browser drops its connections where the networks of a machine change, and a bridge closes those that are idle.
  for (const wait of [0, 200, 1000, null]) {
    if (wait === null) throw new Refused(0, "the bridge does not answer");
    if (wait) await new Promise((done) => { setTimeout(done, wait); });
    try {
      answer = await ask();
      break;
    } catch (error) {
      if (error.name === "AbortError") throw error;
    }
  }
  if (!answer.ok) {
    const body = await answer.json().catch(() => ({}));
    throw new Refused(answer.status, body.error?.message || `status ${answer.status}`);
  }
  return answer;
}

export async function get(parts, query, signal) {
  return (await request(parts, query, signal, "application/json")).json();
}

// Has something computed; nothing is changed by it.
export async function post(parts, value, signal) {
  return (await request(parts, null, signal, "application/json", JSON.stringify(value))).json();
}

export async function text(parts, signal) {
  return (await request(parts, null, signal, "application/json")).text();
}

// Has the browser store a file.
export async function download(parts, name, signal) {
  const whole = await (await request(parts, null, signal, "application/jsonl")).blob();
  const made = document.createElement("a");
  made.href = URL.createObjectURL(whole);
  made.download = name;
  made.click();
  setTimeout(() => URL.revokeObjectURL(made.href), 60000);
}

const pause = (ms, signal) => new Promise((done) => {
  const timer = setTimeout(done, ms);
  signal.addEventListener("abort", () => { clearTimeout(timer); done(); }, { once: true });
});

// An error of the page itself would come again with each connection.
function handle(handler, data) {
  try {
    handler(JSON.parse(data));
  } catch (error) {
    throw Object.assign(error, { isOfPage: true });
  }
}

// Calls handlers[event](body) for each event until the stream ends (when `ends` names the last event) or is aborted.
// A connection that breaks is made again.
export async function listen(parts, handlers, signal, ends) {
  let wait = 500;
  while (!signal.aborted) {
    try {
      const answer = await request(parts, null, signal, "text/event-stream");
      const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
      let pieces = []; // of an event that has not arrived whole: a long rollout comes in many
      for (;;) {
        const { done, value } = await reader.read();
        if (done) break;
        wait = 500;
        const isWhole = value.includes("\n\n") || (value.startsWith("\n") && pieces.at(-1)?.endsWith("\n"));
        pieces.push(value);
        if (!isWhole) continue;
        const events = pieces.join("").split("\n\n");
        pieces = [events.pop()];
        for (const event of events) {
          const lines = event.split("\n");
          const name = lines.find((line) => line.startsWith("event: "))?.slice(7);
          const data = lines.find((line) => line.startsWith("data: "))?.slice(6);
          if (name && data && handlers[name]) handle(handlers[name], data);
          if (name && name === ends) return;
        }
      }
    } catch (error) {
      if (signal.aborted || error.name === "AbortError") return;
      if (error.isOfPage || (error instanceof Refused && error.status >= 400 && error.status < 500)) throw error;
    }
    handlers.away?.();
    await pause(wait, signal);
    wait = Math.min(wait * 2, 10000);
  }
}
