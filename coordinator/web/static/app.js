// The page is whole without this file: it says how long ago things were, swaps parts of the page
// instead of all of it, and keeps the page live. Nothing here makes HTML of what the log says.
"use strict";
(() => {
  const RENEW_MS = 3000 + Math.random() * 4000;
  const STEPS = [[3600, "h"], [60, "min"], [1, "s"]];

  // Times are UTC; where the browser's clock shows another one, it stands beside them.
  const HERE = new Intl.DateTimeFormat("sv-SE", { dateStyle: "short", timeStyle: "medium" });
  function addHere(utc, then) {
    if (!new Date(then).getTimezoneOffset()) return utc;
    const [day, clock] = HERE.format(then).split(" ");
    return `${utc} · ${utc.startsWith(day) ? "" : `${day} `}${clock} here`;
  }
  function sayAge(element) {
    const then = Date.parse(element.dateTime);
    if (Number.isNaN(then)) return;
    element.title ||= addHere(element.textContent, then);
    const s = Math.max(0, Math.round((Date.now() - then) / 1000));
    if (element.closest("[data-fixed]") || s >= 86400) {
      if (element.textContent !== element.title) element.textContent = element.title;
      return;
    }
    const [size, unit] = STEPS.find(([least]) => s >= least) || [1, "s"];
    const text = s < 1 ? "now" : `${Math.floor(s / size)} ${unit} ago`;
    if (element.textContent !== text) element.textContent = text;
  }
  const sayAges = (root = document) => root.querySelectorAll("time[datetime]").forEach(sayAge);

  // Links and forms that change a part of the page: the same addresses, fetched by htmx.
  function wire(root = document) {
    root.querySelectorAll("a[data-swap]").forEach((a) => {
      const part = a.closest("section[id]");
      if (!part) return;
      a.setAttribute("hx-get", a.getAttribute("href"));
      select(a, `#${part.id}`);
    });
    root.querySelectorAll("form[data-swap]").forEach((form) => {
      form.setAttribute("hx-get", form.getAttribute("action"));
      form.setAttribute("hx-trigger", `${form.dataset.on || "input delay:250ms, change"}, submit`);
      form.setAttribute("hx-sync", "this:replace");
      select(form, form.dataset.swap || "#list");
    });
  }
  // Each part asks for itself: of requests of one element, only the last that waits is kept.
  const fetchPart = (part, address) =>
    htmx.ajax("GET", address, { source: part, target: part, select: `#${part.id}`, swap: "outerHTML" });
  // What takes long to read comes after the rest.
  function load(root = document) {
    root.querySelectorAll("section[data-load]").forEach((part) => {
      const address = part.dataset.load;
      part.removeAttribute("data-load");
      fetchPart(part, address);
    });
  }
  // Pictures of the past are redrawn after an epoch, but not all the time.
  let renewing = null;
  function renew() {
    renewing ||= setTimeout(() => {
      renewing = null;
      document.querySelectorAll("section[data-src]").forEach((part) => {
        fetchPart(part, part.dataset.src);
      });
    }, RENEW_MS);
  }
  const sayTime = (slider) => {
    const output = slider.form?.querySelector("output");
    const utc = `${new Date(+slider.value).toISOString().slice(0, 19).replace("T", " ")} UTC`;
    if (output) output.textContent = addHere(utc, +slider.value);
  };
  document.addEventListener("input", (event) => {
    if (event.target.type === "range") sayTime(event.target);
  });
  function select(element, target) {
    element.removeAttribute("data-swap");
    element.setAttribute("hx-target", target);
    element.setAttribute("hx-select", target);
    element.setAttribute("hx-push-url", "true");
    htmx.process(element);
  }

  // Live: the server sends parts of this page; a hidden tab lets go of its connection.
  const SILENT_MS = 40000; // it says at least every 15 s that it is there
  const AGAIN_MS = 5000;
  const sign = () => document.getElementById("live");
  let source = null;
  let address = "";
  let heardMs = 0;
  let lost = null; // since when the page is not live
  function say(text, bad) {
    sign().hidden = false;
    sign().className = bad ? "live off" : "live";
    if (sign().textContent !== text) sign().textContent = text;
  }
  function sayLive() {
    lost = null;
    say("live");
  }
  function sayLost(why) {
    lost ||= new Date().toLocaleTimeString();
    say(`not live since ${lost}: ${why}`, true);
  }
  function letGo() {
    source?.close();
    source = null;
    address = "";
  }
  // An event stream that is refused does not say why; the same address, asked once more, does.
  async function ask(wanted) {
    const cancel = new AbortController();
    try {
      const answer = await fetch(wanted, { signal: cancel.signal });
      if (!answer.ok && wanted === address) sayLost((await answer.text()).trim());
    } catch {
      // the server does not answer: the page says so already
    } finally {
      cancel.abort();
    }
  }
  function follow() {
    const wanted = document.querySelector("[data-live]")?.dataset.live || "";
    if (document.hidden || wanted !== address) letGo();
    if (document.hidden || source) return;
    if (!wanted) {
      lost = null;
      sign().hidden = true;
      return;
    }
    address = wanted;
    heardMs = Date.now();
    const mine = new EventSource(wanted);
    source = mine;
    const on = (name, act) => mine.addEventListener(name, (event) => {
      heardMs = Date.now();
      if (mine === source) act(event);
    });
    const again = () => setTimeout(() => { if (mine === source) { letGo(); follow(); } }, AGAIN_MS);
    on("open", sayLive);
    on("here", () => {});
    on("trouble", (event) => (event.data ? sayLost(event.data) : sayLive()));
    on("part", take);
    on("gone", (event) => {
      mine.close();
      sayLost(event.data);
      again(); // it may be recreated
    });
    on("error", () => {
      if (!lost) sayLost("trying again");
      if (mine.readyState !== EventSource.CLOSED) return;
      ask(wanted);
      again();
    });
  }
  // A connection may end without a word, as while the machine slept.
  function check() {
    if (!source || source.readyState === EventSource.CLOSED || Date.now() - heardMs < SILENT_MS) return;
    sayLost("trying again");
    letGo();
    follow();
  }
  function take(event) {
    const at = event.data.indexOf("\n");
    const part = document.getElementById(event.data.slice(0, at));
    if (!part || (part.id === "when" && part.contains(document.activeElement))) return;
    const [x, y] = [part.querySelector(".wide")?.scrollLeft || 0, window.scrollY];
    const focused = nameFocus(part);
    htmx.swap(part, event.data.slice(at + 1), { swapStyle: "outerHTML" });
    const redrawn = document.getElementById(part.id);
    const wide = redrawn?.querySelector(".wide");
    if (wide) wide.scrollLeft = x;
    window.scrollTo(window.scrollX, y);
    restoreFocus(redrawn, focused);
    if (part.id === "now" && part.dataset.epoch !== redrawn?.dataset.epoch) renew();
  }

  // Who uses the keyboard stays where they are when a part is redrawn.
  const nameLink = (a) => [a.getAttribute("href"), a.textContent.replace(/[▲▼]/g, "").trim()];
  function nameFocus(part) {
    const at = document.activeElement;
    if (!at || at.id || !part.contains(at)) return null;
    return at.matches("a[href]") ? nameLink(at) : at.matches(".wide") ? [] : null;
  }
  function restoreFocus(part, focused) {
    if (!part || !focused) return;
    const links = [...part.querySelectorAll("a[href]")];
    const [href, text] = focused;
    const found = href
      ? links.find((a) => a.getAttribute("href") === href) || links.find((a) => nameLink(a)[1] === text)
      : part.querySelector(".wide");
    found?.focus({ preventScroll: true });
  }

  document.addEventListener("DOMContentLoaded", () => {
    wire();
    load();
    sayAges();
    setInterval(() => {
      sayAges();
      check();
    }, 1000);
    if (document.querySelector("[data-live]")) follow();
  });
  document.addEventListener("visibilitychange", follow);
  const held = new Map(); // what had the focus in each part that is being swapped
  document.addEventListener("htmx:beforeSwap", (event) => {
    held.set(event.detail.target.id, nameFocus(event.detail.target));
  });
  // What is refused is shown as a page; a part that comes by itself says why it does not.
  document.addEventListener("htmx:responseError", (event) => {
    const { elt, pathInfo, xhr } = event.detail;
    if (elt.closest("a, form")) {
      window.location.assign(pathInfo.finalRequestPath);
      return;
    }
    const refusal = new DOMParser().parseFromString(xhr.responseText, "text/html").querySelector("main p");
    const note = event.detail.target.querySelector(".refused") || document.createElement("p");
    note.className = "refused";
    note.textContent = refusal?.textContent || `${xhr.status} ${xhr.statusText}`;
    event.detail.target.append(note);
  });
  document.addEventListener("htmx:sendError", () => sayLost("the server of this page does not answer"));
  document.addEventListener("htmx:afterSettle", (event) => {
    if (document.activeElement === document.body) restoreFocus(event.target, held.get(event.target.id));
    held.delete(event.target.id);
    wire(event.target.parentNode || document);
    load(event.target.parentNode || document);
    sayAges(event.target.parentNode || document);
    follow();
  });
})();
