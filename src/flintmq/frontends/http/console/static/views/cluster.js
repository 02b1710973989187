// The nodes of the cluster: who leads, who is behind; transfer, add, remove.

import { get, post } from "../api.js";
import { count } from "../format.js";
import { html, useState } from "../lib.js";
import { Table } from "../table.js";
import { Asked, Badge, Confirm, Facts, Field, Foreign, FormDialog, useAsked } from "../ui.js";

const problemOf = (row) => [row.disk === "ok" ? "" : `disk ${row.disk}`, row.why].filter(Boolean).join("; ");
const KIND = { leader: "good", follower: "plain", learner: "warn", down: "bad" };

export function Cluster() {
  const found = useAsked((signal) => get("cluster", undefined, signal), [], { every: 3 });
  const checks = useAsked((signal) => get("cluster/doctor", undefined, signal), [], { every: 10 });
  const [open, setOpen] = useState(null);
  const close = () => { setOpen(null); found.again(); checks.again(); };
  const columns = [
    { name: "name", title: "Node", value: (row) => row.name, cell: (row) => html`<${Foreign} text=${row.name} />` },
    { name: "role", title: "Role", value: (row) => row.role, cell: (row) => html`<${Badge} kind=${KIND[row.role]}>${row.role}<//>` },
    { name: "address", title: "Client address", value: (row) => row.address, cell: (row) => html`<${Foreign} text=${row.address || "–"} />` },
    { name: "peer", title: "Peer address", value: (row) => row.peer, cell: (row) => html`<${Foreign} text=${row.peer || "–"} />`, wide: true },
    { name: "behind", title: "Behind", hint: "log entries it has not stored yet", align: "right", value: (row) => row.behind ?? -1, cell: (row) => count(row.behind) },
    { name: "trip", title: "Round trip", align: "right", wide: true, value: (row) => row.round_trip_ms ?? -1, cell: (row) => (row.round_trip_ms === null ? "–" : `${count(row.round_trip_ms)} ms`) },
    { name: "committed", title: "Committed", align: "right", value: (row) => row.committed ?? -1, cell: (row) => count(row.committed), wide: true },
    { name: "term", title: "Term", align: "right", value: (row) => row.term ?? -1, cell: (row) => count(row.term) },
    { name: "why", title: "Problem", value: problemOf, cell: (row) => html`<span class="wrong"><${Foreign} text=${problemOf(row)} /></span>` },
    {
      name: "actions", title: "", sticky: true,
      cell: (row) => html`<span class="actions">
        ${row.role === "follower" && html`<button class="small" aria-label="Make leader: ${row.name}" onClick=${() => setOpen({ verb: "transfer", node: row })}>Make leader</button>`}
        <button class="small danger" aria-label="Remove ${row.name}" onClick=${() => setOpen({ verb: "remove", node: row })}>Remove</button></span>`,
    },
  ];
  return html`
    <header class="head"><h1>Cluster</h1><span class="grow"></span><button onClick=${() => setOpen({ verb: "add" })}>Add node</button></header>
    <${Asked} of=${found}>
      ${(status) => html`
        <${Facts} of=${[
          ["Cluster", html`<${Foreign} text=${status.cluster} />`],
          ["Leader", status.leader ?? html`<${Badge} kind="bad">none<//>`],
          ["Majority", status.has_quorum ? "reachable" : html`<${Badge} kind="bad">not reachable<//>`],
          ...status.groups.map((one) => [`Group ${one.id}`, `${one.members.length} copies, leader ${one.leader ?? "none"}, term ${one.term}`]),
        ]} />
        <${Table} columns=${columns} rows=${status.nodes.map((one) => ({ ...one, rowKey: one.id }))} label="Nodes" />`}
    <//>
    ${checks.value && html`<${Checks} findings=${checks.value.findings} />`}
    ${open?.verb === "add" && html`<${Add} onClose=${close} />`}
    ${open?.verb === "transfer" &&
    html`<${Confirm} title="Transfer leadership" label="Transfer" onClose=${close} does=${async () => { await post("cluster/transfer", { name: open.node.name }); return `${open.node.name} was asked to take over. The list shows when it leads.`; }}>
      <p><${Foreign} text=${open.node.name} /> becomes the leader. Clients switch over by themselves.</p>
    <//>`}
    ${open?.verb === "remove" &&
    html`<${Confirm} title="Remove node" name=${open.node.name} label="Remove" onClose=${close} does=${async () => { await post("cluster/remove", { name: open.node.name }); return `${open.node.name} was removed from the cluster.`; }}>
      <p>The node no longer keeps a copy. It can only come back with an empty data directory.</p>
    <//>`}`;
}

// What `flintmq cluster doctor` says.
function Checks({ findings }) {
  const wrong = findings.filter((one) => one.level !== "ok");
  return html`
    <section class="checks" aria-label="Checks">
      <h2>Checks</h2>
      ${wrong.length === 0 && html`<p><${Badge} kind="good">ok<//> No problems found.</p>`}
      ${wrong.map((one) => html`<p key=${one.text}><${Badge} kind=${one.level === "error" ? "bad" : "warn"}>${one.level}<//> <${Foreign} text=${one.text} /> <span class="faint"><${Foreign} text=${one.remedy} /></span></p>`)}
    </section>`;
}

function Add({ onClose }) {
  const [name, setName] = useState("");
  const [peer, setPeer] = useState("");
  return html`
    <${FormDialog} title="Add node" label="Add" onClose=${onClose} disabled=${!name || !peer}
      does=${async () => { await post("cluster/add", { name, peer }); return `${name} may join now: start it with flintmq serve.`; }}>
      <${Field} label="Name"><input value=${name} onInput=${(event) => setName(event.target.value)} autocomplete="off" autofocus /><//>
      <${Field} label="Peer address" hint="host:port at which the other nodes reach it"><input value=${peer} onInput=${(event) => setPeer(event.target.value)} autocomplete="off" /><//>
    <//>`;
}
