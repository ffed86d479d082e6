// One game, turn by turn: what was answered, what could be done, what the model said and did, and the house so far.

let current = null; // the replay on the page, for the keyboard

async function replay(game) {
  const asked = address.read();
  const plays = game.plays;
  const place = clamp(Number(asked.play) || 0, 0, plays.length - 1);
  const other = asked.beside !== undefined ? clamp(Number(asked.beside) || 0, 0, plays.length - 1) : null;
  const panes = [place, ...(other !== null && other !== place ? [other] : [])];
  const all = await details(game);
  const contents = panes.map((one) => ({ turns: [], ...all[one] }));
  const length = Math.max(...contents.map((one) => one.turns.length));
  const order = chosen(), at = order.indexOf(game);
  const neighbour = (step) => (at >= 0 ? order[at + step] : undefined);
  const linkTo = (target) => address.with({ game: target.id, play: null, turn: null, beside: panes.length > 1 && target.plays.length > 1 ? defaultBeside(target) : null });
  const back = address.with({ game: null, play: null, beside: null, turn: null });

  const maps = contents.map((one, pane) => (one.opening?.house?.places || one.turns.some((turn) => turn.house) ? houseMap(one, panes.length > 1 ? paneName(pane) : "") : null));
  function paneName(pane) { return playLabel(game, plays[panes[pane]]); }
  const parted = panes.length > 1 ? contents[0].turns.findIndex((turn, number) => turn.action !== contents[1].turns[number]?.action) : -1;

  const rows = [h("li", { class: "turn", tabindex: "-1", "data-turn": 0 }, contents.map((one) => opening(one)))];
  for (let number = 1; number <= length; number++) {
    rows.push(h("li", { class: "turn", tabindex: "-1", "data-turn": number },
      number - 1 === parted ? h("p", { class: "parted" }, number === 1 ? "they differ from the first turn" : "here they part") : null,
      contents.map((one) => (one.turns[number - 1] ? cell(one, number) : h("div", { class: "cell ended" }, one.turns.length === number - 1 ? "ended" : "")))));
  }

  const slider = h("input", { type: "range", min: 0, max: length, value: 0, "aria-label": "Turn", oninput: () => show(Number(slider.value), { scroll: true }) });
  const where = h("output");
  const step = (by, sign, label) => h("button", { type: "button", "aria-label": label, title: label, onclick: () => show(turn + by, { scroll: true }) }, sign);
  const strips = h("div", { class: "strips" }, panes.map((one) => timeline(plays[one], length)));
  const controls = h("div", { class: "controls" }, step(-1, "\u2039", "turn before (k)"), slider, step(1, "\u203a", "next turn (j)"), where, strips);
  const side = h("aside", { class: "side", "aria-label": "Turn and house" }, controls,
    maps.some(Boolean) ? h("details", { class: "maps", open: innerWidth > 860 }, h("summary", {}, "House as the agent knows it"), maps.map((map, pane) => map && h("div", {}, panes.length > 1 ? h("p", { class: "whose" }, paneTitle(pane)) : null, map))) : null);
  function paneTitle(pane) { const play = plays[panes[pane]]; return IS_RUN ? h("b", {}, playLabel(game, play)) : [dot(play.result), " ", h("b", {}, playLabel(game, play))]; }

  let turn = -1, quiet = 0;
  function show(wanted, { scroll = false, focus = false } = {}) {
    const next = clamp(wanted, 0, length);
    if (next !== turn) {
      rows[turn]?.classList.remove("current");
      rows[turn]?.removeAttribute("aria-current");
      turn = next;
      rows[turn].classList.add("current");
      rows[turn].setAttribute("aria-current", "step");
      slider.value = turn;
      const words = turn ? `Turn ${turn} of ${length}` : "The beginning";
      slider.setAttribute("aria-valuetext", [words, contents[0].turns[turn - 1]?.action].filter(Boolean).join(": "));
      where.textContent = `${turn} / ${length}`;
      for (const map of maps) map?.show(turn);
      for (const line of strips.children) [...line.querySelectorAll("i")].forEach((mark, number) => mark.classList.toggle("now", number === turn - 1));
      address.replace({ turn: turn || null });
    }
    if (scroll) {
      quiet = performance.now() + 300;
      const top = rows[turn].getBoundingClientRect().top + scrollY - innerHeight * READING + 4;
      scrollTo({ top: turn ? top : 0, behavior: "instant" });
    }
    if (focus) rows[turn].focus({ preventScroll: true });
  }
  function timeline(play, total) {
    return h("div", { class: "strip long", "aria-hidden": "true", vars: { "--turns": total } }, [...play.kinds].map((kind, number) =>
      h("i", { class: `k-${play.won && number === play.kinds.length - 1 ? "w" : kind}`, title: `turn ${number + 1}`, onclick: () => show(number + 1, { scroll: true }) })));
  }
  function follow() {
    if (performance.now() < quiet) return;
    let found = 0;
    for (let number = 0; number < rows.length && rows[number].getBoundingClientRect().top <= innerHeight * READING + 5; number++) found = number;
    show(found);
  }

  const goTo = (target, word, sign) => (target ? h("a", { class: "step", href: linkTo(target), rel: word, title: `${word === "next" ? "next" : "previous"} game: ${target.task || target.id}` }, sign) : null);
  const article = h("article", { class: `replay panes-${panes.length}` },
    h("nav", { class: "crumbs", "aria-label": "Games" }, h("a", { href: back }, "\u2190 ", IS_RUN ? "All trajectories" : "All games"),
      h("span", { class: "steps-between" }, goTo(neighbour(-1), "prev", "\u2039 previous"), at >= 0 ? h("small", {}, `${at + 1} of ${order.length}`) : null, goTo(neighbour(1), "next", "next \u203a"))),
    h("h1", { id: "game-title", tabindex: "-1" }, game.task || game.id),
    h("p", { class: "fine" }, [IS_RUN ? `update ${game.update}` : splitName(game.split), game.type && typeName(game.type)].filter(Boolean).join(" \u00b7 "), " \u00b7 ", h("code", {}, game.game)),
    h("ul", { class: "plays", "aria-label": "Trajectories of this game" }, plays.map((play, number) => h("li", { class: panes.includes(number) ? "shown" : null, vars: IS_RUN ? {} : { "--own": colour(play.result) } },
      h("a", { href: address.with({ game: game.id, play: number || null, beside: null }), "aria-current": number === place ? "true" : null }, paneLink(play)),
      plays.length > 1 && number !== place ? h("a", { class: "beside", href: address.with({ game: game.id, play: place || null, beside: number }), title: "show beside the first", "aria-label": `${playLabel(game, play)} beside` }, "beside") : null))),
    h("div", { class: "stage" },
      h("div", { class: "script" }, panes.length > 1 ? h("div", { class: "heads" }, panes.map((one, pane) => h("div", {}, paneTitle(pane), " ", h("small", {}, outcome(plays[one]))))) : null,
        contents.some((one) => one.opening) ? h("ol", { class: "turns", "aria-label": "Turns" }, rows) : h("p", { class: "note" }, "This file holds no messages of this game, so it cannot be replayed.")),
      side));
  function paneLink(play) { return [IS_RUN ? null : dot(play.result), IS_RUN ? null : " ", h("b", {}, playLabel(game, play)), " ", h("small", {}, outcome(play))]; }
  function outcome(play) {
    const parts = [play.won ? "\u2713 won" : `\u2717 ${stopName(play.stop)}`, isNumber(play.steps) ? plural(play.steps, "step") : null, play.invalid ? `${play.invalid} invalid` : null, isNumber(play.reward) ? `reward ${number(play.reward)}` : null,
      isNumber(play.advantage) ? `advantage ${signed(play.advantage)}` : null];
    for (const [name, value] of Object.entries(play.parts || {})) parts.push(`${name} ${signed(value)}`);
    return parts.filter(Boolean).join(" \u00b7 ");
  }

  current = { show, get turn() { return turn; }, neighbour: (by) => neighbour(by) && linkTo(neighbour(by)), back, plays: plays.length, follow,
    pick: (one) => one < plays.length && address.with({ play: one || null, beside: null }), beside: () => (plays.length > 1 ? address.with({ beside: panes.length > 1 ? null : place === defaultBeside(game) ? 0 : defaultBeside(game) }) : null) };
  return { article, start: () => show(Number(asked.turn) || 0, { scroll: true }) };
}

const READING = 0.24; // of the window's height, where the turn that is read stands

function opening(play) {
  if (!play.opening && !play.system) return h("div", { class: "cell" });
  return h("div", { class: "cell opening" }, play.system ? h("details", {}, h("summary", {}, "Instructions to the model"), h("p", { class: "said" }, play.system)) : null, h("p", { class: "observation" }, play.opening?.text || ""));
}

function cell(play, number) {
  const turn = play.turns[number - 1], before = number > 1 ? play.turns[number - 2] : play.opening || {};
  const offered = before.commands;
  const kind = turn.kind === "x" ? "refused" : turn.kind === "f" ? "none" : "";
  const earlier = play.turns[number - 2];
  const echo = earlier && earlier.action === turn.action && earlier.observation === turn.observation && turn.kind !== "f" ? "echo" : "";
  return h("div", { class: `cell ${kind} ${echo}` },
    h("div", { class: "head" }, h("h2", {}, h("a", { class: "no", href: address.with({ turn: number }), title: "link to this turn" }, h("span", { class: "unseen" }, "Turn "), number),
      turn.action !== undefined ? h("code", { class: "action" }, turn.action) : h("span", { class: "action" }, "no action"), " ", badges(turn)),
      h("div", { class: "more" }, offered ? lazy(plural(offered.length, "command"), () => h("ul", { class: "offered" }, offered.map((one) => h("li", { class: sameCommand(one, turn.action) ? "taken" : null }, h("code", {}, one)))), "commands on offer before this turn") : null,
        turn.logprobs && turn.logprobs.length ? lazy("tokens", () => probabilities(turn), "every token with the probability that the model gave it") : null, turn.raw ? lazy("raw", () => h("pre", { tabindex: "0" }, turn.raw), "the message as it was written") : null)),
    turn.thought ? h("details", { class: "thought" }, h("summary", {}, `Thought, ${plural(turn.thought.split(/\s+/).length, "word")}`), h("p", { class: "said" }, turn.thought)) : null,
    turn.words ? h("p", { class: "said" }, turn.words) : null,
    turn.action === undefined && !turn.words ? h("p", { class: "said raw" }, turn.raw || "(an empty message)") : null,
    turn.observation !== undefined ? h("p", { class: "observation" }, turn.observation) : null);
}

const sameCommand = (one, action) => action !== undefined && one.trim().toLowerCase() === action.trim().toLowerCase();
const ordinal = (count) => `${count}${count % 10 === 1 && count % 100 !== 11 ? "st" : count % 10 === 2 && count % 100 !== 12 ? "nd" : count % 10 === 3 && count % 100 !== 13 ? "rd" : "th"}`;

function badges(turn) {
  const found = [];
  const badge = (className, text, title) => found.push(h("span", { class: `badge ${className}`, title }, text), " ");
  if (turn.kind === "x") badge("bad", turn.why ? `refused: ${turn.why}` : "refused", "the game answered that nothing happens" + (turn.why ? "; the reason is worked out from what the agent had read" : ""));
  if (turn.kind === "f" && turn.action === undefined) badge("bad", "not a call", "no action could be read from this message");
  if (turn.cut) badge("bad", "cut off", "a token limit ended the trajectory here");
  if (turn.again) badge(turn.kind === "o" ? "" : "warn", [h("span", { "aria-hidden": "true" }, `\u00d7${turn.again + 1}`), h("span", { class: "unseen" }, `${ordinal(turn.again + 1)} time`)], `${ordinal(turn.again + 1)} time: ` + (turn.kind === "r" ? "the same action with the same answer as before" : "this action was taken before"));
  if (turn.logprobs && turn.logprobs.length) {
    const known = turn.logprobs.filter(isNumber), chance = Math.exp(known.reduce((sum, one) => sum + one, 0)), least = Math.exp(Math.min(...known));
    badge("chance", percent(chance, chance < 0.1 ? 1 : 0), `the model's probability of this whole message; its least likely token had ${percent(least)}`);
  }
  if (isNumber(turn.advantage)) badge(turn.advantage >= 0.005 ? "up" : turn.advantage <= -0.005 ? "down" : "", [h("span", { "aria-hidden": "true" }, "adv "), h("span", { class: "unseen" }, "advantage "), signed(turn.advantage)], "advantage of this step");
  return found;
}

/** Every token with its probability; unlikely ones stand out. */
function probabilities(turn) {
  const texts = turn.tokens && turn.tokens.length === turn.logprobs.length ? turn.tokens : null;
  return h("p", { class: "tokens" }, turn.logprobs.map((logprob, place) => {
    const chance = isNumber(logprob) ? Math.exp(logprob) : 0;
    return h("span", { vars: { "--doubt": (1 - chance).toFixed(3) }, title: percent(chance, 2) }, texts ? String(texts[place]) : h("small", {}, percent(chance, 0)), texts ? h("small", {}, percent(chance, 0)) : " ");
  }));
}

/** A fold whose content is made when it is opened. */
function lazy(title, content, words) {
  const box = h("details", { title: words, ontoggle: () => { if (box.open && box.children.length === 1) box.append(content()); } }, h("summary", {}, title));
  return box;
}
