/**
 * Runs in the audio thread: microphone samples in, chunks of pcm16 at 16 kHz and a level out.
 */
import { Resampler, RATE, toPcm16 } from "./resampler.js";

// 100 ms: small enough to be live, large enough to be few messages.
const CHUNK_SAMPLES = RATE / 10;

class MicrophoneProcessor extends AudioWorkletProcessor {
  #resampler = new Resampler(sampleRate);
  #chunk = new Float32Array(CHUNK_SAMPLES);
  #filled = 0;
  #isStopped = false;

  constructor() {
    super();
    this.port.onmessage = () => {
      this.#isStopped = true;
      this.#send();
      this.port.postMessage({ ended: true });
    };
  }

  process(inputs) {
    const channels = inputs[0];
    if (channels.length && !this.#isStopped) this.#take(this.#resampler.push(mixed(channels)));
    return !this.#isStopped;
  }

  #take(samples) {
    let from = 0;
    while (from < samples.length) {
      const part = samples.subarray(from, from + CHUNK_SAMPLES - this.#filled);
      this.#chunk.set(part, this.#filled);
      this.#filled += part.length;
      from += part.length;
      if (this.#filled === CHUNK_SAMPLES) this.#send();
    }
  }

  #send() {
    if (!this.#filled) return;
    const samples = this.#chunk.subarray(0, this.#filled);
    let sum = 0;
    for (const sample of samples) sum += sample * sample;
    const audio = toPcm16(samples);
    const level = Math.sqrt(sum / samples.length);
    this.port.postMessage({ audio, level }, [audio.buffer]);
    this.#filled = 0;
  }
}

function mixed(channels) {
  if (channels.length === 1) return channels[0];
  const sum = new Float32Array(channels[0].length);
  for (const channel of channels) {
    for (let index = 0; index < sum.length; index++) sum[index] += channel[index];
  }
  return sum.map((value) => value / channels.length);
}

registerProcessor("lingua-microphone", MicrophoneProcessor);
