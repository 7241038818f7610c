// The page is whole without this file: it says how long ago things were, swaps parts of the page
// instead of all of it, and keeps the page live. Nothing here makes HTML of what the log says.
"use strict";
(() => {
  const RENEW_MS = 3000 + Math.random() * 4000;
  const STEPS = [[3600, "h"], [60, "min"], [1, "s"]];

  function sayAge(element) {
    const then = Date.parse(element.dateTime);
    if (Number.isNaN(then)) return;
    element.title ||= element.textContent;
    if (element.closest("[data-fixed]")) return;
    const s = Math.max(0, Math.round((Date.now() - then) / 1000));
    if (s >= 86400) return;
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
  // What takes long to read comes after the rest.
  function load(root = document) {
    root.querySelectorAll("section[data-load]").forEach((part) => {
      const address = part.dataset.load;
      part.removeAttribute("data-load");
      htmx.ajax("GET", address, { target: part, select: `#${part.id}`, swap: "outerHTML" });
    });
  }
  // What is drawn of the past is drawn anew after an epoch, but not all the time.
  let renewing = null;
  function renew() {
    renewing ||= setTimeout(() => {
      renewing = null;
      document.querySelectorAll("section[data-src]").forEach((part) => {
        htmx.ajax("GET", part.dataset.src, { target: part, select: `#${part.id}`, swap: "outerHTML" });
      });
    }, RENEW_MS);
  }
  const sayTime = (slider) => {
    const output = slider.form?.querySelector("output");
    if (output) output.textContent = `${new Date(+slider.value).toISOString().slice(0, 19).replace("T", " ")} UTC`;
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
  const sign = () => document.getElementById("live");
  let source = null;
  let address = "";
  function say(text, lost) {
    sign().hidden = false;
    sign().className = lost ? "live off" : "live";
    if (sign().textContent !== text) sign().textContent = text;
  }
  function follow() {
    const wanted = document.querySelector("[data-live]")?.dataset.live || "";
    if (document.hidden || wanted !== address) {
      source?.close();
      source = null;
      address = "";
    }
    if (document.hidden || source) return;
    if (!wanted) {
      sign().hidden = true;
      return;
    }
    address = wanted;
    source = new EventSource(wanted);
    source.onopen = () => say("live");
    source.onerror = () => {
      say(`not live since ${new Date().toLocaleTimeString()}: trying again`, true);
      if (source?.readyState === EventSource.CLOSED) {
        source = null;
        setTimeout(follow, 5000);
      }
    };
    source.addEventListener("part", (event) => {
      const at = event.data.indexOf("\n");
      const part = document.getElementById(event.data.slice(0, at));
      if (!part || part.contains(document.querySelector("[data-hold]"))) return;
      const [x, y] = [part.querySelector(".wide")?.scrollLeft || 0, window.scrollY];
      htmx.swap(part, event.data.slice(at + 1), { swapStyle: "outerHTML" });
      const anew = document.getElementById(part.id)?.querySelector(".wide");
      if (anew) anew.scrollLeft = x;
      window.scrollTo(window.scrollX, y);
      if (part.id === "now" && part.dataset.epoch !== document.getElementById("now").dataset.epoch) renew();
    });
    source.addEventListener("gone", (event) => {
      source.close();
      say(event.data, true);
    });
  }

  document.addEventListener("DOMContentLoaded", () => {
    wire();
    load();
    sayAges();
    setInterval(sayAges, 1000);
    if (document.querySelector("[data-live]")) follow();
  });
  document.addEventListener("visibilitychange", follow);
  document.addEventListener("htmx:afterSettle", (event) => {
    wire(event.target.parentNode || document);
    load(event.target.parentNode || document);
    sayAges(event.target.parentNode || document);
    follow();
  });
})();
