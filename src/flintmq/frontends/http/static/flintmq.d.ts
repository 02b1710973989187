export interface Receipt {
  topic: string;
  partition: string;
  offset: string | null;
  count: number;
  dropped: number;
  duplicate: boolean;
  durability: string;
}

export interface PublishOptions {
  key?: string;
  /** In place of `key`, for a binary one. */
  key_base64?: string;
  headers?: Record<string, string>;
  /** More headers, whose values are base64. */
  binary_headers?: Record<string, string>;
  priority?: number;
  ttl?: number;
  delay?: number;
  content_type?: string;
  partition?: string;
  qos?: 0 | 1;
  auto_create?: boolean;
  timeout?: number;
  /** How often to try while the broker is away. */
  attempts?: number;
  idempotencyKey?: string;
}

export interface SubscribeOptions {
  /** "earliest", "latest", an offset, a time (ISO 8601), or "last_per_key" of a compacted topic.
   *  Without it, the stream is live. */
  start?: string;
  /** Resume behind the message with this id. */
  after?: string;
  group?: string;
  ack?: "manual" | "auto";
  lease?: number;
  prefetch?: number;
  filter?: string;
  capacity?: number;
  overflow?: "drop_oldest" | "drop_new" | "block" | "reject";
  limit?: number;
  transport?: "ws" | "sse";
}

export class FlintError extends Error {
  readonly kind: string;
  readonly status: number;
  readonly answer: unknown;
}

export class Message {
  readonly id: string | null;
  readonly topic: string;
  readonly partition: string;
  readonly offset: string;
  readonly timestamp: number;
  readonly key: string | null;
  readonly key_encoding: "text" | "base64" | null;
  readonly headers: Record<string, string>;
  /** Those whose values are no text, as base64. */
  readonly binary_headers: Record<string, string>;
  readonly priority: number;
  readonly content_type: string | null;
  readonly expires_at: number | null;
  readonly deliver_at: number | null;
  /** As it was sent; `text()`, `json()` and `bytes()` decode it. */
  readonly value: string;
  readonly encoding: "text" | "base64";
  readonly size: number;
  readonly truncated: boolean;
  readonly lease: string;
  readonly delivery_count: number;
  bytes(): Uint8Array;
  text(): string;
  json(): any;
  /** Of a group; resolves once the broker has settled it. */
  ack(): Promise<void>;
  nack(delay?: number): Promise<void>;
  reject(reason?: string): Promise<void>;
  /** Keep it for so many seconds from now. */
  extend(seconds?: number): Promise<void>;
}

export interface Stream extends AsyncIterableIterator<Message> {
  readonly lastId: string | null;
  /** Messages that were deleted before this stream could read them. */
  readonly dropped: number;
  close(): void;
}

export interface ConnectOptions {
  /** An API key, or how to get one: asked for again when the last has expired. */
  key?: string | (() => string | Promise<string>);
}

export class Connection {
  constructor(base: string, options?: ConnectOptions);
  publish(topic: string, value: unknown, options?: PublishOptions): Promise<Receipt>;
  subscribe(topic: string, options?: SubscribeOptions): Stream;
}

/** Without a base: the broker that this module came from. */
export function connect(base?: string, options?: ConnectOptions): Connection;
