// The service as the console reaches it: the stream of events, which begins again by itself, and
// single requests. `EventSource` cannot send a token, so the stream is read with `fetch`.

import { applied, parsed } from "./state.js";

const RETRY_MS = [500, 1000, 2000, 5000];
// The service says something every second; a stream that is silent for longer has broken.
const SILENCE_MS = 8000;
const KEY = "lingua-console-token";

let token = sessionStorage.getItem(KEY) ?? "";

export const hasToken = () => token !== "";

export function setToken(given) {
  token = given.trim();
  if (token) sessionStorage.setItem(KEY, token);
  else sessionStorage.removeItem(KEY);
}

const headers = (more = {}) => (token ? { Authorization: `Bearer ${token}`, ...more } : more);

/** The service refused; `status` 401 and 403 need another token. */
export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

async function refusal(response) {
  const body = await response.json().catch(() => null);
  return new Refused(response.status, body?.error?.message ?? `HTTP ${response.status}`);
}

/** Send a request to the API and return its answer. */
export async function ask(path, body) {
  const options = body === undefined
    ? { headers: headers() }
    : {
        method: "POST",
        headers: headers({ "Content-Type": "application/json" }),
        body: JSON.stringify(body),
      };
  const response = await fetch(path, { ...options, cache: "no-store" });
  if (!response.ok) throw await refusal(response);
  return response.json();
}

/** Follow the stream for ever; `heard` gets each state, `linked` how the connection is. */
export async function follow(heard, linked) {
  for (let tries = 0; ; ) {
    try {
      await once((state) => {
        tries = 0;
        linked("live", "");
        heard(state);
      });
      linked("lost", "the stream ended");
    } catch (error) {
      if (error instanceof Refused && (error.status === 401 || error.status === 403)) {
        await linked("refused", error.message);
        tries = 0;
        continue;
      }
      linked("lost", error instanceof Refused ? error.message : "the service does not answer");
    }
    await new Promise((done) => setTimeout(done, RETRY_MS[Math.min(tries++, RETRY_MS.length - 1)]));
  }
}

async function once(heard) {
  const stop = new AbortController();
  let timer = setTimeout(() => stop.abort(), SILENCE_MS);
  try {
    const response = await fetch("/api/v1/events", {
      headers: headers(),
      cache: "no-store",
      signal: stop.signal,
    });
    if (!response.ok) throw await refusal(response);
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "", state = null;
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      clearTimeout(timer);
      timer = setTimeout(() => stop.abort(), SILENCE_MS);
      const [events, rest] = parsed(text + value);
      text = rest;
      for (const [name, data] of events) {
        if (name === "end") throw new Refused(0, `the stream ended: ${data.reason}`);
        state = applied(state, name, data);
      }
      if (events.length && state) heard(state);
    }
  } finally {
    clearTimeout(timer);
    stop.abort();
  }
}
