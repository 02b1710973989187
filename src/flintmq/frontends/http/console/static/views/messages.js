// The messages of a topic: from the end, from an offset, from a time, or as they come. Nothing is
// consumed.

import { may, path, request, stream } from "../api.js";
import { bytes, count, cut, localTime, time, visible } from "../format.js";
import { html, useEffect, useMemo, useRef, useState } from "../lib.js";
import { preview } from "../decode.js";
import { route, setQuery } from "../router.js";
import { Empty, Fault, Foreign } from "../ui.js";
import { MessageView } from "./message.js";
import { Publish } from "./publish.js";

const PREVIEW_BYTES = 2048;
const LIMIT = 50;
const TAIL_MAX = 500;

export function Messages({ topic }) {
  const { name, options } = topic;
  const { from = "newest", at = "", filter = "", partition = "0" } = route.value.query;
  const plain = topic.partitions.length ? `${name}/${partition}` : name;
  const [again, setAgain] = useState(0);
  const [isPublishing, setPublishing] = useState(null);
  const browsing = useBrowsed({ plain, from, at, filter, again });
  return html`
    <${Controls} topic=${topic} from=${from} at=${at} filter=${filter} partition=${partition}
      again=${() => setAgain(again + 1)} error=${browsing.error} samples=${browsing.messages} />
    ${from === "live"
      ? html`<${Tail} key=${`${name}\n${filter}`} topic=${name} filter=${filter} schema=${options.schema} republish=${setPublishing} />`
      : html`<${Listed} found=${browsing} topic=${plain} from=${from} schema=${options.schema} republish=${setPublishing} />`}
    ${isPublishing && html`<${Publish} topic=${topic} from=${isPublishing} onClose=${() => setPublishing(null)} />`}`;
}

function useBrowsed({ plain, from, at, filter, again }) {
  const [pages, setPages] = useState([]); // of addresses: where each page began
  const [state, setState] = useState({ messages: null, error: null, next: null });
  const place = pages.at(-1);
  useEffect(() => setPages([]), [plain, from, at, filter]);
  useEffect(() => {
    const controller = new AbortController();
    if (from === "live") return undefined;
    const order = from === "newest" ? "desc" : "asc";
    const query = { order, filter, limit: LIMIT, value_bytes: PREVIEW_BYTES };
    if (place !== undefined) query.offset = place;
    else if (from === "offset") query.offset = at || "0";
    else if (from === "time") query.time = at || "0";
    else if (from === "oldest") query.offset = "0";
    request("GET", `${path("topics", plain)}/messages`, { query, signal: controller.signal })
      .then((answer) => answer.json())
      .then((found) => setState({ messages: found.messages, error: null, next: found.next_offset, hasMore: found.messages.length === LIMIT || (filter && found.messages.length === 0 ? found.next_offset !== place : false) }))
      .catch((error) => error.name !== "AbortError" && setState({ messages: [], error, next: null }));
    return () => controller.abort();
  }, [plain, from, at, filter, place, again]);
  return {
    ...state,
    isFirst: !pages.length,
    back: () => setPages(pages.slice(0, -1)),
    on: () => setPages([...pages, state.next]),
  };
}

function Controls({ topic, from, at, filter, partition, again, error, samples }) {
  const [text, setText] = useState(filter);
  const isOfFilter = error && /filter/i.test(`${error.kind} ${error.message}`) && filter;
  useEffect(() => setText(filter), [filter]);
  return html`
    <form class="tools messagetools" onSubmit=${(event) => { event.preventDefault(); setQuery({ filter: text.trim() }); again(); }}>
      <label>From <select value=${from} onChange=${(event) => setQuery({ from: event.target.value, at: "" })}>
        ${[["newest", "the newest"], ["oldest", "the oldest"], ["offset", "an offset"], ["time", "a time"], ["live", "now on (live)"]].map(
          ([one, said]) => html`<option key=${one} value=${one} selected=${one === from}>${said}</option>`,
        )}
      </select></label>
      ${from === "offset" && html`<input class="short" inputmode="numeric" pattern="[0-9]*" aria-label="Offset" placeholder=${topic.stats.first_offset} value=${at} onChange=${(event) => setQuery({ at: event.target.value.trim() })} />`}
      ${from === "time" &&
      html`<input type="datetime-local" step="1" aria-label="Time" value=${at ? localTime(Number(at)) : ""} onChange=${(event) => setQuery({ at: event.target.value ? String(new Date(event.target.value).getTime() / 1000) : "" })} />`}
      ${topic.partitions.length > 0 && from !== "live" &&
      html`<label>Partition <select value=${partition} onChange=${(event) => setQuery({ partition: event.target.value })}>
        ${topic.partitions.map((one) => html`<option key=${one.partition} value=${one.partition} selected=${one.partition === partition}>${one.partition}</option>`)}
      </select></label>`}
      <${FilterInput} text=${text} setText=${setText} error=${isOfFilter ? error : null} samples=${samples} />
      <button type="submit">${from === "live" ? "Apply" : "Look"}</button>
    </form>
    ${!isOfFilter && html`<${Fault} error=${error} again=${again} />`}`;
}

const WORDS = ["key", "priority", "offset", "timestamp", "headers.", "value.", "size", "content_type", " and ", " or ", "not "];

// A filter with what can be said next, and what is wrong with it, in place.
export function FilterInput({ text, setText, error, samples = [] }) {
  const fields = useMemo(() => fieldsOf(samples ?? []), [samples]);
  const [head, word] = /^(.*?)([\w.]*)$/s.exec(text).slice(1);
  const hints = [...WORDS, ...fields].filter((one) => one.startsWith(word) && one !== word).slice(0, 12);
  return html`
    <div class="filterbox">
      <input class="filter mono" data-search list="filter-words" aria-label="Filter" placeholder='Filter: value.total > 100 and headers.region == "eu"'
        value=${text} onInput=${(event) => setText(event.target.value)} autocomplete="off" spellcheck=${false}
        aria-invalid=${error ? "true" : undefined} aria-describedby=${error ? "filter-wrong" : undefined} />
      <datalist id="filter-words">${hints.map((one) => html`<option key=${one} value=${head + one}></option>`)}</datalist>
      ${error && html`<small id="filter-wrong" class="wrong" role="alert"><${Foreign} text=${error.message} /></small>`}
    </div>`;
}

function fieldsOf(messages) {
  const found = new Set();
  for (const message of messages.slice(0, 20)) {
    for (const name of Object.keys(message.headers)) if (/^\w+$/.test(name)) found.add(`headers.${name}`);
    if (message.encoding !== "text" || message.truncated) continue;
    try {
      const value = JSON.parse(message.value);
      if (value && typeof value === "object" && !Array.isArray(value))
        for (const name of Object.keys(value)) if (/^\w+$/.test(name)) found.add(`value.${name}`);
    } catch { /* no JSON */ }
  }
  return [...found].sort();
}

function Listed({ found, topic, from, schema, republish }) {
  if (!found.messages) return html`<p class="empty" role="status">Loading…</p>`;
  const [back, on] = from === "newest" ? ["Newer", "Older"] : ["Back", "Further"];
  return html`
    <${MessageList} messages=${found.messages} topic=${topic} schema=${schema} republish=${republish}
      empty=${found.error ? "" : "There are no messages here."} />
    <div class="tools pager">
      <button disabled=${found.isFirst} onClick=${found.back}>${back}</button>
      <button disabled=${!found.hasMore} onClick=${found.on}>${on}</button>
    </div>`;
}

export function MessageList({ messages, topic, schema, republish, empty }) {
  const [open, setOpen] = useState(null);
  const idOf = (one) => `${one.partition}.${one.offset}`;
  if (!messages.length) return empty && html`<${Empty}>${empty}<//>`;
  return html`
    <ol class="messages" aria-label="Messages">
      ${messages.map((one) => {
        const id = idOf(one);
        return html`
          <li key=${id}>
            <button class="row" aria-expanded=${open === id} onClick=${() => setOpen(open === id ? null : id)}>
              <span class="offset">${one.offset}</span>
              <time>${time(one.timestamp)}</time>
              <span class="key">${one.key !== null && html`<${Foreign} text=${cut(one.key, 40)} />`}</span>
              <span class="preview mono"><bdi>${preview(one, schema)}</bdi></span>
              <span class="size faint">${bytes(one.size)}</span>
            </button>
            ${open === id &&
            html`<${MessageView} message=${one} topic=${topic} schema=${schema}>
              ${may("publish", topic) && html`<button type="button" onClick=${() => republish(one)}>Publish again…</button>`}
            <//>`}
          </li>`;
      })}
    </ol>`;
}

function Tail({ topic, filter, schema, republish }) {
  const [messages, setMessages] = useState([]);
  const [state, setState] = useState("waiting");
  const [error, setError] = useState(null);
  const [isPaused, setPaused] = useState(false);
  const waiting = useRef([]);
  const paused = useRef(false);
  const seen = useRef(0);
  paused.current = isPaused;
  useEffect(() => {
    const controller = new AbortController();
    stream(`${path("topics", topic)}/stream`, {
      query: { filter, capacity: 1024 },
      signal: controller.signal,
      tell: (one) => {
        seen.current++;
        waiting.current.unshift(one);
        if (waiting.current.length > TAIL_MAX) waiting.current.length = TAIL_MAX;
      },
      onState: (said, fault) => {
        setState(said);
        setError(fault ?? null);
      },
    });
    const timer = setInterval(() => {
      if (paused.current || !waiting.current.length) return;
      const fresh = waiting.current;
      waiting.current = [];
      setMessages((before) => [...fresh, ...before].slice(0, TAIL_MAX));
    }, 200);
    return () => {
      controller.abort();
      clearInterval(timer);
    };
  }, [topic, filter]);
  return html`
    <div class="tools">
      <span class="state ${state}" role="status">${{ live: "Live", lost: "Connection lost", failed: "Ended", waiting: "Connecting" }[state]}</span>
      <span class="faint">${count(seen.current)} seen, the last ${count(messages.length)} shown</span>
      <button onClick=${() => setPaused(!isPaused)}>${isPaused ? "Go on" : "Pause"}</button>
    </div>
    ${error && html`<p class="wrong" role="alert">${visible(error.message)}</p>`}
    <${MessageList} messages=${messages} topic=${topic} schema=${schema} republish=${republish} empty="Waiting for messages." />`;
}
