// Line charts in SVG, drawn for the width that they have. They take their colours from the style sheet, so they follow
// light and dark and print as they are. A pointer reads them; an aria-label says what they show.

const EDGES = { right: 12, top: 8, bottom: 24 };

/** Round numbers that span [low, high], about `count` of them. */
function ticks(low, high, count) {
  const rough = (high - low || 1) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((one) => one * power).find((one) => one >= rough) || power;
  const found = [];
  for (let at = Math.ceil(low / step - 1e-9) * step; at <= high + step * 1e-6; at += step) found.push(Math.abs(at) < step * 1e-9 ? 0 : at);
  return found;
}

/** A moving mean over at most `window` values up to each; what is no number is passed over. */
function smooth(values, window) {
  return values.map((_, end) => {
    const seen = values.slice(Math.max(0, end - window + 1), end + 1).filter(isNumber);
    return seen.length ? mean(seen) : null;
  });
}

/**
 * A line chart: {label, x: [...], series: [{name, colour, values, faint, dashed}], height, low, high, format, xName,
 * stack, steps, sparse (values stand at some places only; they are marked and joined)}. `onread(index)` is told which place the pointer reads, or null. Returns an element with `read(index)`.
 */
function lineChart(options) {
  const { x, series, height = 180, format = brief, xName = "", onread } = options;
  const box = h("div", { class: "chart" });
  let cursor = null, scaleX = null, scaleY = null, margin = null;
  const layers = options.stack ? stacked(series) : series;
  const all = layers.flatMap((one) => one.values.concat(one.base || [])).filter(isNumber);
  let low = options.low ?? Math.min(...all), high = options.high ?? Math.max(...all);
  if (!all.length) { low = 0; high = 1; }
  if (options.low === undefined && low > 0 && low < high * 0.6) low = 0;
  if (high - low < 1e-12) { high += Math.abs(high) * 0.1 || 1; low = Math.min(low, low >= 0 ? Math.max(0, low - 1) : low); }
  if (options.high === undefined) high += (high - low) * 0.06;
  if (options.low === undefined && low < 0) low -= (high - low) * 0.06;

  function draw() {
    const width = Math.max(box.clientWidth, 160);
    const yTicks = ticks(low, high, height < 150 ? 3 : 4);
    margin = { ...EDGES, left: 14 + 6.3 * Math.max(...yTicks.map((at) => format(at).length)) };
    const inner = { width: width - margin.left - margin.right, height: height - margin.top - margin.bottom };
    const first = x[0] ?? 0, last = x[x.length - 1] ?? 1;
    scaleX = (value) => margin.left + (last === first ? inner.width / 2 : ((value - first) / (last - first)) * inner.width);
    scaleY = (value) => margin.top + (1 - (value - low) / (high - low)) * inner.height;
    const xTicks = ticks(first, last, Math.max(2, inner.width / 70)).filter(Number.isInteger);
    cursor = svg("g", { class: "cursor" });
    box.replaceChildren(svg("svg", { width, height, role: "img", "aria-label": options.label },
      yTicks.map((at) => svg("g", {},
        svg("line", { class: "grid", x1: margin.left, x2: width - margin.right, y1: scaleY(at), y2: scaleY(at) }),
        svg("text", { class: "tick", x: margin.left - 6, y: scaleY(at) + 3.5, "text-anchor": "end" }, format(at)))),
      xTicks.map((at) => svg("text", { class: "tick", x: scaleX(at), y: height - 6, "text-anchor": "middle" }, at)),
      svg("line", { class: "axis", x1: margin.left, x2: width - margin.right, y1: scaleY(Math.max(low, 0)), y2: scaleY(Math.max(low, 0)) }),
      layers.map((one) => (one.base
        ? svg("path", { class: "area", d: area(one), vars: { fill: one.colour } })
        : x.length === 1
          ? one.values.filter(isNumber).map((value) => svg("circle", { cx: scaleX(x[0]), cy: scaleY(value), r: one.faint ? 2 : 3.5, vars: { fill: one.colour } }))
          : svg("path", { class: "line" + (one.faint ? " faint" : ""), d: path(one.values, options.steps), vars: { stroke: one.colour }, "stroke-dasharray": one.dashed ? "5 3" : null }))),
      options.sparse ? layers.flatMap((one) => one.values.map((value, place) => (isNumber(value) ? svg("circle", { cx: scaleX(x[place]), cy: scaleY(value), r: 2.5, vars: { fill: one.colour } }) : null))) : null,
      cursor));
  }

  function path(values, steps) {
    let d = "", pen = false;
    values.forEach((value, place) => {
      if (!isNumber(value)) { pen = pen && options.sparse; return; }
      const at = `${scaleX(x[place]).toFixed(1)} ${scaleY(clamp(value, low, high)).toFixed(1)}`;
      d += pen ? (steps ? `H${at.split(" ")[0]}V${at.split(" ")[1]}` : `L${at}`) : `M${at}`;
      pen = true;
    });
    return d;
  }

  function area(one) {
    const top = one.values.map((value, place) => `${scaleX(x[place]).toFixed(1)} ${scaleY(value).toFixed(1)}`);
    const under = one.base.map((value, place) => `${scaleX(x[place]).toFixed(1)} ${scaleY(value).toFixed(1)}`).reverse();
    return `M${top.concat(under).join("L")}Z`;
  }

  function place(event) {
    const from = box.getBoundingClientRect().left;
    let best = 0;
    x.forEach((value, index) => {
      if (Math.abs(scaleX(value) + from - event.clientX) < Math.abs(scaleX(x[best]) + from - event.clientX)) best = index;
    });
    return best;
  }

  /** Mark one place, or none. */
  box.read = (index) => {
    if (!cursor || !scaleX) return;
    cursor.replaceChildren();
    if (index === null || index >= x.length) return;
    cursor.append(svg("line", { x1: scaleX(x[index]), x2: scaleX(x[index]), y1: margin.top, y2: height - margin.bottom }));
    for (const one of layers) {
      if (!one.faint && isNumber(one.values[index])) cursor.append(svg("circle", { cx: scaleX(x[index]), cy: scaleY(clamp(one.values[index], low, high)), r: 3.5, vars: { fill: one.colour } }));
    }
  };

  box.addEventListener("pointermove", (event) => {
    if (!x.length || !scaleX) return;
    const index = place(event);
    (onread || box.read)(index);
    hover(event, [
      h("b", {}, `${xName} ${x[index]}`.trim()),
      series.filter((one) => !one.silent && isNumber(one.values[index])).map((one) => h("div", { class: "key" },
        h("i", { class: "dot", vars: { background: one.colour } }), one.name, h("span", {}, format(one.values[index])))),
    ]);
  });
  box.addEventListener("pointerleave", () => { (onread || box.read)(null); hover(null); });
  new ResizeObserver(draw).observe(box);
  return box;
}

function stacked(series) {
  let base = series[0] ? series[0].values.map(() => 0) : [];
  return series.map((one) => {
    const values = one.values.map((value, place) => base[place] + (isNumber(value) ? value : 0));
    const layer = { ...one, values, base };
    base = values;
    return layer;
  });
}

/** The small card beside the pointer; null hides it. */
function hover(event, content) {
  const card = byId("hover");
  card.hidden = !event;
  if (!event) return;
  card.replaceChildren(...content.flat(2));
  const { width, height } = card.getBoundingClientRect();
  const right = event.clientX + 16 + width < innerWidth;
  card.style.left = `${right ? event.clientX + 14 : Math.max(4, event.clientX - width - 14)}px`;
  card.style.top = `${clamp(event.clientY - height - 12, 4, innerHeight - height - 4)}px`;
}

/** What the lines of a chart are. */
function legend(series) {
  return h("ul", { class: "legend" }, series.map((one) => h("li", {}, h("i", { class: "dot", vars: { background: one.colour } }), one.name)));
}
