/** The audio that a session sends, over any of its connections, and `session_close` after it. */

import { LinguaError } from "./errors.js";
import { ReplayBuffer } from "./replay-buffer.js";

const BYTES_PER_MS = 32;
// Below the server's limit for a message.
const CHUNK_BYTES_MAX = 256 * 1024;
const KEPT_BYTES_MAX = 16 * 1024 * 1024;
// After a reconnect the kept audio goes out faster than it was spoken, but not all at once: so
// much may be unacknowledged, and beyond that no faster than it was spoken.
const AHEAD_MS = 20_000;
const ENDS_AHEAD = 4;
const PACED_MS = 100;

export class SpeechSender {
  replay = new ReplayBuffer(KEPT_BYTES_MAX);
  isCloseSent = false;
  #send;
  #sessionId;
  #isPaused = false;
  #isClosing = false;
  #paceTimer = 0;
  // Who waits until everything so far is accepted: [{seq, resolve, reject}].
  #waiting = [];

  /** @param send sends a message now, or returns false if there is no connection */
  constructor(send, sessionId) {
    this.#send = send;
    this.#sessionId = sessionId;
  }

  add(bytes, isFinal) {
    if (this.replay.isFull) throw new LinguaError("BUFFER_FULL", "too much speech is waiting");
    let from = 0;
    do {
      const part = bytes.slice(from, from + CHUNK_BYTES_MAX);
      from += CHUNK_BYTES_MAX;
      this.replay.add(part, isFinal && from >= bytes.length);
    } while (from < bytes.length);
    this.pump();
  }

  /** End the utterance, and wait until the server has accepted all speech so far. */
  untilAccepted() {
    if (this.replay.openSeq === this.replay.nextSeq) return Promise.resolve();
    this.add(new Uint8Array(0), true);
    const seq = this.replay.nextSeq;
    return new Promise((resolve, reject) => this.#waiting.push({ seq, resolve, reject }));
  }

  close() {
    this.#isClosing = true;
    this.pump();
  }

  setPaused(isPaused) {
    this.#isPaused = isPaused;
    this.pump();
  }

  accept(seq, audioMs, index, isAnswered) {
    this.replay.accept(seq, audioMs, index, isAnswered);
    const isDone = (one) => this.replay.openSeq >= one.seq;
    const done = this.#waiting.filter(isDone);
    this.#waiting = this.#waiting.filter((one) => !isDone(one));
    for (const one of done) one.resolve();
    clearTimeout(this.#paceTimer);
    this.#paceTimer = 0;
    this.pump();
  }

  /** Send to a new session what the former one had not accepted. */
  beginSession() {
    this.replay.forgetAccepted();
    this.replay.audioMs = 0;
    this.replay.rewind();
  }

  resumeSession(nextSeq, audioMs) {
    this.replay.rewind(nextSeq);
    if (nextSeq === this.replay.firstSeq) this.replay.audioMs = audioMs;
  }

  beginConnection() {
    this.isCloseSent = this.#isPaused = false;
  }

  end(error) {
    clearTimeout(this.#paceTimer);
    for (const one of this.#waiting.splice(0)) one.reject(error);
  }

  pump() {
    while (this.#maySend()) {
      const chunk = this.replay.nextUnsent();
      if (!chunk) break;
      this.#sendChunk(chunk);
    }
    if (this.#isClosing && !this.isCloseSent && this.replay.isSent && this.#send(null)) {
      this.isCloseSent = true;
      this.#send({ type: "session_close", session_id: this.#sessionId() });
    }
  }

  #sendChunk({ seq, payload, isFinal }) {
    this.#send({
      type: "audio_chunk", session_id: this.#sessionId(), seq, is_final: isFinal,
      payload: payload.length ? payload : undefined, client_timestamp_ms: Date.now(),
    });
  }

  #maySend() {
    if (this.#isPaused || this.#paceTimer || !this.#send(null)) return false;
    const { bytes, ends } = this.replay.underWay;
    if (bytes < AHEAD_MS * BYTES_PER_MS && ends < ENDS_AHEAD) return true;
    if (!this.replay.isSent) {
      this.#paceTimer = setTimeout(() => {
        this.#paceTimer = 0;
        const chunk = this.#send(null) && !this.#isPaused ? this.replay.nextUnsent() : null;
        if (chunk) this.#sendChunk(chunk);
        this.pump();
      }, PACED_MS);
    }
    return false;
  }
}
