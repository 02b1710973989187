// The broker's HTTP API. The key stays in the memory of this tab.

import { computed, signal } from "./lib.js";

const BASE = new URL("api/v1/", document.baseURI.split("#")[0]);

export const key = signal(null);
export const me = signal(null); // null until it is known
export const signIn = signal(null); // why a key is asked for, or null

export class ApiError extends Error {
  constructor(status, kind, message, answer) {
    super(message);
    Object.assign(this, { status, kind, answer });
  }
}

export function path(...words) {
  return words.map(encodeURIComponent).join("/");
}

function addressOf(where, query) {
  const url = new URL(where, BASE);
  for (const [name, value] of Object.entries(query ?? {}))
    if (value !== undefined && value !== null && value !== "") url.searchParams.set(name, value);
  return url;
}

function headersOf(body) {
  const headers = {};
  if (key.value) headers.authorization = `Bearer ${key.value}`;
  if (body !== undefined) headers["content-type"] = "application/json";
  return headers;
}

export async function request(method, where, { body, query, signal } = {}) {
  let response;
  try {
    response = await fetch(addressOf(where, query), {
      method,
      headers: headersOf(method === "GET" || method === "DELETE" ? undefined : (body ?? {})),
      body: method === "GET" || method === "DELETE" ? undefined : JSON.stringify(body ?? {}),
      cache: "no-store",
      credentials: "omit",
      signal,
    });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError(0, "Unreachable", "the broker does not answer; is it running?");
  }
  if (response.ok) return response;
  throw await errorOf(response);
}

async function errorOf(response) {
  let answer = {};
  try {
    answer = await response.json();
  } catch { /* a proxy, perhaps */ }
  const { kind = "HTTP", message = `the answer was ${response.status}` } = answer.error ?? {};
  if (response.status === 401) signIn.value = key.value ? message : "";
  return new ApiError(response.status, kind, message, answer);
}

const json = async (...given) => (await request(...given)).json();
export const get = (where, query, signal) => json("GET", where, { query, signal });
export const post = (where, body, signal) => json("POST", where, { body, signal });
export const put = (where, body) => json("PUT", where, { body });
export const patch = (where, body) => json("PATCH", where, { body });
export const remove = (where) => json("DELETE", where);

// --- who this is

export async function enter(given) {
  const before = key.value;
  key.value = given;
  try {
    me.value = await get("me");
    signIn.value = null;
  } catch (error) {
    if (error.status !== 401) key.value = before;
    throw error;
  }
}

export function leave() {
  key.value = null;
  me.value = null;
  signIn.value = "";
}

// --- what the key may do

export function matches(pattern, name) {
  const words = name.split(".");
  const wanted = pattern.split(".");
  for (let at = 0; at < wanted.length; at++) {
    if (wanted[at] === ">") return words.length > at;
    if (at >= words.length || (wanted[at] !== "*" && wanted[at] !== words[at])) return false;
  }
  return wanted.length === words.length;
}

export function may(permission, topic) {
  const plain = topic.split("/")[0];
  return Object.entries(me.value?.grants ?? {}).some(
    ([pattern, permissions]) => permissions.includes(permission) && matches(pattern, plain),
  );
}

export const mayAll = computed(() => (me.value?.grants?.[">"] ?? []).includes("administer"));
export const mayPublishSomewhere = computed(() =>
  Object.values(me.value?.grants ?? {}).some((permissions) => permissions.includes("administer")),
);

// --- streams

// Reads Server-Sent Events until the signal says stop: `tell(data)` for each. Comes back by itself.
export async function stream(where, { query, signal, tell, onState = () => {} }) {
  let wait = 500;
  while (!signal.aborted) {
    try {
      const response = await fetch(addressOf(where, query), {
        headers: { ...headersOf(), accept: "text/event-stream" },
        cache: "no-store",
        credentials: "omit",
        signal,
      });
      if (!response.ok) throw await errorOf(response);
      onState("live");
      wait = 500;
      await readEvents(response.body, tell);
    } catch (error) {
      if (signal.aborted) return;
      if (error instanceof ApiError && [400, 401, 403, 404, 422, 501].includes(error.status)) {
        onState("failed", error);
        return;
      }
    }
    if (signal.aborted) return;
    onState("lost");
    await new Promise((resolve) => setTimeout(resolve, wait));
    wait = Math.min(5_000, wait * 2);
  }
}

async function readEvents(body, tell) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const events = (rest + value).split("\n\n");
    rest = events.pop();
    for (const one of events) {
      const data = one.split("\n").filter((line) => line.startsWith("data: ")).map((line) => line.slice(6)).join("\n");
      if (one.split("\n").includes("event: failed")) {
        const said = JSON.parse(data).error;
        throw new ApiError(400, said.kind, said.message);
      }
      if (data) tell(JSON.parse(data));
    }
  }
}
