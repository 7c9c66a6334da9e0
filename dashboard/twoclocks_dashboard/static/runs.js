// The list keeps itself fresh: it asks every three seconds, and not while the page is hidden.
"use strict";
document.addEventListener("DOMContentLoaded", () => {
  const { swap, banner, clock } = window.twoclocks;
  const list = document.querySelector("[data-list]");
  let heard = clock();
  const refresh = async () => {
    if (document.hidden) return;
    try {
      const answer = await fetch(list.dataset.list, { cache: "no-cache", signal: AbortSignal.timeout(10000) });
      if (!answer.ok) throw new Error(String(answer.status));
      swap(list, await answer.text());
      heard = clock();
      banner("");
    } catch {
      banner(`The service does not answer; this is what was known at ${heard}. Trying again.`);
    }
  };
  const again = async () => {
    await refresh();
    setTimeout(again, 3000);
  };
  setTimeout(again, 3000);
  document.addEventListener("visibilitychange", refresh);
});
