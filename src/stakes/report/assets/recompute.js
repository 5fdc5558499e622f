"use strict";
// Recomputes the rows of every figure when a control moves: pure functions of the report's data, without the DOM.

// Costs at cost ratio r (tiers.at_ratio): the most expensive tier costs r times the cheapest, and the tiers between keep
// their place on a log scale; where all stated costs are equal, only the first moves.
function atRatio(data, ratio) {
  const { costs, most_expensive: top, cheapest } = data, least = costs[cheapest], own = costs[top] / least;
  const at = (name) => {
    if (ratio === own) return costs[name];
    if (own === 1) return name === top ? least * ratio : least;
    return least * ratio ** (Math.log(costs[name] / least) / Math.log(own));
  };
  return Object.fromEntries(Object.keys(costs).map((name) => [name, at(name)]));
}

// The tiers as allocate() takes them. `ratio` null keeps the policy's costs; basis "fitted" or "measured". `stated`: what
// a mistake costs at this ratio; `cost`: its mean by label over what is read as the tier, which budgets are chosen at.
function tiersAt(data, ratio, basis) {
  const stated = ratio === null ? data.costs : atRatio(data, ratio);
  const mean = (t) => {
    const labels = Object.keys(t.questions).filter((label) => t.questions[label]);
    if (labels.every((label) => label === t.name)) return stated[t.name];
    let all = 0, lost = 0;
    for (const label of labels) { all += t.questions[label]; lost += stated[label] * t.questions[label]; }
    return lost / all;
  };
  return data.tiers.map((t) => ({
    name: t.name, n: t.n, budgets: t.budgets, stated: stated[t.name], cost: ratio === null ? t.cost : mean(t),
    errors: basis === "fitted" ? t.fitted : t.errors,
  }));
}

function samplesOf(data) { return data.tiers.reduce((sum, t) => sum + t.n, 0); }

// The error at `tokens`, on the straight line between the nearest measured budgets; null outside of them.
function errorAt(tier, tokens) {
  const { budgets, errors } = tier, i = budgets.findIndex((b) => b >= tokens);
  if (i < 0 || tokens < budgets[0]) return null;
  if (budgets[i] === tokens) return errors[i];
  return errors[i - 1] + ((errors[i] - errors[i - 1]) * (tokens - budgets[i - 1])) / (budgets[i] - budgets[i - 1]);
}

// One budget for all tiers at these tokens (budgets/uniform.py), and the smallest measured one whose CWE is not above `cwe`.
function uniformAt(tiers, tokens, cwe) {
  const weight = tiers.map((t) => t.n * t.cost);
  const lost = (b) => {
    const errors = tiers.map((t) => errorAt(t, b));
    return errors.includes(null) ? null : fsum(errors.map((e, k) => weight[k] * e)) / fsum(weight);
  };
  const shared = tiers[0].budgets.filter((b) => tiers.every((t) => t.budgets.includes(b)));
  const match = shared.find((b) => lost(b) <= cwe + 1e-12);
  return { tokens, cwe: lost(tokens), interpolated: !shared.includes(tokens), match: match === undefined ? null : match };
}

// CWE at every permitted budget of the most expensive tier, the others at their optimum under what is left, by ratio.
function frontierAt(data, mean, basis, ratios, limits = null) {
  const total = mean * samplesOf(data), rows = [];
  if (data.tiers.length < 2) return rows;
  for (const ratio of ratios) {
    const tiers = withinLimits(tiersAt(data, ratio, basis), limits, mean);
    const top = tiers.find((t) => t.name === data.most_expensive), rest = tiers.filter((t) => t !== top);
    const restWeight = fsum(rest.map((t) => t.n * t.cost)), weight = top.n * top.cost;
    top.budgets.forEach((budget, i) => {
      if (data.floor !== null && budget < data.floor) return;
      const others = allocate(rest, total - top.n * budget, data.floor);
      if (others.smallest !== undefined) return;
      const label = Object.entries(others.budgets).map(([name, b]) => name + " " + b).join(", ");
      const cwe = (weight * top.errors[i] + others.cwe * restWeight) / (weight + restWeight);
      rows.push({ ratio: String(Number(ratio.toPrecision(6))), value: ratio, budget, cwe, others: label });
    });
  }
  return rows;
}

// Arms at other costs: CWE with a 95 % interval over documents (ratio of sums, linearized), and the fall from uniform.
function armsAt(arms, costs) {
  const prices = arms.tiers.map((t) => costs[t]);
  const weigh = (table) => table.map((row) => row.reduce((sum, k, t) => sum + k * prices[t], 0));
  const whole = weigh(arms.questions), lost = arms.rows.map((row) => weigh(row.wrong));
  const base = lost[arms.rows.findIndex((row) => row.arm === "uniform")];
  return arms.rows.map((row, k) => {
    const cwe = spanOf(lost[k], whole);
    const gain = row.arm === "uniform" ? null : spanOf(base.map((b, d) => b - lost[k][d]), whole);
    return { arm: row.arm, cwe: cwe.value, low: Math.max(0, cwe.low), high: Math.min(1, cwe.high), gain };
  });
}

function spanOf(part, whole) {
  const all = fsum(whole), value = fsum(part) / all, n = part.length;
  const squares = fsum(part.map((x, d) => (x - value * whole[d]) ** 2));
  const half = n > 1 ? (1.959963984540054 * Math.sqrt((n / (n - 1)) * squares)) / all : NaN;
  return { value, low: value - half, high: value + half };
}

// The allocation at one setting of the controls, or the least mean budget where this one is too small (Infinity: the harm
// limit permits a tier no budget from the floor up). `rises`: tiers whose error rises by more than the report notes.
function allocationAt(data, ratio, mean, basis, limits = null) {
  const tiers = tiersAt(data, ratio, basis), samples = samplesOf(data);
  const best = allocateWithin(tiers, mean * samples, data.floor, limits);
  if (best.smallest !== undefined) return { tiers, least: Math.ceil(best.smallest / samples) };
  const tokens = best.spent / samples, u = largestWithin(tiers, mean);
  const rises = u === undefined ? [] : tiers.map((t) => (
    { name: t.name, uniform: u, before: t.errors[t.budgets.indexOf(u)], budget: best.budgets[t.name], after: best.errors[t.name] }
  )).filter((rise) => rise.after - rise.before > data.noted_rise);
  return { tiers, best, uniform: uniformAt(tiers, tokens, best.cwe), mean: tokens, rises };
}

if (typeof module !== "undefined") Object.assign(module.exports, { allocationAt, frontierAt, armsAt, tiersAt, atRatio });
