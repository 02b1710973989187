// The messages of a topic: from the end, from an offset, from a time, or as they come. Nothing is
// consumed.

import { get, may, path, stream } from "../api.js";
import { bytes, count, cut, localTime, time, visible } from "../format.js";
import { html, useEffect, useRef, useState } from "../lib.js";
import { preview } from "../decode.js";
import { route, setQuery } from "../router.js";
import { useSchemas } from "../schemas.js";
import { Empty, Fault, Foreign } from "../ui.js";
import { FilterInput } from "./filter.js";
import { MessageView } from "./message.js";
import { Publish } from "./publish.js";

const PREVIEW_BYTES = 2048;
const LIMIT = 50;
const TAIL_MAX = 500;

export function Messages({ topic }) {
  const { name } = topic;
  const { from = "newest", at = "", filter = "", partition = "0", page = "" } = route.value.query;
  const plain = topic.partitions.length ? `${name}/${partition}` : name;
  const [again, setAgain] = useState(0);
  const [isPublishing, setPublishing] = useState(null);
  const schemas = useSchemas(name, topic.options.schema);
  const { first_offset: first, next_offset: end } = topic.partitions.find((one) => one.partition === partition)?.stats ?? topic.stats;
  const samples = useSamples(plain);
  const browsing = useBrowsed({ plain, first, end, from, at, filter, page, again });
  return html`
    <${Controls} topic=${topic} from=${from} at=${at} filter=${filter} partition=${partition}
      again=${() => setAgain(again + 1)} error=${browsing.error} samples=${samples} />
    ${from === "live"
      ? html`<${Tail} key=${`${name}\n${filter}`} topic=${topic} filter=${filter} schemas=${schemas} republish=${setPublishing} />`
      : html`<${Listed} found=${browsing} topic=${topic} from=${from} schemas=${schemas} republish=${setPublishing} />`}
    ${isPublishing && html`<${Publish} topic=${topic} from=${isPublishing} onClose=${() => setPublishing(null)} />`}`;
}

// Some messages, whatever the filter: what it may say is offered by what they have.
function useSamples(plain) {
  const [samples, setSamples] = useState([]);
  useEffect(() => {
    const controller = new AbortController();
    get(`${path("topics", plain)}/messages`, { order: "desc", limit: 20, value_bytes: PREVIEW_BYTES }, controller.signal)
      .then(({ messages }) => setSamples(messages))
      .catch(() => {});
    return () => controller.abort();
  }, [plain]);
  return samples;
}

// A page of them. Where it begins is in the address; the pages before it are in the history.
function useBrowsed({ plain, first, end, from, at, filter, page, again }) {
  const [state, setState] = useState({ messages: null, error: null, next: null });
  const [before, setBefore] = useState([]);
  useEffect(() => setBefore([]), [plain, from, at, filter]);
  useEffect(() => {
    const controller = new AbortController();
    if (from === "live") return undefined;
    const query = { order: from === "newest" ? "desc" : "asc", filter, limit: LIMIT, value_bytes: PREVIEW_BYTES };
    if (page) query.offset = page;
    else if (from === "offset") query.offset = at || "0";
    else if (from === "time") query.time = at || "0";
    else if (from === "oldest") query.offset = "0";
    get(`${path("topics", plain)}/messages`, query, controller.signal)
      .then(({ messages, next_offset: next }) => setState({ messages, error: null, next }))
      .catch((error) => error.name !== "AbortError" && setState({ messages: [], error, next: null }));
    return () => controller.abort();
  }, [plain, from, at, filter, page, again]);
  // An answer may be short and not be the last: of large messages, or with a filter.
  const { next } = state;
  const hasMore = next !== null && (from === "newest" ? BigInt(next) > BigInt(first) : BigInt(next) < BigInt(end));
  return {
    ...state,
    hasMore,
    isFirst: !page,
    back: () => {
      setQuery({ page: before.at(-1) ?? "", message: "" });
      setBefore(before.slice(0, -1));
    },
    on: () => {
      setBefore([...before, page]);
      setQuery({ page: state.next, message: "" });
    },
  };
}

const PLACES = [["newest", "the newest"], ["oldest", "the oldest"], ["offset", "an offset"], ["time", "a time"], ["live", "now on (live)"]];

function Controls({ topic, from, at, filter, partition, again, error, samples }) {
  const [text, setText] = useState(filter);
  const isOfFilter = error && /filter/i.test(`${error.kind} ${error.message}`) && filter;
  useEffect(() => setText(filter), [filter]);
  const look = (changes) => setQuery({ page: "", message: "", ...changes });
  return html`
    <form class="tools messagetools" onSubmit=${(event) => { event.preventDefault(); look({ filter: text.trim() }); again(); }}>
      <label>From <select value=${from} onChange=${(event) => look({ from: event.target.value, at: "" })}>
        ${PLACES.map(([one, said]) => html`<option key=${one} value=${one} selected=${one === from}>${said}</option>`)}
      </select></label>
      ${from === "offset" && html`<${OffsetInput} at=${at} first=${topic.stats.first_offset} look=${look} />`}
      ${from === "time" &&
      html`<input type="datetime-local" step="1" aria-label="Time" value=${at ? localTime(Number(at)) : ""} onChange=${(event) => look({ at: event.target.value ? String(new Date(event.target.value).getTime() / 1000) : "" })} />`}
      ${topic.partitions.length > 0 && from !== "live" &&
      html`<label>Partition <select value=${partition} onChange=${(event) => look({ partition: event.target.value })}>
        ${topic.partitions.map((one) => html`<option key=${one.partition} value=${one.partition} selected=${one.partition === partition}>${one.partition}</option>`)}
      </select></label>`}
      <${FilterInput} text=${text} setText=${setText} error=${isOfFilter ? error : null} samples=${samples} />
      <button type="submit">${text.trim() === filter && from !== "live" ? "Refresh" : "Apply"}</button>
    </form>
    ${!isOfFilter && html`<${Fault} error=${error} again=${again} />`}`;
}

// What is typed stays, though the page is drawn again meanwhile.
function OffsetInput({ at, first, look }) {
  const [text, setText] = useState(at);
  useEffect(() => setText(at), [at]);
  return html`<input class="short" inputmode="numeric" pattern="[0-9]*" aria-label="Offset" placeholder=${first} value=${text}
    onInput=${(event) => setText(event.target.value)} onChange=${() => look({ at: text.trim() })} />`;
}

function Listed({ found, topic, from, schemas, republish }) {
  if (!found.messages) return html`<p class="empty" role="status">Loading…</p>`;
  const [back, on] = from === "newest" ? ["Newer", "Older"] : ["Previous", "Next"];
  const filtered = route.value.query.filter;
  const none = filtered ? (found.hasMore ? "No match so far: look further." : "No message matches the filter.") : found.isFirst ? "This topic has no messages." : "There are no more messages.";
  return html`
    <${MessageList} messages=${found.messages} topic=${topic} schemas=${schemas} republish=${republish} empty=${found.error ? "" : none} />
    ${(!found.isFirst || found.hasMore) &&
    html`<div class="tools pager">
      <button disabled=${found.isFirst} onClick=${found.back}>${back}</button>
      <button disabled=${!found.hasMore} onClick=${found.on}>${on}</button>
    </div>`}`;
}

// Which one is open is in the address.
export function MessageList({ messages, topic, schemas, republish, empty }) {
  const open = route.value.query.message ?? "";
  const idOf = (one) => `${one.partition}.${one.offset}`;
  const plainOf = (one) => (topic.partitions.length ? `${topic.name}/${one.partition}` : topic.name);
  if (!messages.length) return empty && html`<${Empty}>${empty}<//>`;
  return html`
    <ol class="messages" aria-label="Messages">
      ${messages.map((one) => {
        const id = idOf(one);
        return html`
          <li key=${id}>
            <button class="row" data-row aria-expanded=${open === id} onClick=${() => setQuery({ message: open === id ? "" : id })}>
              <span class="offset">${one.offset}</span>
              <time>${time(one.timestamp)}</time>
              <span class="key">${one.key !== null && html`<${Foreign} text=${cut(one.key, 40)} />`}</span>
              <span class="preview mono"><bdi>${preview(one, schemas)}</bdi></span>
              <span class="size faint">${bytes(one.size)}</span>
            </button>
            ${open === id &&
            html`<${MessageView} message=${one} topic=${plainOf(one)} schemas=${schemas}>
              ${may("publish", topic.name) && ((whole) => html`<button type="button" onClick=${() => republish(whole)}>Publish again…</button>`)}
            <//>`}
          </li>`;
      })}
    </ol>`;
}

function Tail({ topic, filter, schemas, republish }) {
  const { name } = topic;
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
    stream(`${path("topics", name)}/stream`, {
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
  }, [name, filter]);
  return html`
    <div class="tools">
      <span class="state ${state}" role="status">${{ live: "Live", lost: "Connection lost", failed: "Ended", waiting: "Connecting" }[state]}</span>
      <span class="faint">${count(seen.current)} received${seen.current > messages.length ? `, the last ${count(messages.length)} shown` : ""}</span>
      <button onClick=${() => setPaused(!isPaused)}>${isPaused ? "Resume" : "Pause"}</button>
    </div>
    ${error && html`<p class="wrong" role="alert">${visible(error.message)}</p>`}
    <${MessageList} messages=${messages} topic=${topic} schemas=${schemas} republish=${republish} empty="Waiting for messages. They appear here as they are published." />`;
}
