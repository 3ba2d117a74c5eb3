// The charts as Vega-Lite specifications. Each has data sets that its `fill` returns for a step; colours are the
// style sheet's variables, so that light, dark and print need no drawing anew.

const MOST_GROUPS = 8;
const MOST_RATES = 20;
const MOST_DETECTORS = 26;

const AFTER = "var(--after)";
const BEFORE = "var(--before)";
const INK = "var(--ink)";
const SOFT = "var(--soft)";
const AGAINST = "var(--against)";
const FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Liberation Sans', Arial, sans-serif";

const CONFIG = {
  background: null,
  font: FONT,
  padding: { left: 2, right: 10, top: 6, bottom: 2 },
  view: { stroke: null },
  axis: {
    domain: false, ticks: false, gridColor: "var(--line)", labelColor: SOFT, titleColor: SOFT,
    labelFontSize: 12, titleFontSize: 12, titleFontWeight: "normal", labelPadding: 6, titlePadding: 8,
  },
  axisX: { grid: false },
  text: { color: INK, fontSize: 13 },
};

const number = (field, axis = {}, scale = {}) => ({ field, type: "quantitative", axis, scale });
const filled = (name) => ({ name });

// Text on a halo in the colour of the card, readable across lines.
function label(data, mark, encoding) {
  const text = { data, mark: { type: "text", baseline: "bottom", ...mark }, encoding };
  return [{ ...text, mark: { ...text.mark, stroke: "var(--card)", strokeWidth: 5, strokeJoin: "round" } }, text];
}

function chart(report, height, layer, fill) {
  const autosize = { type: "fit-x", contains: "padding" };
  return { spec: { width: "container", height, autosize, config: CONFIG, datasets: fill(report.chosen), layer }, fill };
}

// Where each alpha lies on a log scale, in units of the usual distance between two of them; 0 comes one unit before.
function positions(report) {
  const logs = report.steps.map(({ alpha }) => Math.log(alpha));
  const unit = (logs.at(-1) - logs[1]) / Math.max(report.steps.length - 3, 1) || 1;
  return logs.map((log, at) => (at === 0 ? 0 : 1 + (log - logs[1]) / unit));
}

// A value over all settings, with the base ensemble's value, the chosen setting and the place of the slider.
function curveChart(report, { value, band, dotted, base, zero }) {
  const place = positions(report);
  const last = report.steps.length - 1;
  const ticks = [...new Set([0, Math.round(last / 2), last])];
  const names = Object.fromEntries(ticks.map((at) => [place[at], report.steps[at].words.alpha]));
  const xAxis = {
    values: ticks.map((at) => place[at]), labelExpr: `${JSON.stringify(names)}[datum.value]`, labelFlush: true, title: "alpha", labelOverlap: false,
  };
  const x = number("x", xAxis, { domain: [0, Math.max(place[last], 1)], nice: false });
  const yScale = { zero, nice: true };
  const y = (field) => number(field, { title: null, tickCount: 4 }, yScale);
  const rows = report.steps.map((step, at) => ({
    step: at, x: place[at], value: value(step), low: band?.(step)[0], high: band?.(step)[1], dotted: dotted?.(step),
  }));
  const layer = [
    { data: { values: [{ base }] }, mark: { type: "rule", color: BEFORE, strokeWidth: 2 }, encoding: { y: y("base") } },
    { mark: { type: "line", color: AFTER, strokeWidth: 2.5 }, encoding: { x, y: y("value") } },
    {
      data: { values: [{ x: place[report.chosen] }] },
      mark: { type: "point", shape: "triangle-up", filled: true, size: 70, color: INK, opacity: 1, yOffset: -4 },
      encoding: { x, y: { value: { expr: "height" } } },
    },
    { data: filled("now"), mark: { type: "rule", color: INK, opacity: 0.35 }, encoding: { x } },
    {
      data: filled("now"),
      mark: { type: "point", filled: true, size: 130, color: AFTER, opacity: 1, stroke: "var(--card)", strokeWidth: 2 },
      encoding: { x, y: y("value") },
    },
    {
      params: [{ name: "pick", select: { type: "point", nearest: true, on: "click", fields: ["step"], clear: false } }],
      mark: { type: "point", opacity: 0, size: 40 }, encoding: { x, y: y("value") },
    },
  ];
  if (band) layer.unshift({ mark: { type: "area", color: AFTER, opacity: 0.16 }, encoding: { x, y: y("low"), y2: { field: "high" } } });
  if (dotted) {
    layer.splice(2, 0, { mark: { type: "line", color: AFTER, strokeDash: [2, 4], strokeWidth: 2 }, encoding: { x, y: y("dotted") } });
  }
  const { spec, fill } = chart(report, 180, layer, (at) => ({ now: [rows[at]] }));
  return { spec: { ...spec, data: { values: rows } }, fill };
}

// The outline of a group's histogram above its own base line; empty ends are left out.
function outline(edges, heights, place, unit) {
  const first = heights.findIndex((h) => h > 0);
  const last = heights.findLastIndex((h) => h > 0);
  const rows = [];
  for (let bin = first; bin <= last; bin += 1) rows.push({ place, x: edges[bin], y: heights[bin] * unit - place, floor: -place });
  return [...rows, { place, x: edges[last + 1], y: heights[last] * unit - place, floor: -place }];
}

function spreadChart(report) {
  const places = largestGroups(report, MOST_GROUPS).filter((g) => report.base.spread.heights[g]);
  const chosen = report.steps[report.chosen].score.spread;
  const both = places.flatMap((g) => [report.base.spread.heights[g], chosen.heights[g]]);
  const unit = 0.62 / Math.max(...both.flat(), 1e-9);
  const used = report.edges.slice(0, -1).map((_, bin) => both.some((heights) => heights[bin] > 0.002));
  const domain = [report.edges[used.indexOf(true)], report.edges[used.lastIndexOf(true) + 1]];
  const shapes = (spread) => places.flatMap((g, place) => outline(report.edges, spread.heights[g], place, unit));
  const means = (spread) => places.map((g, place) => ({ x: spread.means[g], y: -place }));
  const x = number("x", { title: "standard deviations from the average score", tickCount: 6 }, { domain, nice: false });
  const yDomain = [-places.length + 0.86, 1];
  const y = number("y", null, { domain: yDomain });
  const area = (data, color, opacity) => ({
    data, mark: { type: "area", interpolate: "step-after", clip: true, color, opacity },
    encoding: { x, y, y2: { field: "floor" }, detail: { field: "place" } },
  });
  const line = (data, color, strokeWidth) => ({
    data, mark: { type: "line", interpolate: "step-after", clip: true, color, strokeWidth },
    encoding: { x, y, detail: { field: "place" } },
  });
  const before = { values: shapes(report.base.spread) };
  const labels = { values: places.map((g, place) => ({ x: domain[0], y: 0.68 - place, name: report.groups[g].name })) };
  const circle = (data, mark) => ({ data, mark: { type: "point", size: 80, opacity: 1, clip: true, ...mark }, encoding: { x, y } });
  const layer = [
    area(before, BEFORE, 0.22), line(before, BEFORE, 1.5), area(filled("shapes"), AFTER, 0.2), line(filled("shapes"), AFTER, 2),
    { data: { values: places.map((_, place) => ({ y: -place })) }, mark: { type: "rule", color: "var(--line)" }, encoding: { y } },
    { data: { values: [{ x: report.base.spread.threshold }] }, mark: { type: "rule", color: BEFORE, strokeDash: [3, 3] }, encoding: { x } },
    { data: filled("line"), mark: { type: "rule", color: AFTER, strokeWidth: 1.5 }, encoding: { x } },
    {
      data: filled("line"),
      mark: { type: "text", text: "flagged →", align: "left", baseline: "top", dx: 5, color: AFTER, fontSize: 12 },
      encoding: { x, y: { value: 0 } },
    },
    circle({ values: means(report.base.spread) }, { filled: true, color: "var(--card)", stroke: BEFORE, strokeWidth: 2 }),
    circle(filled("means"), { filled: true, color: AFTER, stroke: "var(--card)", strokeWidth: 1.5 }),
    ...label(labels, { align: "left", fontWeight: 600, limit: { expr: "width" } }, { x, y, text: { field: "name" } }),
  ];
  return chart(report, Math.max(places.length, 1) * 100, layer, (at) => {
    const { spread } = report.steps[at].score;
    return { shapes: shapes(spread), means: means(spread), line: [{ x: spread.threshold }] };
  });
}

function ratesChart(report) {
  const groups = largestGroups(report, MOST_RATES);
  const scores = [report.base, ...report.steps.map((step) => step.score)];
  const most = Math.max(...scores.flatMap(({ flags }) => groups.map((g) => flags.rates[g]).map(([low, high]) => (high < 1 ? high : low))));
  const x = (field) => number(field, { format: ".0%", title: "share of the group that is flagged", tickCount: 5, grid: true }, { domain: [0, Math.max(most, 0.01) * 1.2], nice: false });
  const y = number("y", null, { domain: [-groups.length + 0.62, 1.02] });
  const bar = (encoding, opacity) => ({ data: filled("rates"), mark: { type: "bar", height: 16, color: AFTER, opacity, clip: true }, encoding: { y, ...encoding } });
  const before = groups.map((g, place) => ({ y: -place, low: report.base.flags.rates[g][0], high: report.base.flags.rates[g][1] }));
  const names = { values: groups.map((g, place) => ({ y: 0.3 - place, zero: 0, name: report.groups[g].name })) };
  const layer = [
    bar({ x: x("zero"), x2: { field: "low" } }, 1),
    bar({ x: x("low"), x2: { field: "high" } }, 0.28),
    {
      data: { values: before.filter(({ low, high }) => low < high && high < 1) },
      mark: { type: "rule", color: BEFORE, strokeWidth: 2, yOffset: 13, clip: true }, encoding: { x: x("low"), x2: { field: "high" }, y },
    },
    {
      data: { values: before.filter(({ low, high }) => low === high) },
      mark: { type: "tick", orient: "vertical", size: 30, thickness: 3, color: BEFORE }, encoding: { x: x("low"), y },
    },
    ...label(names, { align: "left", fontWeight: 600, limit: { expr: "width - 140" } }, { x: x("zero"), y, text: { field: "name" } }),
    ...label(filled("texts"), { align: "right" }, { x: { value: { expr: "width" } }, y, text: { field: "text" } }),
  ];
  return chart(report, groups.length * 56 + 26, layer, (at) => {
    const { flags } = report.steps[at].score;
    const { rates, counts } = report.steps[at].words;
    return {
      rates: groups.map((g, place) => {
        const [low, high] = flags.rates[g];
        return { y: -place, zero: 0, low, high: high < 1 ? high : low };
      }),
      texts: groups.map((g, place) => ({ y: 0.3 - place, text: counts[g].startsWith("fewer") ? `${counts[g]} people` : rates[g] })),
    };
  });
}

function weightsChart(report) {
  const chosen = report.steps[report.chosen].weights;
  const order = chosen.map((_, j) => j).sort((i, j) => Math.abs(chosen[j]) - Math.abs(chosen[i]));
  const drawn = order.slice(0, MOST_DETECTORS).sort((i, j) => chosen[j] - chosen[i]);
  const y = {
    field: "place", type: "ordinal", scale: { paddingInner: 0.3 },
    axis: { title: null, labelExpr: `${JSON.stringify(drawn.map((j) => report.detectors[j]))}[datum.value]`, labelLimit: 130, labelColor: INK },
  };
  const x = (field) => number(field, { title: "weight", tickCount: 4, grid: true }, { range: [0, { expr: "width - 58" }] });
  const layer = [
    {
      data: filled("weights"), mark: { type: "bar", cornerRadius: 1.5 },
      encoding: { x: x("weight"), y, fill: { field: "fill", type: "nominal", scale: null }, stroke: { field: "stroke", type: "nominal", scale: null } },
    },
    { data: { values: [{ zero: 0 }] }, mark: { type: "rule", color: SOFT }, encoding: { x: x("zero") } },
    {
      data: filled("weights"),
      mark: { type: "text", fontSize: 12, align: "right" },
      encoding: { x: { value: { expr: "width" } }, y, text: { field: "text" } },
    },
  ];
  return chart(report, drawn.length * 19, layer, (at) => {
    const { weights: all, words } = report.steps[at];
    return {
      weights: drawn.map((j, place) => {
        const colours = all[j] < 0 ? { fill: "url(#stripes)", stroke: AGAINST } : { fill: AFTER, stroke: AFTER };
        return { place, weight: all[j], text: words.weights[j], ...colours };
      }),
    };
  });
}

function largestGroups(report, most) {
  const size = (g) => report.groups[g].size[1];
  const order = report.groups.map((_, g) => g).sort((i, j) => size(j) - size(i));
  return order.slice(0, most).sort((i, j) => i - j);
}

function allCharts(report) {
  const charts = {
    f1: curveChart(report, { value: (step) => step.f1, base: 0, zero: true }),
    spread: spreadChart(report),
    rates: ratesChart(report),
    weights: weightsChart(report),
  };
  if (report.base.bias !== null) {  // there are groups to compare
    charts.bias = curveChart(report, {
      value: (step) => step.score.bias, dotted: (step) => step.score.training_bias,
      band: (step) => step.score.interval, base: report.base.bias, zero: true,
    });
  }
  if (report.labels === "shown") {
    charts.auc = curveChart(report, { value: (step) => step.score.auc, base: report.base.auc, zero: false });
  }
  return charts;
}
