// The theme before the first paint, and the switch: system, light, dark.
"use strict";
(() => {
  const KEY = "twoclocks-theme";
  const system = window.matchMedia("(prefers-color-scheme: dark)");
  let stored = "auto";
  try {
    stored = localStorage.getItem(KEY) || "auto";
  } catch {
    // a browser without storage keeps the system's theme
  }
  const apply = (word) => {
    if (word === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = word;
  };
  const now = () => document.documentElement.dataset.theme || (system.matches ? "dark" : "light");
  apply(stored);
  window.twoclocksTheme = now;
  const tell = () => window.dispatchEvent(new Event("twoclocks-theme"));
  system.addEventListener("change", tell);
  document.addEventListener("DOMContentLoaded", () => {
    const button = document.querySelector("[data-theme-switch]");
    const word = document.querySelector("[data-theme-word]");
    const show = () => {
      word.textContent = stored;
      button.setAttribute("aria-label", `Theme: ${stored === "auto" ? "as the system" : stored}`);
    };
    show();
    button.addEventListener("click", () => {
      stored = { auto: "light", light: "dark", dark: "auto" }[stored];
      try {
        localStorage.setItem(KEY, stored);
      } catch {
        // the choice then lasts for this page
      }
      apply(stored);
      show();
      tell();
    });
  });
})();
