/**
 * MessagePack, as far as the protocol uses it: null, booleans, numbers, text, bytes, arrays, maps
 * with text keys. Bytes stay bytes, which is why the SDK uses this form and not JSON.
 */

const encoder = new TextEncoder();
const decoder = new TextDecoder("utf-8", { fatal: true });
const DEPTH_MAX = 64;
const TWO_32 = 2 ** 32;

/** A growing buffer. */
class Writer {
  #bytes = new Uint8Array(256);
  #view = new DataView(this.#bytes.buffer);
  #size = 0;

  done() {
    return this.#bytes.slice(0, this.#size);
  }

  u8(value) {
    this.#room(1);
    this.#bytes[this.#size++] = value;
  }

  u16(value) {
    this.#room(2);
    this.#view.setUint16(this.#size, value);
    this.#size += 2;
  }

  u32(value) {
    this.#room(4);
    this.#view.setUint32(this.#size, value);
    this.#size += 4;
  }

  f64(value) {
    this.#room(8);
    this.#view.setFloat64(this.#size, value);
    this.#size += 8;
  }

  raw(bytes) {
    this.#room(bytes.length);
    this.#bytes.set(bytes, this.#size);
    this.#size += bytes.length;
  }

  #room(more) {
    const needed = this.#size + more;
    if (needed <= this.#bytes.length) return;
    const larger = new Uint8Array(Math.max(needed, this.#bytes.length * 2));
    larger.set(this.#bytes);
    this.#bytes = larger;
    this.#view = new DataView(larger.buffer);
  }
}

/**
 * Encode a message.
 * @param {unknown} value
 * @returns {Uint8Array}
 */
export function encode(value) {
  const writer = new Writer();
  write(writer, value, 0);
  return writer.done();
}

function write(writer, value, depth) {
  if (depth > DEPTH_MAX) throw new RangeError("a message is nested too deeply");
  if (value === null || value === undefined) writer.u8(0xc0);
  else if (typeof value === "boolean") writer.u8(value ? 0xc3 : 0xc2);
  else if (typeof value === "number") writeNumber(writer, value);
  else if (typeof value === "string") writeText(writer, value);
  else if (value instanceof Uint8Array) writeBytes(writer, value);
  else if (Array.isArray(value)) {
    writeSize(writer, value.length, 0x90, 0xdc);
    for (const item of value) write(writer, item, depth + 1);
  } else if (typeof value === "object") {
    // The protocol has no null: a field without a value is left out.
    const fields = Object.entries(value).filter(([, item]) => item !== undefined && item !== null);
    writeSize(writer, fields.length, 0x80, 0xde);
    for (const [name, item] of fields) {
      writeText(writer, name);
      write(writer, item, depth + 1);
    }
  } else throw new TypeError(`a ${typeof value} cannot be sent`);
}

function writeNumber(writer, value) {
  if (!Number.isSafeInteger(value)) {
    writer.u8(0xcb);
    writer.f64(value);
  } else if (value >= 0) writeUnsigned(writer, value);
  else writeNegative(writer, value);
}

function writeUnsigned(writer, value) {
  if (value < 0x80) writer.u8(value);
  else if (value < 0x100) {
    writer.u8(0xcc);
    writer.u8(value);
  } else if (value < 0x10000) {
    writer.u8(0xcd);
    writer.u16(value);
  } else if (value < TWO_32) {
    writer.u8(0xce);
    writer.u32(value);
  } else {
    writer.u8(0xcf);
    writer.u32(Math.floor(value / TWO_32));
    writer.u32(value % TWO_32);
  }
}

function writeNegative(writer, value) {
  if (value >= -32) writer.u8(value & 0xff);
  else if (value >= -0x80000000) {
    writer.u8(0xd2);
    writer.u32(value >>> 0);
  } else {
    writer.u8(0xd3);
    writer.u32(Math.floor(value / TWO_32) >>> 0);
    writer.u32(((value % TWO_32) + TWO_32) % TWO_32);
  }
}

function writeText(writer, value) {
  const bytes = encoder.encode(value);
  if (bytes.length < 32) writer.u8(0xa0 | bytes.length);
  else writeLength(writer, bytes.length, 0xd9);
  writer.raw(bytes);
}

function writeBytes(writer, bytes) {
  writeLength(writer, bytes.length, 0xc4);
  writer.raw(bytes);
}

function writeLength(writer, length, first) {
  if (length < 0x100) {
    writer.u8(first);
    writer.u8(length);
  } else if (length < 0x10000) {
    writer.u8(first + 1);
    writer.u16(length);
  } else {
    writer.u8(first + 2);
    writer.u32(length);
  }
}

function writeSize(writer, size, small, first) {
  if (size < 16) writer.u8(small | size);
  else if (size < 0x10000) {
    writer.u8(first);
    writer.u16(size);
  } else {
    writer.u8(first + 1);
    writer.u32(size);
  }
}

/** Reads a buffer from its beginning; every read is checked against the end. */
class Reader {
  #bytes;
  #view;
  #at = 0;

  constructor(bytes) {
    this.#bytes = bytes;
    this.#view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  }

  get isAtEnd() {
    return this.#at === this.#bytes.length;
  }

  take(size) {
    const from = this.#at;
    if (from + size > this.#bytes.length) throw new RangeError("a message ends too early");
    this.#at += size;
    return from;
  }

  raw(size) {
    const from = this.take(size);
    return this.#bytes.subarray(from, from + size);
  }

  unsigned(size) {
    const from = this.take(size);
    if (size === 1) return this.#view.getUint8(from);
    if (size === 2) return this.#view.getUint16(from);
    if (size === 4) return this.#view.getUint32(from);
    return this.#view.getUint32(from) * TWO_32 + this.#view.getUint32(from + 4);
  }

  signed(size) {
    const from = this.take(size);
    if (size === 1) return this.#view.getInt8(from);
    if (size === 2) return this.#view.getInt16(from);
    if (size === 4) return this.#view.getInt32(from);
    return this.#view.getInt32(from) * TWO_32 + this.#view.getUint32(from + 4);
  }

  float(size) {
    const from = this.take(size);
    return size === 4 ? this.#view.getFloat32(from) : this.#view.getFloat64(from);
  }
}

/**
 * Decode a message. Bytes are views of the given buffer.
 * @param {Uint8Array | ArrayBuffer} data
 * @returns {any}
 */
export function decode(data) {
  const reader = new Reader(data instanceof Uint8Array ? data : new Uint8Array(data));
  const value = read(reader, 0);
  if (!reader.isAtEnd) throw new RangeError("a message has something behind its end");
  return value;
}

function read(reader, depth) {
  if (depth > DEPTH_MAX) throw new RangeError("a message is nested too deeply");
  const kind = reader.unsigned(1);
  if (kind < 0x80) return kind;
  if (kind < 0x90) return readMap(reader, kind & 0x0f, depth);
  if (kind < 0xa0) return readArray(reader, kind & 0x0f, depth);
  if (kind < 0xc0) return decoder.decode(reader.raw(kind & 0x1f));
  if (kind >= 0xe0) return kind - 0x100;
  return readLong(reader, kind, depth);
}

function readLong(reader, kind, depth) {
  switch (kind) {
    case 0xc0: return null;
    case 0xc2: return false;
    case 0xc3: return true;
    case 0xc4: case 0xc5: case 0xc6: return reader.raw(reader.unsigned(1 << (kind - 0xc4)));
    case 0xca: return reader.float(4);
    case 0xcb: return reader.float(8);
    case 0xcc: case 0xcd: case 0xce: case 0xcf: return reader.unsigned(1 << (kind - 0xcc));
    case 0xd0: case 0xd1: case 0xd2: case 0xd3: return reader.signed(1 << (kind - 0xd0));
    case 0xd9: case 0xda: case 0xdb:
      return decoder.decode(reader.raw(reader.unsigned(1 << (kind - 0xd9))));
    case 0xdc: case 0xdd: return readArray(reader, reader.unsigned(2 << (kind - 0xdc)), depth);
    case 0xde: case 0xdf: return readMap(reader, reader.unsigned(2 << (kind - 0xde)), depth);
    default: throw new RangeError(`a message has a value of an unknown kind (${kind})`);
  }
}

function readArray(reader, size, depth) {
  const items = [];
  for (let index = 0; index < size; index++) items.push(read(reader, depth + 1));
  return items;
}

function readMap(reader, size, depth) {
  const fields = {};
  for (let index = 0; index < size; index++) {
    const name = read(reader, depth + 1);
    Object.defineProperty(fields, name, {
      value: read(reader, depth + 1), enumerable: true, writable: true, configurable: true,
    });
  }
  return fields;
}
