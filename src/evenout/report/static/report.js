// One number, the step, moves everything: texts, charts and the list.

const report = JSON.parse(document.getElementById("report-data").textContent);
const slider = document.getElementById("alpha");
const showPeople = peopleList(report);
const charts = allCharts(report);
const views = {};
let current = report.chosen;

const textAt = (words, path) => path.split(".").reduce((node, key) => node[key], words);

function say(words) {
  for (const place of document.querySelectorAll("[data-live]")) place.textContent = textAt(words, place.dataset.live);
  slider.setAttribute("aria-valuetext", ["alpha", words.alpha, words.setting, words.place].filter(Boolean).join(", "));
}

// A screen reader hears one summary once the slider rests, not every one on the way.
let pause;
function summarise(words) {
  clearTimeout(pause);
  pause = setTimeout(() => { document.querySelector("[data-test=summary]").textContent = words.summary; }, 150);
}

function draw(name) {
  const { view } = views[name];
  for (const [data, rows] of Object.entries(charts[name].fill(current))) view.data(data, rows);
  return view.runAsync();
}

function show(step) {
  current = step;
  const { words } = report.steps[step];
  slider.value = step;
  slider.style.setProperty("--at", report.steps.length > 1 ? step / (report.steps.length - 1) : 0);
  say(words);
  summarise(words);
  showPeople(step);
  for (const line of document.querySelectorAll("tr[data-step]")) line.classList.toggle("now", Number(line.dataset.step) === step);
  return Promise.all(Object.keys(views).map(draw));
}

async function start() {
  const options = { mode: "vega-lite", renderer: "svg", actions: false, ast: true, tooltip: false, defaultStyle: false };
  for (const [name, chart] of Object.entries(charts)) {
    const result = await vegaEmbed(`#chart-${name}`, chart.spec, options);
    views[name] = result;
    if (chart.spec.layer.some((layer) => layer.params)) {
      result.view.addSignalListener("pick", (_, picked) => { if (picked.step) show(picked.step[0]); });
    }
  }
  await show(current);
  document.body.dataset.ready = "true";
}

function darkNow() {
  const { theme } = document.documentElement.dataset;
  return theme ? theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

function setTheme(dark) {
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  document.getElementById("theme").setAttribute("aria-pressed", String(dark));
}

document.documentElement.classList.add("scripted");
document.documentElement.style.setProperty("--chosen", report.steps.length > 1 ? report.chosen / (report.steps.length - 1) : 0);
document.getElementById("theme").setAttribute("aria-pressed", String(darkNow()));
document.getElementById("theme").addEventListener("click", () => setTheme(!darkNow()));
document.getElementById("chosen").addEventListener("click", () => show(report.chosen));
document.getElementById("none").addEventListener("click", () => show(0));
slider.addEventListener("input", () => show(Number(slider.value)));
document.getElementById("spread-more").hidden = report.groups.length <= MOST_GROUPS;
document.getElementById("rates-more").hidden = report.groups.length <= MOST_RATES;
document.getElementById("weights-more").hidden = report.detectors.length <= MOST_DETECTORS;
start();
