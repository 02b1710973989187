// All topics, ten thousand of them if need be.

import { get, may, mayPublishSomewhere, put, path } from "../api.js";
import { bytes, count, short } from "../format.js";
import { html, useState } from "../lib.js";
import { address, go } from "../router.js";
import { useFigures } from "../figures.js";
import { Spark } from "../charts.js";
import { Table } from "../table.js";
import { Asked, Field, Foreign, FormDialog, useAsked } from "../ui.js";
import { OptionFields, changesOf } from "./options.js";

const COLUMNS = [
  { name: "name", title: "Topic", value: (row) => row.name, cell: (row) => html`<${Foreign} text=${row.name} />` },
  { name: "trail", title: "Last 5 min", wide: true, align: "right", hint: "messages published", value: (row) => row.trail.reduce((sum, one) => sum + one, 0), cell: (row) => html`<${Spark} values=${row.trail} />` },
  { name: "in", title: "In/s", align: "right", value: (row) => row.published, cell: (row) => short(row.published) },
  { name: "out", title: "Out/s", align: "right", value: (row) => row.delivered, cell: (row) => short(row.delivered) },
  { name: "messages", title: "Messages", align: "right", value: (row) => row.messages, cell: (row) => count(row.messages) },
  { name: "bytes", title: "Size", align: "right", value: (row) => row.bytes, cell: (row) => bytes(row.bytes) },
  { name: "lag", title: "Lag", align: "right", value: (row) => row.lag, cell: (row) => count(row.lag) },
  { name: "dead", title: "Dead letters", align: "right", value: (row) => row.deadLetters, cell: (row) => (row.deadLetters ? html`<b class="warn">${count(row.deadLetters)}</b>` : "0") },
  { name: "groups", title: "Groups", align: "right", wide: true, value: (row) => row.groups },
  { name: "partitions", title: "Partitions", align: "right", wide: true, value: (row) => row.partitions, cell: (row) => row.partitions || "–" },
];

export function Topics() {
  const found = useFigures();
  const [isCreating, setCreating] = useState(false);
  return html`
    <header class="head"><h1>Topics</h1><span class="grow"></span>
      ${mayPublishSomewhere.value && html`<button class="primary" onClick=${() => setCreating(true)}>Create topic</button>`}
    </header>
    <${Asked} of=${found}>
      ${({ topics }) => html`
        <${Table} columns=${COLUMNS} rows=${topics} search="Search topics" searched=${(row) => row.name} tall
          href=${(row) => address(["topics", row.name])} empty="There are no topics yet." />`}
    <//>
    ${isCreating && html`<${CreateTopic} onClose=${() => setCreating(false)} />`}`;
}

function CreateTopic({ onClose }) {
  const options = useAsked((signal) => get("topic-options", undefined, signal), []);
  const [name, setName] = useState("");
  const [given, setGiven] = useState({});
  const refused = name && !may("administer", name) ? "Your key may not create this topic." : null;
  return html`
    <${FormDialog} title="Create topic" label="Create" onClose=${onClose} wide disabled=${!name || refused}
      does=${async () => {
        await put(path("topics", name), changesOf(options.value.options, given));
        go(["topics", name]);
        return `Topic ${name} was created.`;
      }}>
      <${Field} label="Name" hint="Words separated by dots, such as orders.eu. Options can be left as they are." error=${refused}>
        <input value=${name} onInput=${(event) => setName(event.target.value)} autocomplete="off" spellcheck=${false} autofocus required />
      <//>
      <${Asked} of=${options}>
        ${({ options: known }) => html`<${OptionFields} options=${known} given=${given} change=${setGiven} isNew />`}
      <//>
    <//>`;
}
