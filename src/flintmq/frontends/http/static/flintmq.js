// FlintMQ in the browser: publish, subscribe, resume. No build; works in Node 22 and Deno too.
//
//   import { connect } from "http://localhost:7601/flintmq.js";
//   const mq = connect();
//   await mq.publish("orders", { id: 42 });
//   for await (const message of mq.subscribe("orders", { start: "earliest" })) console.log(message.json());
//
// A stream that breaks comes back by itself and goes on behind the last message it had seen.

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
    while (!this.#closed) {
      try {
        const sse = this.options.transport === "sse";
        await (sse ? this.#events(() => (wait = 0)) : this.#webSocket(() => (wait = 0)));
      } catch (error) {
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

  async #events(opened) {
    this.#abort = new AbortController();
    const url = this.mq.url(this.topic, "stream", this.#query());
    const answer = await fetch(url, { headers: this.mq.headers(), signal: this.#abort.signal });
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
        const data = block.split("\n").find((line) => line.startsWith("data: "));
        if (data) this.#take(JSON.parse(data.slice(6)));
      }
    }
  }

  #webSocket(opened) {
    return new Promise((resolve, reject) => {
      const query = this.#query();
      if (this.mq.key) query.key = this.mq.key;
      const url = this.mq.url(this.topic, "stream", query).replace(/^http/, "ws");
      const socket = (this.#socket = new WebSocket(url));
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
              headers: this.mq.headers(),
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
    } else if (said.missed) this.dropped += said.missed;
    else if (said.settled) for (const lease of said.settled) this.#settled(lease);
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
    const lease = said.ack ?? said.nack ?? said.reject;
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
    return new FlintError(answer.status, "HttpError", `HTTP ${answer.status}`);
  }
}

export class Connection {
  constructor(base, { key } = {}) {
    this.base = base.replace(/\/$/, "");
    this.key = key;
  }

  url(topic, rest, query = {}) {
    const said = Object.entries(query).filter(([, value]) => value !== undefined && value !== null);
    const text = new URLSearchParams(said.map(([name, value]) => [name, String(value)])).toString();
    return `${this.base}/api/v1/topics/${encodeURIComponent(topic)}/${rest}${text && "?" + text}`;
  }

  headers(more = {}) {
    return this.key ? { authorization: `Bearer ${this.key}`, ...more } : more;
  }

  async #post(url, body, headers = {}) {
    const answer = await fetch(url, {
      method: "POST",
      headers: this.headers({ "content-type": "application/json", ...headers }),
      body: JSON.stringify(body),
    });
    if (!answer.ok) throw await failure(answer);
    return answer.json();
  }

  // Repeated until the broker has answered: an Idempotency-Key has it stored once.
  async publish(topic, value, { attempts = 8, idempotencyKey, ...options } = {}) {
    const key = idempotencyKey ?? crypto.randomUUID?.() ?? `${Math.random()}${Math.random()}`;
    const said = value instanceof Uint8Array
      ? { base64: btoa(String.fromCharCode(...value)) }
      : typeof value === "string" ? { text: value } : { json: value };
    const headers = options.qos === 0 ? {} : { "idempotency-key": key };
    for (let attempt = 1; ; attempt++) {
      try {
        return await this.#post(this.url(topic, "messages"), { ...said, ...options }, headers);
      } catch (error) {
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
