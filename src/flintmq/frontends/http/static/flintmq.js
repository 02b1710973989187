// FlintMQ in the browser: publish, subscribe, resume. No build; works in Node 22 and Deno too.
//
//   import { connect } from "http://localhost:7601/flintmq.js";
//   const mq = connect();
//   await mq.publish("orders", { id: 42 });
//   for await (const message of mq.subscribe("orders", { start: "earliest" })) console.log(message.json());
//
// A stream that breaks comes back by itself and goes on behind the last message it had seen. A key
// is never part of a URL. Where it expires soon, say how to get the next one:
//
//   const mq = connect("https://broker.example:7601", { key: () => fetch("/flint-key").then((r) => r.text()) });

export class FlintError extends Error {
  constructor(status, kind, message, answer) {
    super(message);
    this.name = kind;
    this.kind = kind;
    this.status = status;
    this.answer = answer;
  }
}

export class Message {
  #stream;
  constructor(fields, stream) {
    Object.assign(this, fields);
    this.#stream = stream;
  }
  bytes() {
    if (this.encoding !== "base64") return new TextEncoder().encode(this.value);
    return Uint8Array.from(atob(this.value), (character) => character.charCodeAt(0));
  }
  text() {
    return this.encoding === "base64" ? new TextDecoder().decode(this.bytes()) : this.value;
  }
  json() {
    return JSON.parse(this.text());
  }
  ack() {
    return this.#stream.settle({ ack: this.lease });
  }
  nack(delay = 0) {
    return this.#stream.settle({ nack: this.lease, delay });
  }
  reject(reason = "rejected") {
    return this.#stream.settle({ reject: this.lease, reason });
  }
  extend(seconds = 30) {
    return this.#stream.settle({ extend: this.lease, lease: seconds });
  }
}

// Errors that stay errors, however often one comes back.
const FINAL = new Set([400, 401, 403, 404, 405, 413, 415, 421, 422, 501]);
const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

class Stream {
  #queue = [];
  #wake = null;
  #closed = false;
  #error = null;
  #socket = null;
  #abort = null;
  #settling = new Map();

  constructor(mq, topic, options) {
    this.mq = mq;
    this.topic = topic;
    this.options = options;
    this.lastId = options.after ?? null;
    this.dropped = 0;
    this.#run();
  }

  async #run() {
    let wait = 0;
    let renewed = false;
    const opened = () => {
      wait = 0;
      renewed = false;
    };
    while (!this.#closed) {
      try {
        const key = await this.mq.key();
        await (this.options.transport === "sse" ? this.#events(key, opened) : this.#webSocket(key, opened));
      } catch (error) {
        if (isOfKey(error) && !renewed && this.mq.forgetKey()) {
          renewed = true;
          continue;
        }
        if (error instanceof FlintError && (FINAL.has(error.status) || error.status === 0)) {
          this.#error = error;
          this.close();
          return;
        }
      }
      if (this.#closed) return;
      await sleep(wait * (0.5 + Math.random()));
      wait = Math.min(5000, wait * 2 || 100);
    }
  }

  #query() {
    const { transport, after, signal, ...query } = this.options;
    if (this.lastId !== null) {
      query.after = this.lastId;
      delete query.start;
    }
    return query;
  }

  async #events(key, opened) {
    this.#abort = new AbortController();
    const url = this.mq.url(this.topic, "stream", this.#query());
    const answer = await fetch(url, { headers: withKey(key), signal: this.#abort.signal });
    if (!answer.ok) throw await failure(answer);
    opened();
    const decoder = new TextDecoder();
    let rest = "";
    for (const reader = answer.body.getReader(); ; ) {
      const { value, done } = await reader.read();
      if (done) return;
      const blocks = (rest + decoder.decode(value, { stream: true })).split("\n\n");
      rest = blocks.pop();
      for (const block of blocks) {
        const lines = block.split("\n");
        const data = lines.find((line) => line.startsWith("data: "));
        const id = lines.find((line) => line.startsWith("id: "));
        if (data) this.#take(JSON.parse(data.slice(6)));
        else if (id) this.lastId = id.slice(4);
      }
    }
  }

  #webSocket(key, opened) {
    return new Promise((resolve, reject) => {
      const url = this.mq.url(this.topic, "stream", this.#query()).replace(/^http/, "ws");
      // What a browser lets a page send with a WebSocket besides the URL, which logs may keep.
      const protocols = key ? ["flintmq", `key.${key}`] : [];
      const socket = (this.#socket = new WebSocket(url, protocols));
      let isOpen = false;
      socket.onopen = () => {
        isOpen = true;
        opened();
      };
      socket.onmessage = ({ data }) => {
        try {
          this.#take(JSON.parse(data));
        } catch (error) {
          socket.close();
          reject(error);
        }
      };
      socket.onclose = async () => {
        for (const { reject } of this.#settling.values())
          reject(new FlintError(0, "Disconnected", "the stream was lost before this was settled"));
        this.#settling.clear();
        // A browser does not say why a WebSocket was refused: ask in another way.
        if (!isOpen && !this.#closed) {
          try {
            const asked = await fetch(this.mq.url(this.topic, "stream", this.#query()), {
              method: "HEAD",
              headers: withKey(key),
            });
            if (FINAL.has(asked.status) && !this.options.group) return reject(await failure(asked));
            if (asked.status === 401 || asked.status === 403) return reject(await failure(asked));
          } catch {
            // the broker is away
          }
        }
        resolve();
      };
    });
  }

  #take(said) {
    if (said.value !== undefined) {
      if (said.id !== null) this.lastId = said.id;
      this.#queue.push(new Message(said, this));
    } else if (said.id) this.lastId = said.id; // where it begins
    else if (said.missed) this.dropped += said.missed;
    else if (said.settled ?? said.extended)
      for (const lease of said.settled ?? said.extended) this.#settled(lease);
    else if (said.error) {
      const error = new FlintError(0, said.error.kind, said.error.message, said);
      if (!said.lost) throw error;
      for (const lease of said.lost) this.#settled(lease, error);
    }
    this.#wake?.();
  }

  #settled(lease, error) {
    const waiting = this.#settling.get(lease);
    this.#settling.delete(lease);
    if (waiting) error ? waiting.reject(error) : waiting.resolve();
  }

  settle(said) {
    const lease = said.ack ?? said.nack ?? said.reject ?? said.extend;
    return new Promise((resolve, reject) => {
      if (this.#socket?.readyState !== 1)
        return reject(new FlintError(0, "Disconnected", "the stream is not connected"));
      this.#settling.set(lease, { resolve, reject });
      this.#socket.send(JSON.stringify(said));
    });
  }

  close() {
    this.#closed = true;
    this.#socket?.close();
    this.#abort?.abort();
    this.#wake?.();
  }

  async next() {
    for (;;) {
      if (this.#queue.length) return { value: this.#queue.shift(), done: false };
      if (this.#error) throw this.#error;
      if (this.#closed) return { value: undefined, done: true };
      await new Promise((resolve) => (this.#wake = resolve));
    }
  }

  async return() {
    this.close();
    return { value: undefined, done: true };
  }

  [Symbol.asyncIterator]() {
    return this;
  }
}

async function failure(answer) {
  try {
    const said = await answer.json();
    return new FlintError(answer.status, said.error.kind, said.error.message, said);
  } catch {
    const kind = answer.status === 401 ? "NotAuthenticated" : "HttpError";
    return new FlintError(answer.status, kind, `HTTP ${answer.status}`);
  }
}

function withKey(key, headers = {}) {
  return key ? { authorization: `Bearer ${key}`, ...headers } : headers;
}

const isOfKey = (error) => error instanceof FlintError && error.kind === "NotAuthenticated";

function base64(bytes) {
  let text = "";
  for (let at = 0; at < bytes.length; at += 32768)
    text += String.fromCharCode(...bytes.subarray(at, at + 32768));
  return btoa(text);
}

export class Connection {
  #key;
  #known = null;

  constructor(base, { key } = {}) {
    this.base = base.replace(/\/$/, "");
    this.#key = key;
  }

  async key() {
    if (typeof this.#key !== "function") return this.#key;
    try {
      return await (this.#known ??= this.#key());
    } catch (error) {
      this.#known = null;
      throw error;
    }
  }

  // Whether there is another one to ask for.
  forgetKey() {
    this.#known = null;
    return typeof this.#key === "function";
  }

  url(topic, rest, query = {}) {
    const said = Object.entries(query).filter(([, value]) => value !== undefined && value !== null);
    const text = new URLSearchParams(said.map(([name, value]) => [name, String(value)])).toString();
    return `${this.base}/api/v1/topics/${encodeURIComponent(topic)}/${rest}${text && "?" + text}`;
  }

  async #post(url, body, headers = {}) {
    const answer = await fetch(url, {
      method: "POST",
      headers: withKey(await this.key(), { "content-type": "application/json", ...headers }),
      body: JSON.stringify(body),
    });
    if (!answer.ok) throw await failure(answer);
    return answer.json();
  }

  // Repeated until the broker has answered: an Idempotency-Key has it stored once.
  async publish(topic, value, { attempts = 8, idempotencyKey, ...options } = {}) {
    const key = idempotencyKey ?? crypto.randomUUID?.() ?? `${Math.random()}${Math.random()}`;
    const said = value instanceof Uint8Array
      ? { base64: base64(value) }
      : typeof value === "string" ? { text: value } : { json: value };
    const headers = options.qos === 0 ? {} : { "idempotency-key": key };
    let renewed = false;
    for (let attempt = 1; ; attempt++) {
      try {
        return await this.#post(this.url(topic, "messages"), { ...said, ...options }, headers);
      } catch (error) {
        if (isOfKey(error) && !renewed && this.forgetKey()) {
          renewed = true;
          continue;
        }
        if ((error instanceof FlintError && FINAL.has(error.status)) || attempt >= attempts)
          throw error;
        await sleep(Math.min(5000, 100 * 2 ** attempt));
      }
    }
  }

  subscribe(topic, options = {}) {
    return new Stream(this, topic, options);
  }
}

export function connect(base = new URL(import.meta.url).origin, options = {}) {
  return new Connection(base, options);
}
