/**
 * One WebSocket of a session: messages in and out, and a watch that notices when it is dead.
 *
 * A browser does not tell when a network is gone: the socket stays open for minutes. So a silent
 * connection is asked for a sign of life, and dropped if none comes.
 */

import { decode, encode } from "./message-pack.js";

const FORM = "lingua.v1.msgpack";
// How long a connection may be silent before it is asked, and how long it may take to answer.
const SILENT_MS = 4000;
const ANSWER_MS = 4000;
const OPEN_MS = 6000;
// After the network came back or went, the answer must come sooner.
const HURRY_MS = 1500;

export class Connection {
  #socket;
  #onMessage;
  #onEnd;
  #isEnded = false;
  #heardAt = 0;
  #askedAt = 0;
  #timer = 0;
  #answerMs = ANSWER_MS;
  #heartbeat = null;

  /**
   * @param {string} url
   * @param {{onOpen: () => void, onMessage: (message: any) => void,
   *   onEnd: (code: number, reason: string) => void}} callbacks
   */
  constructor(url, { onOpen, onMessage, onEnd }) {
    this.#onMessage = onMessage;
    this.#onEnd = onEnd;
    const socket = new WebSocket(url, [FORM]);
    socket.binaryType = "arraybuffer";
    const tooLate = setTimeout(() => this.drop("no connection in time"), OPEN_MS);
    socket.onopen = () => {
      clearTimeout(tooLate);
      this.#heardAt = Date.now();
      onOpen();
    };
    socket.onmessage = (event) => this.#receive(event.data);
    socket.onclose = (event) => {
      clearTimeout(tooLate);
      this.#end(event.code, event.reason);
    };
    this.#socket = socket;
  }

  get isOpen() {
    return !this.#isEnded && this.#socket.readyState === WebSocket.OPEN;
  }

  send(message) {
    if (this.isOpen) this.#socket.send(encode(message));
  }

  /** Ask for signs of life from now on, with this message. */
  watch(heartbeat) {
    this.#heartbeat = heartbeat;
    this.#timer ||= setInterval(() => this.#check(), 500);
  }

  /** Ask at once: the network has changed. */
  hurry() {
    if (!this.#heartbeat || !this.isOpen) return;
    this.#answerMs = HURRY_MS;
    if (!this.#askedAt) this.#ask();
  }

  /** End it without waiting for anybody. */
  drop(reason = "dropped") {
    this.#end(1006, reason);
  }

  #check() {
    const now = Date.now();
    if (this.#askedAt && now - this.#askedAt > this.#answerMs) this.drop("no sign of life");
    else if (!this.#askedAt && now - this.#heardAt > SILENT_MS) this.#ask();
  }

  #ask() {
    this.#askedAt = Date.now();
    this.send(this.#heartbeat());
  }

  #receive(data) {
    if (this.#isEnded) return;
    this.#heardAt = Date.now();
    this.#askedAt = 0;
    this.#answerMs = ANSWER_MS;
    let message;
    try {
      message = decode(data);
    } catch {
      this.drop("a message could not be read");
      return;
    }
    this.#onMessage(message);
  }

  #end(code, reason) {
    if (this.#isEnded) return;
    this.#isEnded = true;
    clearInterval(this.#timer);
    // Of this socket nothing is wanted any more, whatever it still does.
    this.#socket.onmessage = this.#socket.onclose = this.#socket.onopen = null;
    this.#socket.close();
    this.#onEnd(code, reason);
  }
}
