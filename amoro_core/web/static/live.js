"use strict";
// An open page follows what it shows: hints say that something has changed, the page fetches its content again.

const live = document.querySelector("#live[data-topics]");
let since = live?.dataset.since;
let hinted = 0;
let stream = null;
let planned = 0;
let retry = 0;

const parts = (node) => [...node.childNodes].filter((one) => one.nodeType !== Node.TEXT_NODE || one.nodeValue.trim());

/** Makes the old content equal to the new, and keeps what the visitor has opened, typed or focused. */
function morph(old, made) {
  if (old.isEqualNode(made)) return;
  if (old.nodeType !== made.nodeType || old.nodeName !== made.nodeName || old.namespaceURI !== made.namespaceURI) {
    old.replaceWith(made);
    return;
  }
  if (old.nodeType !== Node.ELEMENT_NODE) {
    old.nodeValue = made.nodeValue;
    return;
  }
  if (old.nodeName === "FORM" && old.method === "get") return;
  for (const {name, value} of made.attributes) if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  for (const {name} of [...old.attributes]) {
    if (!made.hasAttribute(name) && !(name === "open" && old.nodeName === "DETAILS")) old.removeAttribute(name);
  }
  const before = parts(old);
  const after = parts(made);
  after.forEach((node, at) => (at < before.length ? morph(before[at], node) : old.append(node)));
  before.slice(after.length).forEach((node) => node.remove());
}

function tell(lost) {
  let banner = document.getElementById("lost");
  if (!lost) return banner?.remove();
  if (banner) return;
  banner = document.createElement("p");
  banner.id = "lost";
  banner.className = "notice wait";
  banner.setAttribute("role", "alert");
  banner.textContent = `No connection to the coordinator since ${new Date().toLocaleTimeString()}: ` +
    "the page shows what was known then, and goes on by itself.";
  document.getElementById("main").prepend(banner);
}

async function refresh() {
  const headers = {"Amoro-Fragment": "1", ...(Number.isFinite(hinted) && {"Amoro-Hint": hinted})};
  planned = 0;
  const address = new URL(location.href);
  address.searchParams.delete("notice");
  let answer;
  try {
    answer = await fetch(address, {headers, redirect: "error"});
  } catch {
    return again();
  }
  if (answer.status === 404) return location.assign(address);
  if (!answer.ok) return again();
  const made = live.cloneNode(false);
  made.innerHTML = await answer.text();
  localize(made);
  morph(live, made);
  tell(false);
  if (!planned) hinted = 0;
}

/** What could not be fetched is asked for again, until it is there. */
function again() {
  tell(true);
  hinted = Infinity;
  planned ||= setTimeout(refresh, 5000);
}

/** Has the content fetched that has all up to the revision of a hint, which pages that are told at once share. */
function plan(revision = Infinity) {
  hinted = Math.max(hinted, revision);
  planned ||= setTimeout(refresh, Math.random() * 300);
}

function follow() {
  clearTimeout(retry);
  if (document.hidden || stream) return;
  stream = new EventSource(`/events/stream?topics=${encodeURIComponent(live.dataset.topics)}&since=${since}`);
  stream.onopen = () => { if (document.getElementById("lost")) plan(); };
  stream.onmessage = (hint) => {
    since = hint.lastEventId || since;
    plan(JSON.parse(hint.data).revision);
  };
  stream.onerror = () => {
    if (stream?.readyState !== EventSource.CLOSED) return tell(true);
    // Refused, as when too many are open: the page asks now and then.
    leave();
    retry = setTimeout(() => { plan(); follow(); }, 10000);
  };
}

function leave() {
  stream?.close();
  stream = null;
}

// A browser has six connections to a host: a tab that nobody sees gives its own back.
if (live) {
  document.addEventListener("visibilitychange", () => (document.hidden ? leave() : follow()));
  addEventListener("pagehide", leave);
  addEventListener("pageshow", follow);
}
