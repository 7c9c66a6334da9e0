// What every page does: times in the reader's zone, ages that grow, the banner, and swapping of fresh parts.
"use strict";
window.twoclocks = (() => {
  const stamp = new Intl.DateTimeFormat(undefined, {
    month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit", timeZoneName: "short",
  });
  const hour = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", timeZoneName: "short" });
  const age = (seconds) => {
    if (seconds < 2) return "just now";
    if (seconds < 60) return `${Math.floor(seconds)} s ago`;
    if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
    if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min ago`;
    return `${Math.floor(seconds / 86400)} d ago`;
  };
  const times = () => {
    for (const element of document.querySelectorAll("time[data-time], time[data-age]")) {
      const when = new Date(element.dateTime);
      if (Number.isNaN(when.getTime())) continue;
      const full = stamp.format(when);
      const old = (Date.now() - when.getTime()) / 1000;
      const text = "age" in element.dataset ? age(old) : old < 43200 ? hour.format(when) : full;
      if (element.textContent !== text) element.textContent = text;
      if (element.title !== full) element.title = full;
    }
  };
  // Put html in place of an element's content, if it differs; what was open or had the focus stays so.
  const seen = new WeakMap();
  const swap = (element, html) => {
    if (seen.get(element) === html) return;
    seen.set(element, html);
    const open = new Set([...element.querySelectorAll("details[data-key][open]")].map((d) => d.dataset.key));
    const focus = document.activeElement;
    const path = element.contains(focus) ? focus.getAttribute("href") || focus.textContent : null;
    element.innerHTML = html;
    for (const d of element.querySelectorAll("details[data-key]")) if (open.has(d.dataset.key)) d.open = true;
    if (path !== null) {
      const again = [...element.querySelectorAll("a, summary, button")].find(
        (e) => (e.getAttribute("href") || e.textContent) === path);
      if (again) again.focus({ preventScroll: true });
    }
    times();
  };
  const banner = (text) => {
    const element = document.querySelector("[data-banner]");
    if (element.textContent !== text) element.textContent = text;
    element.hidden = !text;
  };
  const clock = () => hour.format(new Date());
  document.addEventListener("DOMContentLoaded", times);
  setInterval(times, 1000);
  return { swap, banner, clock };
})();
