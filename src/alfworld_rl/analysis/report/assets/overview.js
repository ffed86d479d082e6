// The overview of evaluations: who won how much, how sure that is, and how games ended.

const RESULTS = INDEX.results || [];
const dot = (place) => h("i", { class: "dot", vars: { background: colour(place) } });
const resultName = (place) => [dot(place), " ", h("b", {}, RESULTS[place].label)];
const scoreOf = (result, what, name) => result.scores.find((row) => row.what === what && row.name === name);
const interval = (row) => `${fixed(100 * row.interval[0], 1)}${DASH}${fixed(100 * row.interval[1], 1)}`;

function overview() {
  return [lead(), glance(), h("div", { class: "two" }, forest(), h("div", {}, within(), endings())), pairs(), refused()];
}

function lead() {
  const sentences = RESULTS.map((result, place) => {
    const row = result.scores[0];
    return h("span", {}, resultName(place), ` wins ${percent(row.success)} of ${plural(row.games, "game")} (95% interval ${interval(row)}). `);
  });
  const pair = INDEX.pairs.find((one) => one.before === 0 && one.after === RESULTS.length - 1);
  let verdict = null;
  if (pair) {
    const gap = pair.success.difference, sure = pair.success.p < 0.05;
    const words = gap === 0 ? "as many as" : `${number(Math.abs(100 * gap), 1)} points ${gap > 0 ? "more" : "fewer"} than`;
    verdict = h("span", {}, `On the same ${plural(pair.games, "game")} `, h("b", {}, RESULTS[pair.after].label), ` wins ${words} `, h("b", {}, RESULTS[pair.before].label),
      ` (${pValue(pair.success.p)}), ${sure ? "more than chance explains." : "which chance alone could explain."}`);
  }
  return h("section", { "aria-label": "Summary" }, h("p", { class: "lead" }, RESULTS.length > 3 ? sentences.slice(0, 1).concat(sentences.slice(-1)) : sentences, verdict),
    INDEX.notes.length ? h("details", { class: "note" }, h("summary", {}, "Not played under the same conditions: read differences with care"),
      h("ul", {}, INDEX.notes.map((note) => h("li", {}, note)))) : null);
}

function glance() {
  const has = (key) => RESULTS.some((result) => isNumber(result.scores[0][key]));
  const several = RESULTS.some((result) => result.scores[0].plays > result.scores[0].games);
  const columns = [
    ["Success", "share of trajectories won, with Wilson's 95% interval", (row) => [h("b", {}, percent(row.success)), " ", h("small", {}, interval(row))]],
    several && ["Trajectories", "games times samples", (row) => row.plays.toLocaleString("en")],
    has("steps") && ["Steps", "messages of the model in a trajectory, mean", (row) => number(row.steps, 1)],
    has("steps_won") && ["\u2026 when won", "steps of won trajectories, mean", (row) => number(row.steps_won, 1)],
    ["Invalid", "invalid actions in a trajectory, mean", (row) => number(row.invalid)],
    has("reward") && ["Reward", "mean", (row) => number(row.reward, 3)],
    RESULTS.some((result) => isNumber(result.usage.prefill)) && ["Tokens read", "prompt tokens in all", (row, result) => tokens(result.usage.prefill)],
    RESULTS.some((result) => isNumber(result.usage.sampled)) && ["Written", "sampled tokens in all", (row, result) => tokens(result.usage.sampled)],
    RESULTS.some((result) => result.usage.cost) && ["Cost", "estimated by a price file", (row, result) => h("span", { title: result.usage.prices ? `prices of ${result.usage.prices}` : null }, result.usage.cost || NONE)],
  ].filter(Boolean);
  return section("Results", "results", scroller("Table of results", h("table", { class: "numbers" },
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Result"), columns.map(([name, title]) => h("th", { scope: "col", title }, name)))),
    h("tbody", {}, RESULTS.map((result, place) => h("tr", {},
      h("th", { scope: "row" }, resultName(place), h("small", { class: "under" }, result.model, result.weights ? h("span", {}, " \u00b7 ", result.weights) : null)),
      columns.map(([, , cell]) => h("td", {}, cell(result.scores[0], result)))))))),
    settings());
}

function settings() {
  const names = [...new Set(RESULTS.flatMap((result) => Object.keys(result.settings)))].sort();
  if (!names.length) return null;
  const same = (name) => new Set(RESULTS.map((result) => JSON.stringify(result.settings[name]))).size === 1;
  return h("details", {}, h("summary", {}, "Settings"), scroller("Table of settings", h("table", { class: "numbers" },
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, "Setting"), RESULTS.map((_, place) => h("th", { scope: "col" }, resultName(place))))),
    h("tbody", {}, names.map((name) => h("tr", { class: same(name) ? null : "differs" }, h("th", { scope: "row" }, name.replaceAll("_", " ")),
      RESULTS.map((result) => h("td", {}, name in result.settings ? String(result.settings[name]) : NONE))))))));
}

/** Success by split and task type. Chart and table are one: the numbers beside are those that the marks show. */
function forest() {
  const keys = new Map();
  for (const result of RESULTS) for (const row of result.scores) {
    const key = `${row.what} ${row.name}`;
    if (!keys.has(key) || keys.get(key).games < row.games) keys.set(key, row);
  }
  const order = { all: 0, split: 1, type: 2 };
  const rows = [...keys.values()].sort((a, b) => order[a.what] - order[b.what] || (a.name < b.name ? -1 : 1));
  let before = "";
  return section("Success", "success", h("table", { class: "forest" },
    h("caption", { class: "unseen" }, "Success rate with 95% intervals, by split and task type"),
    h("thead", {}, h("tr", {}, h("th", { scope: "col" }, h("span", { class: "unseen" }, "Games")), h("th", { scope: "col", class: "scale" }, h("span", { class: "unseen" }, "Marks"),
      [0, 25, 50, 75, 100].map((at) => h("span", { "aria-hidden": true, vars: { left: `${at}%` } }, at === 100 ? "100%" : at))),
      h("th", { scope: "col" }, "Success"))),
    h("tbody", {}, rows.map((row) => {
      const first = row.what !== before;
      before = row.what;
      const name = row.what === "type" ? typeName(row.name) : splitName(row.name);
      const found = RESULTS.map((result, place) => [scoreOf(result, row.what, row.name), place]).filter(([score]) => score);
      return h("tr", { class: `${row.what}${first ? " first" : ""}` },
        h("th", { scope: "row" }, row.what === "all" || !INDEX.games.length ? name : h("a", { href: filterLink({ [row.what]: row.name }), "data-jump": "games", title: "show these games" }, name),
          h("small", {}, ` ${row.games}`)),
        h("td", { class: "tracks", "aria-hidden": "true" }, found.map(([score, place]) => h("div", { class: "track" },
          h("i", { class: "whisker", vars: { left: percent(score.interval[0], 2), width: percent(score.interval[1] - score.interval[0], 2), "--own": colour(place) } }),
          h("i", { class: "mark", vars: { left: percent(score.success, 2), "--own": colour(place) } })))),
        h("td", { class: "values" }, found.map(([score, place]) => h("div", { title: `${RESULTS[place].label}: 95% interval ${interval(score)}` },
          RESULTS.length > 1 ? h("span", { class: "unseen" }, RESULTS[place].label + " ") : null, h("span", { vars: { "--own": colour(place) } }, percent(score.success)), h("small", {}, ` ${interval(score)}`)))));
    }))), RESULTS.length > 1 ? legend(RESULTS.map((result, place) => ({ name: result.label, colour: colour(place) }))) : null);
}

function within() {
  const known = RESULTS.map((result, place) => ({ name: result.label, colour: colour(place), values: result.within })).filter((one) => one.values.length);
  if (!known.length) return null;
  const longest = Math.max(...known.map((one) => one.values.length));
  const series = known.map((one) => ({ ...one, values: [...one.values, ...Array(longest - one.values.length).fill(one.values[one.values.length - 1])] }));
  const label = `Share of trajectories won within a number of steps. ${known.map((one) => `${one.name}: ${percent(one.values[Math.min(10, one.values.length - 1)])} within 10 steps, ${percent(one.values[one.values.length - 1])} in the end.`).join(" ")}`;
  return section("Won within so many steps", "within",
    lineChart({ label, x: [...Array(longest).keys()], series, height: 190, low: 0, high: 1, format: (value) => percent(value, 0), xName: "within steps:", steps: true }));
}

function endings() {
  const reasons = [...new Set(RESULTS.flatMap((result) => Object.keys(result.stops)))].sort((a, b) => stopRank(a) - stopRank(b));
  return reasons.length ? section("How games ended", "endings", RESULTS.map((result, place) => {
    const total = Object.values(result.stops).reduce((sum, one) => sum + one, 0);
    return h("div", { class: "ending" }, RESULTS.length > 1 ? h("div", {}, resultName(place)) : null,
      h("div", { class: "stack", "aria-hidden": "true" }, reasons.filter((reason) => result.stops[reason]).map((reason) =>
        h("i", { class: `stop-${stopClass(reason)}`, title: `${stopName(reason)}: ${result.stops[reason]}`, vars: { width: percent(result.stops[reason] / total, 3) } }))),
      h("ul", { class: "legend" }, reasons.filter((reason) => result.stops[reason]).map((reason) => h("li", {},
        h("i", { class: `dot stop-${stopClass(reason)}` }), h("a", { href: filterLink({ stop: reason }), "data-jump": "games" }, stopName(reason)), ` ${result.stops[reason]}`))));
  })) : null;
}

const STOPS = ["won", "max_steps", "token_limit", "environment_done", "failed"];
const stopRank = (reason) => (STOPS.includes(reason) ? STOPS.indexOf(reason) : STOPS.length);
const stopClass = (reason) => (STOPS.includes(reason) ? reason : "other");

function pairs() {
  if (!INDEX.pairs.length) return null;
  const most = Math.max(...INDEX.pairs.map((pair) => Math.max(pair.gained, pair.lost)), 1);
  const change = (one, words, better) => one ? h("td", { title: one.test }, h("b", { class: one.p < 0.05 ? (one.difference * better > 0 ? "good" : "bad") : null }, words(one.difference)), h("small", {}, " " + pValue(one.p))) : h("td", {}, NONE);
  return section("Paired differences", "pairs", scroller("Table of differences", h("table", { class: "numbers" },
    h("thead", {}, h("tr", {}, ["From, to", "Games", "Success", "Won by one alone", "Steps", "Invalid actions", "Reward"].map((name) => h("th", { scope: "col" }, name)))),
    h("tbody", {}, INDEX.pairs.map((pair) => h("tr", {},
      h("th", { scope: "row" }, resultName(pair.before), " \u2192 ", resultName(pair.after)),
      h("td", {}, pair.games, pair.games < pair.of ? h("small", {}, ` of ${pair.of}`) : null),
      change(pair.success, points, 1),
      h("td", {}, h("a", { class: "flips", href: filterLink({ outcome: `flip${pair.before}-${pair.after}` }), "data-jump": "games", title: "show these games" },
        h("span", { class: "unseen" }, `${RESULTS[pair.before].label} alone `), pair.lost, h("i", { "aria-hidden": true }, h("i", { class: "lost", vars: { width: `${(50 * pair.lost) / most}%`, background: colour(pair.before) } }),
          h("i", { class: "gained", vars: { width: `${(50 * pair.gained) / most}%`, background: colour(pair.after) } })), h("span", { class: "unseen" }, `, ${RESULTS[pair.after].label} alone `), pair.gained)),
      change(pair.steps, (value) => signed(value, 1), -1), change(pair.invalid_action_count, (value) => signed(value), -1), change(pair.reward, (value) => signed(value, 3), 1)))))),
    h("p", { class: "fine" }, "Differences are per game, on games that both results played. Success with one trajectory a game: McNemar's exact test; all else: a randomization test on the games' means. Not corrected for the number of tests."));
}

function refused() {
  const known = RESULTS.map((result, place) => [result.refused, place]).filter(([list]) => list.length);
  if (!known.length) return null;
  return section("What the game refused most", "refused", h("div", { class: "columns" }, known.map(([list, place]) => {
    const most = list[0][1], all = RESULTS[place].scores[0];
    return h("table", { class: "refused" }, h("caption", {}, resultName(place), h("small", {}, ` ${number(all.invalid)} invalid actions a trajectory`)),
      h("thead", { class: "unseen" }, h("tr", {}, h("th", { scope: "col" }, "Command, and what stood in its way"), h("th", { scope: "col" }, "Times"))),
      h("tbody", {}, list.map(([action, times, plays, why]) => h("tr", {}, h("th", { scope: "row" }, h("a", { href: filterLink({ q: action }), "data-jump": "games" }, h("code", {}, action)), why ? h("small", {}, ` ${why}`) : null),
        h("td", { title: `${times} times in ${plural(plays, "trajectory", "trajectories")}`, vars: { "--share": percent(times / most, 1) } }, times)))));
  })));
}

// --- pieces that others use, too

function section(title, id, ...children) {
  return h("section", { id, "aria-labelledby": `${id}-title` }, h("h2", { id: `${id}-title` }, title), children);
}

/** A wide table scrolls by itself, by keyboard, too. */
function scroller(label, ...children) {
  return h("div", { class: "scroller", role: "region", "aria-label": label, tabindex: "0" }, children);
}
