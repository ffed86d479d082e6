// The house as the agent knows it: receptacles, what was seen in them, what it holds. Positions are nobody's secret but
// the text's: it names places without saying where they are, so kinds stand together and a line shows the way walked.

const STATE_MARKS = { hot: "hot", cold: "cold", clean: "clean", sliced: "cut", on: "on" };

/** What is known after the opening (place 0) and after each turn's answer. */
function knowledge(play) {
  let now = { at: null, hand: [], places: {}, states: {}, visited: [] };
  const follow = (change) => {
    now = { at: change?.at || now.at, hand: change?.hand || now.hand, places: { ...now.places, ...(change?.places || {}) }, states: { ...now.states, ...(change?.states || {}) },
      visited: change?.at && change.at !== now.at ? [...now.visited, change.at] : now.visited };
    return now;
  };
  return [follow(play.opening?.house), ...play.turns.map((turn) => follow(turn.house))];
}

/** A map of one trajectory's house; `show(turn)` sets the turn. */
function houseMap(play, name) {
  const known = knowledge(play), last = known[known.length - 1];
  const goal = play.goal || {};
  const kindOf = (thing) => thing.replace(/ \d+$/, "");
  const numberOf = (thing) => Number(/\d+$/.exec(thing)?.[0] || 0);
  const isDoor = (open) => open === true || open === false;
  const isGoal = (thing) => kindOf(thing) === goal.object || kindOf(thing) === goal.place;
  // Everything ever seen in a place has its room from the start, so that the map does not jump.
  const ever = {};
  for (const state of known) for (const [place, one] of Object.entries(state.places)) {
    ever[place] ??= new Set();
    for (const item of one.items || []) ever[place].add(item);
  }
  const kinds = new Map();
  for (const place of Object.keys(last.places)) kinds.set(kindOf(place), [...(kinds.get(kindOf(place)) || []), place]);
  const groups = [...kinds].sort((a, b) => b[1].length - a[1].length || (a[0] < b[0] ? -1 : 1));
  const tiles = new Map();

  function tile(place, alone) {
    const items = [...(ever[place] || [])].sort((a, b) => Number(isGoal(b)) - Number(isGoal(a)) || (a < b ? -1 : 1)).map((item) => {
      const states = h("small"), gone = h("span", { class: "unseen" });
      return { item, states, gone, element: h("li", { class: isGoal(item) ? "goal" : null }, item, states, gone) };
    });
    const door = h("span", { class: "door" });
    const doored = known.some((state) => isDoor(state.places[place]?.open));
    const size = items.length > 8 ? "full" : items.length > 3 ? "wide" : alone || doored || items.length ? "plain" : "small";
    const element = h("li", { class: `tile ${size}${kindOf(place) === goal.place ? " goal" : ""}` },
      h("span", { class: "name" }, alone ? place : [h("span", { class: "unseen" }, kindOf(place)), " ", numberOf(place)]), door, items.length ? h("ul", { class: "items" }, items.map((one) => one.element)) : null);
    tiles.set(place, { element, items, door });
    return element;
  }

  const multiple = groups.filter(([, places]) => places.length > 1), single = groups.filter(([, places]) => places.length === 1);
  const sorted = (places) => [...places].sort((a, b) => numberOf(a) - numberOf(b));
  const trail = svg("svg", { class: "trail", "aria-hidden": "true" });
  const hand = h("p", { class: "hand" });
  const plan = h("div", { class: "plan" },
    single.length ? h("ul", { class: "tiles singles", "aria-label": "Single receptacles" }, single.flatMap(([, places]) => places.map((place) => tile(place, true)))) : null,
    multiple.map(([kind, places]) => h("div", { class: "group" }, h("h3", {}, kind, h("small", {}, ` \u00d7 ${places.length}`)), h("ul", { class: "tiles", "aria-label": kind }, sorted(places).map((place) => tile(place, false))))), trail);
  const seenCount = h("small");
  const box = h("section", { class: "house", "aria-label": `House${name ? ` of ${name}` : ""}, as the agent knows it` }, h("h2", {}, play.room || "House", " ", seenCount), hand, plan);
  let shown = 0;
  // The turn at which an object was first seen in a place: before it, nothing is shown; when it has left, a trace stays.
  const since = new Map();
  known.forEach((state, turn) => { for (const [place, one] of Object.entries(state.places)) for (const item of one.items || []) if (!since.has(`${place} ${item}`)) since.set(`${place} ${item}`, turn); });

  box.show = (turn) => {
    shown = clamp(turn, 0, known.length - 1);
    const state = known[shown], before = known[Math.max(shown - 1, 0)];
    for (const [place, { element, items, door }] of tiles) {
      const one = state.places[place];
      const visited = state.visited.includes(place) || Boolean(one?.seen);
      element.classList.toggle("unknown", !one);
      element.classList.toggle("visited", visited);
      element.classList.toggle("closed", one?.open === false);
      element.classList.toggle("here", state.at === place);
      element.classList.toggle("changed", shown > 0 && state.places[place] !== before.places[place]);
      if (state.at === place) element.setAttribute("aria-current", "location"); else element.removeAttribute("aria-current");
      door.textContent = one?.open === false ? "closed" : one?.open ? "open" : visited ? "" : "not seen yet";
      door.classList.toggle("unseen", !visited);
      for (const each of items) {
        const there = Boolean(one?.items?.includes(each.item));
        each.element.classList.toggle("absent", !there && shown < since.get(`${place} ${each.item}`));
        each.element.classList.toggle("gone", !there);
        each.gone.textContent = there ? "" : " (taken away)";
        each.element.classList.toggle("new", shown > 0 && Boolean(one?.items?.includes(each.item)) && !before.places[place]?.items?.includes(each.item));
        each.states.textContent = (there ? state.states[each.item] || [] : []).map((word) => ` ${STATE_MARKS[word] || word}`).join("");
      }
    }
    hand.replaceChildren("In hand: ", ...(state.hand.length ? state.hand.map((thing) => h("b", { class: isGoal(thing) ? "goal" : null }, thing, h("small", {}, (state.states[thing] || []).map((word) => ` ${STATE_MARKS[word] || word}`).join("")))) : [h("span", {}, "nothing")]));
    const looked = Object.values(state.places).filter((one) => one.seen).length;
    seenCount.textContent = `${looked} of ${Object.keys(state.places).length} looked into`;
    walk(state.visited);
  };

  /** Draw the last moves as fading lines between the tiles. */
  function walk(visited) {
    const middle = (place) => {
      const element = tiles.get(place)?.element;
      return element && { x: element.offsetLeft + element.offsetWidth - 3, y: element.offsetTop + 3 };
    };
    const path = visited.slice(-5).map(middle).filter(Boolean);
    trail.setAttribute("width", plan.scrollWidth);
    trail.setAttribute("height", plan.scrollHeight);
    trail.replaceChildren(...path.slice(1).map((to, place) => {
      const from = path[place], bend = Math.min(30, Math.hypot(to.x - from.x, to.y - from.y) / 4);
      return svg("path", { d: `M${from.x} ${from.y}Q${(from.x + to.x) / 2 + bend} ${(from.y + to.y) / 2 - bend} ${to.x} ${to.y}`, opacity: (0.6 * (place + 1)) / path.length });
    }), ...path.slice(-1).map((at) => svg("circle", { cx: at.x, cy: at.y, r: 4 })));
  }
  new ResizeObserver(() => walk(known[shown].visited)).observe(plan);
  return box;
}
