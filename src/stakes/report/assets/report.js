"use strict";
// The report in the browser: figures by Vega, controls that re-allocate, the gallery, the question list.
// Strings from outside are only ever set as text.

const $ = (id) => document.getElementById(id);
const [DATA, SPECS, GALLERY, QUESTIONS] = ["data", "specs", "gallery", "questions"].map((name) => JSON.parse($(name + "-json").textContent));
const percent = (x) => (100 * x).toFixed(1) + "\u00a0%";
const count = (x) => Math.round(x).toLocaleString("en-GB");
const views = {};
const OWN = DATA.tiers.length ? DATA.costs[DATA.most_expensive] / DATA.costs[DATA.cheapest] : 1;
// The policy's own harm limits: none, the same for every tier, or of single tiers.
const LIMITS = DATA.max_harm || {}, EQUAL = new Set(DATA.tiers.map((t) => LIMITS[t.name])).size === 1;
const HARM = Object.keys(LIMITS).length ? (EQUAL ? "all" : "own") : "off";
const POINTS = HARM === "all" ? 100 * Object.values(LIMITS)[0] : 15;
const state = {
  ratio: OWN, mean: DATA.mean, basis: "fitted", overlay: $("overlay") ? $("overlay").value : "none", harm: HARM, points: POINTS,
};

const VERDICT = $("verdict").textContent;

// Whether all controls that budgets depend on are as the policy has them.
function isOwn() {
  return state.ratio === OWN && state.mean === DATA.mean && state.basis === "fitted" && state.harm === HARM && state.points === POINTS;
}

// The first sentence: what was tested at the policy's own setting, else what the curves promise at this one.
function showHeadline(now) {
  if (isOwn() && VERDICT) { put("verdict", VERDICT); return; }
  const budgets = Object.entries(now.best.budgets), u = now.uniform;
  const where = DATA.tiers.length < 2 ? `At ${state.mean} tokens per image`
    : `If a mistake in ${DATA.most_expensive} costs ${Number(state.ratio.toPrecision(6))} times one in ${DATA.cheapest}, at ${state.mean} tokens per image`;
  const many = budgets.length > 4 ? "the budgets of the table below" : budgets.map(([tier, b]) => `${tier} ${b}`).join(", ");
  if (new Set(Object.values(now.best.budgets)).size === 1) {
    put("verdict", `${where}: keep one budget of ${budgets[0][1]} for all. On the curves no tokens should move.`);
    return;
  }
  const tested = VERDICT ? "It has not been tested at this setting." : "It has not been tested on other pages.";
  const moved = now.tiers.map((t) => ({ name: t.name, before: errorAt(t, now.mean), after: now.best.errors[t.name] })).filter((t) => t.before !== null).slice(0, 4)
    .map((t) => (t.before === t.after ? `errors of tier ${t.name} stay at ${percent(t.after)}` : `errors of tier ${t.name} ${t.after < t.before ? "fall" : "rise"} from ${percent(t.before)} to ${percent(t.after)}`));
  const weighted = u.cwe === null ? "" : ` Cost-weighted error goes from ${u.cwe.toFixed(3)} with one budget for all to ${now.best.cwe.toFixed(3)}.`;
  put("verdict", `${where}: give ${many}. On the calibration's curves ${moved.join("; ")}.${weighted} ${tested}`);
}

function limitsNow() {
  if (state.harm === "off") return null;
  return state.harm === "own" ? LIMITS : Object.fromEntries(DATA.tiers.map((t) => [t.name, state.points / 100]));
}

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

// Labels at the right edge are drawn to the left of their point, and so on, so that none leaves the figure.
function aligned(budgets, at) {
  const low = Math.min(...budgets), high = Math.max(...budgets), where = (at - low) / (high - low || 1);
  return where > 0.85 ? "right" : where < 0.15 ? "left" : "center";
}

function measuredRows() {
  return DATA.tiers.flatMap((t) => t.budgets.map((budget, i) => (
    { tier: t.name, budget, error: t.errors[i], low: t.low[i], high: t.high[i] })));
}

function overlayRows() {
  if (state.overlay === "none") return [];
  return DATA.tiers.flatMap((t) => t.budgets.map((budget, i) => ({ tier: t.name, budget, error: t[state.overlay][i] })));
}

function update() {
  const ratio = state.ratio === OWN ? null : state.ratio;
  const now = allocationAt(DATA, ratio, state.mean, state.basis, limitsNow());
  const bad = now.best === undefined;
  $("infeasible").hidden = !bad;
  document.body.classList.toggle("bad", bad);
  if ($("points-control")) $("points-control").hidden = state.harm !== "all";
  if (bad) {
    put("infeasible", Number.isFinite(now.least) ? `A mean of ${state.mean} tokens is too small for the measured budgets; give at least ${now.least}.`
      : "The harm limit permits a tier no budget from the policy's floor up; raise the limit.");
    return;
  }
  showHeadline(now);
  showRises(now);
  drawCurves(now);
  drawFrontier(now);
  showAllocation(now);
  drawArms();
  drawLatency(now);
  showCost(now);
  markGallery(now.best.budgets, state.mean);
  updateQuestions(now.best.budgets);
  document.body.dataset.budgets = JSON.stringify(now.best.budgets);
  document.body.dataset.cwe = String(now.best.cwe);
}

// Labels stand above the figure, at their budget; one that is too close to another goes into the next row.
const LABEL_ROW = 15, LABEL_SHARE = 0.24;
function lifted(rows, span) {
  const ends = [];
  return [...rows].sort((a, b) => a.budget - b.budget).map((row) => {
    let k = 0;
    while (ends[k] !== undefined && row.budget - ends[k] < LABEL_SHARE * span) k++;
    ends[k] = row.budget;
    return { ...row, lift: -9 - LABEL_ROW * k };
  });
}

function drawCurves(now) {
  const grid = DATA.tiers.flatMap((t) => t.budgets);
  const chosen = DATA.tiers.map((t) => {
    const budget = now.best.budgets[t.name];
    return { tier: t.name, budget, error: t.errors[t.budgets.indexOf(budget)], label: DATA.tiers.length > 4 ? "" : `${t.name} ${budget}`, align: aligned(grid, budget) };
  });
  fill("curves", { measured: measuredRows(), overlay: overlayRows(), chosen: lifted(chosen, Math.max(...grid) - Math.min(...grid)) });
}

// Heights of the names at the lines' ends, lowest first, at least one line of text from each other.
function spaced(ends, lines) {
  const all = lines.map((row) => row.cwe), gap = 0.045 * (Math.max(...all) - Math.min(...all));
  let least = -Infinity;
  return [...ends].sort((a, b) => a.cwe - b.cwe).map((row) => {
    const at = Math.max(row.cwe, least);
    least = at + gap;
    return { ...row, at };
  });
}

function showRises(now) {
  const rises = now.rises.map((r) => `Errors of tier ${r.name} rise from ${percent(r.before)} at ${r.uniform} tokens for all to ${percent(r.after)} at ${r.budget}.`);
  put("rises", rises.length ? [...rises, "The costs ask for that; the harm limit above prevents it."].join(" ") : "");
  if ($("rises")) $("rises").hidden = !rises.length;
}

// Lines and optima at the fixed ratios; they do not depend on the ratio that is set.
let fixed = { key: "" };
function fixedLines() {
  const limits = limitsNow(), key = JSON.stringify([state.mean, state.basis, limits]);
  if (fixed.key === key) return fixed;
  const lines = frontierAt(DATA, state.mean, state.basis, DATA.ratios, limits);
  const best = DATA.ratios.map((ratio) => {
    const { best: optimum } = allocationAt(DATA, ratio, state.mean, state.basis, limits);
    return lines.find((row) => row.value === ratio && row.budget === optimum.budgets[DATA.most_expensive]);
  }).filter(Boolean);
  return (fixed = { key, lines, best });
}

function drawFrontier(now) {
  if (DATA.tiers.length < 2) return;
  const { lines, best } = fixedLines();
  const mine = frontierAt(DATA, state.mean, state.basis, [state.ratio], limitsNow());
  const at = now.best.budgets[DATA.most_expensive], top = mine.find((row) => row.budget === at);
  const mark = top ? [{ ...top, label: `${at} at cost ratio ${top.ratio}`, lift: -9, align: aligned(mine.map((row) => row.budget), at) }] : [];
  const last = Math.max(...lines.map((row) => row.budget));
  const ends = spaced(lines.filter((row) => row.budget === last), lines).map((row) => ({ ...row, name: "r = " + row.ratio }));
  fill("frontier", { lines, ends, best, now: mine, mark });
}

function showAllocation(now) {
  const body = $("allocation");
  body.replaceChildren(...now.tiers.map((t) => {
    const row = element("tr"), budget = now.best.budgets[t.name], own = DATA.budgets[t.name];
    const edge = now.best.edges[t.name];
    const short = (x) => x.toPrecision(3).replace(/(\.\d*?)0+$/, "$1").replace(/\.$/, "");
    const read = Math.abs(t.cost - t.stated) > 1e-9 * t.stated ? ` (as read ${short(t.cost)})` : "";
    const cells = [t.name, short(t.stated) + read, count(t.n), String(budget), String(own), percent(now.best.errors[t.name]),
      edge ? `on the ${edge === "both" ? "only" : edge} measured budget` : ""];
    cells.forEach((text, i) => row.append(element(i ? "td" : "th", text)));
    return row;
  }));
  const u = now.uniform;
  const parts = [`Expected cost-weighted error ${now.best.cwe.toFixed(4)} at ${now.mean.toFixed(1)} tokens per image`];
  if (u.cwe !== null) {
    const same = new Set(Object.values(now.best.budgets)).size === 1;
    parts.push(same ? "this is uniform itself: at these costs no tokens should move"
      : `uniform at the same tokens${u.interpolated ? ", interpolated between measured budgets," : ""} has ${u.cwe.toFixed(4)}`);
    if (!same && u.match !== null && u.match > now.mean) parts.push(`one budget for all would need ${u.match} tokens for the same cost-weighted error`);
    if (!same && u.match === null) parts.push("no measured budget for all reaches it");
  }
  put("expected", parts.join("; ") + ".");
  const same = Object.entries(now.best.budgets).every(([t, b]) => DATA.budgets[t] === b);
  put("against-policy", same ? "These are the policy's own budgets." : `The policy's own budgets differ at this setting (column “policy”)${DATA.certified ? "; those are certified" : ""}.`);
}

function drawArms() {
  const arms = DATA.arms;
  if (!arms) return;
  const live = armsAt(arms, atRatio(DATA, state.ratio)), rows = [];
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
    const result = few ? few : g.low > 0 ? "the cost arm is better" : g.high < 0 ? "uniform is better" : "the difference is not significant";
    put("arms-live", state.ratio === OWN ? "" : `If a mistake in ${DATA.most_expensive} cost ${Number(state.ratio.toPrecision(6))} times one in ${DATA.cheapest}: CWE ${even.cwe.toFixed(3)} uniform, ${mine.cwe.toFixed(3)} cost; ${result}.`);
  }
}

function drawLatency(now) {
  const marks = [...new Set(Object.values(now.best.budgets))].map((budget) => ({ budget }));
  fill("latency", { latency: DATA.latency, marks });
}

function showCost(now) {
  const native = DATA.tiers.every((t) => DATA.native[t.name] !== undefined)
    ? DATA.tiers.reduce((sum, t) => sum + t.n * DATA.native[t.name], 0) / samplesOf(DATA) : null;
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

// --- controls ------------------------------------------------------------------------------------------------------

const LIMITS_IN_WORDS = {
  ratio: [(x) => x > 0, "A cost ratio is a number above 0. At 0 a mistake would cost nothing, and no budget would be too small."],
  mean: [(x) => x >= 1, "A mean budget is a number of tokens, 1 or more."],
  points: [(x) => x >= 0 && x <= 100, "A harm limit is from 0 to 100 points."],
};

function refuse(words) {
  put("infeasible", words);
  $("infeasible").hidden = false;
  document.body.classList.add("bad");
}

function pair(name, set) {
  const range = $(name + "-range"), box = $(name), [allowed, words] = LIMITS_IN_WORDS[name];
  if (!box) return;
  let waiting = 0;
  const read = (from) => {
    const value = Number(from.value), good = from.value !== "" && Number.isFinite(value) && allowed(value);
    box.setAttribute("aria-invalid", String(!good));
    if (!good) {
      if (from.value !== "") refuse(words);
      return;
    }
    (from === box ? range : box).value = value;
    set(value);
    cancelAnimationFrame(waiting);
    waiting = requestAnimationFrame(update); // one redraw a frame, however fast the slider moves
  };
  range.addEventListener("input", () => read(range));
  box.addEventListener("input", () => read(box));
}

function reset() {
  Object.assign(state, { ratio: OWN, mean: DATA.mean, harm: HARM, points: POINTS });
  if ($("harm")) $("harm").value = HARM;
  for (const name of ["ratio", "mean", "points"]) for (const id of [name, name + "-range"]) if ($(id)) $(id).value = Number(state[name].toPrecision(6));
  update();
}

function wire() {
  pair("ratio", (value) => { state.ratio = Math.abs(value - OWN) < 1e-5 * OWN ? OWN : value; });
  pair("mean", (value) => { state.mean = Math.round(value); });
  $("reset").addEventListener("click", reset);
  pair("points", (value) => { state.points = value; });
  for (const name of ["basis", "overlay", "harm"])
    if ($(name)) $(name).addEventListener("change", () => { state[name] = $(name).value; update(); });
  for (const id of ["price", "volume"]) if ($(id)) $(id).addEventListener("input", update);
  for (const id of ["search", "kind"]) if ($(id)) $(id).addEventListener("input", drawQuestions);
}

function theme() {
  const button = $("theme"), root = document.documentElement;
  const dark = () => (root.dataset.theme || (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  const label = () => { button.textContent = dark() ? "Light" : "Dark"; };
  button.addEventListener("click", () => { root.dataset.theme = dark() ? "light" : "dark"; label(); });
  label();
}

(async () => {
  theme();
  drawGallery();
  if (DATA.tiers.length) {
    await drawFigures();
    wire();
    reset();
  } else {
    drawQuestions();
    for (const id of ["search", "kind"]) if ($(id)) $(id).addEventListener("input", drawQuestions);
  }
  document.body.dataset.ready = "yes";
})();
