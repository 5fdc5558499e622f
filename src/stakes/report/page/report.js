"use strict";
// The page: figures by Vega, controls that re-allocate, the gallery, the question list. All text is set as text.

const FACTS = JSON.parse(document.getElementById("facts").textContent);
const SPECS = JSON.parse(document.getElementById("specs").textContent);
const GALLERY = JSON.parse(document.getElementById("pictures").textContent);
const ASKED = JSON.parse(document.getElementById("asked").textContent);
const $ = (id) => document.getElementById(id);
const percent = (x) => (100 * x).toFixed(1) + " %";
const count = (x) => Math.round(x).toLocaleString("en-GB");
const views = {};
const OWN = FACTS.tiers.length ? FACTS.costs[FACTS.dearest] / FACTS.costs[FACTS.cheapest] : 1;
const state = { ratio: OWN, mean: FACTS.mean, basis: "fitted", overlay: $("overlay") ? $("overlay").value : "none" };

function put(id, text) { const node = $(id); if (node) node.textContent = text; }

function element(tag, text, className) {
  const node = document.createElement(tag);
  if (text !== undefined) node.textContent = text;
  if (className) node.className = className;
  return node;
}

async function drawFigures() {
  for (const [id, spec] of Object.entries(SPECS)) {
    const place = $("figure-" + id);
    if (!place) continue;
    const made = await window.vegaEmbed(place, spec, {
      mode: "vega-lite", renderer: "svg", actions: false, ast: true, defaultStyle: false, logLevel: 0, tooltip: { theme: "custom" },
    });
    views[id] = made.view;
  }
}

function fill(id, rows) {
  if (!views[id]) return;
  for (const [name, data] of Object.entries(rows)) views[id].data(name, data);
  views[id].resize().run();
}

// Labels at the right edge stand to the left of their point, and so on, so that none leaves the figure.
function aligned(budgets, at) {
  const low = Math.min(...budgets), high = Math.max(...budgets), where = (at - low) / (high - low || 1);
  return where > 0.85 ? "right" : where < 0.15 ? "left" : "center";
}

function measuredRows() {
  return FACTS.tiers.flatMap((t) => t.budgets.map((budget, i) => (
    { tier: t.name, budget, error: t.errors[i], low: t.low[i], high: t.high[i] })));
}

function overlayRows() {
  if (state.overlay === "none") return [];
  return FACTS.tiers.flatMap((t) => t.budgets.map((budget, i) => ({ tier: t.name, budget, error: t[state.overlay][i] })));
}

function update() {
  const ratio = state.ratio === OWN ? null : state.ratio;
  const now = settle(FACTS, ratio, state.mean, state.basis);
  const bad = now.best === undefined;
  $("infeasible").hidden = !bad;
  document.body.classList.toggle("bad", bad);
  if (bad) { put("infeasible", `A mean of ${state.mean} tokens is too small for the measured budgets; give at least ${now.least}.`); return; }
  drawCurves(now);
  drawFrontier(now);
  tellAllocation(now);
  drawArms();
  drawLatency(now);
  tellCost(now);
  markGallery(now.best.budgets);
  markQuestions(now.best.budgets);
  document.body.dataset.budgets = JSON.stringify(now.best.budgets);
  document.body.dataset.cwe = String(now.best.cwe);
}

function drawCurves(now) {
  const grid = FACTS.tiers.flatMap((t) => t.budgets);
  const chosen = FACTS.tiers.map((t) => {
    const budget = now.best.budgets[t.name];
    return { tier: t.name, budget, error: t.errors[t.budgets.indexOf(budget)], label: FACTS.tiers.length > 4 ? "" : `${t.name} ${budget}`, align: aligned(grid, budget) };
  });
  fill("curves", { measured: measuredRows(), overlay: overlayRows(), chosen });
}

// Where the lines' names stand: at their ends, lowest first, and never nearer to each other than a line of print.
function spaced(ends, lines) {
  const all = lines.map((row) => row.cwe), gap = 0.045 * (Math.max(...all) - Math.min(...all));
  let least = -Infinity;
  return [...ends].sort((a, b) => a.cwe - b.cwe).map((row) => {
    const place = Math.max(row.cwe, least);
    least = place + gap;
    return { ...row, place };
  });
}

function drawFrontier(now) {
  if (FACTS.tiers.length < 2) return;
  const ratios = [...new Set([...FACTS.ratios, state.ratio])].sort((a, b) => a - b);
  const rows = frontierAt(FACTS, state.mean, state.basis, ratios);
  const lines = rows.filter((row) => FACTS.ratios.includes(row.value));
  const best = FACTS.ratios.map((ratio) => {
    const { best: found } = settle(FACTS, ratio, state.mean, state.basis);
    return lines.find((row) => row.value === ratio && row.budget === found.budgets[FACTS.dearest]);
  }).filter(Boolean);
  const mine = rows.filter((row) => row.value === state.ratio);
  const at = now.best.budgets[FACTS.dearest], top = mine.find((row) => row.budget === at);
  const mark = top ? [{ ...top, label: `${at} at cost ratio ${top.ratio}`, align: aligned(mine.map((row) => row.budget), at) }] : [];
  const last = Math.max(...lines.map((row) => row.budget));
  const ends = spaced(lines.filter((row) => row.budget === last), lines).map((row) => ({ ...row, told: "r = " + row.ratio }));
  fill("frontier", { lines, ends, best, now: mine, mark });
}

function tellAllocation(now) {
  const body = $("allocation");
  body.replaceChildren(...now.tiers.map((t) => {
    const row = element("tr"), budget = now.best.budgets[t.name], own = FACTS.budgets[t.name];
    const edge = now.best.edges[t.name];
    const cells = [t.name, t.cost.toPrecision(3).replace(/\.?0+$/, ""), count(t.n), String(budget), String(own), percent(now.best.errors[t.name]),
      edge ? `on the ${edge === "both" ? "only" : edge} measured budget` : ""];
    cells.forEach((text, i) => row.append(element(i ? "td" : "th", text)));
    return row;
  }));
  const u = now.uniform;
  const parts = [`Expected cost-weighted error ${now.best.cwe.toFixed(4)} at ${now.mean.toFixed(1)} tokens an image`];
  if (u.cwe !== null) {
    const same = Object.values(now.best.budgets).every((b) => b === u.budget);
    parts.push(same ? "which is uniform itself: there is nothing to move at these costs"
      : `uniform at ${u.budget} tokens has ${u.cwe.toFixed(4)}`);
    if (!same && u.match !== null && u.match > now.mean) parts.push(`one budget for all would need ${u.match} tokens to do as well`);
    if (!same && u.match === null) parts.push("no measured budget for all does as well");
  }
  put("expected", parts.join("; ") + ".");
  const same = Object.entries(now.best.budgets).every(([t, b]) => FACTS.budgets[t] === b);
  put("against-policy", same ? "These are the policy's own budgets." : "The policy's own budgets differ at this setting (column “policy”).");
}

function drawArms() {
  const arms = FACTS.arms;
  if (!arms) return;
  const costs = { ...arms.costs };
  if (state.ratio !== OWN) costs[arms.dearest] = state.ratio * Math.min(...Object.values(arms.costs));
  const live = armsAt(arms, costs), rows = [];
  arms.rows.forEach((row, k) => {
    for (const tier of arms.tiers) {
      const [low, high] = row.intervals[tier];
      rows.push({ arm: row.arm, measure: "error " + tier, value: row.errors[tier], low, high });
    }
    const [low, high] = row.average_interval;
    rows.push({ arm: row.arm, measure: "average error", value: row.average, low, high });
    rows.push({ arm: row.arm, measure: "CWE", value: live[k].cwe, low: live[k].low, high: live[k].high });
    put("cwe-" + k, live[k].cwe.toFixed(3));
    if (live[k].gain) {
      const own = state.ratio === OWN, g = live[k].gain;
      const [value, from, to] = own ? row.gain : [g.value, g.low, g.high];
      const sign = (x) => (x < 0 ? "−" : "+") + Math.abs(x).toFixed(3);
      const span = row.few || `[${sign(from)}, ${sign(to)}]`;
      put("gain-" + k, `${sign(value)}${own ? "" : " ≈"}\n${span}`);
    }
  });
  fill("arms", { arms: rows });
  const mine = live.find((row) => row.arm === "cost"), even = live.find((row) => row.arm === "uniform");
  if (mine) {
    const g = mine.gain, few = arms.rows.find((row) => row.arm === "cost").few;
    const sure = few ? few : g.low > 0 ? "the cost arm is better" : g.high < 0 ? "uniform is better" : "the two cannot be told apart";
    put("arms-live", state.ratio === OWN ? "" : `If a mistake in ${arms.dearest} cost ${Number(state.ratio.toPrecision(6))} times another: CWE ${even.cwe.toFixed(3)} uniform, ${mine.cwe.toFixed(3)} cost; ${sure}.`);
  }
}

function drawLatency(now) {
  const marks = [...new Set(Object.values(now.best.budgets))].map((budget) => ({ budget }));
  fill("latency", { latency: FACTS.latency, marks });
}

function tellCost(now) {
  const native = FACTS.tiers.every((t) => FACTS.native[t.name] !== undefined)
    ? FACTS.tiers.reduce((sum, t) => sum + t.n * FACTS.native[t.name], 0) / samplesOf(FACTS) : null;
  put("tokens-now", now.mean.toFixed(1));
  const price = Number($("price").value), volume = Number($("volume").value);
  const known = price > 0 && volume > 0;
  const money = (tokens) => ((tokens * volume * price) / 1e6).toLocaleString("en-GB", { maximumFractionDigits: 2, minimumFractionDigits: 2 });
  put("money-now", known ? money(now.mean) : "give a price");
  if (native === null) return;
  put("tokens-native", native.toFixed(1));
  put("tokens-saved", percent(1 - now.mean / native));
  put("money-native", known ? money(native) : "give a price");
  put("money-saved", known ? money(native - now.mean) : "give a price");
}

// --- what the model sees -------------------------------------------------------------------------------------------

function sideOf(item, budget) {
  return item.views.find((view) => view.budget === budget) || item.views[item.views.length - 1];
}

function maskOf(item, bits) {
  const raw = atob(bits), [rows, columns] = item.grid;
  const canvas = element("canvas");
  canvas.width = columns * 8;
  canvas.height = rows * 8;
  const pen = canvas.getContext("2d");
  for (let i = 0; i < rows * columns; i++) {
    if (raw.charCodeAt(i >> 3) & (1 << (i & 7))) continue;
    pen.fillStyle = "rgba(20, 24, 32, 0.86)";
    pen.fillRect((i % columns) * 8, Math.floor(i / columns) * 8, 8, 8);
  }
  return canvas;
}

function paint(card, item, side, budget) {
  const view = sideOf(item, budget), place = card.querySelector(`[data-side="${side}"]`);
  const image = element("img");
  image.alt = `the page at ${view.budget} tokens`;
  image.src = view.image || item.image || "";
  const box = element("div", undefined, "sheet");
  box.style.aspectRatio = `${item.size[0]} / ${item.size[1]}`;
  if (image.getAttribute("src")) box.append(image);
  const selector = card.querySelector("select[name=selector]");
  const bits = view.kept && view.kept[selector ? selector.value : Object.keys(view.kept)[0]];
  if (bits) box.append(maskOf(item, bits));
  const caption = element("figcaption");
  caption.append(element("strong", `${view.budget} tokens`), element("span", view.correct ? " ✓ right: " : " ✗ wrong: ", view.correct ? "right" : "wrong"),
    element("q", view.prediction), ...(view.truncated ? [element("em", " (cut at the answer limit)")] : []));
  place.replaceChildren(box, caption);
}

function slider(card, item, side, start, label) {
  const grid = item.views.map((view) => view.budget), input = element("input"), wrap = element("label", label + " ");
  input.type = "range"; input.min = 0; input.max = grid.length - 1; input.step = 1;
  input.value = Math.max(0, grid.indexOf(start));
  const show = () => {
    const budget = grid[Number(input.value)];
    input.setAttribute("aria-valuetext", budget + " tokens");
    paint(card, item, side, budget);
  };
  input.addEventListener("input", show);
  input.dataset.control = side;
  wrap.append(input);
  return { wrap, show, input, grid };
}

const cards = [];

function drawGallery() {
  const place = $("gallery");
  if (!place) return;
  for (const item of GALLERY) {
    const card = element("article", undefined, "card");
    const head = element("header");
    head.append(element("span", item.tier, "tag"), element("b", item.question), element("p", "accepted: " + item.answers.join(" · "), "soft"), element("p", item.why, "soft"));
    card.append(head);
    const controls = element("div", undefined, "controls");
    const sides = element("div", undefined, "sides");
    for (const side of ["left", "right"]) { const figure = element("figure"); figure.dataset.side = side; sides.append(figure); }
    card.append(controls, sides);
    const names = Object.keys((item.views[0] && item.views[0].kept) || {});
    const left = slider(card, item, "left", item.uniform, "left");
    const right = slider(card, item, "right", FACTS.budgets[item.tier], "right");
    controls.append(left.wrap, right.wrap);
    if (names.length > 1) {
      const choose = element("select"), wrap = element("label", "selector ");
      choose.name = "selector";
      for (const name of names) choose.append(element("option", name));
      choose.addEventListener("change", () => { left.show(); right.show(); });
      wrap.append(choose);
      controls.append(wrap);
    }
    left.show(); right.show();
    const strip = element("ol", undefined, "strip");
    for (const view of item.views) {
      const step = element("li", `${view.correct ? "✓" : "✗"} ${view.budget}`, view.correct ? "right" : "wrong");
      step.title = view.prediction;
      step.dataset.budget = view.budget;
      strip.append(step);
    }
    card.append(strip);
    cards.push({ item, right, strip });
    place.append(card);
  }
}

function markGallery(budgets) {
  for (const { item, right, strip } of cards) {
    const budget = budgets[item.tier], at = right.grid.indexOf(budget);
    if (at >= 0 && Number(right.input.value) !== at) { right.input.value = at; right.show(); }
    for (const step of strip.children) step.classList.toggle("now", Number(step.dataset.budget) === budget);
  }
}

// --- why this tier -------------------------------------------------------------------------------------------------

const SHOWN = 200;
let budgetsNow = {};

function drawQuestions() {
  const body = $("questions");
  if (!body) return;
  const word = $("search").value.toLowerCase(), kind = $("kind").value;
  const rows = ASKED.filter((row) => (kind === "all" || (kind === "differ" ? row.differ.length : row.tier === kind.slice(5)))
    && (!word || row.question.toLowerCase().includes(word)));
  body.replaceChildren(...rows.slice(0, SHOWN).map((row) => {
    const line = element("tr", undefined, row.differ.length ? "differ" : "");
    line.append(element("td", row.question), element("td", row.tier), element("td", String(budgetsNow[row.tier] ?? "")),
      element("td", row.probability === null ? "" : row.probability.toFixed(2)), element("td", row.why), element("td", row.differ.join("; ")));
    return line;
  }));
  put("shown", `${Math.min(rows.length, SHOWN)} of ${rows.length} questions shown.`);
}

function markQuestions(budgets) { budgetsNow = budgets; drawQuestions(); }

// --- controls ------------------------------------------------------------------------------------------------------

function pair(name, set) {
  const range = $(name + "-range"), box = $(name);
  if (!box) return;
  let waiting = 0;
  const take = (from) => {
    const value = Number(from.value);
    if (!(value > 0) || !Number.isFinite(value)) return;
    (from === box ? range : box).value = value;
    set(value);
    cancelAnimationFrame(waiting);
    waiting = requestAnimationFrame(update); // one redraw a frame, however fast the slider moves
  };
  range.addEventListener("input", () => take(range));
  box.addEventListener("input", () => take(box));
}

function reset() {
  Object.assign(state, { ratio: OWN, mean: FACTS.mean });
  for (const name of ["ratio", "mean"]) for (const id of [name, name + "-range"]) if ($(id)) $(id).value = Number(state[name].toPrecision(6));
  update();
}

function wire() {
  pair("ratio", (value) => { state.ratio = Math.abs(value - OWN) < 1e-5 * OWN ? OWN : value; });
  pair("mean", (value) => { state.mean = Math.round(value); });
  $("reset").addEventListener("click", reset);
  for (const name of ["basis", "overlay"])
    if ($(name)) $(name).addEventListener("change", () => { state[name] = $(name).value; update(); });
  for (const id of ["price", "volume"]) if ($(id)) $(id).addEventListener("input", update);
  for (const id of ["search", "kind"]) if ($(id)) $(id).addEventListener("input", drawQuestions);
}

function theme() {
  const button = $("theme"), root = document.documentElement;
  const dark = () => (root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  const say = () => { button.textContent = dark() ? "Light" : "Dark"; };
  button.addEventListener("click", () => { root.dataset.theme = dark() ? "light" : "dark"; say(); });
  say();
}

(async () => {
  theme();
  drawGallery();
  if (FACTS.tiers.length) {
    await drawFigures();
    wire();
    reset();
  } else {
    drawQuestions();
    for (const id of ["search", "kind"]) if ($(id)) $(id).addEventListener("input", drawQuestions);
  }
  document.body.dataset.ready = "yes";
})();
