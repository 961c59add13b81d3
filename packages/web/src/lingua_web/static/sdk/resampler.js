/**
 * From the microphone's rate to 16,000 samples per second: a windowed sinc, piece by piece.
 *
 * A worklet cannot choose its rate in every browser, and taking every third sample would fold
 * everything above 8 kHz into the speech. Pure: the same input gives the same output, however it
 * is divided into pieces.
 */

export const RATE = 16000;
// Zero crossings of the kernel on each side: about 60 dB of damping above the new band.
const CROSSINGS = 12;
const PHASES = 128;

export class Resampler {
  #step;
  #half;
  #kernels;
  // Input that is still needed, and where the next output sample lies in it.
  #kept;
  #at;

  /** @param {number} rate of the input */
  constructor(rate) {
    this.#step = rate / RATE;
    // Of both rates the lower one decides what may pass.
    const stretch = Math.max(1, this.#step);
    this.#half = Math.ceil(CROSSINGS * stretch);
    this.#kernels = kernels(this.#half, stretch);
    this.#kept = new Float32Array(this.#half);
    this.#at = this.#half;
  }

  /**
   * Take a piece of input and return the output that is complete.
   * @param {Float32Array} input
   * @returns {Float32Array}
   */
  push(input) {
    const joined = new Float32Array(this.#kept.length + input.length);
    joined.set(this.#kept);
    joined.set(input, this.#kept.length);
    const output = [];
    while (Math.floor(this.#at) + this.#half < joined.length) {
      output.push(this.#sampleAt(joined));
      this.#at += this.#step;
    }
    const first = Math.max(0, Math.floor(this.#at) - this.#half);
    this.#kept = joined.slice(first);
    this.#at -= first;
    return Float32Array.from(output);
  }

  #sampleAt(samples) {
    const whole = Math.floor(this.#at);
    const kernel = this.#kernels[Math.round((this.#at - whole) * PHASES)];
    const from = whole - this.#half + 1;
    let sum = 0;
    for (let tap = 0; tap < kernel.length; tap++) {
      const index = from + tap;
      if (index >= 0) sum += samples[index] * kernel[tap];
    }
    return sum;
  }
}

/** One kernel for each place of an output sample between two input samples. */
function kernels(half, stretch) {
  const made = [];
  for (let phase = 0; phase <= PHASES; phase++) {
    const kernel = new Float32Array(2 * half);
    let sum = 0;
    for (let tap = 0; tap < kernel.length; tap++) {
      const distance = tap - half + 1 - phase / PHASES;
      kernel[tap] = sinc(distance / stretch) * blackman(distance / half);
      sum += kernel[tap];
    }
    made.push(kernel.map((value) => value / sum));
  }
  return made;
}

function sinc(x) {
  return x === 0 ? 1 : Math.sin(Math.PI * x) / (Math.PI * x);
}

function blackman(x) {
  if (Math.abs(x) >= 1) return 0;
  return 0.42 + 0.5 * Math.cos(Math.PI * x) + 0.08 * Math.cos(2 * Math.PI * x);
}

/**
 * Samples of -1..1 as 16-bit little-endian, louder ones clipped.
 * @param {Float32Array} samples
 * @returns {Int16Array}
 */
export function toPcm16(samples) {
  const made = new Int16Array(samples.length);
  for (let index = 0; index < samples.length; index++) {
    const value = Math.max(-1, Math.min(1, samples[index]));
    made[index] = Math.round(value < 0 ? value * 0x8000 : value * 0x7fff);
  }
  return made;
}

/**
 * 16-bit little-endian samples as -1..1.
 * @param {Uint8Array} bytes
 * @returns {Float32Array}
 */
export function fromPcm16(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const made = new Float32Array(bytes.byteLength >> 1);
  for (let index = 0; index < made.length; index++) {
    made[index] = view.getInt16(index * 2, true) / 0x8000;
  }
  return made;
}
