/**
 * Plays translations one after another: skip, volume, mute, and silence while somebody speaks.
 *
 * Events: `playing` (detail: the key of the utterance), `idle`.
 */

import { RATE, fromPcm16 } from "./resampler.js";
import { SpeechQueue } from "./speech-queue.js";

// Longer than anybody speaks without a pause: a noisy room must not silence it for ever.
const HOLD_MS_MAX = 20_000;

export class Speaker extends EventTarget {
  #context = null;
  #gain = null;
  #queue = new SpeechQueue();
  #source = null;
  #volume = 1;
  #isMuted = false;
  #isHeld = false;
  #holdTimer = 0;

  /** Let a session speak: its outcomes and their parts go into the queue. */
  follow(session, { wants = () => true } = {}) {
    session.addEventListener("outcome", ({ detail }) => {
      if (wants(detail)) this.say(detail);
    });
    session.addEventListener("speech", ({ detail }) => {
      if (wants(detail)) this.sayPart(detail);
    });
  }

  /** Must be called once in a click or key press: browsers begin silent. */
  async unlock() {
    this.#context ??= new AudioContext();
    if (!this.#gain) {
      this.#gain = this.#context.createGain();
      this.#gain.connect(this.#context.destination);
      this.#gain.gain.value = this.#volume;
    }
    if (this.#context.state === "suspended" && !this.#isHeld) await this.#context.resume();
  }

  /** The node that everything is played through, for meters and recordings. */
  get output() {
    return this.#gain;
  }

  get isPlaying() {
    return this.#source !== null;
  }

  /** Utterances that wait or are being played. */
  get waiting() {
    return this.#queue.length;
  }

  get volume() {
    return this.#volume;
  }

  set volume(value) {
    this.#volume = Math.max(0, Math.min(1, value));
    if (this.#gain) this.#gain.gain.value = this.#volume;
  }

  get isMuted() {
    return this.#isMuted;
  }

  /** Muted, it forgets what it should say; nothing is caught up later. */
  set isMuted(isMuted) {
    this.#isMuted = isMuted;
    if (isMuted) this.clear();
  }

  /** Speak an outcome. */
  say({ kind, speaker, index, lang, audio, audioFormat }) {
    if (this.#isMuted || kind !== "translation") return;
    if (audio.length && audioFormat !== "pcm16") return;
    this.#queue.complete(`${speaker}/${index}/${lang}`, audio);
    this.#playNext();
  }

  /** Speak a part of an outcome that is still to come. */
  sayPart({ speaker, index, lang, part, attempt, audio, audioFormat }) {
    if (this.#isMuted || audioFormat !== "pcm16") return;
    this.#queue.addPart(`${speaker}/${index}/${lang}`, part, attempt, audio);
    this.#playNext();
  }

  /** Go on with the next utterance. */
  skip() {
    this.#queue.skip();
    this.#stopSource();
    this.#playNext();
  }

  /** Forget everything. */
  clear() {
    this.#queue.skip(true);
    this.#stopSource();
  }

  /** Stop in the middle of a word while somebody speaks, and go on there afterwards. */
  hold(isHeld) {
    if (isHeld === this.#isHeld) return;
    this.#isHeld = isHeld;
    clearTimeout(this.#holdTimer);
    if (!this.#context) return;
    if (isHeld) {
      this.#context.suspend();
      this.#holdTimer = setTimeout(() => this.hold(false), HOLD_MS_MAX);
    } else this.#context.resume();
  }

  get isHeld() {
    return this.#isHeld;
  }

  async close() {
    this.clear();
    clearTimeout(this.#holdTimer);
    await this.#context?.close();
    this.#context = this.#gain = null;
  }

  #playNext() {
    if (this.#source || !this.#gain) return;
    const next = this.#queue.take();
    if (!next) return;
    const samples = fromPcm16(next.bytes);
    if (!samples.length) {
      this.#playNext();
      return;
    }
    const buffer = this.#context.createBuffer(1, samples.length, RATE);
    buffer.copyToChannel(samples, 0);
    const source = this.#context.createBufferSource();
    source.buffer = buffer;
    source.connect(this.#gain);
    source.onended = () => {
      if (this.#source !== source) return;
      this.#source = null;
      this.#playNext();
      if (!this.#source) this.dispatchEvent(new CustomEvent("idle"));
    };
    this.#source = source;
    source.start();
    this.dispatchEvent(new CustomEvent("playing", { detail: next.key }));
  }

  #stopSource() {
    const source = this.#source;
    this.#source = null;
    if (!source) return;
    source.onended = null;
    source.stop();
    source.disconnect();
    this.dispatchEvent(new CustomEvent("idle"));
  }
}
