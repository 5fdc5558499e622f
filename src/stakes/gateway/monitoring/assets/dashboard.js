// The gateway's dashboard: shows /stakes/state every two seconds. The question form is in ask.js.
// Strings from outside only ever become text nodes: nothing here writes HTML.
"use strict";

const $ = (id) => document.getElementById(id);
const whole = new Intl.NumberFormat("en");
const tokens = (n) => whole.format(Math.round(n));
let key = sessionStorage.getItem("stakes-key") || "";

function make(tag, properties = {}, ...children) {
  const node = Object.assign(document.createElement(tag), properties);
  node.append(...children);
  return node;
}

function headers(more = {}) {
  return key ? { ...more, authorization: `Bearer ${key}` } : more;
}

// ---- numbers -------------------------------------------------------------------------------------------------------

async function refresh() {
  let reply;
  try {
    reply = await fetch("/stakes/state", { headers: headers() });
  } catch {
    $("status").textContent = "The gateway does not respond.";
    return;
  }
  $("lock").hidden = reply.status !== 401;
  if (!reply.ok) {
    $("status").textContent = reply.status === 401 ? "Locked." : `The gateway answered ${reply.status}.`;
    return;
  }
  show(await reply.json());
}

function show(s) {
  const { policy, controller, checks } = s;
  const basis = policy.basis === "legibility" ? ", of LEGIBILITY" : "";
  $("status").textContent = `${s.mode} · ${policy.family} · budgets ${policy.origin}${basis}`;
  const warnings = [...s.warnings, ...(s.probe && s.probe.follows === false ? [s.probe.sentence] : []), ...(s.watch ? s.watch.alarms : [])];
  $("warning").hidden = !warnings.length;
  $("warning").replaceChildren(...warnings.map((text) => make("span", {}, text)));

  const { native, predicted, saved } = s.tokens;
  $("saved").textContent = tokens(saved);
  const observing = s.mode === "observe";
  const observed = observing ? ` Observing: nothing was changed; ${tokens(Math.max(0, native - predicted))} could be saved.` : "";
  $("saved-note").textContent = native ? `${Math.round((100 * saved) / native)} % of ${tokens(native)} native tokens.${s.worth && saved ? ` Worth ${s.worth}.` : ""}${observed}` : "No image yet.";
  // While observing, the controller counts what enforcing would have spent: its numbers are labelled so.
  $("mean-title").textContent = observing ? "Tokens per image, if enforced, of the cap" : "Tokens per image, of the cap";
  $("chart-title").textContent = observing ? "Running mean against the cap, if enforced" : "Running mean against the cap";
  $("spent-title").textContent = observing ? "would spend / image" : "spent / image";
  const images = s.tiers.reduce((sum, tier) => sum + tier.images, 0);
  const unsure = s.tiers.filter((tier) => tier.asked_again || tier.flagged);
  const asked = unsure.map((tier) => ` ${tier.name}: ${tokens(tier.asked_again)} asked again, ${tokens(tier.flagged)} flagged for review.`);
  $("tiers-note").textContent = observing && images ? ` Observing: every image was forwarded unchanged, at ${(native / images).toFixed(1)} tokens on average.` : asked.join("");
  $("mean").textContent = controller.images ? `${controller.mean.toFixed(1)} of ${tokens(controller.mean_budget)}` : `– of ${tokens(controller.mean_budget)}`;
  $("mean-note").textContent = `mean over ${tokens(controller.images)} image${controller.images === 1 ? "" : "s"}; ${tokens(controller.allowance)} tokens left to spend`;
  const checked = (checks.agreed || 0) + (checks.differed || 0);
  $("agreed").textContent = checked ? `${Math.round((100 * (checks.agreed || 0)) / checked)} %` : "–";
  $("agreed-note").textContent = checked ? `${tokens(checks.agreed || 0)} of ${tokens(checked)} answers took the predicted tokens` : "the server has stated no image tokens";
  const counts = Object.entries(s.requests);
  $("requests").textContent = tokens(counts.reduce((sum, [, n]) => sum + n, 0));
  $("requests-note").textContent = counts.filter(([, n]) => n).map(([kind, n]) => `${tokens(n)} ${kind.replaceAll("_", " ")}`).join(", ") || "none yet";

  canDrawFilmstrip = s.filmstrip;
  showTiers(s);
  showUndecided(s.undecided);
  showDrift(s);
  showChart(s);
  showDecisions(s);
}

function tierClass(s, name) {
  const index = s.tiers.findIndex((tier) => tier.name === name);
  return index < 0 ? "tx" : `t${index % 4}`;
}

function showTiers(s) {
  const all = s.tiers.reduce((sum, tier) => sum + tier.images, 0);
  $("mix").setAttribute("aria-label", s.tiers.map((t) => `${t.name}: ${t.images} images`).join(", "));
  $("mix").replaceChildren(
    ...s.tiers.filter((tier) => tier.images).map((tier) => {
      const share = (100 * tier.images) / all;
      const part = make("div", { className: tierClass(s, tier.name) }, share > 12 ? `${tier.name} ${Math.round(share)} %` : "");
      part.style.width = `${share}%`;
      return part;
    }),
  );
  const average = (sum, tier) => (tier.images && sum ? (sum / tier.images).toFixed(1) : "–");
  $("tiers").tBodies[0].replaceChildren(
    ...s.tiers.map((tier) => {
      const cells = [tier.cost ?? "–", tokens(tier.images), tier.budget ?? "–", tier.budget_now?.toFixed(0) ?? "–",
        average(tier.predicted, tier), average(tier.actual, tier)];
      const name = make("td", {}, make("span", { className: `swatch ${tierClass(s, tier.name)}` }), tier.name);
      return make("tr", {}, name, ...cells.map((text) => make("td", {}, String(text))));
    }),
  );
  fillTiers(s);
}

function showUndecided({ undecided, requests, share, advice, keep, hours, texts }) {
  $("undecided").textContent = requests ? `Undecided: ${tokens(undecided)} of ${tokens(requests)} image requests (${(100 * share).toFixed(1)} %).` : "";
  $("undecided-advice").hidden = !advice;
  $("undecided-advice").textContent = advice ? `More than 10 % are undecided: ${advice}.` : "";
  $("undecided-texts").hidden = !keep;
  $("undecided-kept").textContent = `The last ${tokens(keep)} different texts are kept for ${hours} hours, in memory only. Digits and e-mail addresses are masked; other words are not.`;
  $("undecided-texts").querySelector("tbody").replaceChildren(
    ...texts.map((one) => make("tr", {}, make("td", {}, one.text), make("td", {}, tokens(one.count)), make("td", {}, ago(one.seconds_ago)))));
}

function ago(seconds) {
  if (seconds < 60) return "now";
  return seconds < 3600 ? `${Math.floor(seconds / 60)} min ago` : `${Math.floor(seconds / 3600)} h ago`;
}

function showDrift(s) {
  $("drift").hidden = !s.watch;
  if (!s.watch) return;
  const percent = (value) => (value === null ? "–" : `${(100 * value).toFixed(1)} %`);
  $("drift-tiers").tBodies[0].replaceChildren(
    ...Object.entries(s.watch.tiers).map(([name, tier]) => {
      const seen = tier.shadow_answers > 0;
      const cells = [percent(tier.share), percent(tier.share_calibrated), tokens(tier.shadow_answers),
        seen ? percent(tier.disagreement) : "–", seen ? percent(tier.disagreement_above) : "–", percent(tier.disagreement_allowed)];
      const label = make("td", {}, make("span", { className: `swatch ${tierClass(s, name)}` }), name);
      return make("tr", {}, label, ...cells.map((text) => make("td", {}, text)));
    }),
  );
  const alarms = s.watch.alarms.length;
  $("drift-note").textContent = `${alarms ? `${alarms} alarm${alarms > 1 ? "s" : ""}, above.` : "No alarm."} ${percent(s.watch.part)} of the fitted requests are answered again at native size; ${s.watch.note}. Token counts differ from the prediction by ${percent(s.watch.token_error)} on average.`;
}

function fillTiers(s) {
  const names = [...new Set([...s.tiers.map((tier) => tier.name), "grounding"])];
  const select = $("tier");
  if ([...select.options].slice(1).map((one) => one.value).join() === names.join()) return;
  const chosen = select.value;
  select.replaceChildren(select.options[0], ...names.map((name) => make("option", { value: name }, name)));
  select.value = names.includes(chosen) ? chosen : "";
}

function svg(tag, attributes, text = "") {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.textContent = text;
  return node;
}

function showChart(s) {
  const cap = s.controller.mean_budget, points = s.means;
  const most = 1.15 * Math.max(cap, ...points.map(([, mean]) => mean));
  const [left, right, top, bottom] = [46, 590, 10, 172];
  const first = points.length ? points[0][0] : 0, last = points.length ? points.at(-1)[0] : 1;
  const x = (n) => (last === first ? (left + right) / 2 : left + ((right - left) * (n - first)) / (last - first));
  const y = (value) => bottom - ((bottom - top) * value) / most;
  const parts = [
    svg("line", { x1: left, x2: right, y1: bottom, y2: bottom, class: "axis" }),
    svg("line", { x1: left, x2: right, y1: y(cap), y2: y(cap), class: "cap" }),
    svg("text", { x: left - 6, y: y(cap) + 4, "text-anchor": "end" }, tokens(cap)),
    svg("text", { x: left - 6, y: bottom + 4, "text-anchor": "end" }, "0"),
    svg("text", { x: right, y: bottom + 20, "text-anchor": "end" }, points.length ? `image ${tokens(last)}` : "images"),
  ];
  if (points.length > 1) parts.push(svg("polyline", { class: "line", points: points.map(([n, mean]) => `${x(n)},${y(mean)}`).join(" ") }));
  if (points.length) parts.push(svg("circle", { class: "point", r: 4, cx: x(last), cy: y(points.at(-1)[1]) }));
  $("chart").replaceChildren(...parts);
  $("chart-note").textContent = `Dashed: the policy's mean budget of ${tokens(cap)}. At first the mean may lie above it, as the gateway may spend some tokens ahead (its burst).`;
}

// ---- decisions -----------------------------------------------------------------------------------------------------

const drawn = new Map(); // id -> its list item, so that images are fetched once

function showDecisions(s) {
  $("kept-note").textContent = s.keep_images
    ? `Images and questions of the last ${s.keep_images} requests are kept, in memory only.`
    : "Numbers only. To see images as the model saw them: stakes serve --keep-images 8";
  const items = s.decisions.map((one) => {
    const old = drawn.get(one.id);
    if (old && old.pictures === one.pictures) return old.item;
    const item = decisionItem(s, one);
    drawn.set(one.id, { item, pictures: one.pictures });
    return item;
  });
  for (const [id, { item }] of drawn) {
    if (!items.includes(item)) {
      item.querySelectorAll("img").forEach((picture) => URL.revokeObjectURL(picture.src));
      drawn.delete(id);
    }
  }
  if (items.length !== $("decisions").children.length || items.some((item, i) => item !== $("decisions").children[i]))
    $("decisions").replaceChildren(...items);
  if (!items.length) $("decisions").replaceChildren(make("li", { className: "note" }, "No image request yet."));
}

function summary(one) {
  const join = (list) => list.map(tokens).join(" + ");
  if (!one.native.length) return "not measured";
  if (!one.budget.length) return `${join(one.native)} tokens, native`;
  const counted = one.counted === null ? "" : `, server counted ${tokens(one.counted)}`;
  if (one.outcome === "observed") return `${join(one.native)} tokens unchanged, would be ${join(one.predicted)} (budget ${join(one.budget)}${counted})`;
  return `${join(one.native)} → ${join(one.predicted)} tokens (budget ${join(one.budget)}${counted})`;
}

function decisionItem(s, one) {
  const failed = one.result !== "answered" || one.status >= 400 ? `, ${one.result}${one.status ? `, status ${one.status}` : ""}` : "";
  const head = make("div", { className: "head" },
    make("span", { className: "tier" }, make("span", { className: `swatch ${tierClass(s, one.tier)}` }), one.tier || "–"),
    make("span", { className: "numbers" }, summary(one)),
    make("span", { className: "note" }, `${one.outcome}${failed} · ${one.why} · fit ${one.fit_ms} ms of ${one.ms} ms`),
    make("time", { dateTime: one.at }, new Date(one.at).toLocaleTimeString("en-GB")));
  const item = make("li", {}, head);
  if (one.question) item.append(make("p", { className: "question" }, one.question));
  for (let index = 0; index < one.pictures; index++) {
    const spent = one.outcome === "fitted" ? one.predicted[index] : one.native[index];
    item.append(make("div", { className: "pair" },
      figure(one.id, index, "original", `Original, ${tokens(one.native[index])} tokens`),
      figure(one.id, index, "seen", `As the model saw it, ${tokens(spent)} tokens`)));
  }
  return item;
}

function figure(id, index, side, caption) {
  const picture = make("img", { alt: caption });
  const note = make("span", { className: "note" }, caption);
  const button = make("button", { type: "button" }, picture, note);
  button.addEventListener("click", () => enlarge(picture, note.textContent));
  fetch(`/stakes/images/${id}/${index}/${side}`, { headers: headers() })
    .then((reply) => (reply.ok ? reply.blob() : Promise.reject(new Error("not kept"))))
    .then((blob) => { picture.src = URL.createObjectURL(blob); })
    .catch(() => { note.textContent = `${caption}: not kept any more`; });
  picture.addEventListener("load", () => { note.textContent = `${caption}, ${picture.naturalWidth} × ${picture.naturalHeight}`; });
  picture.addEventListener("error", () => { note.textContent = `${caption}: this browser cannot show its format`; });
  return button;
}

function enlarge(picture, caption) {
  $("large-image").src = picture.src;
  $("large-image").alt = $("large-caption").textContent = caption;
  $("large").showModal();
}

// ---- start ---------------------------------------------------------------------------------------------------------

$("lock").addEventListener("submit", (event) => {
  event.preventDefault();
  key = $("key").value.trim();
  sessionStorage.setItem("stakes-key", key);
  refresh();
  listModels();
});
$("theme").addEventListener("click", () => {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  localStorage.setItem("stakes-theme", root.dataset.theme);
});
if (localStorage.getItem("stakes-theme")) document.documentElement.dataset.theme = localStorage.getItem("stakes-theme");
refresh();
setInterval(() => { if (!document.hidden) refresh(); }, 2000);
