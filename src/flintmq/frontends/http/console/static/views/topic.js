// One topic: its messages, its groups, its options.

import { get, may, patch, path, post, remove } from "../api.js";
import { bytes, count, many, short, visible } from "../format.js";
import { html, useState } from "../lib.js";
import { address, go } from "../router.js";
import { Table } from "../table.js";
import { Asked, Badge, Confirm, Facts, Field, Foreign, FormDialog, useAsked } from "../ui.js";
import { GroupView } from "./group.js";
import { Messages } from "./messages.js";
import { OptionFields, changesOf } from "./options.js";
import { Publish } from "./publish.js";

export function Topic({ words }) {
  const [name, tab = "messages", group, part] = words;
  const found = useAsked((signal) => get(path("topics", name), undefined, signal), [name], { every: 5 });
  if (tab === "groups" && group) return html`<${GroupView} topic=${name} group=${group} part=${part} />`;
  return html`
    <nav class="crumbs" aria-label="Where this is"><a href=${address(["topics"])}>Topics</a> / <b><${Foreign} text=${name} /></b></nav>
    <${Asked} of=${found}>
      ${(topic) => html`<${Body} topic=${topic} tab=${tab} again=${found.again} />`}
    <//>`;
}

function Body({ topic, tab, again }) {
  const { name, stats, options, partitions } = topic;
  const tabs = [["messages", "Messages"], ["groups", `Groups (${topic.groups.length})`], ["details", "Details"]].filter(
    ([one]) => ({ messages: may("consume", name), groups: may("consume", name) || may("administer", name), details: true })[one],
  );
  const shown = tabs.some(([one]) => one === tab) ? tab : tabs[0][0];
  return html`
    <header class="head">
      <h1><${Foreign} text=${name} /></h1>
      ${options.storage === "memory" && html`<${Badge}>in memory<//>`}
      ${options.partitions && html`<${Badge}>${options.partitions} partitions<//>`}
      ${options.compact && html`<${Badge}>compacted by ${options.compact}<//>`}
      ${stats.damaged > 0 && html`<${Badge} kind="bad">${count(stats.damaged)} damaged<//>`}
      <span class="grow"></span>
      <${Actions} topic=${topic} again=${again} />
    </header>
    <${Facts} of=${[
      ["Messages", count(stats.message_count)],
      ["Size", bytes(stats.byte_count)],
      ["In", `${short(stats.rates.published ?? 0)}/s`],
      ["Out", `${short(stats.rates.delivered ?? 0)}/s`],
      ["Offsets", partitions.length ? undefined : `${stats.first_offset} – ${stats.next_offset}`],
      ["Readers", count(stats.subscribers)],
    ]} />
    <div class="tabs">
      ${tabs.map(([one, title]) => html`<a key=${one} href=${address(["topics", name, one])} aria-current=${one === shown ? "page" : undefined}>${title}</a>`)}
    </div>
    ${shown === "messages" && html`<${Messages} topic=${topic} />`}
    ${shown === "groups" && html`<${GroupsOfTopic} topic=${topic} />`}
    ${shown === "details" && html`<${Details} topic=${topic} again=${again} />`}`;
}

function Actions({ topic, again }) {
  const [open, setOpen] = useState(null);
  const close = () => setOpen(null);
  const { name } = topic;
  const mayChange = may("administer", name);
  return html`
    <div class="actions">
      ${may("publish", name) && html`<button onClick=${() => setOpen("publish")}>Publish</button>`}
      ${mayChange && html`<button onClick=${() => setOpen("configure")}>Configure</button>
        <button onClick=${() => setOpen("purge")}>Purge</button>
        <button class="danger" onClick=${() => setOpen("delete")}>Delete</button>`}
    </div>
    ${open === "publish" && html`<${Publish} topic=${topic} onClose=${close} />`}
    ${open === "configure" && html`<${Configure} topic=${topic} onClose=${() => { close(); again(); }} />`}
    ${open === "purge" && html`<${Purge} topic=${topic} onClose=${() => { close(); again(); }} />`}
    ${open === "delete" &&
    html`<${Confirm} title="Delete topic" name=${name} label="Delete" onClose=${close}
      does=${async () => {
        await remove(path("topics", name));
        go(["topics"]);
        return `Topic ${name} was deleted.`;
      }}>
      <p>The topic, its ${many(topic.stats.message_count, "message")} and its ${many(topic.groups.length, "group")} will be deleted. This cannot be undone.</p>
    <//>`}`;
}

function Purge({ topic, onClose }) {
  const [before, setBefore] = useState("");
  const [typedName, setTyped] = useState("");
  return html`
    <${FormDialog} title="Purge topic" label="Purge" kind="danger" onClose=${onClose} disabled=${typedName !== topic.name && typedName !== visible(topic.name)}
      does=${async () => {
        const { purged } = await post(`${path("topics", topic.name)}/purge`, before.trim() ? { before: before.trim() } : {});
        return `${many(purged, "message")} of ${topic.name} deleted.`;
      }}>
      <p>Messages will be deleted. The topic, its groups and its offsets stay. This cannot be undone.</p>
      ${!topic.partitions.length &&
      html`<${Field} label="Before offset" hint="Empty: all ${count(topic.stats.message_count)} messages">
        <input inputmode="numeric" value=${before} onInput=${(event) => setBefore(event.target.value)} />
      <//>`}
      <${Field} label=${html`Type <b><${Foreign} text=${topic.name} /></b> to confirm`}>
        <input value=${typedName} onInput=${(event) => setTyped(event.target.value)} autocomplete="off" spellcheck=${false} />
      <//>
    <//>`;
}

function Configure({ topic, onClose }) {
  const options = useAsked((signal) => get("topic-options", undefined, signal), []);
  const [given, setGiven] = useState({});
  return html`
    <${FormDialog} title="Configure topic" label="Save" onClose=${onClose} wide
      does=${async () => {
        const changes = changesOf(options.value.options, given, topic.options);
        if (!Object.keys(changes).length) return "Nothing was changed.";
        await patch(path("topics", topic.name), changes);
        return `Changed: ${Object.keys(changes).join(", ")}.`;
      }}>
      <${Asked} of=${options}>
        ${({ options: known }) => html`<${OptionFields} options=${known} given=${given} change=${setGiven} now=${topic.options} />`}
      <//>
    <//>`;
}

const GROUPS = [
  { name: "name", title: "Group", value: (row) => row.name, cell: (row) => html`<${Foreign} text=${row.name} />` },
  { name: "kind", title: "Kind", value: (row) => row.kind, cell: (row) => (row.kind === "queue" ? `queue, ${row.order}` : "reader") },
  { name: "filter", title: "Filter", value: (row) => row.filter ?? "", cell: (row) => row.filter && html`<code><${Foreign} text=${row.filter} /></code>` },
  { name: "lag", title: "Lag", align: "right", value: (row) => row.lag, cell: (row) => count(row.lag) },
  { name: "paused", title: "State", value: (row) => (row.paused ? "paused" : ""), cell: (row) => row.paused && html`<${Badge} kind="warn">paused<//>` },
];

const GroupsOfTopic = ({ topic }) => html`
  <${Table} columns=${GROUPS} id="g" label="Groups" empty="No group reads this topic yet."
    rows=${topic.groups.filter((one) => one.name !== "flint.redrive").map((one) => ({ ...one, rowKey: one.name, lag: topic.stats.lag[one.name] ?? 0 }))}
    href=${(row) => address(["topics", topic.name, "groups", row.name])} />`;

const PARTITIONS = [
  { name: "partition", title: "Partition", value: (row) => Number(row.partition), cell: (row) => row.partition },
  { name: "messages", title: "Messages", align: "right", value: (row) => row.stats.message_count, cell: (row) => count(row.stats.message_count) },
  { name: "bytes", title: "Size", align: "right", value: (row) => row.stats.byte_count, cell: (row) => bytes(row.stats.byte_count) },
  { name: "first", title: "First offset", align: "right", value: (row) => Number(row.stats.first_offset), cell: (row) => row.stats.first_offset },
  { name: "next", title: "Next offset", align: "right", value: (row) => Number(row.stats.next_offset), cell: (row) => row.stats.next_offset },
];

function Details({ topic }) {
  const options = useAsked((signal) => get("topic-options", undefined, signal), []);
  const drops = Object.entries(topic.stats.drops).filter(([, number]) => number);
  return html`
    ${topic.partitions.length > 0 && html`<h2>Partitions</h2><${Table} id="p" columns=${PARTITIONS} rows=${topic.partitions.map((one) => ({ ...one, rowKey: one.partition }))} label="Partitions" />`}
    <h2>Figures</h2>
    <${Facts} of=${[
      ["Topic id", topic.id],
      ["Published since start", count(topic.stats.published)],
      ["Delivered since start", count(topic.stats.delivered)],
      ["Publishers waiting", count(topic.stats.publishers_waiting)],
      ...drops.map(([reason, number]) => [`Dropped: ${reason}`, count(number)]),
    ]} />
    <h2>Options</h2>
    <${Asked} of=${options}>
      ${({ options: known }) => html`
        <${Table} id="o" label="Options" wrap rows=${known.map((one) => ({ ...one, rowKey: one.name }))} columns=${[
          { name: "name", title: "Option", value: (row) => row.name, cell: (row) => html`<code>${row.name}</code>` },
          { name: "value", title: "Value", value: (row) => String(topic.options[row.name] ?? "none"), cell: (row) => html`<${Foreign} text=${String(topic.options[row.name] ?? "none")} />` },
          { name: "meaning", title: "Meaning", value: (row) => row.meaning, cell: (row) => html`<span class="faint">${row.meaning}</span>` },
        ]} />`}
    <//>`;
}

