// Forms work without this; it shows at once what a click means, and how far a command is.

const all = (selector, root = document) => [...root.querySelectorAll(selector)];
const one = (selector, root = document) => root.querySelector(selector);

// A file that is dropped is chosen; one that is too large is not sent.
for (const form of all("[data-drop]")) {
  const input = one("input[type=file]", form);
  const problem = one("[data-problem]", form);
  const fits = () => {
    const [file] = input.files;
    const most = Number(form.dataset.most);
    problem.hidden = !file || file.size <= most;
    if (!problem.hidden) problem.textContent = `${file.name} has ${Math.ceil(file.size / 1e6).toLocaleString()} MB; at most ${(most / 1e6).toLocaleString()} MB are taken in. Start the page with a larger --max-size.`;
    return problem.hidden;
  };
  for (const kind of ["dragover", "dragleave", "drop"]) {
    form.addEventListener(kind, (event) => {
      event.preventDefault();
      form.classList.toggle("over", kind === "dragover");
      if (kind === "drop" && event.dataTransfer.files.length) {
        input.files = event.dataTransfer.files;
        form.requestSubmit();
      }
    });
  }
  input.addEventListener("change", fits);
  form.addEventListener("submit", (event) => { if (!fits()) event.preventDefault(); });
}

// Advice follows the role, and a column that tells a protected group says so.
for (const form of all("[data-roles]")) {
  const telling = JSON.parse(one("[data-telling]", form).textContent);
  const rows = all("[data-column]", form).map((row) => ({ row, name: row.dataset.column, select: one("select", row) }));
  const follow = () => {
    const groups = rows.filter(({ select }) => select.value === "group").map(({ name }) => name);
    for (const { row, name, select } of rows) {
      one(".advice", row).textContent = select.selectedOptions[0].dataset.advice;
      row.classList.toggle("set", !["feature", "out"].includes(select.value));
      const told = groups.some((group) => group !== name && name in (telling[group] || {}));
      one("[data-tells]", row).hidden = !told || !["feature", "given"].includes(select.value);
    }
  };
  form.addEventListener("change", follow);
  follow();
}

// The command and the readings follow every control.
for (const form of all("[data-settings]")) {
  const command = one("[data-command]", form);
  let asked = 0;
  const read = () => {
    for (const output of all("[data-reading]", form)) {
      const slider = document.getElementById(output.dataset.reading);
      const percent = Number(slider.value);
      const rows = Number(output.dataset.rows);
      output.textContent = `${percent}${output.dataset.unit}${rows ? `, about ${Math.round((rows * percent) / 100).toLocaleString()} rows` : ""}`;
      slider.setAttribute("aria-valuetext", output.textContent);
      slider.style.setProperty("--at", (percent - slider.min) / (slider.max - slider.min));
    }
  };
  const follow = async () => {
    read();
    asked += 1;
    const mine = asked;
    const answer = await fetch(form.dataset.settings, { method: "POST", body: new URLSearchParams(new FormData(form)) });
    const told = await answer.json();
    if (mine === asked) command.textContent = told.command || told.missing;
  };
  form.addEventListener("input", follow);
  read();
}

// Stages come as they are reached; the page is looked at again when the command has ended.
for (const place of all("[data-events]")) {
  const source = new EventSource(place.dataset.events);
  place.addEventListener("submit", () => source.close()); // a reload would overtake the answer to a cancel
  source.addEventListener("message", ({ data }) => {
    const now = JSON.parse(data);
    if (["done", "failed", "cancelled"].includes(now.state)) {
      source.close();
      location.reload();
      return;
    }
    if (now.state === "running") one("[data-now]", place).textContent = now.name || "Starting";
    one("[data-bar]", place).value = now.stages;
    one("[data-count]", place).textContent = now.stages;
    one("[data-seconds]", place).textContent = now.seconds;
    one("[data-part]", place).textContent = now.part ? ` · ${now.part.done.toLocaleString()} of ${now.part.total.toLocaleString()} rows` : "";
    if (one("[data-heard]", place).textContent !== now.name) one("[data-heard]", place).textContent = now.name;
    all("li", place).forEach((stage, at) => { stage.className = at < now.stages ? "past" : at === now.stages ? "here" : ""; });
  });
}

// Why a person stands out, by a command of its own.
for (const table of all("[data-why]")) {
  const place = one("[data-reasons]");
  table.addEventListener("click", async ({ target }) => {
    if (!target.matches("[data-person]")) return;
    place.textContent = `Finding the reasons of ${target.value} …`;
    const body = new URLSearchParams({ person: target.value });
    const answer = await fetch(table.dataset.why, { method: "POST", body });
    const told = answer.ok ? await answer.json() : { error: "That did not work; reload the page." };
    const text = document.createElement(told.text ? "pre" : "p");
    text.textContent = told.text || told.error;
    place.replaceChildren(text);
    place.scrollIntoView({ block: "nearest" });
  });
}

document.documentElement.classList.add("scripted");
