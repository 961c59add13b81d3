/**
 * The captions of a room in one language, to read only: no microphone, no membership.
 *
 * Events: `caption` {id, speaker, name, index, text, lang, atMs}, in order and once each;
 * `partial` {speaker, name, index, lang, stable, unstable}; `members`; `end`; `state`.
 * It reads Server-Sent Events with `fetch`, because `EventSource` cannot send a token, and goes on
 * by itself after a lost connection from the last caption that it has.
 */

import { LinguaError } from "./errors.js";

const BACKOFF_FIRST_MS = 200;
const BACKOFF_MAX_MS = 4000;
// The server sends a comment more often than this.
const SILENT_MS = 30_000;
const SEEN_MAX = 512;

export class CaptionFeed extends EventTarget {
  #options;
  #lastId = "";
  #seen = new Set();
  #failures = 0;
  #abort = new AbortController();
  #isClosed = false;

  /** @param {{url?: string, room: string, lang: string, token?: string}} options */
  constructor(options) {
    super();
    this.#options = options;
  }

  /** Read until `close`, or until the room ends; rejects if the feed is refused. */
  async run() {
    while (!this.#isClosed) {
      this.#emit("state", { state: this.#failures ? "reconnecting" : "connecting" });
      try {
        await this.#read();
      } catch (error) {
        if (error instanceof LinguaError) throw error;
        // Anything else is the network, or a server that wants to be asked again.
      }
      if (!this.#isClosed) await this.#wait();
    }
  }

  close() {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#abort.abort();
    this.#emit("state", { state: "closed" });
  }

  async #read() {
    const { url, room, lang, token } = this.#options;
    const address = new URL(`/captions/${encodeURIComponent(room)}`, url ?? location.href);
    address.searchParams.set("lang", lang);
    const headers = { Accept: "text/event-stream" };
    if (token) headers.Authorization = `Bearer ${token}`;
    if (this.#lastId) headers["Last-Event-ID"] = this.#lastId;
    this.#abort = new AbortController();
    const response = await fetch(address, { headers, signal: this.#abort.signal });
    if (!response.ok) await refuse(response);
    this.#failures = 0;
    this.#emit("state", { state: "open" });
    await this.#follow(response.body.pipeThrough(new TextDecoderStream()).getReader());
  }

  async #follow(reader) {
    const parser = new EventStreamParser((event) => this.#handle(event));
    for (;;) {
      const silent = setTimeout(() => this.#abort.abort(), SILENT_MS);
      const { value, done } = await reader.read().finally(() => clearTimeout(silent));
      if (done) return;
      parser.push(value);
    }
  }

  #handle({ type, data, id }) {
    if (id) this.#lastId = id;
    let message;
    try {
      message = JSON.parse(data);
    } catch {
      return;
    }
    const { utterance_index: index, at_ms: atMs, ...rest } = message;
    const detail = { ...rest, index, atMs };
    if (type === "caption" && !this.#isNew(`${message.speaker}/${index}/${message.lang}`)) return;
    if (type === "end") this.close();
    if (["caption", "partial", "members", "end"].includes(type)) this.#emit(type, detail);
  }

  #isNew(key) {
    if (this.#seen.has(key)) return false;
    this.#seen.add(key);
    if (this.#seen.size > SEEN_MAX) this.#seen.delete(this.#seen.values().next().value);
    return true;
  }

  #wait() {
    const waitMs = Math.min(BACKOFF_MAX_MS, BACKOFF_FIRST_MS * 2 ** Math.min(this.#failures++, 10));
    this.#emit("state", { state: "reconnecting" });
    return new Promise((resolve) => setTimeout(resolve, waitMs * (0.5 + Math.random() / 2)));
  }

  #emit(type, detail) {
    this.dispatchEvent(new CustomEvent(type, { detail }));
  }
}

async function refuse(response) {
  if (response.status >= 500 || response.status === 429) throw new Error("try again");
  const body = await response.json().catch(() => ({}));
  throw new LinguaError(body.error?.code ?? `HTTP_${response.status}`, body.error?.message);
}

/** Server-Sent Events, in pieces of any length. Pure. */
export class EventStreamParser {
  #rest = "";
  #onEvent;
  #type = "";
  #data = [];
  #id = "";

  constructor(onEvent) {
    this.#onEvent = onEvent;
  }

  push(text) {
    const lines = (this.#rest + text).split(/\r\n|\n|\r(?!$)/);
    this.#rest = lines.pop();
    for (const line of lines) this.#take(line);
  }

  #take(line) {
    if (line === "") {
      if (this.#data.length) {
        const data = this.#data.join("\n");
        this.#onEvent({ type: this.#type || "message", data, id: this.#id });
      }
      this.#type = "";
      this.#data = [];
      return;
    }
    const colon = line.indexOf(":");
    if (colon === 0) return;
    const name = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (name === "event") this.#type = value;
    else if (name === "data") this.#data.push(value);
    else if (name === "id" && !value.includes("\0")) this.#id = value;
  }
}
