// One group: where it stands, what it holds, what comes next; pause, resume, reset, delete.

import { get, may, path, post, remove } from "../api.js";
import { count, cut, duration } from "../format.js";
import { html, useEffect, useState } from "../lib.js";
import { preview } from "../decode.js";
import { address, go } from "../router.js";
import { Table } from "../table.js";
import { Action, Asked, Badge, Confirm, Empty, Facts, Fault, Field, Foreign, FormDialog, useAsked } from "../ui.js";
import { Letters } from "./letters.js";

export function GroupView({ topic, group, part }) {
  const where = path("topics", topic, "groups", group);
  const found = useAsked((signal) => get(where, undefined, signal), [where], { every: 3 });
  return html`
    <nav class="crumbs" aria-label="Where this is">
      <a href=${address(["topics"])}>Topics</a> / <a href=${address(["topics", topic])}><${Foreign} text=${topic} /></a> / <a href=${address(["topics", topic, "groups"])}>Groups</a> / <b><${Foreign} text=${group} /></b>
    </nav>
    <${Asked} of=${found}>
      ${(page) => html`<${Body} page=${page} where=${where} part=${part} again=${found.again} />`}
    <//>`;
}

function Body({ page, where, part, again }) {
  const { topic, name, stats, kind, partitions } = page;
  const [open, setOpen] = useState(null);
  const close = () => { setOpen(null); again(); };
  const mayChange = may("administer", topic);
  const isQueue = kind === "queue";
  const tabs = isQueue
    ? [["", "Status"], ...(may("consume", topic) ? [["dead-letters", `Dead letters (${count(stats.dead_letters)})`]] : [])]
    : [];
  return html`
    <header class="head">
      <h1><${Foreign} text=${name} /></h1>
      ${kind === "cursor" && html`<${Badge}>reader<//>`}
      ${stats.paused && html`<${Badge} kind="warn">paused<//>`}
      <span class="grow"></span>
      ${mayChange &&
      html`<div class="actions">
        ${isQueue && html`<${Action} does=${async () => { await post(`${where}/${stats.paused ? "resume" : "pause"}`); again(); }} done=${stats.paused ? "The group was resumed." : "The group is paused: it receives nothing until it is resumed."}>${stats.paused ? "Resume" : "Pause"}<//>
        <button onClick=${() => setOpen("reset")}>Reset</button>`}
        <button class="danger" onClick=${() => setOpen("delete")}>Delete</button>
      </div>`}
    </header>
    ${!isQueue && html`<p class="faint">A named reader: it reads the topic in order and keeps its position, without acknowledging single messages.</p>`}
    <${Facts} of=${isQueue ? factsOfQueue(stats) : factsOfReader(page)} />
    ${tabs.length > 0 && html`<div class="tabs">
      ${tabs.map(([one, title]) => html`<a key=${one} href=${address(["topics", topic, "groups", name, ...(one ? [one] : [])])} aria-current=${(part ?? "") === one ? "page" : undefined}>${title}</a>`)}
    </div>`}
    ${part === "dead-letters"
      ? html`<${Letters} topic=${topic} group=${name} total=${stats.dead_letters} again=${again} />`
      : html`<${Status} page=${page} where=${where} partitions=${partitions} />`}
    ${open === "reset" && html`<${Reset} page=${page} where=${where} onClose=${close} />`}
    ${open === "delete" &&
    html`<${Confirm} title="Delete group" name=${name} label="Delete" onClose=${() => setOpen(null)}
      does=${async () => {
        await remove(where);
        go(["topics", topic, "groups"]);
        return `Group ${name} was deleted.`;
      }}>
      <p>The group and its progress will be deleted. The messages stay. A new group of this name begins from scratch.</p>
    <//>`}`;
}

const factsOfReader = ({ stats, partitions }) => [
  ["Lag", count(stats.lag)],
  ["Position", partitions.length ? undefined : stats.position],
  ["Open readers", count(stats.members)],
  ["Oldest message", stats.oldest_age === null ? "–" : duration(stats.oldest_age)],
  ...dropsOf(stats),
];

const factsOfQueue = (stats) => [
  ["Lag", count(stats.lag)],
  ["Ready", count(stats.ready)],
  ["In flight", count(stats.in_flight)],
  ["Delayed", count(stats.delayed)],
  ["Members", count(stats.members)],
  ["Waiting consumers", count(stats.waiting)],
  ["Oldest message", stats.oldest_age === null ? "–" : duration(stats.oldest_age)],
  ["Delivered", count(stats.delivered)],
  ["Redelivered", count(stats.redelivered)],
  ["Settled", count(stats.settled)],
  ["Leases expired", count(stats.leases_expired)],
  ...dropsOf(stats),
];

const dropsOf = ({ drops }) => Object.entries(drops).map(([reason, number]) => [`Dropped: ${reason}`, count(number)]);

const PARTITIONS = [
  { name: "partition", title: "Partition", value: (row) => Number(row.partition), cell: (row) => row.partition },
  { name: "lag", title: "Lag", align: "right", value: (row) => row.stats.lag, cell: (row) => count(row.stats.lag) },
  { name: "flight", title: "In flight", align: "right", value: (row) => row.stats.in_flight, cell: (row) => count(row.stats.in_flight) },
  { name: "position", title: "Position", align: "right", value: (row) => Number(row.stats.position), cell: (row) => row.stats.position },
  { name: "members", title: "Members", align: "right", value: (row) => row.stats.members },
];

const FLIGHT = [
  { name: "offset", title: "Offset", value: (row) => Number(row.offset), cell: (row) => row.offset },
  { name: "partition", title: "Partition", value: (row) => Number(row.partition), cell: (row) => row.partition },
  { name: "holder", title: "Consumer", value: (row) => row.holder, cell: (row) => html`<${Foreign} text=${cut(row.holder, 80)} />` },
  { name: "age", title: "Held for", align: "right", value: (row) => row.age, cell: (row) => duration(row.age) },
  { name: "lease", title: "Lease left", align: "right", value: (row) => row.expires_in, cell: (row) => duration(row.expires_in) },
  { name: "tries", title: "Delivered", align: "right", value: (row) => row.delivery_count, cell: (row) => `${count(row.delivery_count)}×` },
];

function Status({ page, where, partitions }) {
  const { topic, kind } = page;
  const isQueue = kind === "queue";
  const flying = useAsked((signal) => (isQueue ? get(`${where}/in-flight`, { limit: 1000 }, signal) : { in_flight: [] }), [where], { every: 3 });
  const next = useAsked((signal) => (isQueue && may("consume", topic) ? get(`${where}/next`, { limit: 10, value_bytes: 2048 }, signal) : null), [where], { every: 5 });
  return html`
    ${partitions.length > 0 && html`<h2>Partitions</h2><${Table} id="p" columns=${PARTITIONS} rows=${partitions.map((one) => ({ ...one, rowKey: one.partition }))} label="Partitions" />`}
    ${isQueue && html`<h2>In flight</h2>
      <${Asked} of=${flying}>
        ${(found) => html`<${Table} id="f" columns=${FLIGHT} label="In flight" empty="No message is being processed."
          rows=${found.in_flight.map((one) => ({ ...one, rowKey: `${one.partition}.${one.offset}` }))} />
          ${found.more && html`<p class="faint">The first 1,000 are shown.</p>`}`}
      <//>
      ${next.value &&
      html`<h2>Next messages</h2>
        <${Fault} error=${next.error} />
        ${next.value.messages.length
          ? html`<ol class="messages" aria-label="Next messages">
              ${next.value.messages.map((one) => html`<li key=${`${one.partition}.${one.offset}`} class="row"><span class="offset">${one.offset}</span><span class="key">${one.key !== null && html`<${Foreign} text=${cut(one.key, 40)} />`}</span><span class="preview mono"><bdi>${preview(one)}</bdi></span></li>`)}
            </ol>`
          : html`<${Empty}>No message is ready for delivery.<//>`}`}`}`;
}

// --- reset

function Reset({ page, where, onClose }) {
  const [to, setTo] = useState("earliest");
  const [offset, setOffset] = useState("");
  const [when, setWhen] = useState("");
  const several = page.partitions.length > 1;
  const body =
    to === "offset" ? (offset ? { offset } : null)
    : to === "time" ? (when ? { time: new Date(when).getTime() / 1000 } : null)
    : { to };
  const text = JSON.stringify(body);
  const [preview, setPreview] = useState({ value: null, error: null });
  useEffect(() => {
    if (!body) return setPreview({ value: null, error: null });
    const controller = new AbortController();
    post(`${where}/reset/preview`, body, controller.signal)
      .then((value) => setPreview({ value, error: null }))
      .catch((error) => error.name !== "AbortError" && setPreview({ value: null, error }));
    return () => controller.abort();
  }, [text]);
  const { value } = preview;
  return html`
    <${FormDialog} title="Reset group" label="Reset" kind="danger" onClose=${onClose} disabled=${!value} wide
      does=${async () => {
        await post(`${where}/reset`, body);
        return `Group ${page.name} was reset.`;
      }}>
      <fieldset class="choices"><legend>Continue from</legend>
        ${[["earliest", "the oldest message"], ["latest", "the end (skip all messages)"], ["time", "a time"], ...(several ? [] : [["offset", "an offset"]])].map(
          ([one, said]) => html`<label key=${one}><input type="radio" name="to" value=${one} checked=${to === one} onChange=${() => setTo(one)} /> ${said}</label>`,
        )}
      </fieldset>
      ${to === "offset" && html`<${Field} label="Offset"><input inputmode="numeric" pattern="[0-9]+" value=${offset} onInput=${(event) => setOffset(event.target.value.trim())} /><//>`}
      ${to === "time" && html`<${Field} label="Time"><input type="datetime-local" step="1" value=${when} onInput=${(event) => setWhen(event.target.value)} /><//>`}
      <${Fault} error=${preview.error} />
      ${value &&
      html`<section class="preview-box" aria-label="Preview" aria-live="polite" tabindex="0">
        <p>${value.again ? html`Up to <b>${count(value.again)}</b> messages that were already processed would be delivered again. ` : "No processed message would be delivered again. "}
          ${value.skipped ? html`Up to <b>${count(value.skipped)}</b> messages that were not processed would be skipped. ` : ""}
          ${value.in_flight ? html`<b>${count(value.in_flight)}</b> messages in flight would be released.` : ""}</p>
        <table><thead><tr><th scope="col">Partition</th><th scope="col" class="right">Position</th><th scope="col" class="right">New position</th><th scope="col" class="right">Lag</th><th scope="col" class="right">New lag</th></tr></thead>
          <tbody>${value.partitions.map((one) => html`<tr key=${one.partition}><td>${one.partition}</td><td class="right">${one.position}</td><td class="right">${one.to}</td><td class="right">${count(one.lag)}</td><td class="right">${count(one.lag_after)}</td></tr>`)}</tbody></table>
      </section>`}
    <//>`;
}

