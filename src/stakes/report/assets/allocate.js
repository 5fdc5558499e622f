"use strict";
// The allocator of budgets/allocate.py in JavaScript: least CWE under the total; within 1e-12 of it fewest tokens, then
// the most even, then least CWE, then more for the first-named tier. Losses are whole numbers of 2^-60 as there, so the
// two agree exactly wherever Python settles ties, up to 65,536 combinations (tests/report/test_allocate_js.py).

const ONE = 2 ** 60;
const TIE_LOSS = 1152921n; // int(1e-12 * 2^60)
const MARGIN = 2 ** 22; // 4e-12 of CWE: more than the rounding of any bound below; it only keeps more

// The correctly rounded sum, as Python's math.fsum.
function fsum(values) {
  const parts = [];
  for (let x of values) {
    let used = 0;
    for (let y of parts) {
      if (Math.abs(x) < Math.abs(y)) [x, y] = [y, x];
      const high = x + y, low = y - (high - x);
      if (low !== 0) parts[used++] = low;
      x = high;
    }
    parts.length = used;
    parts.push(x);
  }
  let n = parts.length, sum = n ? parts[--n] : 0, low = 0;
  while (n > 0) {
    const x = sum, y = parts[--n];
    sum = x + y;
    low = y - (sum - x);
    if (low !== 0) break;
  }
  if (n > 0 && ((low < 0 && parts[n - 1] < 0) || (low > 0 && parts[n - 1] > 0))) {
    const y = low * 2, x = sum + y;
    if (y === x - sum) sum = x;
  }
  return sum;
}

// Half to even, as Python's round.
function whole(x) {
  const down = Math.floor(x), rest = x - down;
  return BigInt(rest > 0.5 || (rest === 0.5 && down % 2 !== 0) ? down + 1 : down);
}

// A tier's permitted entries that lose less than every cheaper one.
function menuOf(tier, share, floor) {
  const scale = share * ONE, menu = [];
  let best = null;
  tier.budgets.forEach((b, i) => {
    if (floor !== null && b < floor) return;
    const loss = whole(scale * tier.errors[i]);
    if (best === null || loss < best) {
      best = loss;
      menu.push({ i, w: tier.n * b, l: loss, u: tier.n * b * b });
    }
  });
  return menu;
}

function hullOf(menu) {
  const hull = [];
  for (const e of menu) {
    while (hull.length > 1) {
      const a = hull[hull.length - 2], b = hull[hull.length - 1];
      if ((b.l - a.l) * BigInt(e.w - a.w) < (e.l - a.l) * BigInt(b.w - a.w)) break;
      hull.pop();
    }
    hull.push(e);
  }
  return hull;
}

// The Lagrange multiplier at the total, and the loss of a choice that fits: bounds for the search.
function relax(menus, total) {
  const steps = [];
  menus.forEach((menu, t) => {
    const hull = hullOf(menu);
    for (let k = 1; k < hull.length; k++) {
      const w = hull[k].w - hull[k - 1].w;
      steps.push({ slope: Number(hull[k - 1].l - hull[k].l) / w, w, t, e: hull[k] });
    }
  });
  steps.sort((a, b) => b.slope - a.slope);
  const now = menus.map((menu) => menu[0]);
  let slack = total - now.reduce((sum, e) => sum + e.w, 0), price = 0;
  for (const step of steps) {
    if (step.w > slack) { price = step.slope; break; }
    now[step.t] = step.e;
    slack -= step.w;
  }
  for (;;) { // what is left goes to the largest fall that fits, again and again
    let most = 0n, where = -1, entry = null;
    menus.forEach((menu, t) => {
      for (const e of menu)
        if (e.w - now[t].w <= slack && now[t].l - e.l > most) [most, where, entry] = [now[t].l - e.l, t, e];
    });
    if (where < 0) break;
    slack -= entry.w - now[where].w;
    now[where] = entry;
  }
  return { price, loss: now.reduce((sum, e) => sum + e.l, 0n) };
}

// Bounds over the tiers from t on: least and most tokens, and least loss at this price.
function suffixes(menus, price) {
  const low = [0], high = [0], reduced = [0];
  for (let t = menus.length - 1; t >= 0; t--) {
    const menu = menus[t];
    low.unshift(low[0] + menu[0].w);
    high.unshift(high[0] + menu[menu.length - 1].w);
    reduced.unshift(reduced[0] + Math.min(...menu.map((e) => Number(e.l) + price * e.w)));
  }
  return { low, high, reduced };
}

// Least loss under the total, and the fewest tokens within a tie of it.
function least(menus, total, price, bound, rest) {
  let front = [{ w: 0, l: 0n }];
  const limit = Number(bound + TIE_LOSS) + MARGIN;
  menus.forEach((menu, t) => {
    const grown = [];
    for (const s of front)
      for (const e of menu) {
        const w = s.w + e.w, l = s.l + e.l;
        if (w + rest.low[t + 1] > total) break;
        if (Number(l) + price * (w - total) + rest.reduced[t + 1] <= limit) grown.push({ w, l });
      }
    grown.sort((a, b) => a.w - b.w || (a.l < b.l ? -1 : a.l > b.l ? 1 : 0));
    front = [];
    for (const s of grown) if (!front.length || s.l < front[front.length - 1].l) front.push(s);
  });
  const cap = front[front.length - 1].l + TIE_LOSS;
  return { cap, spent: front.find((s) => s.l <= cap).w };
}

// Negative where a gives the first-named tiers more than b.
function named(a, b) {
  for (let t = 0; t < a.length; t++) if (a[t].i !== b[t].i) return b[t].i - a[t].i;
  return 0;
}

// Of the choices with exactly these tokens and a loss up to the cap: the most even, least loss, first-named more.
function mostEven(menus, spent, cap, price, rest) {
  const order = (a, b) => a.u - b.u || (a.l < b.l ? -1 : a.l > b.l ? 1 : named(a.e, b.e));
  let states = [{ w: 0, l: 0n, u: 0, e: [] }];
  const limit = Number(cap) + MARGIN;
  menus.forEach((menu, t) => {
    const groups = new Map();
    for (const s of states)
      for (const e of menu) {
        const w = s.w + e.w, l = s.l + e.l;
        if (w + rest.low[t + 1] > spent) break;
        if (w + rest.high[t + 1] < spent) continue;
        if (Number(l) + price * (w - spent) + rest.reduced[t + 1] > limit) continue;
        if (!groups.has(w)) groups.set(w, []);
        groups.get(w).push({ w, l, u: s.u + e.u, e: [...s.e, e] });
      }
    states = [];
    for (const rows of groups.values()) {
      rows.sort(order);
      let best = null; // after sorting by spread, only rows that lose less than all more even ones can still win
      for (const s of rows) if (best === null || s.l < best) { best = s.l; states.push(s); }
    }
  });
  return states.filter((s) => s.l <= cap).sort(order)[0].e;
}

/* tiers: [{name, cost, n, budgets, errors}] in the order of the policy; floor: a number or null.
   Returns {budgets, errors, spent, cwe, edges} by tier name, or {smallest} where the total is too small. */
function allocate(tiers, total, floor = null) {
  const highest = Math.max(...tiers.map((t) => t.cost));
  const weights = tiers.map((t) => t.n * (t.cost / highest));
  const all = fsum(weights);
  const menus = tiers.map((t, k) => menuOf(t, weights[k] / all, floor));
  const smallest = menus.reduce((sum, menu) => sum + (menu.length ? menu[0].w : Infinity), 0);
  if (smallest > total) return { smallest };
  const usable = Math.min(total, menus.reduce((sum, menu) => sum + menu[menu.length - 1].w, 0));
  const { price, loss } = relax(menus, usable);
  const rest = suffixes(menus, price);
  const { cap, spent } = least(menus, usable, price, loss, rest);
  const chosen = mostEven(menus, spent, cap, price, rest).map((e) => e.i);
  const result = { budgets: {}, errors: {}, spent, cwe: 0, edges: {} };
  tiers.forEach((t, k) => {
    const at = chosen[k], last = t.budgets.length - 1;
    result.budgets[t.name] = t.budgets[at];
    result.errors[t.name] = t.errors[at];
    const top = at === last && t.errors[last] > 0, bottom = at === 0 && (floor === null || floor < t.budgets[0]);
    if (top || bottom) result.edges[t.name] = top && bottom ? "both" : top ? "largest" : "smallest";
  });
  result.cwe = fsum(tiers.map((t, k) => weights[k] * t.errors[chosen[k]])) / all;
  return result;
}

// The largest budget that was measured in every tier and is within the mean; undefined where none is.
function largestWithin(tiers, mean) {
  const shared = tiers[0].budgets.filter((b) => b <= mean && tiers.every((t) => t.budgets.includes(b)));
  return shared[shared.length - 1];
}

// Harm limits (budgets/harm.py): each tier at the budgets where its error is at most its limit above that at the largest
// measured budget within the mean. limits: points of error rate by tier name, or null.
function withinLimits(tiers, limits, mean) {
  const u = limits === null ? undefined : largestWithin(tiers, mean);
  if (u === undefined) return tiers;
  return tiers.map((t) => {
    if (limits[t.name] === undefined) return t;
    const most = t.errors[t.budgets.indexOf(u)] + limits[t.name] + 1e-9; // an error this much above is rounding
    const kept = t.budgets.map((b, i) => i).filter((i) => t.errors[i] <= most || t.budgets[i] === u);
    return { ...t, budgets: kept.map((i) => t.budgets[i]), errors: kept.map((i) => t.errors[i]) };
  });
}

// allocate() on the budgets that the limits permit; edges are still those of what was measured.
function allocateWithin(tiers, total, floor, limits) {
  const permitted = withinLimits(tiers, limits, Math.floor(total / tiers.reduce((sum, t) => sum + t.n, 0)));
  const best = allocate(permitted, total, floor);
  for (const t of tiers) {
    const edge = best.edges && best.edges[t.name], budget = best.budgets && best.budgets[t.name];
    if (!edge) continue;
    const largest = edge !== "smallest" && budget === t.budgets[t.budgets.length - 1];
    const smallest = edge !== "largest" && budget === t.budgets[0];
    if (largest || smallest) best.edges[t.name] = largest && smallest ? "both" : largest ? "largest" : "smallest";
    else delete best.edges[t.name];
  }
  return best;
}

if (typeof module !== "undefined") module.exports = { allocate, allocateWithin, fsum };
