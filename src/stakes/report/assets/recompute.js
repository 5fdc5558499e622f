"use strict";
// Recomputes the rows of every figure when a control moves: pure functions of the report's data, without the DOM.

// The tiers as allocate() takes them: `ratio` null keeps the policy's costs; basis "fitted" or "measured".
function tiersAt(data, ratio, basis) {
  const cheap = data.costs[data.cheapest];
  return data.tiers.map((t) => ({
    name: t.name, n: t.n, budgets: t.budgets,
    cost: ratio !== null && t.name === data.most_expensive ? ratio * cheap : t.cost,
    errors: basis === "fitted" ? t.fitted : t.errors,
  }));
}

function samplesOf(data) { return data.tiers.reduce((sum, t) => sum + t.n, 0); }

function cweOf(tiers, budgets) {
  const weight = tiers.map((t) => t.n * t.cost);
  return fsum(tiers.map((t, k) => weight[k] * t.errors[t.budgets.indexOf(budgets[t.name])])) / fsum(weight);
}

function sharedBudgets(tiers) {
  return tiers[0].budgets.filter((b) => tiers.every((t) => t.budgets.includes(b)));
}

// One budget for all tiers at this mean, and the smallest such budget whose CWE is not above `cwe`.
function uniformAt(tiers, mean, cwe) {
  const shared = sharedBudgets(tiers), all = (b) => Object.fromEntries(tiers.map((t) => [t.name, b]));
  const afford = shared.filter((b) => b <= mean), budget = afford.length ? afford[afford.length - 1] : null;
  const match = shared.find((b) => cweOf(tiers, all(b)) <= cwe + 1e-12);
  return { budget, cwe: budget === null ? null : cweOf(tiers, all(budget)), match: match === undefined ? null : match };
}

// CWE at every budget of the most expensive tier, the others at their optimum under what is left; for several ratios.
function frontierAt(data, mean, basis, ratios) {
  const total = mean * samplesOf(data), tiers = tiersAt(data, null, basis);
  const top = tiers.find((t) => t.name === data.most_expensive), rest = tiers.filter((t) => t !== top);
  const cheap = data.costs[data.cheapest], rows = [];
  if (!rest.length) return rows;
  const restWeight = fsum(rest.map((t) => t.n * t.cost));
  top.budgets.forEach((budget, i) => {
    if (data.floor !== null && budget < data.floor) return;
    const others = allocate(rest, total - top.n * budget, data.floor);
    if (others.smallest !== undefined) return;
    const label = Object.entries(others.budgets).map(([name, b]) => name + " " + b).join(", ");
    for (const ratio of ratios) {
      const weight = top.n * ratio * cheap;
      const cwe = (weight * top.errors[i] + others.cwe * restWeight) / (weight + restWeight);
      rows.push({ ratio: String(Number(ratio.toPrecision(6))), value: ratio, budget, cwe, others: label });
    }
  });
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

// The allocation at one setting of the controls, or the least mean budget where this one is too small.
function allocationAt(data, ratio, mean, basis) {
  const tiers = tiersAt(data, ratio, basis), total = mean * samplesOf(data);
  const best = allocate(tiers, total, data.floor);
  if (best.smallest !== undefined) return { tiers, least: Math.ceil(best.smallest / samplesOf(data)) };
  return { tiers, best, uniform: uniformAt(tiers, mean, best.cwe), mean: best.spent / samplesOf(data) };
}

if (typeof module !== "undefined") Object.assign(module.exports, { allocationAt, frontierAt, armsAt, tiersAt });
