// Views by address: #/topics/orders/messages?filter=... Every view can be sent to a colleague.

import { signal } from "./lib.js";

export const route = signal(parse(location.hash));

function parse(hash) {
  const [path, query = ""] = hash.replace(/^#\/?/, "").split("?");
  let words;
  try {
    words = path.split("/").filter(Boolean).map(decodeURIComponent);
  } catch {
    words = [];
  }
  return { words: words.length ? words : ["overview"], query: Object.fromEntries(new URLSearchParams(query)) };
}

export function address(words, query = {}) {
  const given = Object.entries(query).filter(([, value]) => value !== undefined && value !== null && value !== "");
  const text = new URLSearchParams(given).toString();
  return `#/${words.map(encodeURIComponent).join("/")}${text ? `?${text}` : ""}`;
}

export function go(words, query) {
  location.hash = address(words, query);
}

// Change the query of this view, without a new entry in the history.
export function setQuery(changes) {
  const { words, query } = route.value;
  history.replaceState(null, "", address(words, { ...query, ...changes }));
  route.value = parse(location.hash);
}

addEventListener("hashchange", () => {
  route.value = parse(location.hash);
});
