/**
 * Which outcomes were received: the last position, and the utterances that still lack one.
 *
 * Outcomes arrive in the order of their positions, so one number per epoch tells which are new. If
 * the store loses its data, positions start over and some outcomes come again; then the utterance
 * index tells, because it only grows within one language of one speaker. Pure.
 */

// Far above what a server allows; only so that nothing grows for ever.
const OPEN_MAX = 1024;
const LANES_MAX = 4096;

export class OutcomeTracker {
  epoch = "";
  seq = 0;
  /** Outcomes that arrived again and were dropped. */
  duplicates = 0;
  /** New outcomes since the last acknowledgement. */
  unacknowledged = 0;
  #expected;
  #last = new Map();
  // The newest outcome of a speaker in any language: what partial texts must be above.
  #newest = new Map();
  #open = new Map();
  #answers = new Map();

  constructor(outcomesPerUtterance) {
    this.#expected = outcomesPerUtterance;
  }

  set expected(count) {
    this.#expected = count;
  }

  /** How much accepted audio still lacks outcomes. */
  get openMs() {
    return [...this.#open.values()].reduce((sum, durationMs) => sum + durationMs, 0);
  }

  beginSession(epoch) {
    this.resetPositions(epoch);
    for (const map of [this.#last, this.#newest, this.#open, this.#answers]) map.clear();
  }

  resetPositions(epoch) {
    this.epoch = epoch;
    this.seq = 0;
    this.unacknowledged = 0;
  }

  /** Forget a session's utterances from an index on: the store lost them and uses it again. */
  forgetFrom(session, index) {
    for (const [lane, last] of this.#last) {
      if (lane.startsWith(`${session}/`) && last >= index) this.#last.set(lane, index - 1);
    }
    if ((this.#newest.get(session) ?? -1) >= index) this.#newest.set(session, index - 1);
  }

  /** Record an outcome; returns whether it is new. */
  record(message) {
    const { epoch, seq } = message;
    if (epoch === undefined || seq === undefined) return true;
    if (epoch !== this.epoch) this.resetPositions(epoch);
    if (seq <= this.seq) {
      this.duplicates += 1;
      return false;
    }
    this.seq = seq;
    this.unacknowledged += 1;
    return this.#isLater(message);
  }

  /** Record the position of an outcome that only other members of the room receive. */
  recordPassed({ epoch, seq, session_id: session, utterance_index: index }) {
    if (epoch !== this.epoch || seq <= this.seq) return false;
    this.seq = seq;
    this.unacknowledged += 1;
    this.#raise(session, index);
    return true;
  }

  /** Whether a partial text may still be shown: no outcome of it or of a later one has come. */
  isAhead(session, index) {
    return index > (this.#newest.get(session) ?? -1);
  }

  /** Record an accepted utterance; returns whether it has all its outcomes already. */
  recordAccepted(index, durationMs) {
    this.#open.set(index, durationMs);
    return this.#settle(index);
  }

  /** Record one more outcome of an utterance; returns whether it was the last one. */
  recordAnswer(index) {
    this.#answers.set(index, (this.#answers.get(index) ?? 0) + 1);
    return this.#settle(index);
  }

  #isLater(message) {
    const lane = `${message.session_id}/${message.tgt_lang ?? ""}`;
    const index = message.utterance_index;
    if (index <= (this.#last.get(lane) ?? -1)) {
      this.duplicates += 1;
      return false;
    }
    this.#last.set(lane, index);
    dropOldest(this.#last, LANES_MAX);
    this.#raise(message.session_id, index);
    return true;
  }

  #raise(session, index) {
    this.#newest.set(session, Math.max(index, this.#newest.get(session) ?? -1));
    dropOldest(this.#newest, LANES_MAX);
  }

  #settle(index) {
    const isSettled = this.#open.has(index) && (this.#answers.get(index) ?? 0) >= this.#expected;
    if (isSettled) {
      this.#open.delete(index);
      this.#answers.delete(index);
    }
    dropOldest(this.#open, OPEN_MAX);
    dropOldest(this.#answers, OPEN_MAX);
    return isSettled;
  }
}

function dropOldest(map, sizeMax) {
  if (map.size > sizeMax) map.delete(map.keys().next().value);
}
