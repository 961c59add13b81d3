/**
 * Audio that the server may still need: every chunk, numbered, until its utterance is answered.
 *
 * An accepted chunk is in the server's store. It is sent again only if store and instance are lost
 * together, so it is kept, as long as there is room, until its outcomes have arrived. Chunks that
 * `nextUnsent` returns count as sent; after a resume `rewind` sets the first one to send again.
 * Pure: no clock, no socket.
 *
 * @typedef {{seq: number, payload: Uint8Array, isFinal: boolean}} Chunk
 */
export class ReplayBuffer {
  /** @type {Chunk[]} */
  #chunks = [];
  #bytesMax;
  #unsentSeq = 0;
  // The first chunk that was never sent: no server can have it.
  #neverSentSeq = 0;
  // Accepted audio that is still kept, in order; the first chunk that is not accepted.
  #accepted = [];
  #openSeq = 0;
  /** The number of the next new chunk. */
  nextSeq = 0;
  /** The bytes that are kept. */
  size = 0;
  /** Where the first chunk kept begins in the session's audio, as the server says. */
  audioMs = 0;

  constructor(bytesMax) {
    this.#bytesMax = bytesMax;
  }

  get isFull() {
    return this.size >= this.#bytesMax;
  }

  get isSent() {
    return this.#unsentSeq === this.nextSeq;
  }

  get firstSeq() {
    return this.#chunks.length ? this.#chunks[0].seq : this.nextSeq;
  }

  /** The first chunk that is not accepted, or the next new one. */
  get openSeq() {
    return Math.max(this.#openSeq, this.firstSeq);
  }

  /** Bytes that the server may not have. */
  get unacceptedBytes() {
    return this.#bytesOf((chunk) => chunk.seq >= this.#openSeq);
  }

  /** Bytes, and ends of utterances, that were sent and not accepted. */
  get underWay() {
    const sent = (chunk) => chunk.seq >= this.#openSeq && chunk.seq < this.#unsentSeq;
    const ends = this.#chunks.filter((chunk) => chunk.isFinal && sent(chunk)).length;
    return { bytes: this.#bytesOf(sent), ends };
  }

  add(payload, isFinal) {
    this.#chunks.push({ seq: this.nextSeq++, payload, isFinal });
    this.size += payload.length;
    this.#evictAccepted();
  }

  /** Record that the server accepted the chunks up to a number: an utterance, or silence. */
  accept(seq, audioMs, index, isAnswered) {
    // If two reports overtake each other the higher number counts.
    if (this.#accepted.length && seq <= this.#accepted.at(-1).seq) return;
    if (seq >= this.firstSeq) this.#accepted.push({ seq, audioMs, index, isAnswered });
    this.#openSeq = Math.max(this.#openSeq, seq + 1);
    this.#unsentSeq = Math.max(this.#unsentSeq, this.#openSeq);
    this.#forgetAnswered();
    this.#evictAccepted();
  }

  /** Record that an utterance has all its outcomes. */
  markAnswered(index) {
    for (const one of this.#accepted) if (one.index === index) one.isAnswered = true;
    this.#forgetAnswered();
  }

  /** Drop accepted chunks: a new session gets only those that were not accepted. */
  forgetAccepted() {
    while (this.#accepted.length) this.#forget(this.#accepted.shift());
  }

  /** Send again from a number on, or all chunks that are kept. */
  rewind(seq) {
    const wanted = seq === undefined ? this.firstSeq : Math.min(seq, this.#neverSentSeq);
    this.#unsentSeq = Math.max(wanted, this.firstSeq);
    // The server will accept again the chunks that it lost.
    this.#openSeq = Math.min(this.#openSeq, this.#unsentSeq);
    while (this.#accepted.length && this.#accepted.at(-1).seq >= this.#unsentSeq) {
      this.#accepted.pop();
    }
  }

  /** @returns {Chunk | null} the next chunk to send; it counts as sent from now on. */
  nextUnsent() {
    const behind = this.nextSeq - this.#unsentSeq;
    if (!behind) return null;
    this.#unsentSeq += 1;
    this.#neverSentSeq = Math.max(this.#neverSentSeq, this.#unsentSeq);
    return this.#chunks.at(-behind);
  }

  #bytesOf(isCounted) {
    let bytes = 0;
    for (const chunk of this.#chunks) if (isCounted(chunk)) bytes += chunk.payload.length;
    return bytes;
  }

  #forgetAnswered() {
    while (this.#accepted.length && this.#accepted[0].isAnswered) {
      this.#forget(this.#accepted.shift());
    }
  }

  /** Drop the oldest accepted audio rather than refuse new speech. */
  #evictAccepted() {
    while (this.isFull && this.#accepted.length) this.#forget(this.#accepted.shift());
  }

  #forget(accepted) {
    this.audioMs = accepted.audioMs;
    while (this.#chunks.length && this.#chunks[0].seq <= accepted.seq) {
      this.size -= this.#chunks.shift().payload.length;
    }
  }
}
