// Webhooks: groups whose messages the broker sends to a URL.

import { get, path, post, put, remove } from "../api.js";
import { age, count, many, visible } from "../format.js";
import { html, useState } from "../lib.js";
import { address } from "../router.js";
import { Table } from "../table.js";
import { Action, Asked, Badge, Confirm, Dialog, Field, Foreign, FormDialog, useAsked } from "../ui.js";
import { headersOf } from "./publish.js";

const KIND = { delivering: "good", paused: "warn", down: "bad", stopped: "bad" };

export function Webhooks() {
  const found = useAsked((signal) => get("webhooks", undefined, signal), [], { every: 5 });
  const [isCreating, setCreating] = useState(false);
  const [made, setMade] = useState(null);
  const [removing, setRemoving] = useState(null);
  const of = (row) => `${path("topics", row.topic, "groups", row.group)}/webhook`;
  const verb = (row, word) => async () => {
    const answer = await post(`${of(row)}/${word}`);
    found.again();
    return answer;
  };
  const columns = [
    { name: "url", title: "URL", value: (row) => row.url, cell: (row) => html`<span class="url" title=${visible(row.url)}><${Foreign} text=${row.url} /></span>` },
    { name: "group", title: "Group", value: (row) => `${row.topic} ${row.group}`, cell: (row) => html`<a href=${address(["topics", row.topic, "groups", row.group])}><${Foreign} text="${row.topic} / ${row.group}" /></a>` },
    { name: "condition", title: "State", value: (row) => row.condition, cell: (row) => html`<${Badge} kind=${KIND[row.condition]}>${row.condition}<//>` },
    { name: "delivered", title: "Delivered", align: "right", wide: true, value: (row) => row.delivered, cell: (row) => html`<span title="${many(row.retried, "retry", "retries")}">${count(row.delivered)}</span>` },
    { name: "dead", title: "Dead letters", align: "right", value: (row) => row.dead, cell: (row) => count(row.dead) },
    { name: "last", title: "Last answer", value: (row) => row.last_delivery_ms ?? 0, cell: (row) => html`<span class="last" title=${visible(row.last_error)}>${row.last_status ?? ""} <${Foreign} text=${row.last_error} /> <span class="faint">${row.last_delivery_ms ? age(row.last_delivery_ms / 1000) : ""}</span></span>` },
    {
      name: "actions", title: "", sticky: true,
      cell: (row) => html`<span class="actions">
        <${Action} kind="small" does=${verb(row, row.condition === "paused" ? "resume" : "pause")} done=${row.condition === "paused" ? "The webhook was resumed." : "The webhook is paused."}>${row.condition === "paused" ? "Resume" : "Pause"}<//>
        <${Action} kind="small" does=${verb(row, "test")} done=${(answer) => `The target answered: ${answer.status ?? ""} ${answer.error ?? ""}`}>Test<//>
        <button class="small danger" aria-label="Delete the webhook of ${row.topic} ${row.group}" onClick=${() => setRemoving(row)}>Delete</button></span>`,
    },
  ];
  return html`
    <header class="head"><h1>Webhooks</h1><span class="grow"></span><button class="primary" onClick=${() => setCreating(true)}>Create webhook</button></header>
    <${Asked} of=${found}>
      ${({ webhooks }) => html`<${Table} columns=${columns} rows=${webhooks.map((one) => ({ ...one, rowKey: `${one.topic}\n${one.group}` }))} search="Search webhooks" searched=${(row) => `${row.url} ${row.topic} ${row.group}`} empty="There are no webhooks yet. A webhook sends the messages of a group to a URL." />`}
    <//>
    ${isCreating && html`<${CreateWebhook} onClose=${() => setCreating(false)} onMade=${(one) => { setMade(one); found.again(); }} />`}
    ${made &&
    html`<${Dialog} title="Webhook created" onClose=${() => setMade(null)}>
      <p>The target needs this secret to check that requests come from this broker. <b>It is not shown again.</b></p>
      <p><code class="secret" tabindex="0">${made.secret}</code></p>
      <footer><button class="primary" onClick=${() => setMade(null)}>I have copied it</button></footer>
    <//>`}
    ${removing &&
    html`<${Confirm} title="Delete webhook" label="Delete" onClose=${() => setRemoving(null)} does=${async () => { await remove(of(removing)); found.again(); return "The webhook was deleted. Its group stays."; }}>
      <p>Nothing more will be sent to <${Foreign} text=${removing.url} />. The group and its progress stay.</p>
    <//>`}`;
}

function CreateWebhook({ onClose, onMade }) {
  const [said, setSaid] = useState({ topic: "", group: "", url: "", headers: "", concurrency: "4", filter: "" });
  const change = (name) => (event) => setSaid({ ...said, [name]: event.target.value });
  return html`
    <${FormDialog} title="Create webhook" label="Create" onClose=${onClose} wide disabled=${!said.topic || !said.group || !said.url}
      does=${async () => {
        const body = { url: said.url, headers: headersOf(said.headers), concurrency: Number(said.concurrency) };
        if (said.filter.trim()) body.filter = said.filter.trim();
        onMade(await put(`${path("topics", said.topic, "groups", said.group)}/webhook`, body));
        return "";
      }}>
      <div class="two">
        <${Field} label="Topic"><input value=${said.topic} onInput=${change("topic")} autocomplete="off" spellcheck=${false} autofocus /><//>
        <${Field} label="Group" hint="Created if it does not exist"><input value=${said.group} onInput=${change("group")} autocomplete="off" spellcheck=${false} /><//>
      </div>
      <${Field} label="URL"><input type="url" value=${said.url} placeholder="https://shop.example/hooks/orders" onInput=${change("url")} autocomplete="off" /><//>
      <${Field} label="Headers" hint="name: value, one per line; for example Authorization: Bearer …"><textarea rows="2" class="mono" value=${said.headers} onInput=${change("headers")}></textarea><//>
      <div class="two">
        <${Field} label="Requests at a time"><input type="number" min="1" max="256" value=${said.concurrency} onInput=${change("concurrency")} /><//>
        <${Field} label="Filter" hint="For a new group only"><input class="mono" value=${said.filter} onInput=${change("filter")} spellcheck=${false} /><//>
      </div>
    <//>`;
}
