// The parts that views are made of.

import { count, cut, time, visible } from "./format.js";
import { html, signal, useEffect, useLayoutEffect, useMemo, useRef, useState } from "./lib.js";

// --- text of others: shown, never run, never turning the text around it

const FOREIGN_MAX = 4000;
export const Foreign = ({ text, mono = false }) => html`<bdi class=${mono ? "foreign mono" : "foreign"}>${visible(cut(String(text), FOREIGN_MAX))}</bdi>`;

export const Badge = ({ kind = "plain", children }) => html`<span class="badge ${kind}">${children}</span>`;

export const When = ({ at }) =>
  at ? html`<time dateTime=${new Date(at * 1000).toISOString()}>${time(at)}</time>` : html`<span class="faint">–</span>`;

export const Empty = ({ children }) => html`<p class="empty">${children}</p>`;

export const Facts = ({ of }) => html`
  <dl class="facts">
    ${of.filter(([, value]) => value !== undefined).map(
      ([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`,
    )}
  </dl>`;

// --- what is asked of the broker

// Asks now, and again every so many seconds while the page is seen. `again()` asks at once.
export function useAsked(ask, needs, { every } = {}) {
  const [state, setState] = useState({ value: null, error: null, isAsking: true });
  const [turn, setTurn] = useState(0);
  useEffect(() => {
    const controller = new AbortController();
    let timer;
    const run = async () => {
      let seconds = typeof every === "number" ? every : null;
      try {
        const value = await ask(controller.signal);
        if (controller.signal.aborted) return;
        setState({ value, error: null, isAsking: false });
        if (typeof every === "function") seconds = every(value);
      } catch (error) {
        if (controller.signal.aborted) return;
        setState((before) => ({ value: before.value, error, isAsking: false }));
        if (typeof every === "function") seconds = 5;
      }
      if (seconds) timer = setTimeout(later, seconds * 1000);
    };
    const later = () => {
      if (document.visibilityState === "visible") run();
      else timer = setTimeout(later, 1000);
    };
    setState((before) => ({ ...before, isAsking: true }));
    run();
    return () => {
      controller.abort();
      clearTimeout(timer);
    };
  }, [...needs, turn]);
  return { ...state, again: () => setTurn((before) => before + 1) };
}

export const Fault = ({ error, again }) =>
  error &&
  html`<div class="fault" role="alert">
    <p><b>${error.kind ?? "Error"}</b>: <${Foreign} text=${error.message} /></p>
    ${again && html`<button onClick=${again}>Try again</button>`}
  </div>`;

export const Asked = ({ of, children }) => html`
  <${Fault} error=${of.error} again=${of.again} />
  ${of.value ? children(of.value) : of.isAsking && html`<p class="empty" role="status">Loading…</p>`}`;

// --- notices

const notices = signal([]);
let noticeNumber = 0;

export function tell(text, kind = "good") {
  const number = ++noticeNumber;
  notices.value = [...notices.value.slice(-3), { number, text, kind }];
  if (kind === "good") setTimeout(() => dismiss(number), 6000);
}

function dismiss(number) {
  notices.value = notices.value.filter((one) => one.number !== number);
}

export const Notices = () => html`
  <div class="notices" role="status" aria-live="polite">
    ${notices.value.map(
      (one) => html`<div key=${one.number} class="notice ${one.kind}">
        <${Foreign} text=${one.text} />
        <button class="plain" aria-label="Dismiss" onClick=${() => dismiss(one.number)}>×</button>
      </div>`,
    )}
  </div>`;

// --- actions

// A button that does something at the broker, and says what came of it.
export function Action({ does, children, kind = "", done, disabled, title }) {
  const [isBusy, setBusy] = useState(false);
  const run = async () => {
    setBusy(true);
    try {
      const result = await does();
      const text = typeof done === "function" ? done(result) : done;
      if (text) tell(text);
    } catch (error) {
      tell(error.message, "bad");
    } finally {
      setBusy(false);
    }
  };
  return html`<button type="button" class=${kind} disabled=${isBusy || disabled} title=${title} onClick=${run}>${children}</button>`;
}

// --- dialogs

// keeps: a press beside it does not close it, so that nothing typed is lost.
export function Dialog({ title, onClose, children, wide = false, keeps = false }) {
  const element = useRef(null);
  useLayoutEffect(() => {
    const before = document.activeElement;
    element.current.showModal();
    return () => before?.focus?.();
  }, []);
  return html`
    <dialog ref=${element} class=${wide ? "wide" : ""} aria-label=${title}
      onCancel=${(event) => { event.preventDefault(); onClose(); }}
      onClick=${(event) => !keeps && event.target === element.current && onClose()}>
      <div class="dialog">
        <header><h2>${title}</h2><button type="button" class="plain" aria-label="Close this dialog" onClick=${onClose}>×</button></header>
        ${children}
      </div>
    </dialog>`;
}

// A form in a dialog: `does` carries it out; what goes wrong is shown in place.
export function FormDialog({ title, onClose, does, label, kind = "primary", children, wide, disabled }) {
  const [error, setError] = useState(null);
  const [isBusy, setBusy] = useState(false);
  const submit = async (event) => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    try {
      const text = await does();
      if (text) tell(text);
      if (text !== false) onClose();
    } catch (fault) {
      setError(fault);
    } finally {
      setBusy(false);
    }
  };
  return html`
    <${Dialog} title=${title} onClose=${onClose} wide=${wide} keeps>
      <form onSubmit=${submit}>
        ${children}
        <${Fault} error=${error} />
        <footer>
          <button type="button" onClick=${onClose}>Cancel</button>
          <button type="submit" class=${kind} disabled=${isBusy || disabled}>${label}</button>
        </footer>
      </form>
    <//>`;
}

// Something that cannot be taken back: asks, for the name if there is one.
export function Confirm({ title, name, does, label, onClose, children }) {
  const [typed, setTyped] = useState("");
  return html`
    <${FormDialog} title=${title} onClose=${onClose} does=${does} label=${label} kind="danger" disabled=${name !== undefined && typed !== name && typed !== visible(name)}>
      ${children}
      ${name !== undefined &&
      html`<${Field} label=${html`Type <b><${Foreign} text=${name} /></b> to confirm`}>
        <input value=${typed} onInput=${(event) => setTyped(event.target.value)} autocomplete="off" spellcheck=${false} autofocus />
      <//>`}
    <//>`;
}

let fieldNumber = 0;

export function Field({ label, hint, error, children }) {
  const id = useMemo(() => `field-${++fieldNumber}`, []);
  if (children?.props) {
    children.props.id = id;
    if (hint || error) children.props["aria-describedby"] = `${id}-hint`;
    if (error) children.props["aria-invalid"] = "true";
  }
  return html`
    <div class="field">
      <label for=${id}>${label}</label>
      ${children}
      ${(hint || error) && html`<small id="${id}-hint" class=${error ? "wrong" : "faint"}>${error ?? hint}</small>`}
    </div>`;
}

export const Progress = ({ done, of, what }) => html`
  <div class="progress" role="status">
    <progress value=${of ? done : undefined} max=${of || 1} aria-label=${what}></progress>
    <span>${what}: ${count(done)}${of ? ` of ${count(of)}` : ""}</span>
  </div>`;

