const EVENTS_KEPT_MAX = 4096;

/** Events for `for await`, kept until they are read. */
export class EventReader {
  #events = [];
  #waiting = [];
  #isEnded = false;
  #onReturn;

  constructor(onReturn) {
    this.#onReturn = onReturn;
  }

  push(event) {
    const waiting = this.#waiting.shift();
    if (waiting) waiting({ value: event, done: false });
    else if (this.#events.length < EVENTS_KEPT_MAX) this.#events.push(event);
  }

  end() {
    this.#isEnded = true;
    for (const waiting of this.#waiting.splice(0)) waiting({ value: undefined, done: true });
  }

  next() {
    if (this.#events.length) return Promise.resolve({ value: this.#events.shift(), done: false });
    if (this.#isEnded) return Promise.resolve({ value: undefined, done: true });
    return new Promise((resolve) => this.#waiting.push(resolve));
  }

  return() {
    this.#onReturn();
    this.end();
    return Promise.resolve({ value: undefined, done: true });
  }

  [Symbol.asyncIterator]() {
    return this;
  }
}
