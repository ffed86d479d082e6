// The table of games: filtered, sorted, each trajectory a strip of its turns.

const PAGE = innerWidth > 860 ? 120 : 40;
const FILTERS = ["split", "type", "outcome", "stop", "update", "q", "deep", "sort"];
const won = (play) => (play.won ? 1 : 0);
const playsOf = (game, result) => game.plays.filter((play) => play.result === result);
const share = (game, result) => { const plays = playsOf(game, result); return plays.length ? mean(plays.map(won)) : null; };
const flipped = (game) => { const shares = RESULTS.map((_, place) => share(game, place)).filter(isNumber); return shares.length > 1 && Math.min(...shares) !== Math.max(...shares); };
/** How much a game tells: wins that changed most first, then games lost by all, then the longest. */
const interest = (game) => {
  const shares = IS_RUN ? game.plays.map((play) => play.reward) : RESULTS.map((_, place) => share(game, place)).filter(isNumber);
  const spread = shares.length > 1 ? Math.max(...shares) - Math.min(...shares) : 0;
  return 1e6 * spread + 1e3 * (1 - mean(game.plays.map(won))) + Math.max(...game.plays.map((play) => play.steps || 0));
};
const filters = () => { const all = address.read(); return Object.fromEntries(FILTERS.filter((name) => all[name]).map((name) => [name, all[name]])); };
const filterLink = (changes) => address.with(changes, {});

const SORTS = {
  interest: ["most telling first", (game) => -interest(game)],
  name: ["by name", (game) => game.id],
  longest: ["longest first", (game) => -Math.max(...game.plays.map((play) => play.steps || 0))],
  shortest: ["shortest first", (game) => Math.min(...game.plays.map((play) => play.steps || 0))],
  invalid: ["most invalid actions first", (game) => -Math.max(...game.plays.map((play) => play.invalid || 0))],
};
if (IS_RUN) {
  SORTS.update = ["by update", (game) => game.update];
  SORTS.interest[0] = "widest groups first";
}

function outcomes() {
  const found = [["won", "won by all"], ["lost", "won by none"], ["mixed", "won by some"]];
  if (RESULTS.length > 1) for (const pair of INDEX.pairs) {
    const [before, after] = [RESULTS[pair.before].label, RESULTS[pair.after].label];
    found.push([`flip${pair.before}-${pair.after}`, `${before} and ${after} differ`], [`only${pair.before}-${pair.after}`, `${before}, not ${after}`], [`only${pair.after}-${pair.before}`, `${after}, not ${before}`]);
  }
  return found;
}

function hasOutcome(game, outcome) {
  const wins = game.plays.map(won), least = Math.min(...wins), most = Math.max(...wins);
  if (outcome === "won") return least === 1;
  if (outcome === "lost") return most === 0;
  if (outcome === "mixed") return least < most;
  const found = /^(flip|only)(\d+)-(\d+)$/.exec(outcome);
  if (!found) return true;
  const [one, other] = [share(game, Number(found[2])), share(game, Number(found[3]))];
  return one !== null && other !== null && (found[1] === "flip" ? one !== other : one > other);
}

const plainText = (game) => (game.plain ??= [game.id, game.task, typeName(game.type), ...game.plays.map((play) => play.actions)].join("\n").toLowerCase());
/** Everything that was said in a game, thoughts and answers too; unpacked once and kept. */
async function wholeText(game) {
  if (game.whole === undefined) {
    const plays = await unpack(PACKED[game.place]);
    game.whole = [plainText(game), ...plays.flatMap((play) => (play.turns || []).flatMap((turn) => [turn.raw, turn.thought, turn.observation]))].filter(Boolean).join("\n").toLowerCase();
  }
  return game.whole;
}

/** The games that the address asks for, in its order. */
function chosen(now = filters()) {
  const words = (now.q || "").toLowerCase().trim();
  const found = INDEX.games.filter((game) => (!now.split || game.split === now.split) && (!now.type || game.type === now.type)
    && (!now.update || String(game.update) === now.update)
    && (!now.outcome || hasOutcome(game, now.outcome)) && (!now.stop || game.plays.some((play) => play.stop === now.stop))
    && (!words || (now.deep && game.whole !== undefined ? game.whole : plainText(game)).includes(words)));
  const key = (SORTS[now.sort] || SORTS[defaultSort()])[1];
  return found.map((game) => [key(game), game]).sort((a, b) => (a[0] < b[0] ? -1 : a[0] > b[0] ? 1 : a[1].place - b[1].place)).map((one) => one[1]);
}
const defaultSort = () => (RESULTS.length > 1 ? "interest" : IS_RUN ? "update" : "name");

function games() {
  if (!INDEX.games.length) return null;
  const now = filters();
  const unique = (read) => [...new Set(INDEX.games.flatMap(read))].filter((one) => one !== "" && one !== undefined).sort((a, b) => (a < b ? -1 : 1));
  const count = h("p", { class: "fine", id: "count" }), body = h("tbody"), more = h("p", { class: "more" });
  let limit = PAGE;

  const choice = (name, label, options) => (options.length > 1 ? h("label", {}, h("span", {}, label), h("select", { name, onchange: (event) => change({ [name]: event.target.value }) },
    h("option", { value: "" }, "any"), options.map(([value, text]) => h("option", { value, selected: now[name] === String(value) }, text)))) : null);
  const text = h("input", { type: "search", name: "q", value: now.q || "", placeholder: "task, action, \u2026", "aria-label": "Text in task, name or actions", autocomplete: "off", spellcheck: "false", oninput: () => change({ q: text.value }) });
  const deep = h("input", { type: "checkbox", name: "deep", checked: Boolean(now.deep), onchange: () => change({ deep: deep.checked ? "1" : null }) });
  const form = h("form", { class: "filters", role: "search", "aria-label": "Filter games", onsubmit: (event) => event.preventDefault() },
    h("label", { class: "wide" }, h("span", {}, "Text"), text), h("label", { class: "check" }, deep, h("span", {}, "also thoughts and answers")),
    choice("split", "Split", unique((game) => [game.split]).map((one) => [one, splitName(one)])),
    choice("type", "Task type", unique((game) => [game.type]).map((one) => [one, typeName(one)])),
    IS_RUN ? choice("update", "Update", unique((game) => [game.update]).map((one) => [one, one])) : null,
    choice("outcome", "Outcome", outcomes()),
    choice("stop", "Ended by", unique((game) => game.plays.map((play) => play.stop)).sort((a, b) => stopRank(a) - stopRank(b)).map((one) => [one, stopName(one)])),
    h("label", {}, h("span", {}, "Order"), h("select", { name: "sort", onchange: (event) => change({ sort: event.target.value }) },
      Object.entries(SORTS).map(([value, [name]]) => h("option", { value, selected: (now.sort || defaultSort()) === value }, name)))),
    h("button", { type: "button", class: "quiet", onclick: () => { address.replace(Object.fromEntries(FILTERS.map((name) => [name, null]))); route(); byId("games").scrollIntoView(); } }, "Clear"));

  let asked = 0;
  async function change(changes) {
    address.replace(changes);
    limit = PAGE;
    const mine = ++asked, wanted = filters();
    if (wanted.deep && wanted.q) {
      say("Searching");
      await Promise.all(INDEX.games.map(wholeText));
      if (mine !== asked) return;
    }
    draw();
  }

  function draw() {
    const found = chosen(), shown = found.slice(0, limit);
    body.replaceChildren(...shown.map(row));
    const words = found.length === INDEX.games.length ? `All ${plural(found.length, IS_RUN ? "group" : "game")}` : `${found.length} of ${plural(INDEX.games.length, IS_RUN ? "group" : "game")}`;
    count.textContent = words;
    say(words);
    more.replaceChildren(...(found.length > limit ? [h("button", { type: "button", onclick: () => { limit += PAGE; draw(); } }, `Show ${Math.min(PAGE, found.length - limit)} more`)] : []));
  }

  const columns = RESULTS.map((_, place) => resultName(place));
  change({});
  return section(IS_RUN ? "Trajectories" : "Games", "games", form, count, h("div", { class: "scroller", role: "region", "aria-label": "Table of games", tabindex: "0" }, h("table", { class: "games" },
    h("thead", {}, h("tr", {}, IS_RUN ? h("th", { scope: "col" }, "Update") : null, h("th", { scope: "col" }, "Game"), IS_RUN ? h("th", { scope: "col" }, "Kept trajectories, best first: steps, reward, turns") : columns.map((column) => h("th", { scope: "col" }, column)))), body)), more, key());
}

function row(game) {
  return h("tr", { class: flipped(game) ? "flipped" : null },
    IS_RUN ? h("td", { class: "update" }, game.update) : null,
    h("th", { scope: "row" }, h("a", { href: address.with({ game: game.id, play: null, beside: game.plays.length > 1 ? defaultBeside(game) : null, turn: null }) }, game.task || game.id),
      h("small", { class: "under" }, game.type ? typeName(game.type) : "", game.split && !IS_RUN ? ` \u00b7 ${splitName(game.split)}` : "", game.type ? ` \u00b7 ${shortId(game)}` : game.id)),
    IS_RUN ? h("td", {}, game.plays.map((play, place) => chip(game, play, place))) :
      RESULTS.map((_, result) => h("td", {}, game.plays.map((play, place) => (play.result === result ? chip(game, play, place) : null)))));
}

/** The second pane that a game opens with: the last result, or a group's worst trajectory. */
function defaultBeside(game) {
  return game.plays.length - 1;
}
/** A game's name without what its row says already: floor plan and trial. */
function shortId(game) {
  const found = /-(\d+)\/trial_(\w+)$/.exec(game.game);
  return found ? `scene ${found[1]}, ${found[2]}` : game.game;
}

/** One trajectory: outcome, steps, and its turns as a strip. */
function chip(game, play, place) {
  const words = [play.won ? "won" : stopName(play.stop), isNumber(play.steps) ? plural(play.steps, "step") : null, play.invalid ? `${play.invalid} invalid` : null,
    IS_RUN ? `reward ${number(play.reward)}` : null].filter(Boolean).join(", ");
  return h("a", { class: `chip ${play.won ? "won" : "lost"}`, href: address.with({ game: game.id, play: place || null, beside: null, turn: null }), title: words },
    IS_RUN ? null : h("span", { class: "whose-dot", "aria-hidden": "true" }, dot(play.result)), h("span", { class: "unseen" }, `${playLabel(game, play)}: ${words}`),
    h("span", { "aria-hidden": "true", class: "sign" }, play.won ? "\u2713" : "\u2717"), h("span", { "aria-hidden": "true", class: "steps" }, play.steps ?? ""),
    IS_RUN ? h("span", { "aria-hidden": "true", class: "reward" }, signed(play.reward)) : null, strip(play));
}

function playLabel(game, play) {
  if (IS_RUN) return `Trajectory ${play.branch}`;
  const samples = playsOf(game, play.result).length;
  return RESULTS[play.result].label + (samples > 1 ? `, sample ${play.sample}` : "");
}

/** A trajectory at a glance: a cell a turn, coloured by what became of it. */
function strip(play, className = "strip") {
  return h("span", { class: className, "aria-hidden": "true" }, [...play.kinds].map((kind, turn) =>
    h("i", { class: `k-${play.won && turn === play.kinds.length - 1 ? "w" : kind}` })));
}

const KINDS = { o: "done", r: "the same again, with the same answer", x: "refused by the game", f: "no action in the message", w: "the winning step" };
function key() {
  return h("ul", { class: "legend fine" }, Object.entries(KINDS).map(([kind, name]) => h("li", {}, h("i", { class: `cell k-${kind}` }), name)));
}
