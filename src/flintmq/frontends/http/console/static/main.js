// The page: who is there, where one is, and the keyboard.

import { enter, leave, me, mayAll, signIn } from "./api.js";
import { html, render, useEffect, useRef, useState } from "./lib.js";
import { connection } from "./live.js";
import { address, go, route } from "./router.js";
import { cut, visible } from "./format.js";
import { Dialog, Fault, Field, Foreign, Notices } from "./ui.js";
import { Cluster } from "./views/cluster.js";
import { Connections } from "./views/connections.js";
import { DeadLetters } from "./views/letters.js";
import { Events } from "./views/events.js";
import { Groups } from "./views/groups.js";
import { Keys } from "./views/keys.js";
import { Overview } from "./views/overview.js";
import { Pipelines } from "./views/pipelines.js";
import { Settings } from "./views/settings.js";
import { Topic } from "./views/topic.js";
import { Topics } from "./views/topics.js";
import { Webhooks } from "./views/webhooks.js";

// name, title, its letter behind `g`, what draws it, and who may see it
const VIEWS = [
  ["overview", "Overview", "o", Overview, () => mayAll.value],
  ["topics", "Topics", "t", Topics, () => true],
  ["groups", "Groups", "g", Groups, () => true],
  ["dead-letters", "Dead letters", "d", DeadLetters, () => true],
  ["pipelines", "Pipelines", "p", Pipelines, () => true],
  ["connections", "Connections", "c", Connections, () => mayAll.value],
  ["webhooks", "Webhooks", "w", Webhooks, () => mayAll.value],
  ["keys", "Keys", "k", Keys, () => mayAll.value],
  ["cluster", "Cluster", "n", Cluster, () => mayAll.value && me.value.is_cluster],
  ["events", "Events", "e", Events, () => mayAll.value],
  ["settings", "Settings", "s", Settings, () => mayAll.value],
];
const offered = () => VIEWS.filter(([, , , , may]) => may());

function App() {
  const [error, setError] = useState(null);
  const [isHelping, setHelping] = useState(false);
  const start = () => {
    setError(null);
    enter(null).catch((fault) => fault.status !== 401 && setError(fault));
  };
  useEffect(start, []);
  useKeys(() => setHelping(true));
  if (signIn.value !== null) return html`<${SignIn} /><${Notices} />`;
  if (error) return html`<main class="signin"><${Fault} error=${error} again=${start} /></main>`;
  if (!me.value) return html`<main class="signin"><p class="empty" role="status">Loading…</p></main>`;
  return html`<${Shell} help=${() => setHelping(true)} /><${Notices} />
    ${isHelping && html`<${Help} onClose=${() => setHelping(false)} />`}`;
}

function Shell({ help }) {
  const { words } = route.value;
  const views = offered();
  const [name, title, , Listing] = views.find(([one]) => one === words[0]) ?? [];
  const View = name === "topics" && words.length > 1 ? Topic : Listing;
  useEffect(() => {
    document.title = `${words.length > 1 ? visible(cut(words[1], 100)) : (title ?? "Not found")} – FlintMQ`;
    document.querySelector("nav [aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" });
    if (words[0] === "overview" && !View) go(["topics"]);
  }, [words.join("/")]);
  const main = useRef(null);
  return html`
    <a class="skip" href="#main" onClick=${(event) => { event.preventDefault(); main.current.focus(); }}>Skip to the content</a>
    <nav aria-label="Views">
      <a class="brand" href=${address([views[0][0]])}><${Mark} />FlintMQ</a>
      <ul>
        ${views.map(
          ([one, text]) => html`<li key=${one}><a href=${address([one])} aria-current=${one === name ? "page" : undefined}>${text}</a></li>`,
        )}
      </ul>
      <footer>
        ${mayAll.value && html`<span class="state ${connection.value}" role="status">${{ live: "Live", lost: "Connection lost", failed: "Not live", waiting: "Connecting" }[connection.value]}</span>`}
        ${me.value.name && html`<span class="who" title="the key in use"><${Foreign} text=${me.value.name} /></span>`}
        ${me.value.asks_for_keys && html`<button class="plain" onClick=${leave}>Sign out</button>`}
        <button class="plain" onClick=${help} aria-keyshortcuts="?">Keyboard <kbd>?</kbd></button>
        <small class="faint">${me.value.version}</small>
      </footer>
    </nav>
    <main id="main" tabindex="-1" ref=${main}>
      ${View
        ? html`<${View} key=${words.join("/")} words=${words.slice(1)} />`
        : html`<h1>Not found</h1><p>This view does not exist, or your key may not see it.</p>`}
    </main>`;
}

const Mark = () => html`<svg viewBox="0 0 32 32" aria-hidden="true"><rect width="32" height="32" rx="7" /><path d="M18.5 4 8 18.5h6.2L12.6 28 24 12.8h-6.8z" /></svg>`;

function SignIn() {
  const [text, setText] = useState("");
  const [error, setError] = useState(null);
  const [isBusy, setBusy] = useState(false);
  const submit = async (event) => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    try {
      await enter(text.trim());
    } catch (fault) {
      setError(fault);
      setBusy(false);
    }
  };
  return html`
    <main class="signin">
      <form class="card" onSubmit=${submit}>
        <h1><${Mark} />FlintMQ</h1>
        <${Field} label="API key" hint="Kept in the memory of this tab only. Create one with: flintmq key add">
          <input type="password" autocomplete="off" spellcheck=${false} autofocus value=${text} onInput=${(event) => setText(event.target.value)} />
        <//>
        <${Fault} error=${error ?? (signIn.value ? { kind: "NotAuthenticated", message: signIn.value } : null)} />
        <button type="submit" class="primary" disabled=${isBusy || !text.trim()}>Sign in</button>
      </form>
    </main>`;
}

// --- the keyboard

function useKeys(help) {
  useEffect(() => {
    let isGoing = -Infinity; // when `g` was pressed
    const pressed = (event) => {
      const isTyping = event.target.closest?.("input, textarea, select, [contenteditable]");
      if (isTyping && event.key === "Escape") event.target.blur();
      if (event.key === "ArrowDown" && event.target.matches?.("[data-search][type=search]")) toRow(1, event);
      if (isTyping || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
      if (event.timeStamp - isGoing < 1500) {
        isGoing = -Infinity;
        const view = offered().find(([, , letter]) => letter === event.key);
        if (view) {
          event.preventDefault();
          go([view[0]]);
        }
      } else if (event.key === "g") isGoing = event.timeStamp;
      else if (event.key === "/") {
        const search = document.querySelector("[data-search]");
        if (search) {
          event.preventDefault();
          search.focus();
          search.select?.();
        }
      } else if (event.key === "j" || event.key === "k") toRow(event.key === "j" ? 1 : -1, event);
      else if (event.key === "?") help();
    };
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  }, []);
}

// To the next row of the list, or the one before: of the list that has the focus, else of the first.
function toRow(step, event) {
  const rows = [...document.querySelectorAll("main [data-row]")];
  const at = rows.indexOf(document.activeElement);
  const row = rows[at < 0 ? 0 : at + step];
  if (!row) return;
  event.preventDefault();
  row.focus();
  row.scrollIntoView({ block: "nearest" });
}

const Help = ({ onClose }) => html`
  <${Dialog} title="Keyboard" onClose=${onClose}>
    <dl class="keys">
      <div><dt><kbd>/</kbd></dt><dd>Search, or the filter of messages</dd></div>
      <div><dt><kbd>j</kbd> <kbd>k</kbd></dt><dd>Next row, previous row; Enter opens it</dd></div>
      <div><dt><kbd>Esc</kbd></dt><dd>Leave a field or close a dialog</dd></div>
      <div><dt><kbd>?</kbd></dt><dd>Show this list</dd></div>
      ${offered().map(([name, title, letter]) => html`<div key=${name}><dt><kbd>g</kbd> <kbd>${letter}</kbd></dt><dd>${title}</dd></div>`)}
    </dl>
  <//>`;

render(html`<${App} />`, document.getElementById("app"));
