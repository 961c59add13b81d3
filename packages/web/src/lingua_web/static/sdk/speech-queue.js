/**
 * What is to be spoken, in order: whole translations, and parts that arrive before the whole.
 *
 * An entry is one utterance of one speaker. Its parts may be played while the rest is still made;
 * the outcome then gives only what is missing. Pure: it plays nothing itself.
 */

const ENTRIES_MAX = 64;

export class SpeechQueue {
  /** @type {{key: string, pieces: Uint8Array[], taken: number, bytes: number, attempt: number,
   *   isComplete: boolean}[]} */
  #entries = [];

  get length() {
    return this.#entries.length;
  }

  /** Add a part of an utterance; parts of an earlier attempt are forgotten if unheard. */
  addPart(key, part, attempt, bytes) {
    const entry = this.#entry(key);
    if (entry.isComplete || attempt < entry.attempt) return;
    if (attempt > entry.attempt) {
      entry.attempt = attempt;
      entry.parts = 0;
      if (!entry.taken) Object.assign(entry, { pieces: [], bytes: 0 });
      // What was heard of the former attempt is not said again: the outcome gives the rest.
      else entry.isStale = true;
    }
    if (part !== entry.parts) return;
    entry.parts += 1;
    if (entry.isStale) return;
    entry.pieces.push(bytes);
    entry.bytes += bytes.length;
  }

  /** Complete an utterance with its whole audio. */
  complete(key, audio) {
    const entry = this.#entry(key);
    if (entry.isComplete) return;
    entry.isComplete = true;
    if (!entry.taken) entry.pieces = audio.length ? [audio] : [];
    else if (audio.length > entry.bytes) entry.pieces.push(audio.subarray(entry.bytes));
    if (!entry.pieces.length && !entry.taken) this.#remove(entry);
  }

  /** The next piece to play as `{key, bytes}`; null: nothing now. */
  take() {
    for (;;) {
      const entry = this.#entries[0];
      if (!entry) return null;
      const bytes = entry.pieces.shift();
      if (bytes) {
        entry.taken += 1;
        return { key: entry.key, bytes };
      }
      if (!entry.isComplete) return null;
      this.#entries.shift();
    }
  }

  /** Drop the utterance that is being played, or everything. */
  skip(all = false) {
    if (all) this.#entries = [];
    else if (this.#entries.length) {
      const [entry] = this.#entries;
      // Later parts of it must not be taken for a new utterance.
      if (entry.isComplete) this.#entries.shift();
      else Object.assign(entry, { pieces: [], isStale: true, taken: entry.taken || 1, bytes: Infinity });
    }
  }

  #entry(key) {
    const found = this.#entries.find((entry) => entry.key === key);
    if (found) return found;
    const made = {
      key, pieces: [], taken: 0, bytes: 0, parts: 0, attempt: 0, isComplete: false, isStale: false,
    };
    this.#entries.push(made);
    // The oldest that nobody has begun to hear is given up: what is said now matters more.
    if (this.#entries.length > ENTRIES_MAX) this.#entries.splice(1, 1);
    return made;
  }

  #remove(entry) {
    this.#entries = this.#entries.filter((one) => one !== entry);
  }
}
