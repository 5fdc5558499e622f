"use strict";
// What changes when a control moves? Pure functions from the run's facts to the rows of every figure; no page in here.

// The tiers as allocate() takes them: `ratio` null keeps the policy's costs; basis "fitted" or "measured".
function tiersAt(facts, ratio, basis) {
  const cheap = facts.costs[facts.cheapest];
  return facts.tiers.map((t) => ({
    name: t.name, n: t.n, budgets: t.budgets,
    cost: ratio !== null && t.name === facts.dearest ? ratio * cheap : t.cost,
    errors: basis === "fitted" ? t.fitted : t.errors,
  }));
}

function samplesOf(facts) { return facts.tiers.reduce((sum, t) => sum + t.n, 0); }

function cweOf(tiers, budgets) {
  const weight = tiers.map((t) => t.n * t.cost);
  return fsum(tiers.map((t, k) => weight[k] * t.errors[t.budgets.indexOf(budgets[t.name])])) / fsum(weight);
}

function sharedBudgets(tiers) {
  return tiers[0].budgets.filter((b) => tiers.every((t) => t.budgets.includes(b)));
}

// One budget for all at this mean, and the smallest one for all that loses no more than `cwe`.
function uniformAt(tiers, mean, cwe) {
  const shared = sharedBudgets(tiers), all = (b) => Object.fromEntries(tiers.map((t) => [t.name, b]));
  const afford = shared.filter((b) => b <= mean), budget = afford.length ? afford[afford.length - 1] : null;
  const match = shared.find((b) => cweOf(tiers, all(b)) <= cwe + 1e-12);
  return { budget, cwe: budget === null ? null : cweOf(tiers, all(budget)), match: match === undefined ? null : match };
}

// CWE at every budget of the dearest tier, the others at their optimum under what is left; for several ratios at once.
function frontierAt(facts, mean, basis, ratios) {
  const total = mean * samplesOf(facts), tiers = tiersAt(facts, null, basis);
  const dear = tiers.find((t) => t.name === facts.dearest), rest = tiers.filter((t) => t !== dear);
  const cheap = facts.costs[facts.cheapest], rows = [];
  if (!rest.length) return rows;
  const kept = fsum(rest.map((t) => t.n * t.cost));
  dear.budgets.forEach((budget, i) => {
    if (facts.floor !== null && budget < facts.floor) return;
    const others = allocate(rest, total - dear.n * budget, facts.floor);
    if (others.smallest !== undefined) return;
    const told = Object.entries(others.budgets).map(([name, b]) => name + " " + b).join(", ");
    for (const ratio of ratios) {
      const weight = dear.n * ratio * cheap;
      const cwe = (weight * dear.errors[i] + others.cwe * kept) / (weight + kept);
      rows.push({ ratio: String(Number(ratio.toPrecision(6))), value: ratio, budget, cwe, others: told });
    }
  });
  return rows;
}

// Arms at other costs: CWE with a 95 % interval over documents (ratio of sums, linearised), and the fall from uniform.
function armsAt(arms, costs) {
  const prices = arms.tiers.map((t) => costs[t]);
  const weigh = (table) => table.map((row) => row.reduce((sum, k, t) => sum + k * prices[t], 0));
  const whole = weigh(arms.asked), lost = arms.rows.map((row) => weigh(row.wrong));
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

// Everything at one setting of the controls.
function settle(facts, ratio, mean, basis) {
  const tiers = tiersAt(facts, ratio, basis), total = mean * samplesOf(facts);
  const best = allocate(tiers, total, facts.floor);
  if (best.smallest !== undefined) return { tiers, least: Math.ceil(best.smallest / samplesOf(facts)) };
  return { tiers, best, uniform: uniformAt(tiers, mean, best.cwe), mean: best.spent / samplesOf(facts) };
}

if (typeof module !== "undefined") Object.assign(module.exports, { settle, frontierAt, armsAt, tiersAt });
