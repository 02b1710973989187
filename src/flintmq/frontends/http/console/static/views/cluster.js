// The nodes of the cluster: who leads, who is behind; transfer, add, remove.

import { get, post } from "../api.js";
import { count } from "../format.js";
import { html, useState } from "../lib.js";
import { Asked, Badge, Confirm, Facts, Field, Foreign, FormDialog, Table, useAsked } from "../ui.js";

const KIND = { leader: "good", follower: "plain", learner: "warn", down: "bad" };

export function Cluster() {
  const found = useAsked((signal) => get("cluster", undefined, signal), [], { every: 3 });
  const [open, setOpen] = useState(null);
  const close = () => { setOpen(null); found.again(); };
  const columns = [
    { name: "name", title: "Node", value: (row) => row.name, cell: (row) => html`<${Foreign} text=${row.name} />` },
    { name: "role", title: "Role", value: (row) => row.role, cell: (row) => html`<${Badge} kind=${KIND[row.role]}>${row.role}<//>` },
    { name: "address", title: "Clients", value: (row) => row.address, cell: (row) => html`<${Foreign} text=${row.address || "–"} />` },
    { name: "peer", title: "Nodes", value: (row) => row.peer, cell: (row) => html`<${Foreign} text=${row.peer || "–"} />`, wide: true },
    { name: "behind", title: "Behind", align: "right", value: (row) => row.behind ?? -1, cell: (row) => count(row.behind) },
    { name: "committed", title: "Committed", align: "right", value: (row) => row.committed ?? -1, cell: (row) => count(row.committed), wide: true },
    { name: "term", title: "Term", align: "right", value: (row) => row.term ?? -1, cell: (row) => count(row.term) },
    { name: "why", title: "", sort: false, cell: (row) => html`<span class="wrong"><${Foreign} text=${row.why} /></span>` },
    {
      name: "actions", title: "", sort: false,
      cell: (row) => html`<span class="actions">
        ${row.role === "follower" && html`<button class="small" aria-label="Have ${row.name} lead" onClick=${() => setOpen({ verb: "transfer", node: row })}>Have it lead</button>`}
        <button class="small danger" aria-label="Remove ${row.name}" onClick=${() => setOpen({ verb: "remove", node: row })}>Remove</button></span>`,
    },
  ];
  return html`
    <header class="head"><h1>Cluster</h1><span class="grow"></span><button onClick=${() => setOpen({ verb: "add" })}>Add node</button></header>
    <${Asked} of=${found}>
      ${(status) => html`
        <${Facts} of=${[
          ["Cluster", html`<${Foreign} text=${status.cluster} />`],
          ["Leader", status.leader ?? html`<${Badge} kind="bad">nobody<//>`],
          ["Majority", status.has_quorum ? "there" : html`<${Badge} kind="bad">missing<//>`],
          ...status.groups.map((one) => [`Group ${one.id}`, `${one.members.length} copies, term ${one.term}, led by ${one.leader ?? "nobody"}`]),
        ]} />
        <${Table} columns=${columns} rows=${status.nodes.map((one) => ({ ...one, rowKey: one.id }))} label="Nodes" />`}
    <//>
    ${open?.verb === "add" && html`<${Add} onClose=${close} />`}
    ${open?.verb === "transfer" &&
    html`<${Confirm} title="Transfer leadership" label="Transfer" onClose=${close} does=${async () => { await post("cluster/transfer", { name: open.node.name }); return `${open.node.name} leads.`; }}>
      <p><${Foreign} text=${open.node.name} /> leads from now on. Clients follow by themselves.</p>
    <//>`}
    ${open?.verb === "remove" &&
    html`<${Confirm} title="Remove node" name=${open.node.name} label="Remove" onClose=${close} does=${async () => { await post("cluster/remove", { name: open.node.name }); return `${open.node.name} is no longer a node of the cluster.`; }}>
      <p>The node keeps no copy any more. To come back it needs an empty directory.</p>
    <//>`}`;
}

function Add({ onClose }) {
  const [name, setName] = useState("");
  const [peer, setPeer] = useState("");
  return html`
    <${FormDialog} title="Add node" label="Keep a place" onClose=${onClose} disabled=${!name || !peer}
      does=${async () => { await post("cluster/add", { name, peer }); return `There is a place for ${name}: start it with flintmq serve.`; }}>
      <${Field} label="Name"><input value=${name} onInput=${(event) => setName(event.target.value)} autocomplete="off" autofocus /><//>
      <${Field} label="Where other nodes reach it" hint="host:port"><input value=${peer} onInput=${(event) => setPeer(event.target.value)} autocomplete="off" /><//>
    <//>`;
}
