// The bar, the address, the keyboard.

const THEMES = ["auto", "light", "dark"];
const KEYS = [
  ["j, \u2192", "next turn"], ["k, \u2190", "turn before"], ["Home, End", "first, last turn"], ["n, p", "next, previous game, as the table is filtered and ordered"], ["1 \u2026 9", "another trajectory of the game"],
  ["b", "two trajectories beside each other"], ["m", "open or close the house"], ["Esc", "back to the overview"], ["/", "search in the table of games"], ["t", "light, dark or as the system has it"], ["?", "these keys"],
];
let overviewAt = 0, shownGame = null;

const system = matchMedia("(prefers-color-scheme: dark)");
let chosenTheme = "auto";
function theme(name) {
  chosenTheme = name;
  document.documentElement.dataset.theme = name === "auto" ? (system.matches ? "dark" : "light") : name;
  themeButton.textContent = { auto: "\u25d0", light: "\u2600", dark: "\u263e" }[name];
  themeButton.setAttribute("aria-label", `Colours: ${name}`);
}
system.addEventListener("change", () => theme(chosenTheme));
const themeButton = h("button", { type: "button", class: "icon", title: "colours: system, light, dark (t)", onclick: nextTheme });
function nextTheme() {
  theme(THEMES[(THEMES.indexOf(chosenTheme) + 1) % THEMES.length]);
  remembered("alfworld-report-theme", chosenTheme);
}

const help = h("dialog", { class: "help", "aria-labelledby": "help-title" }, h("h2", { id: "help-title" }, "Keys"),
  h("dl", {}, KEYS.map(([keys, what]) => [h("dt", {}, keys.split(", ").map((one, place) => [place ? ", " : null, h("kbd", {}, one)])), h("dd", {}, what)])),
  h("p", { class: "fine" }, "Everything chosen stands in the address: copy it to show someone this view."), h("form", { method: "dialog" }, h("button", {}, "Close")));

function bar() {
  byId("bar").append(h("a", { class: "brand", href: "#" }, "ALFWorld ", IS_RUN ? "run" : "report"),
    h("nav", { "aria-label": "Sections" }, h("a", { href: "#", "data-jump": "top" }, "Overview"), INDEX.games.length ? h("a", { href: "#", "data-jump": "games" }, IS_RUN ? "Trajectories" : "Games") : null),
    h("span", { class: "right" }, themeButton, h("button", { type: "button", class: "icon", "aria-label": "Keys", title: "keys (?)", onclick: () => help.showModal() }, "?")));
  document.body.append(help);
}

/** Show what the address asks for. */
async function route() {
  const asked = address.read(), game = GAMES.get(asked.game);
  const main = byId("main");
  if (!shownGame && main.dataset.view === "overview") overviewAt = scrollY;
  if (!game) {
    const from = shownGame;
    current = shownGame = null;
    main.dataset.view = "overview";
    document.title = INDEX.title;
    main.replaceChildren(...[h("h1", { tabindex: "-1", id: "title" }, INDEX.title), ...(IS_RUN ? run() : overview()), games(), footer(), asked.game ? h("p", { class: "note", role: "alert" }, `There is no game ${asked.game} in this report.`) : null].flat(3).filter(Boolean));
    if (from) {
      scrollTo({ top: overviewAt, behavior: "instant" });
      main.querySelectorAll("tbody th a").forEach((link) => { if (new URLSearchParams(link.hash.slice(1)).get("game") === from) link.focus({ preventScroll: true }); });
    }
    return;
  }
  try {
    const { article, start } = await replay(game);
    const changed = shownGame !== game.id;
    shownGame = game.id;
    main.dataset.view = "replay";
    document.title = `${game.task || game.id} \u00b7 ${INDEX.title}`;
    main.replaceChildren(article);
    start();
    if (changed) byId("game-title").focus({ preventScroll: true });
  } catch (error) {
    main.replaceChildren(h("p", { class: "note", role: "alert" }, `This game cannot be shown: ${error.message}.`), h("p", {}, h("a", { href: "#" }, "Back to the overview")));
  }
}

function footer() {
  return h("footer", { class: "fine" }, `Made by alfworld-rl ${INDEX.version || ""} from ${INDEX.files.join(", ")}. This page is one file and asks no network for anything.`);
}

addEventListener("hashchange", route);
let waiting = false;
addEventListener("scroll", () => {
  if (!current || waiting) return;
  waiting = true;
  requestAnimationFrame(() => { waiting = false; current?.follow(); });
}, { passive: true });

// Links that lead to a place on the overview: the address changes first, then the page scrolls there.
addEventListener("click", (event) => {
  const link = event.target.closest?.("a[data-jump]");
  if (!link || event.metaKey || event.ctrlKey || event.shiftKey || event.button) return;
  event.preventDefault();
  const target = link.dataset.jump;
  const wanted = link.getAttribute("href");
  if (location.hash !== wanted && !(wanted === "#" && !location.hash)) history.pushState(null, "", wanted);
  route().then(() => { if (target === "top") scrollTo(0, 0); else { byId(target)?.scrollIntoView(); byId(`${target}-title`)?.setAttribute("tabindex", "-1"); byId(`${target}-title`)?.focus({ preventScroll: true }); } });
});
byId("skip").addEventListener("click", (event) => { event.preventDefault(); byId("main").focus(); });

addEventListener("keydown", (event) => {
  if (event.defaultPrevented || event.metaKey || event.ctrlKey || event.altKey || help.open) return;
  const field = event.target.closest?.("input, select, textarea");
  if (event.key === "Escape" && field) { field.blur(); return; }
  if (field) return;
  const go = (link) => { if (link) location.hash = link; };
  const keys = {
    "?": () => help.showModal(), t: nextTheme,
    "/": () => { if (current) go(current.back); setTimeout(() => { document.querySelector("input[name=q]")?.focus(); byId("games")?.scrollIntoView(); }, 50); },
  };
  if (current) Object.assign(keys, {
    j: () => current.show(current.turn + 1, { scroll: true, focus: true }), k: () => current.show(current.turn - 1, { scroll: true, focus: true }),
    Home: () => current.show(0, { scroll: true, focus: true }), End: () => current.show(Infinity, { scroll: true, focus: true }),
    n: () => go(current.neighbour(1)), p: () => go(current.neighbour(-1)), b: () => go(current.beside()), Escape: () => go(current.back),
    m: () => { const maps = document.querySelector("details.maps"); if (maps) maps.open = !maps.open; },
  });
  keys.ArrowRight = keys.j;
  keys.ArrowLeft = keys.k;
  if (current && /^[1-9]$/.test(event.key)) keys[event.key] = () => go(current.pick(Number(event.key) - 1));
  if (keys[event.key]) { event.preventDefault(); keys[event.key](); }
});

bar();
theme(THEMES.includes(remembered("alfworld-report-theme")) ? remembered("alfworld-report-theme") : "auto");
route().then(() => { document.documentElement.dataset.ready = "true"; });
