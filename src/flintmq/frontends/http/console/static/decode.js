// Values as people read them: JSON, MessagePack, Avro, text, hex. Pure.

import { visible } from "./format.js";

export const FORMS = ["auto", "json", "msgpack", "avro", "text", "hex"];
const TEXT_MAX = 256 * 1024;
const VALUES_MAX = 200_000; // so many parts of a value are decoded
const DEPTH_MAX = 100; // indenting what is nested deeper would take more room than anybody has

export function bytesOf(message) {
  if (message.encoding === "base64") return Uint8Array.from(atob(message.value), (one) => one.charCodeAt(0));
  return new TextEncoder().encode(message.value);
}

// {form, text}, or {form: "hex", text, error} where it is not what it was taken for.
export function decoded(message, form, schemas) {
  const packed = /;\s*encoding="?(\w+)/i.exec(message.content_type ?? "")?.[1];
  const wanted = form !== "auto" ? form : packed ? "hex" : guessed(message, schemas);
  try {
    const note = packed && form === "auto" ? `The value is compressed (${packed}).` : undefined;
    return { form: wanted, text: bounded(shown(message, wanted, schemas)), error: note };
  } catch (error) {
    const left = message.encoding === "base64" ? "hex" : "text";
    if (form === "auto") return { form: left, text: bounded(shown(message, left)), error: /avro/.test(wanted) ? error.message : undefined };
    return { form: left, text: bounded(shown(message, left)), error: `not ${form}: ${error.message}` };
  }
}

function bounded(text) {
  return text.length > TEXT_MAX ? `${text.slice(0, TEXT_MAX)}\n… ${text.length - TEXT_MAX} more characters` : text;
}

function guessed(message, schemas) {
  const type = message.content_type ?? "";
  if (/json/.test(type)) return "json";
  if (/msgpack/.test(type)) return "msgpack";
  if (/avro/.test(type)) return "avro";
  if (message.encoding === "text") return /^\s*[[{"]/.test(message.value) ? "json" : "text";
  if (schemas?.own) return "avro";
  const first = bytesOf(message)[0];
  return first >= 0x80 && first !== 0xc1 && first < 0xa0 + 0x40 ? "msgpack" : "hex";
}

export function indented(text) {
  const parsed = JSON.parse(text);
  // Numbers that a browser cannot hold would be shown as others: then as it was written.
  return /[0-9]{16}/.test(text) || depthOf(text) > DEPTH_MAX ? text : JSON.stringify(parsed, null, 2);
}

// At most: brackets in strings count too.
function depthOf(text) {
  let [depth, most] = [0, 0];
  for (let at = 0; at < text.length; at++) {
    const one = text.charCodeAt(at);
    if (one === 91 || one === 123) most = Math.max(most, ++depth);
    else if (one === 93 || one === 125) depth--;
  }
  return most;
}

function shown(message, form, schemas) {
  switch (form) {
    case "json":
      return message.truncated ? text(message) : indented(text(message));
    case "msgpack": {
      const reader = new MessagePack(bytesOf(message));
      const value = reader.read();
      if (reader.at !== reader.bytes.length) throw new Error("something follows the value");
      return JSON.stringify(value, plain, 2);
    }
    case "avro": {
      const { id, text: schema } = schemaOf(message, schemas);
      if (!schema) throw new Error(id ? `schema ${id} is not known to this topic` : "the topic has no schema");
      return JSON.stringify(new Avro(bytesOf(message), JSON.parse(schema)).value(), plain, 2);
    }
    case "text":
      return text(message);
    default:
      return hex(bytesOf(message));
  }
}

// The schema of a message: {text}, or {id} of one that is not known here.
function schemaOf(message, schemas) {
  const id = /;\s*schema="?([^;"\s]+)/i.exec(message.content_type ?? "")?.[1];
  const text = (id && schemas?.byId.get(id)) ?? schemas?.own ?? null;
  return { id, text };
}

function text(message) {
  return message.encoding === "base64" ? new TextDecoder().decode(bytesOf(message)) : message.value;
}

const plain = (_, value) => (typeof value === "bigint" ? String(value) : value);

export function hex(bytes) {
  const lines = [];
  for (let at = 0; at < Math.min(bytes.length, 65536); at += 16) {
    const row = [...bytes.subarray(at, at + 16)];
    const digits = row.map((one) => one.toString(16).padStart(2, "0")).join(" ").padEnd(47);
    const letters = row.map((one) => (one > 31 && one < 127 ? String.fromCharCode(one) : "·")).join("");
    lines.push(`${at.toString(16).padStart(6, "0")}  ${digits}  ${letters}`);
  }
  return lines.join("\n");
}

export function preview(message, schemas) {
  const { text: found } = decoded(message, "auto", schemas);
  return visible(found.slice(0, 400).replace(/\s+/g, " ")).slice(0, 300);
}

class Reader {
  constructor(bytes) {
    this.bytes = bytes;
    this.view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    this.at = 0;
    this.depth = 0;
    this.left = VALUES_MAX;
  }
  counted() {
    if (--this.left < 0) throw new Error(`it has more than ${VALUES_MAX} parts`);
  }
  take(size) {
    if (this.at + size > this.bytes.length) throw new Error("it ends too early");
    this.at += size;
    return this.at - size;
  }
  part(size) {
    const from = this.take(size);
    return this.bytes.subarray(from, from + size);
  }
  string(size) {
    return new TextDecoder().decode(this.part(size));
  }
  deeper(work) {
    if (++this.depth > DEPTH_MAX) throw new Error("it is nested too deeply");
    const found = work();
    this.depth--;
    return found;
  }
}

const encoded = (bytes) => `(${bytes.length} bytes) ${[...bytes.subarray(0, 64)].map((one) => one.toString(16).padStart(2, "0")).join("")}`;
const number = (big) => (big >= -9007199254740991n && big <= 9007199254740991n ? Number(big) : big);

export class MessagePack extends Reader {
  read() {
    this.counted();
    const kind = this.bytes[this.take(1)];
    const { view } = this;
    if (kind < 0x80) return kind;
    if (kind < 0x90) return this.map(kind & 15);
    if (kind < 0xa0) return this.array(kind & 15);
    if (kind < 0xc0) return this.string(kind & 31);
    if (kind >= 0xe0) return kind - 256;
    switch (kind) {
      case 0xc0: return null;
      case 0xc2: return false;
      case 0xc3: return true;
      case 0xc4: return encoded(this.part(view.getUint8(this.take(1))));
      case 0xc5: return encoded(this.part(view.getUint16(this.take(2))));
      case 0xc6: return encoded(this.part(view.getUint32(this.take(4))));
      case 0xc7: return this.extension(view.getUint8(this.take(1)));
      case 0xc8: return this.extension(view.getUint16(this.take(2)));
      case 0xc9: return this.extension(view.getUint32(this.take(4)));
      case 0xca: return view.getFloat32(this.take(4));
      case 0xcb: return view.getFloat64(this.take(8));
      case 0xcc: return view.getUint8(this.take(1));
      case 0xcd: return view.getUint16(this.take(2));
      case 0xce: return view.getUint32(this.take(4));
      case 0xcf: return number(view.getBigUint64(this.take(8)));
      case 0xd0: return view.getInt8(this.take(1));
      case 0xd1: return view.getInt16(this.take(2));
      case 0xd2: return view.getInt32(this.take(4));
      case 0xd3: return number(view.getBigInt64(this.take(8)));
      case 0xd4: case 0xd5: case 0xd6: case 0xd7: case 0xd8: return this.extension(1 << (kind - 0xd4));
      case 0xd9: return this.string(view.getUint8(this.take(1)));
      case 0xda: return this.string(view.getUint16(this.take(2)));
      case 0xdb: return this.string(view.getUint32(this.take(4)));
      case 0xdc: return this.array(view.getUint16(this.take(2)));
      case 0xdd: return this.array(view.getUint32(this.take(4)));
      case 0xde: return this.map(view.getUint16(this.take(2)));
      case 0xdf: return this.map(view.getUint32(this.take(4)));
      default: throw new Error(`no value begins with 0x${kind.toString(16)}`);
    }
  }
  array(size) {
    if (size > this.bytes.length) throw new Error("it ends too early");
    return this.deeper(() => {
      const found = []; // it grows as they are read: the size is only what is claimed
      for (let left = size; left > 0; left--) found.push(this.read());
      return found;
    });
  }
  map(size) {
    if (size > this.bytes.length) throw new Error("it ends too early");
    return this.deeper(() => {
      const found = Object.create(null);
      for (let left = size; left > 0; left--) {
        const key = this.read();
        found[typeof key === "object" ? JSON.stringify(key, plain) : String(key)] = this.read();
      }
      return found;
    });
  }
  extension(size) {
    const kind = this.view.getInt8(this.take(1));
    if (kind === -1 && size === 4) return new Date(this.view.getUint32(this.take(4)) * 1000).toISOString();
    if (kind === -1 && size === 8) {
      const packed = this.view.getBigUint64(this.take(8));
      return new Date(Number(packed & 0x3ffffffffn) * 1000 + Number(packed >> 34n) / 1e6).toISOString();
    }
    return `extension ${kind} ${encoded(this.part(size))}`;
  }
}

function logical(type, value) {
  const millis = { date: 86_400_000, "timestamp-millis": 1, "timestamp-micros": 0.001 }[type];
  const at = millis && typeof value === "number" ? new Date(value * millis) : null;
  if (!at || Number.isNaN(at.getTime())) return value;
  return type === "date" ? at.toISOString().slice(0, 10) : at.toISOString();
}

// A value without a header, written by a schema of its topic.
export class Avro extends Reader {
  constructor(bytes, schema) {
    super(bytes);
    this.schema = schema;
    this.names = {};
  }
  value() {
    const found = this.read(this.schema, "");
    if (this.at !== this.bytes.length) throw new Error("something follows the value");
    return found;
  }
  long() {
    let found = 0n;
    for (let shift = 0n; ; shift += 7n) {
      if (shift > 63n) throw new Error("a number is too long");
      const one = BigInt(this.bytes[this.take(1)]);
      found |= (one & 127n) << shift;
      if (one < 128n) break;
    }
    return number((found >> 1n) ^ -(found & 1n));
  }
  read(schema, space) {
    this.counted();
    if (Array.isArray(schema)) {
      const at = this.long();
      if (schema[at] === undefined) throw new Error("a union has no such branch");
      return this.read(schema[at], space);
    }
    if (typeof schema === "string") return this.named(schema, space);
    const own = schema.namespace ?? space;
    if (schema.name) this.names[schema.name.includes(".") ? schema.name : [own, schema.name].filter(Boolean).join(".")] = schema;
    switch (schema.type) {
      case "record":
        return this.deeper(() => {
          const found = Object.create(null);
          for (const field of schema.fields) found[field.name] = this.read(field.type, own);
          return found;
        });
      case "enum": return schema.symbols[this.long()];
      case "fixed": return encoded(this.part(schema.size));
      case "array": return this.deeper(() => this.blocks((found) => found.push(this.read(schema.items, own)), []));
      case "map": return this.deeper(() => this.blocks((found) => { found[this.string(this.long())] = this.read(schema.values, own); }, Object.create(null)));
      default: return logical(schema.logicalType, this.read(schema.type, own));
    }
  }
  blocks(add, found) {
    for (;;) {
      let size = this.long();
      if (size === 0) return found;
      if (size < 0) {
        size = -size;
        this.long();
      }
      if (size > this.bytes.length) throw new Error("it ends too early");
      for (; size > 0; size--) add(found);
    }
  }
  named(name, space) {
    switch (name) {
      case "null": return null;
      case "boolean": return this.bytes[this.take(1)] !== 0;
      case "int": case "long": return this.long();
      case "float": return this.view.getFloat32(this.take(4), true);
      case "double": return this.view.getFloat64(this.take(8), true);
      case "bytes": return encoded(this.part(Number(this.long())));
      case "string": return this.string(Number(this.long()));
      default: {
        const found = this.names[name] ?? this.names[`${space}.${name}`];
        if (!found) throw new Error(`the schema has no ${name}`);
        return this.read(found, space);
      }
    }
  }
}
