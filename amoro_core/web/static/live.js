"use strict";
// An open page fetches its content again every few seconds; an entity tag saves sending what has not changed.

const EVERY_MS = 3000;
const live = document.querySelector("#live[data-live]");
let tag = "";
let timer = 0;

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

/** Shows the present content; whether there was an answer. */
async function fetched() {
  const address = new URL(location.href);
  address.searchParams.delete("notice");
  const headers = {"Amoro-Fragment": "1", ...(tag && {"If-None-Match": tag})};
  const answer = await fetch(address, {headers, redirect: "error"});
  if (answer.status === 304) return true;
  if (answer.status === 404) location.assign(address);
  if (!answer.ok) return false;
  const made = live.cloneNode(false);
  made.innerHTML = await answer.text();
  localize(made);
  fit(made);
  morph(live, made);
  tag = answer.headers.get("ETag") || "";
  return true;
}

async function refresh() {
  clearTimeout(timer);
  tell(!await fetched().catch(() => false));
  plan(EVERY_MS);
}

/** A tab that nobody sees asks for nothing. */
function plan(inMs) {
  clearTimeout(timer);
  if (!document.hidden) timer = setTimeout(refresh, inMs);
}

if (live) {
  document.addEventListener("visibilitychange", () => plan(0));
  addEventListener("pagehide", () => clearTimeout(timer));
  addEventListener("pageshow", () => plan(EVERY_MS));
}
