(() => {
  "use strict";
  const element = (id) => document.getElementById(id);
  const find = element("find"), state = element("state"), rows = element("rows");
  const heads = [...element("nodes").tHead.rows[0].cells];
  let sorted = -1, direction = 1;

  function filter() {
    const words = find.value.toLowerCase().split(/\s+/).filter(Boolean), states = state.value.split(" ").filter(Boolean);
    let shown = 0;
    for (const row of rows.rows) {
      const text = words.length ? row.textContent.toLowerCase() : "";
      const fits = words.every((word) => text.includes(word)) &&
        (states.length === 0 || states.some((one) => row.classList.contains(one)));
      row.hidden = !fits;
      if (fits) shown++;
    }
    element("shown").value = `${shown} of ${rows.rows.length} shown`;
  }

  function sort() {
    if (sorted < 0) return;
    const order = new Intl.Collator("en", { numeric: true });
    const keyed = [...rows.rows].map((row) => ({ row, key: row.cells[sorted].textContent }));
    keyed.sort((a, b) => direction * order.compare(a.key, b.key));
    rows.append(...keyed.map((one) => one.row));
    heads.forEach((head, i) => {
      if (i === sorted) head.setAttribute("aria-sort", direction > 0 ? "ascending" : "descending");
      else head.removeAttribute("aria-sort");
    });
  }

  heads.forEach((head, i) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    button.addEventListener("click", () => {
      direction = i === sorted ? -direction : 1;
      sorted = i;
      sort();
    });
    head.append(button);
  });
  element("filter").addEventListener("submit", (event) => event.preventDefault());
  find.addEventListener("input", filter);
  state.addEventListener("input", filter);
  element("filter").hidden = false;
  filter();

  const seconds = Number(document.body.dataset.refresh);
  if (!seconds) return;

  async function refresh() {
    // A refresh would end a selection, and nobody reads a page that is not visible.
    if (document.hidden || !getSelection().isCollapsed) return;
    const notice = element("connection");
    try {
      const answer = await fetch(location.pathname, { cache: "no-store" });
      if (!answer.ok) throw new Error(`it answers ${answer.status}`);
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      for (const part of document.querySelectorAll("[data-live]")) {
        const next = fresh.getElementById(part.id);
        if (next && next.innerHTML !== part.innerHTML) part.replaceChildren(...next.childNodes);
      }
      notice.hidden = true;
      sort();
      filter();
    } catch (problem) {
      notice.textContent = `✕ kubectl gpu ui does not answer, so this page is no longer refreshed: ${problem.message}`;
      notice.hidden = false;
    }
  }
  (async () => {
    for (;;) {
      await new Promise((resolve) => setTimeout(resolve, seconds * 1000));
      await refresh();
    }
  })();
})();
