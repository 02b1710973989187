// Dead letters: what a group gave up on, why, and the way back; also with another content.

import { get, may, path, post } from "../api.js";
import { count, cut, many, time } from "../format.js";
import { html, useEffect, useMemo, useRef, useState } from "../lib.js";
import { preview } from "../decode.js";
import { address, route, setQuery } from "../router.js";
import { useFigures } from "../figures.js";
import { Asked, Confirm, Dialog, Empty, Facts, Fault, Field, Foreign, FormDialog, Progress, Table, tell, useAsked } from "../ui.js";
import { MessageView } from "./message.js";
import { FilterInput } from "./messages.js";
import { headersOf, linesOf } from "./publish.js";

const LOT = 200;
const LOADED_MAX = 1000;

const COLUMNS = [
  { name: "name", title: "Group", value: (row) => row.name, cell: (row) => html`<${Foreign} text=${row.name} />` },
  { name: "topic", title: "Topic", value: (row) => row.topic, cell: (row) => html`<a href=${address(["topics", row.topic])}><${Foreign} text=${row.topic} /></a>` },
  { name: "dead", title: "Dead letters", align: "right", value: (row) => row.deadLetters, cell: (row) => html`<b>${count(row.deadLetters)}</b>` },
  { name: "lag", title: "Lag", align: "right", value: (row) => row.lag, cell: (row) => count(row.lag) },
];

// All groups that have some.
export function DeadLetters() {
  const found = useFigures();
  return html`
    <header class="head"><h1>Dead letters</h1></header>
    <${Asked} of=${found}>
      ${({ groups, topics }) => {
        const rows = groups.filter((one) => one.deadLetters && may("consume", one.topic));
        const own = new Set(rows.map((one) => `dead.${one.topic}.${one.name}`));
        const shared = topics.filter((one) => one.deadLetters && !own.has(one.name) && !rows.some((row) => row.topic === one.name));
        return html`
          <${Table} columns=${COLUMNS} rows=${rows} search="Search groups" searched=${(row) => `${row.name} ${row.topic}`} tall
            href=${(row) => address(["topics", row.topic, "groups", row.name, "dead-letters"])} empty="No group has dead letters in a topic of its own." />
          ${shared.length > 0 &&
          html`<p class="faint">Topics that several groups share for their dead letters; the groups are listed at each group's page:
            ${shared.map((one) => html` <a key=${one.name} href=${address(["topics", one.name])}><${Foreign} text=${one.name} /></a> (${count(one.deadLetters)})`)}</p>`}`;
      }}
    <//>`;
}

// Those of one group.
export function Letters({ topic, group, total, again }) {
  const where = `${path("topics", topic, "groups", group)}/dead-letters`;
  const { reason = "", letter: openId = "" } = route.value.query;
  const [limit, setLimit] = useState(LOT);
  const [chosen, setChosen] = useState(new Set());
  const [open, setOpen] = useState(null);
  const found = useAsked((signal) => loaded(where, limit, signal), [where, limit]);
  const reload = () => {
    setChosen(new Set());
    found.again();
    again();
  };
  return html`
    <${Asked} of=${found}>
      ${({ letters, hasMore }) => {
        const reasons = countedBy(letters);
        const shown = letters.filter((one) => !reason || one.reason === reason).toReversed();
        const current = shown.find((one) => one.id === openId);
        const mayChange = may("administer", topic);
        const ids = [...chosen];
        const toggle = (id) => {
          const next = new Set(chosen);
          if (!next.delete(id)) next.add(id);
          setChosen(next);
        };
        const isAll = shown.length > 0 && shown.every((one) => chosen.has(one.id));
        return html`
          <div class="tools">
            <label>Reason <select value=${reason} onChange=${(event) => setQuery({ reason: event.target.value })}>
              <option value="" selected=${!reason}>any (${count(letters.length)}${hasMore ? "+" : ""})</option>
              ${reasons.map(([text, number]) => html`<option key=${text} value=${text} selected=${text === reason}>${cut(text, 60)} (${count(number)})</option>`)}
            </select></label>
            <button onClick=${reload}>Reload</button>
            <span class="grow"></span>
            ${mayChange &&
            html`<button class="primary" disabled=${!ids.length} onClick=${() => setOpen("redrive")}>Redrive ${count(ids.length)}</button>
              <button onClick=${() => setOpen("filter")}>Redrive by filter…</button>
              <button disabled=${!letters.length} onClick=${() => setOpen("all")}>Redrive all…</button>
              <button class="danger" disabled=${!ids.length} onClick=${() => setOpen("discard")}>Discard ${count(ids.length)}…</button>`}
          </div>
          ${!shown.length && html`<${Empty}>There are no dead letters${reason ? " with this reason" : ""}.<//>`}
          ${shown.length > 0 &&
          html`<div class="split ${current ? "open" : ""}">
            <div class="letters">
              ${mayChange && html`<label class="all"><input type="checkbox" checked=${isAll} onChange=${() => setChosen(isAll ? new Set() : new Set(shown.map((one) => one.id)))} /> Choose all that are shown</label>`}
              <ul aria-label="Dead letters">
                ${shown.map(
                  (one) => html`
                    <li key=${one.id} class=${one.id === openId ? "current" : ""}>
                      ${mayChange && html`<input type="checkbox" aria-label="Choose dead letter ${one.id}" checked=${chosen.has(one.id)} onChange=${() => toggle(one.id)} />`}
                      <button class="row" aria-pressed=${one.id === openId} onClick=${() => setQuery({ letter: one.id === openId ? "" : one.id })}>
                        <span class="why"><${Foreign} text=${cut(one.reason || "no reason given", 120)} /></span>
                        <time>${time(one.time, { millis: false })}</time>
                        <span class="preview mono"><bdi>${preview(one.message)}</bdi></span>
                      </button>
                    </li>`,
                )}
              </ul>
              ${hasMore && (limit < LOADED_MAX ? html`<button onClick=${() => setLimit(limit + LOT)}>Load more</button>` : html`<p class="faint">The oldest ${count(limit)} are shown. Redrive or discard some to see the next.</p>`)}
            </div>
            ${current && html`<${Letter} key=${current.id} letter=${current} where=${where} mayChange=${mayChange} reload=${() => { setQuery({ letter: "" }); reload(); }} />`}
          </div>`}
          ${open === "redrive" && html`<${InLots} title="Redrive" verb="redrive" where=${where} ids=${ids} onClose=${() => { setOpen(null); reload(); }} />`}
          ${open === "all" && html`<${Confirm} title="Redrive all" label="Redrive all" onClose=${() => setOpen(null)} does=${() => { setTimeout(() => setOpen("all-now")); return ""; }}>
            <p>All ${count(total)} dead letters of this group go back to it, also those that are not loaded here.</p><//>`}
          ${open === "all-now" && html`<${InLots} title="Redrive all" verb="redrive" where=${where} total=${total} onClose=${() => { setOpen(null); reload(); }} />`}
          ${open === "filter" && html`<${ByFilter} where=${where} letters=${letters} onClose=${() => { setOpen(null); reload(); }} />`}
          ${open === "discard" &&
          html`<${Confirm} title="Discard dead letters" label="Discard" onClose=${() => { setOpen(null); reload(); }}
            does=${async () => {
              const { count: gone } = await post(`${where}/discard`, { ids });
              return gone === ids.length ? `${many(gone, "dead letter")} discarded.` : `${many(gone, "dead letter")} discarded; the others were not there any more.`;
            }}>
            <p>${many(ids.length, "dead letter")} will be gone for good.</p>
          <//>`}`;
      }}
    <//>`;
}

async function loaded(where, limit, signal) {
  const letters = [];
  let after;
  while (letters.length < limit) {
    const found = await get(where, { limit: Math.min(LOT, limit - letters.length), after, value_bytes: 2048 }, signal);
    letters.push(...found.dead_letters);
    after = found.after;
    if (after === null) break;
  }
  return { letters, hasMore: after !== null && after !== undefined };
}

function countedBy(letters) {
  const found = new Map();
  for (const { reason } of letters) found.set(reason, (found.get(reason) ?? 0) + 1);
  return [...found].sort((a, b) => b[1] - a[1]);
}

// --- one

function Letter({ letter, where, mayChange, reload }) {
  const [isEditing, setEditing] = useState(false);
  const whole = useAsked(async (signal) => {
    if (!letter.message.truncated) return letter;
    const { dead_letters: found } = await get(where, { limit: 1, after: letter.id === "0" ? undefined : String(BigInt(letter.id) - 1n), value_bytes: 1048576 }, signal);
    return found[0]?.id === letter.id ? found[0] : letter;
  }, [letter.id]);
  const one = whole.value ?? letter;
  const redrive = async () => {
    const { count: gone } = await post(`${where}/redrive`, { ids: [letter.id] });
    if (gone) tell("The dead letter went back to its group.");
    else tell("This dead letter is not there any more: somebody else has redriven or discarded it.", "bad");
    reload();
  };
  return html`
    <article class="card letter" aria-label="Dead letter ${letter.id}">
      <h2>Why it died</h2>
      <p class="reason"><${Foreign} text=${one.reason || "no reason given"} /></p>
      <${Facts} of=${[
        ["Tried", many(one.delivery_count, "time")],
        ["Given up", time(one.time)],
        ["Was at", `${one.topic}${one.partition === "0" ? "" : `/${one.partition}`}, offset ${one.offset}`],
        ["Id", one.id],
      ]} />
      ${mayChange && html`<div class="tools">
        <button class="primary" onClick=${() => redrive().catch((error) => tell(error.message, "bad"))}>Redrive</button>
        <button onClick=${() => setEditing(true)} disabled=${one.message.truncated}>Edit and redrive…</button>
      </div>`}
      <h2>The message</h2>
      <${MessageView} key=${one.message.truncated} message=${{ ...one.message, truncated: false }} topic=${one.topic} />
      ${isEditing && html`<${Edit} letter=${one} where=${where} onClose=${() => setEditing(false)} reload=${reload} />`}
    </article>`;
}

function Edit({ letter, where, onClose, reload }) {
  const { message } = letter;
  const isBinary = message.encoding === "base64";
  const [said, setSaid] = useState({ value: message.value, key: message.key ?? "", headers: linesOf(message.headers), type: message.content_type ?? "" });
  const change = (name) => (event) => setSaid({ ...said, [name]: event.target.value });
  const save = async () => {
    const body = { [isBinary ? "base64" : "text"]: said.value };
    if (message.key_encoding !== "base64") body.key = said.key || null;
    if (!Object.keys(message.binary_headers).length) body.headers = headersOf(said.headers);
    body.content_type = said.type || null;
    await post(`${where}/${encodeURIComponent(letter.id)}/redrive`, body);
    setTimeout(reload);
    return "The edited message went back to its group.";
  };
  return html`
    <${FormDialog} title="Edit and redrive" label="Put back" onClose=${onClose} does=${save} wide>
      <p class="faint">The dead letter goes, and its group gets this in its place, in one step.</p>
      <${Field} label=${isBinary ? "Value (base64)" : "Value"}><textarea rows="10" class="mono" spellcheck=${false} value=${said.value} onInput=${change("value")} autofocus></textarea><//>
      <div class="two">
        <${Field} label="Key" hint=${message.key_encoding === "base64" ? "It is binary, and stays." : undefined}><input value=${said.key} disabled=${message.key_encoding === "base64"} onInput=${change("key")} spellcheck=${false} autocomplete="off" /><//>
        <${Field} label="Content type"><input value=${said.type} onInput=${change("type")} spellcheck=${false} autocomplete="off" /><//>
      </div>
      <${Field} label="Headers" hint=${Object.keys(message.binary_headers).length ? "Some are binary: all of them stay." : "name: value, one in each line"}>
        <textarea rows="3" class="mono" spellcheck=${false} disabled=${Object.keys(message.binary_headers).length > 0} value=${said.headers} onInput=${change("headers")}></textarea>
      <//>
    <//>`;
}

// --- many

// By ids, or all: a lot at a time, so that it can be watched and stopped.
function InLots({ title, verb, where, ids, total, onClose }) {
  const [done, setDone] = useState(0);
  const [state, setState] = useState("working");
  const [error, setError] = useState(null);
  const stopped = useRef(false);
  useEffect(() => {
    (async () => {
      let carried = 0;
      const send = async (lot) => {
        carried += (await post(`${where}/${verb}`, { ids: lot })).count;
        setDone(carried);
      };
      try {
        if (ids) for (let at = 0; at < ids.length && !stopped.current; at += LOT) await send(ids.slice(at, at + LOT));
        else
          for (let last = null; !stopped.current; ) {
            const { dead_letters: found, after } = await get(where, { limit: LOT, value_bytes: 0, after: last });
            if (found.length) await send(found.map((one) => one.id));
            last = after;
            if (after === null || !found.length) break;
          }
        setState(stopped.current ? "stopped" : "done");
      } catch (fault) {
        setError(fault);
        setState("failed");
      }
    })();
    return () => {
      stopped.current = true;
    };
  }, []);
  const wanted = ids ? ids.length : total;
  const missed = ids && state === "done" ? ids.length - done : 0;
  return html`
    <${Dialog} title=${title} onClose=${onClose}>
      <${Progress} done=${done} of=${wanted} what="Put back" />
      <${Fault} error=${error} />
      ${missed > 0 && html`<p class="wrong" role="alert">${many(missed, "dead letter")} ${missed === 1 ? "was" : "were"} not there any more: somebody else has redriven or discarded ${missed === 1 ? "it" : "them"}.</p>`}
      <footer>
        ${state === "working" ? html`<button onClick=${() => { stopped.current = true; }}>Stop</button>` : html`<button class="primary" onClick=${onClose}>Close</button>`}
      </footer>
    <//>`;
}

function ByFilter({ where, letters, onClose }) {
  const [text, setText] = useState("");
  const [error, setError] = useState(null);
  const samples = useMemo(() => letters.map((one) => one.message), [letters]);
  return html`
    <${FormDialog} title="Redrive by filter" label="Redrive" onClose=${onClose} disabled=${!text.trim()}
      does=${async () => {
        try {
          const { count: gone } = await post(`${where}/redrive`, { filter: text.trim() });
          return `${many(gone, "dead letter")} went back.`;
        } catch (fault) {
          setError(fault);
          return false;
        }
      }}>
      <p>Every dead letter of this group that the expression is true for goes back, also those that are not loaded here.</p>
      <${FilterInput} text=${text} setText=${setText} error=${error} samples=${samples} />
    <//>`;
}
