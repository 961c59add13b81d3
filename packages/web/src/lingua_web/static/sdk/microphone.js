/** The microphone as chunks of pcm16 at 16 kHz, with a level for a meter. */

import { LinguaError } from "./errors.js";

// Voice is so much above the quiet of the room, and never below this level (of 1).
const VOICE_ABOVE_QUIET = 3;
const VOICE_LEVEL_MIN = 0.012;
// How fast the remembered quiet follows a louder room.
const QUIET_RISE = 1.02;
// A pause within a sentence is no end of speaking.
const VOICE_HOLD_MS = 900;

const PROBLEMS = {
  NotAllowedError: "MICROPHONE_REFUSED",
  SecurityError: "MICROPHONE_REFUSED",
  NotFoundError: "MICROPHONE_MISSING",
  OverconstrainedError: "MICROPHONE_MISSING",
  NotReadableError: "MICROPHONE_BUSY",
  AbortError: "MICROPHONE_BUSY",
};

/** Tells voice from the quiet of a room by its level alone. Pure. */
export class VoiceGuess {
  #quiet = VOICE_LEVEL_MIN;
  #heardAtMs = -Infinity;

  /** Take the level of 100 ms; returns whether somebody speaks now. */
  push(level, nowMs) {
    this.#quiet = Math.min(this.#quiet * QUIET_RISE, Math.max(level, 1e-4));
    const isVoice = level > Math.max(VOICE_LEVEL_MIN, this.#quiet * VOICE_ABOVE_QUIET);
    if (isVoice) this.#heardAtMs = nowMs;
    return nowMs - this.#heardAtMs < VOICE_HOLD_MS;
  }
}

/**
 * Events: `audio` (detail: Int16Array), `level` (detail: {level, isVoice}), `ended` (it was taken
 * away: unplugged, or the permission withdrawn).
 */
export class Microphone extends EventTarget {
  #stream;
  #context;
  #node;
  #voice = new VoiceGuess();
  #isStopped = false;

  /**
   * Ask for the microphone and start.
   * @param {{deviceId?: string, workletUrl?: string | URL}} [options]
   */
  static async open(options = {}) {
    const devices = globalThis.navigator?.mediaDevices;
    if (!devices?.getUserMedia) throw new LinguaError("MICROPHONE_NEEDS_HTTPS");
    const audio = {
      channelCount: 1, echoCancellation: true, noiseSuppression: true, autoGainControl: true,
      ...(options.deviceId ? { deviceId: { exact: options.deviceId } } : {}),
    };
    let stream;
    try {
      stream = await devices.getUserMedia({ audio });
    } catch (error) {
      throw new LinguaError(PROBLEMS[error.name] ?? "MICROPHONE_FAILED", error.message);
    }
    const microphone = new Microphone(stream);
    try {
      await microphone.#start(options.workletUrl);
    } catch (error) {
      await microphone.stop();
      throw new LinguaError("MICROPHONE_FAILED", error.message);
    }
    return microphone;
  }

  constructor(stream) {
    super();
    this.#stream = stream;
  }

  async #start(workletUrl) {
    this.#context = new AudioContext({ latencyHint: "interactive" });
    const url = workletUrl ?? new URL("./microphone-worklet.js", import.meta.url);
    await this.#context.audioWorklet.addModule(url);
    this.#node = new AudioWorkletNode(this.#context, "lingua-microphone", { numberOfOutputs: 0 });
    this.#node.port.onmessage = ({ data }) => this.#handle(data);
    this.#context.createMediaStreamSource(this.#stream).connect(this.#node);
    for (const track of this.#stream.getAudioTracks()) {
      track.addEventListener("ended", () => this.#end());
    }
    // Some browsers begin suspended although a button was pressed.
    if (this.#context.state === "suspended") await this.#context.resume();
  }

  /** Stop; the last chunk is given before it resolves. */
  async stop() {
    if (this.#isStopped) return;
    this.#isStopped = true;
    if (this.#node && this.#context.state === "running") await this.#lastChunk();
    for (const track of this.#stream.getTracks()) track.stop();
    if (this.#context && this.#context.state !== "closed") await this.#context.close();
  }

  #lastChunk() {
    return new Promise((resolve) => {
      const late = setTimeout(resolve, 300);
      this.#node.port.onmessage = ({ data }) => {
        if (!data.ended) return this.#handle(data);
        clearTimeout(late);
        resolve();
      };
      this.#node.port.postMessage("stop");
    });
  }

  #handle({ audio, level }) {
    if (!audio) return;
    this.dispatchEvent(new CustomEvent("audio", { detail: audio }));
    const isVoice = this.#voice.push(level, performance.now());
    this.dispatchEvent(new CustomEvent("level", { detail: { level, isVoice } }));
  }

  #end() {
    if (!this.#isStopped) this.dispatchEvent(new CustomEvent("ended"));
  }
}
