"use strict";
// Pages read and work without this script: it adds the visitor's own time, confirmations over the page, and keys.

const own = new Intl.DateTimeFormat(undefined, {dateStyle: "medium", timeStyle: "medium"});

/** Says times in the visitor's own zone: as a title, beside the UTC time where there is room. */
function localize(root) {
  for (const time of root.querySelectorAll("time[datetime]")) {
    const local = own.format(new Date(time.dateTime)), isAgo = time.title;
    time.title = `${time.title || time.textContent} UTC, ${local} here`.replace("Z UTC", " UTC");
    if (time.closest(".facts") && !isAgo) {
      const beside = document.createElement("span");
      beside.className = "quiet";
      beside.textContent = ` (${local} here)`;
      if (!time.nextElementSibling?.classList.contains("quiet")) time.after(beside);
    }
  }
}

/** Lets long names break where their words end, and puts a sign beside each shortened id that copies all of it. */
function fit(root) {
  for (const name of root.querySelectorAll("a:not(:has(*)), th.name, h1 .name, h1:not(:has(*))")) {
    const parts = name.textContent.split(/(?<=[._])/);
    name.replaceChildren(...parts.flatMap((part, at) => (at ? [document.createElement("wbr"), part] : [part])));
  }
  if (!navigator.clipboard) return;
  for (const id of root.querySelectorAll("[data-copy]")) {
    const sign = document.createElement("button");
    sign.type = "button";
    sign.className = "copy";
    sign.title = "Copy";
    sign.setAttribute("aria-label", `Copy ${id.dataset.copy}`);
    id.after(sign);
  }
}

document.addEventListener("click", (event) => {
  const sign = event.target.closest("button.copy");
  if (sign) {
    navigator.clipboard.writeText(sign.previousElementSibling.dataset.copy);
    sign.classList.add("done");
  }
});

// The search suggests tables; one that is chosen is shown.
const search = document.getElementById("find");
let typing = 0;
search?.addEventListener("input", () => {
  const choices = document.getElementById("found");
  const chosen = [...choices.options].find((one) => one.value === search.value);
  if (chosen) return location.assign(chosen.dataset.to);
  clearTimeout(typing);
  typing = setTimeout(async () => {
    const answer = await fetch(`/find?text=${encodeURIComponent(search.value)}`).catch(() => null);
    if (answer?.ok) choices.innerHTML = await answer.text();
  }, 150);
});

/** Opens the confirmation that a link leads to over the page; without it the link leads to a page of its own. */
async function confirmOver(link) {
  const answer = await fetch(link.href, {headers: {Accept: "text/html"}});
  const page = new DOMParser().parseFromString(await answer.text(), "text/html");
  const section = page.getElementById("confirm");
  if (!answer.ok || answer.redirected || !section) {
    location.assign(link.href);
    return;
  }
  const dialog = document.createElement("dialog");
  const heading = document.createElement("h2");
  heading.textContent = page.querySelector("h1").textContent;
  heading.id = "dialog-title";
  dialog.setAttribute("aria-labelledby", heading.id);
  dialog.append(heading, document.adoptNode(section));
  document.body.append(dialog);
  dialog.addEventListener("close", () => { dialog.remove(); link.focus(); });
  dialog.addEventListener("click", (event) => {
    if (!event.target.closest("[data-close]")) return;
    event.preventDefault();
    dialog.close();
  });
  localize(dialog);
  dialog.showModal();
}

document.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-confirm]");
  if (!link || event.button || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  confirmOver(link).catch(() => location.assign(link.href));
});

// A second click on a button that has been pressed sends nothing: the first one's answer is on its way.
document.addEventListener("submit", (event) => {
  if (event.target.method !== "post") return;
  if (event.target.dataset.sent) event.preventDefault();
  event.target.dataset.sent = "yes";
});
addEventListener("pageshow", () => {
  for (const form of document.querySelectorAll("form[data-sent]")) delete form.dataset.sent;
});

document.addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target.closest("input, select, textarea, [contenteditable]")) return;
  const field = document.querySelector("main input[type=search]") || document.getElementById("find");
  if (!field) return;
  event.preventDefault();
  field.focus();
  field.select();
});

document.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) event.target.closest(".sql textarea")?.form.requestSubmit();
});

localize(document);
fit(document);
