// Numbers, times and foreign text as people read them. Pure.

const whole = new Intl.NumberFormat("en-US");

export function count(number) {
  return number === null || number === undefined ? "–" : whole.format(number);
}

export function short(number) {
  if (number === null || number === undefined) return "–";
  const size = Math.abs(number);
  for (const [unit, letter] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]])
    if (size >= unit * 10 || (size >= unit && unit > 1e3)) return `${trimmed(number / unit)}${letter}`;
  return size < 10 && !Number.isInteger(number) ? number.toFixed(1) : whole.format(Math.round(number));
}

function trimmed(number) {
  return number >= 100 ? String(Math.round(number)) : String(Math.round(number * 10) / 10);
}

export function bytes(number) {
  if (number === null || number === undefined) return "–";
  let left = number;
  for (const unit of ["B", "KiB", "MiB", "GiB", "TiB"]) {
    if (Math.abs(left) < 1024 || unit === "TiB") return `${unit === "B" ? Math.round(left) : trimmed(left)} ${unit}`;
    left /= 1024;
  }
}

export function duration(seconds) {
  if (seconds === null || seconds === undefined) return "–";
  if (seconds < 0) return `-${duration(-seconds)}`;
  if (seconds < 0.001) return seconds === 0 ? "0 s" : `${Math.round(seconds * 1e6)} µs`;
  if (seconds < 1) return `${trimmed(seconds * 1000)} ms`;
  if (seconds < 60) return `${trimmed(seconds)} s`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${Math.floor(seconds % 60)} s`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
  return `${Math.floor(seconds / 86400)} d ${Math.floor((seconds % 86400) / 3600)} h`;
}

const pad = (number, digits = 2) => String(number).padStart(digits, "0");

export function time(seconds, { millis = true } = {}) {
  if (!seconds) return "–";
  const at = new Date(seconds * 1000);
  const day = `${at.getFullYear()}-${pad(at.getMonth() + 1)}-${pad(at.getDate())}`;
  const clock = `${pad(at.getHours())}:${pad(at.getMinutes())}:${pad(at.getSeconds())}`;
  return `${day} ${clock}${millis ? `.${pad(at.getMilliseconds(), 3)}` : ""}`;
}

export function age(seconds, now = Date.now() / 1000) {
  return seconds ? `${duration(Math.max(0, now - seconds))} ago` : "never";
}

// For <input type="datetime-local">, in local time.
export function localTime(seconds) {
  return time(seconds, { millis: false }).replace(" ", "T");
}

// Characters that nobody sees, or that turn the text around them, are shown by their number.
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff\ufff9-\ufffb]|[\ud800-\udbff](?![\udc00-\udfff])|(?<![\ud800-\udbff])[\udc00-\udfff]/gu;

export function visible(text) {
  return String(text).replace(
    HIDDEN,
    (one) => `⟨U+${one.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}⟩`,
  );
}

export function cut(text, characters) {
  return text.length > characters ? `${text.slice(0, characters)}…` : text;
}

export function many(number, one, more = `${one}s`) {
  return `${count(number)} ${number === 1 ? one : more}`;
}
