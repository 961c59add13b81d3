/**
 * QR codes (ISO/IEC 18004) for links: byte mode, error correction M, or L where M has no room.
 *
 * `qrMatrix(text)` gives rows of booleans (true: dark), `qrPath(matrix)` the same as the path of an
 * SVG picture.
 */

const VERSION_MAX = 30;
// By version: error correction bytes of a block, and blocks.
const LEVELS = {
  M: {
    bits: 0,
    bytes: [10, 16, 26, 18, 24, 16, 18, 22, 22, 26, 30, 22, 22, 24, 24, 28, 28, 26, 26, 26,
      26, 28, 28, 28, 28, 28, 28, 28, 28, 28],
    blocks: [1, 1, 1, 2, 2, 4, 4, 4, 5, 5, 5, 8, 9, 9, 10, 10, 11, 13, 14, 16,
      17, 17, 18, 20, 21, 23, 25, 26, 28, 29],
  },
  L: {
    bits: 1,
    bytes: [7, 10, 15, 20, 26, 18, 20, 24, 30, 18, 20, 24, 26, 30, 22, 24, 28, 30, 28, 28,
      28, 28, 30, 30, 26, 28, 30, 30, 30, 30],
    blocks: [1, 1, 1, 1, 1, 2, 2, 2, 2, 4, 4, 4, 4, 4, 6, 6, 6, 6, 7, 8,
      8, 9, 9, 10, 12, 12, 12, 13, 14, 15],
  },
};
const MASKS = [
  (x, y) => (x + y) % 2 === 0,
  (x, y) => y % 2 === 0,
  (x) => x % 3 === 0,
  (x, y) => (x + y) % 3 === 0,
  (x, y) => (Math.floor(x / 3) + Math.floor(y / 2)) % 2 === 0,
  (x, y) => ((x * y) % 2) + ((x * y) % 3) === 0,
  (x, y) => (((x * y) % 2) + ((x * y) % 3)) % 2 === 0,
  (x, y) => (((x + y) % 2) + ((x * y) % 3)) % 2 === 0,
];

/**
 * @param {string} text
 * @param {{mask?: number}} [options] a mask, for tests; otherwise the one that reads best
 * @returns {boolean[][]}
 */
export function qrMatrix(text, options = {}) {
  const data = new TextEncoder().encode(text);
  const { version, level } = fitting(data.length);
  const codewords = interleaved(padded(data, version, level), version, level);
  const base = new Grid(version);
  base.placeData(codewords);
  if (options.mask !== undefined) return base.masked(options.mask, level).rows;
  const tried = MASKS.map((_, mask) => base.masked(mask, level));
  return tried.reduce((best, grid) => (penalty(grid.rows) < penalty(best.rows) ? grid : best)).rows;
}

/** The dark modules as a path; the picture's side is the matrix plus a quiet zone of 4. */
export function qrPath(matrix) {
  const parts = [];
  matrix.forEach((row, y) => row.forEach((isDark, x) => {
    if (isDark) parts.push(`M${x + 4} ${y + 4}h1v1h-1z`);
  }));
  return parts.join("");
}

function capacity(version, level) {
  return totalBytes(version) - level.bytes[version - 1] * level.blocks[version - 1];
}

function totalBytes(version) {
  let bits = (16 * version + 128) * version + 64;
  if (version >= 2) {
    const aligned = Math.floor(version / 7) + 2;
    bits -= (25 * aligned - 10) * aligned - 55;
    if (version >= 7) bits -= 36;
  }
  return bits >> 3;
}

function fitting(length) {
  for (const level of [LEVELS.M, LEVELS.L]) {
    for (let version = 1; version <= VERSION_MAX; version++) {
      const header = version < 10 ? 12 : 20;
      if (header + 8 * length <= 8 * capacity(version, level)) return { version, level };
    }
  }
  throw new RangeError("the text is too long for a QR code");
}

/** Header, data and padding as bytes. */
function padded(data, version, level) {
  const bits = [];
  const push = (value, count) => {
    for (let bit = count - 1; bit >= 0; bit--) bits.push((value >> bit) & 1);
  };
  push(4, 4);
  push(data.length, version < 10 ? 8 : 16);
  for (const byte of data) push(byte, 8);
  const room = 8 * capacity(version, level);
  push(0, Math.min(4, room - bits.length));
  push(0, (8 - (bits.length % 8)) % 8);
  for (let filler = 0xec; bits.length < room; filler ^= 0xec ^ 0x11) push(filler, 8);
  const bytes = new Uint8Array(room / 8);
  bits.forEach((bit, index) => { bytes[index >> 3] |= bit << (7 - (index & 7)); });
  return bytes;
}

/** Blocks with their error correction, woven into each other. */
function interleaved(data, version, level) {
  const blockCount = level.blocks[version - 1];
  const correction = level.bytes[version - 1];
  const total = totalBytes(version);
  const shortCount = blockCount - (total % blockCount);
  const shortLength = Math.floor(total / blockCount) - correction;
  const divisor = generator(correction);
  const blocks = [];
  let from = 0;
  for (let block = 0; block < blockCount; block++) {
    const part = data.subarray(from, from + shortLength + (block < shortCount ? 0 : 1));
    from += part.length;
    blocks.push({ part, rest: remainder(part, divisor) });
  }
  const woven = [];
  for (let index = 0; index <= shortLength; index++) {
    for (const { part } of blocks) if (index < part.length) woven.push(part[index]);
  }
  for (let index = 0; index < correction; index++) {
    for (const { rest } of blocks) woven.push(rest[index]);
  }
  return woven;
}

/** Multiplication in the field of 256 elements that the standard names. */
function times(one, other) {
  let product = 0;
  for (let bit = 7; bit >= 0; bit--) {
    product = (product << 1) ^ ((product >> 7) * 0x11d);
    product ^= ((other >> bit) & 1) * one;
  }
  return product;
}

function generator(degree) {
  const made = new Uint8Array(degree);
  made[degree - 1] = 1;
  let root = 1;
  for (let step = 0; step < degree; step++) {
    for (let index = 0; index < degree; index++) {
      made[index] = times(made[index], root) ^ (index + 1 < degree ? made[index + 1] : 0);
    }
    root = times(root, 2);
  }
  return made;
}

function remainder(data, divisor) {
  const rest = new Array(divisor.length).fill(0);
  for (const byte of data) {
    const factor = byte ^ rest.shift();
    rest.push(0);
    divisor.forEach((coefficient, index) => { rest[index] ^= times(coefficient, factor); });
  }
  return rest;
}

class Grid {
  constructor(version) {
    this.version = version;
    this.size = version * 4 + 17;
    this.rows = Array.from({ length: this.size }, () => new Array(this.size).fill(false));
    this.isFixed = Array.from({ length: this.size }, () => new Array(this.size).fill(false));
    this.#placePatterns();
  }

  #set(x, y, isDark) {
    this.rows[y][x] = isDark;
    this.isFixed[y][x] = true;
  }

  #placePatterns() {
    for (let at = 0; at < this.size; at++) {
      this.#set(6, at, at % 2 === 0);
      this.#set(at, 6, at % 2 === 0);
    }
    const last = this.size - 4;
    for (const [x, y] of [[3, 3], [last, 3], [3, last]]) this.#placeFinder(x, y);
    const places = this.#alignments();
    const end = places.length - 1;
    places.forEach((x, column) => places.forEach((y, row) => {
      const isFinder = (!column && !row) || (!column && row === end) || (column === end && !row);
      if (!isFinder) this.#placeAlignment(x, y);
    }));
    this.#placeFormat(0, LEVELS.M);
    if (this.version >= 7) this.#placeVersion();
  }

  #placeFinder(x, y) {
    for (let dy = -4; dy <= 4; dy++) {
      for (let dx = -4; dx <= 4; dx++) {
        const distance = Math.max(Math.abs(dx), Math.abs(dy));
        const isInside = x + dx >= 0 && x + dx < this.size && y + dy >= 0 && y + dy < this.size;
        if (isInside) this.#set(x + dx, y + dy, distance !== 2 && distance !== 4);
      }
    }
  }

  #placeAlignment(x, y) {
    for (let dy = -2; dy <= 2; dy++) {
      for (let dx = -2; dx <= 2; dx++) {
        this.#set(x + dx, y + dy, Math.max(Math.abs(dx), Math.abs(dy)) !== 1);
      }
    }
  }

  #alignments() {
    if (this.version === 1) return [];
    const count = Math.floor(this.version / 7) + 2;
    const step = Math.ceil((this.version * 4 + 4) / (count * 2 - 2)) * 2;
    const places = [6];
    for (let at = this.size - 7; places.length < count; at -= step) places.splice(1, 0, at);
    return places;
  }

  #placeFormat(mask, level) {
    const data = (level.bits << 3) | mask;
    let rest = data;
    for (let step = 0; step < 10; step++) rest = (rest << 1) ^ ((rest >> 9) * 0x537);
    const bits = ((data << 10) | rest) ^ 0x5412;
    const bit = (index) => ((bits >> index) & 1) === 1;
    for (let index = 0; index <= 5; index++) this.#set(8, index, bit(index));
    this.#set(8, 7, bit(6));
    this.#set(8, 8, bit(7));
    this.#set(7, 8, bit(8));
    for (let index = 9; index < 15; index++) this.#set(14 - index, 8, bit(index));
    for (let index = 0; index < 8; index++) this.#set(this.size - 1 - index, 8, bit(index));
    for (let index = 8; index < 15; index++) this.#set(8, this.size - 15 + index, bit(index));
    this.#set(8, this.size - 8, true);
  }

  #placeVersion() {
    let rest = this.version;
    for (let step = 0; step < 12; step++) rest = (rest << 1) ^ ((rest >> 11) * 0x1f25);
    const bits = (this.version << 12) | rest;
    for (let index = 0; index < 18; index++) {
      const isDark = ((bits >> index) & 1) === 1;
      const across = this.size - 11 + (index % 3);
      const down = Math.floor(index / 3);
      this.#set(across, down, isDark);
      this.#set(down, across, isDark);
    }
  }

  /** Fill two columns at a time, up and down in turn, from the right. */
  placeData(codewords) {
    let index = 0;
    for (let right = this.size - 1; right >= 1; right -= 2) {
      if (right === 6) right = 5;
      for (let step = 0; step < this.size; step++) {
        const isUpward = ((right + 1) & 2) === 0;
        const y = isUpward ? this.size - 1 - step : step;
        for (const x of [right, right - 1]) {
          if (this.isFixed[y][x] || index >= codewords.length * 8) continue;
          this.rows[y][x] = ((codewords[index >> 3] >> (7 - (index & 7))) & 1) === 1;
          index += 1;
        }
      }
    }
  }

  masked(mask, level) {
    const made = new Grid(this.version);
    made.rows = this.rows.map((row, y) => row.map((isDark, x) => (
      this.isFixed[y][x] ? isDark : isDark !== MASKS[mask](x, y)
    )));
    made.#placeFormat(mask, level);
    return made;
  }
}

/** How hard a matrix is to read, by the four rules of the standard. */
function penalty(rows) {
  const size = rows.length;
  const columns = rows.map((_, x) => rows.map((row) => row[x]));
  let sum = 0;
  for (const line of [...rows, ...columns]) sum += runPenalty(line) + finderPenalty(line);
  for (let y = 0; y + 1 < size; y++) {
    for (let x = 0; x + 1 < size; x++) {
      const dark = rows[y][x] + rows[y][x + 1] + rows[y + 1][x] + rows[y + 1][x + 1];
      if (dark === 0 || dark === 4) sum += 3;
    }
  }
  const dark = rows.flat().filter(Boolean).length;
  return sum + 10 * Math.floor(Math.abs((dark * 20) / (size * size) - 10));
}

function runPenalty(line) {
  let sum = 0;
  let length = 1;
  for (let at = 1; at <= line.length; at++) {
    if (at < line.length && line[at] === line[at - 1]) length += 1;
    else {
      if (length >= 5) sum += length - 2;
      length = 1;
    }
  }
  return sum;
}

function finderPenalty(line) {
  const text = line.map(Number).join("");
  let sum = 0;
  for (const pattern of ["10111010000", "00001011101"]) {
    for (let at = text.indexOf(pattern); at >= 0; at = text.indexOf(pattern, at + 1)) sum += 40;
  }
  return sum;
}
