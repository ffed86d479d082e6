// The overview of a training run: curves of everything that was measured, update by update.

const METRICS = INDEX.metrics || {};
const UPDATES = INDEX.updates || [];
let smoothing = Number(remembered("alfworld-report-smoothing")) || INDEX.window || 5;

const asShare = (value) => percent(value, 0);
const under = (prefix) => Object.keys(METRICS).filter((name) => name.startsWith(prefix)).sort();
const tail = (name) => name.split("/").pop();
const seconds = (value) => (value < 90 ? `${brief(value)} s` : value < 5400 ? `${brief(value / 60)} min` : `${brief(value / 3600)} h`);

/** The charts that come first: [title, metric names, {format, low, high, stack, name}]. What a run lacks is left out. */
function panels() {
  const parts = under("reward/part/").concat(under("reward/parts/"));
  const checks = Object.keys(METRICS).filter((name) => /^(eval|validation|valid)\//.test(name) && name.endsWith("success_rate"));
  const losses = Object.keys(METRICS).filter((name) => /^train\/(loss|kl|clip|entropy|ratio)/.test(name) && !name.endsWith("_sum")).sort();
  return [
    ["Reward", ["reward/mean", ...parts], { name: (name) => (name === "reward/mean" ? "reward" : tail(name)) }],
    ["Success in training", ["reward/success_rate"], { format: asShare, low: 0, high: 1 }],
    ["Success in validation", checks, { format: asShare, low: 0, high: 1, smooth: 1, sparse: true, name: (name) => name.replace(/\/success_rate$/, "").replace(/^[^/]*\//, "") }],
    ["Success by task type", under("reward/success_rate/"), { format: asShare, low: 0, high: 1, name: (name) => typeName(tail(name)) }],
    ["Invalid actions in a trajectory", ["rollout/invalid_actions_mean"], { low: 0 }],
    ["Steps of a trajectory", ["rollout/steps_mean"], { low: 0 }],
    ["How trajectories ended", under("rollout/stopped/").sort((a, b) => stopRank(tail(a)) - stopRank(tail(b))), { low: 0, stack: true, name: (name) => stopName(tail(name)) }],
    ["Groups without a gradient", ["advantage/groups_degenerate"], { low: 0 }],
    ...losses.slice(0, 4).map((name) => [(tail(name)[0].toUpperCase() + tail(name).slice(1)).replaceAll("_", " "), [name], {}]),
    ["Tokens of an update", ["rollout/prefill_tokens", "rollout/sampled_tokens", "train/tokens_billed"], { low: 0, format: tokens, name: (name) => ({ prefill_tokens: "read", sampled_tokens: "written", tokens_billed: "trained on" })[tail(name)] || tail(name) }],
    ["Cost so far", INDEX.billed === false ? [] : ["trainer/total_cost"], { low: 0, smooth: 1, format: (value) => `${brief(value)}${INDEX.currency ? " " + INDEX.currency : ""}` }],
    ["Time of an update", ["time/rollout", "time/train", "time/eval", "time/validation", "time/save"], { low: 0, stack: true, format: seconds, name: tail }],
  ].map(([title, names, options]) => [title, names.filter((name) => METRICS[name]?.some((value) => isNumber(value) && (value || !options.stack))), options]).filter(([, names]) => names.length);
}

function run() {
  const charts = [];
  const first = panels();
  const named = new Set(first.flatMap(([, names]) => names));
  const rest = Object.keys(METRICS).filter((name) => !named.has(name) && METRICS[name].some(isNumber)).sort();
  const grid = h("div", { class: "panels" });
  const output = h("output", {}, smoothing);
  const slider = h("input", { type: "range", min: 1, max: Math.max(2, Math.min(25, UPDATES.length)), value: smoothing, "aria-label": "Updates that a line is the mean of", oninput: () => {
    smoothing = Number(slider.value);
    output.textContent = smoothing;
    remembered("alfworld-report-smoothing", smoothing);
    draw();
  } });
  const readAll = (index) => charts.forEach((chart) => chart.read(index));
  function draw() {
    charts.length = 0;
    grid.replaceChildren(...first.map(([title, names, options]) => panel(title, names, options, charts, readAll)));
  }
  draw();
  return [runLead(), UPDATES.length ? section("Curves", "curves", UPDATES.length > 1 ? h("p", { class: "fine smoothing" }, h("label", {}, "Lines are means of the last ", output, " updates; faint lines are the updates themselves. ", slider)) : null, grid,
    rest.length ? lazy(`${plural(rest.length, "more metric")}`, () => h("div", { class: "panels small" }, rest.map((name) => panel(name, [name], { height: 110 }, charts, readAll)))) : null,
    lazy("All numbers as a table", numbers)) : null, asked()];
}

function panel(title, names, options, charts, onread) {
  const several = names.length > 1;
  const window = options.smooth ?? smoothing;
  const series = names.flatMap((name, place) => {
    const line = { name: options.name ? options.name(name) : tail(name).replaceAll("_", " "), colour: options.stack && title.startsWith("How") ? `var(--stop-${stopClass(tail(name))})` : colour(place) };
    const smoothed = { ...line, values: options.stack || window < 2 ? METRICS[name] : smooth(METRICS[name], window) };
    return options.stack || window < 2 || several ? [smoothed] : [{ ...line, values: METRICS[name], faint: true, name: "update itself" }, smoothed];
  });
  const known = METRICS[names[0]].filter(isNumber), format = options.format || brief;
  const label = `${title}, ${UPDATES.length} updates. ${names.map((name, place) => { const values = METRICS[name].filter(isNumber); return `${options.name ? options.name(name) : ""} first ${format(values[0])}, last ${format(values[values.length - 1])}, lowest ${format(Math.min(...values))}, highest ${format(Math.max(...values))}`.trim(); }).join("; ")}.`;
  const chart = lineChart({ ...options, label, x: UPDATES, series, format, xName: "update", onread, height: options.height || 170 });
  charts.push(chart);
  return h("figure", {}, h("figcaption", {}, h("h3", {}, title), several ? null : h("span", { class: "last", title: window > 1 ? `mean of the last ${window} updates` : "last update" }, format(mean(known.slice(-window))))), chart, several ? legend(series) : null);
}

function runLead() {
  const success = (METRICS["reward/success_rate"] || []).filter(isNumber), reward = (METRICS["reward/mean"] || []).filter(isNumber);
  const window = Math.max(1, Math.min(5, Math.floor(success.length / 2)));
  const early = (values) => mean(values.slice(0, window)), late = (values) => mean(values.slice(-window));
  const of = window > 1 ? ` ${window} updates` : " update";
  const total = (name) => (METRICS[name] || []).filter(isNumber).pop();
  const time = (METRICS["time/update"] || []).filter(isNumber).reduce((sum, one) => sum + one, 0);
  return h("section", { "aria-label": "Summary" }, h("p", { class: "lead" }, `${plural(UPDATES.length, "update")}`, INDEX.model ? [" of ", h("b", {}, INDEX.model)] : null, ". ",
    success.length > 1 ? ["Games won while training: ", h("b", {}, percent(early(success))), ` in the first${of}, `, h("b", {}, percent(late(success))), ` in the last${of}. `] : null,
    reward.length > 1 ? ["Reward: ", number(early(reward)), ", then ", h("b", {}, number(late(reward))), ". "] : null,
    time ? `The updates took ${seconds(time)}` : null, time && isNumber(total("trainer/total_cost")) && INDEX.billed !== false ? ` and cost about ${brief(total("trainer/total_cost"))} ${INDEX.currency || ""}.` : time ? "." : null),
    UPDATES.length ? null : h("p", { class: "note" }, "No update of this run was finished yet."),
    INDEX.games.length ? null : h("p", { class: "note" }, "This run kept no trajectories, so there are none to replay; train with --keep-trajectories to keep some."));
}

function numbers() {
  return scroller("All numbers", h("table", { class: "numbers" }, h("thead", {}, h("tr", {}, ["Metric", "First", "Last", "Lowest", "Highest", `Mean of last ${Math.min(5, UPDATES.length)}`].map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", {}, Object.keys(METRICS).sort().map((name) => {
      const values = METRICS[name].filter(isNumber);
      return values.length ? h("tr", {}, h("th", { scope: "row" }, h("code", {}, name)), [values[0], values[values.length - 1], Math.min(...values), Math.max(...values), mean(values.slice(-5))].map((value) => h("td", {}, brief(value)))) : null;
    }))));
}

function asked() {
  const names = Object.keys(INDEX.settings || {}).sort(), saved = INDEX.checkpoints || [];
  return [names.length ? h("details", {}, h("summary", {}, "Settings"), scroller("Table of settings", h("table", { class: "numbers" }, h("thead", { class: "unseen" }, h("tr", {}, h("th", { scope: "col" }, "Setting"), h("th", { scope: "col" }, "Value"))),
    h("tbody", {}, names.map((name) => h("tr", {}, h("th", { scope: "row" }, name.replaceAll("_", " ")), h("td", {}, JSON.stringify(INDEX.settings[name])))))))) : null,
    saved.length ? h("details", {}, h("summary", {}, plural(saved.length, "checkpoint")), h("ul", { class: "fine" }, saved.map((one) => h("li", {}, `update ${one.update}, ${String(one.kind).replaceAll("_", " ")}: `, h("code", {}, one.uri))))) : null];
}
