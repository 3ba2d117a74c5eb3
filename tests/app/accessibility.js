// What is wrong with a page for those who hear it, use keys, or see little: one line for each fault.
() => {
  const faults = [];
  const name = (e) => (e.getAttribute("aria-label") || (e.getAttribute("aria-labelledby") || "").split(" ").map((id) => id && document.getElementById(id)?.textContent).join(" ")
    || [...(e.labels || [])].map((l) => l.textContent).join(" ") || e.textContent || e.title || "").trim();
  const seen = (e) => e.getClientRects().length && getComputedStyle(e).visibility !== "hidden";
  for (const e of document.querySelectorAll("a, button, input:not([type=hidden]), select, summary, iframe, progress, [role=group]"))
    if (seen(e) && !name(e)) faults.push("no name: " + e.outerHTML.slice(0, 120));
  for (const e of document.querySelectorAll("[aria-labelledby], [aria-describedby], label[for]"))
    for (const id of (e.getAttribute("aria-labelledby") || "").split(" ").concat((e.getAttribute("aria-describedby") || "").split(" "), (e.htmlFor || "").split(" ")))
      if (id && !document.getElementById(id)) faults.push("nothing is called " + id);
  const ids = [...document.querySelectorAll("[id]")].map((e) => e.id);
  if (new Set(ids).size < ids.length) faults.push("an id stands twice");
  if (document.querySelectorAll("h1").length !== 1 || document.querySelectorAll("main").length !== 1) faults.push("one h1 and one main");
  let level = 1;
  for (const h of document.querySelectorAll("h1, h2, h3")) {
    if (Number(h.tagName[1]) > level + 1) faults.push("a heading skips a level: " + h.textContent);
    level = Number(h.tagName[1]);
  }
  if (!document.documentElement.lang || !document.title) faults.push("language and title");
  for (const e of document.querySelectorAll("[tabindex]")) if (e.tabIndex > 0) faults.push("an order of its own: " + e.outerHTML.slice(0, 80));
  for (const th of document.querySelectorAll("th")) if (!th.scope) faults.push("a head of nothing: " + th.textContent);
  if (document.documentElement.scrollWidth > innerWidth + 1) faults.push(`wider than the screen: ${document.documentElement.scrollWidth} of ${innerWidth}`);
  for (const e of document.querySelectorAll("a, button, select, summary, input:not([type=hidden])")) {
    const box = e.getBoundingClientRect();
    const inline = ["A", "SUMMARY"].includes(e.tagName) || e.classList.contains("link");
    if (seen(e) && !e.closest(".skip, .heard") && !inline && Math.min(box.width, box.height) < (e.type === "radio" ? 12 : 20)) faults.push("too small to hit: " + e.outerHTML.slice(0, 80));
  }
  const rgb = (text) => (text.match(/[\d.]+/g) || []).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((c) => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4).reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  for (const e of document.querySelectorAll("body *")) {
    const own = [...e.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
    if (!own || !seen(e) || e.closest(".heard, .skip, script, option, noscript") || e.disabled) continue;
    let behind = e, ground;
    for (; behind; behind = behind.parentElement) { ground = rgb(getComputedStyle(behind).backgroundColor); if (ground.length === 3 || ground[3] > 0.99) break; }
    const [a, b] = [light(rgb(getComputedStyle(e).color)), light(ground)].sort((x, y) => y - x);
    if ((a + 0.05) / (b + 0.05) < 4.5) faults.push(`contrast ${((a + 0.05) / (b + 0.05)).toFixed(2)}: ${e.outerHTML.slice(0, 100)}`);
  }
  return faults;
}
