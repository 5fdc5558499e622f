"use strict";
// Filmstrips of answers, their pages at each budget, and the list of questions with the reasons for their tiers.

const MARKS = { right: ["✓", "right"], wrong: ["✗", "wrong"], part: ["≈", "only a part of the answer"] };

function readingOf(view) {
  const [sign, word] = MARKS[view.mark], line = element("span", undefined, "read " + view.mark);
  line.append(element("span", `${sign} ${view.prediction || "(nothing)"}`));
  line.title = word;
  line.setAttribute("aria-label", `${word}: ${view.prediction || "nothing"}`);
  return line;
}

function filmOf(item) {
  const film = element("ol", undefined, "film");
  for (const view of item.views) {
    const step = element("li");
    step.dataset.budget = view.budget;
    if (view.crop) {
      const image = element("img");
      image.alt = `the answer's place at ${view.budget} tokens`;
      image.src = view.crop;
      step.append(image);
    }
    step.append(element("span", `${view.budget} tokens`), readingOf(view));
    if (view.mark === "part") step.append(element("small", "a part only, which the metric counts as right"));
    if (view.truncated) step.append(element("small", "cut at the answer limit"));
    step.append(element("small", "one budget for all", "even"), element("small", "chosen here", "chosen"));
    film.append(step);
  }
  return film;
}

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
  caption.append(element("strong", `${view.budget} tokens`), readingOf(view));
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
    head.append(element("span", item.tier, "tag"), element("b", item.question), element("p", "accepted: " + item.answers.join(" · "), "muted"), element("p", item.why, "muted"));
    card.append(head);
    const film = filmOf(item), missing = element("p", undefined, "muted");
    if (item.places > 1) head.append(element("p", `Printed in ${item.places} places, of which the first is shown.`, "muted"));
    card.append(film, missing);
    const controls = element("div", undefined, "controls");
    const sides = element("div", undefined, "sides");
    for (const side of ["left", "right"]) { const figure = element("figure"); figure.dataset.side = side; sides.append(figure); }
    const whole = element("details");
    whole.append(element("summary", "the whole page at two budgets"), controls, sides);
    card.append(whole);
    const names = Object.keys((item.views[0] && item.views[0].kept) || {});
    const left = slider(card, item, "left", item.uniform, "left");
    const right = slider(card, item, "right", DATA.budgets[item.tier], "right");
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
    cards.push({ item, right, film, missing });
    place.append(card);
  }
}

function markGallery(budgets, mean) {
  for (const { item, right, film, missing } of cards) {
    const budget = budgets[item.tier], at = right.grid.indexOf(budget);
    if (at >= 0 && Number(right.input.value) !== at) { right.input.value = at; right.show(); }
    missing.textContent = at >= 0 ? "" : `The budget chosen here, ${budget}, is not among those shown.`;
    const within = right.grid.filter((b) => b <= mean), even = within.length ? within[within.length - 1] : right.grid[0];
    for (const step of film.children) {
      step.querySelector(".even").hidden = Number(step.dataset.budget) !== even;
      const now = Number(step.dataset.budget) === budget;
      step.classList.toggle("now", now);
      if (now) step.setAttribute("aria-current", "true"); else step.removeAttribute("aria-current");
    }
  }
}

// --- why this tier -------------------------------------------------------------------------------------------------

const SHOWN = 200;
let budgetsNow = {};

function drawQuestions() {
  const body = $("questions");
  if (!body) return;
  const word = $("search").value.toLowerCase(), kind = $("kind").value;
  const rows = QUESTIONS.filter((row) => (kind === "all" || (kind === "differ" ? row.differ.length : row.tier === kind.slice(5)))
    && (!word || row.question.toLowerCase().includes(word)));
  body.replaceChildren(...rows.slice(0, SHOWN).map((row) => {
    const line = element("tr", undefined, row.differ.length ? "differ" : "");
    line.append(element("td", row.question), element("td", String(row.times)), element("td", row.tier), element("td", String(budgetsNow[row.tier] ?? "")),
      element("td", row.probability === null ? "" : row.probability.toFixed(2)), element("td", row.why), element("td", row.differ.join("; ")));
    return line;
  }));
  put("shown", `${Math.min(rows.length, SHOWN)} of ${rows.length} questions shown.`);
}

function updateQuestions(budgets) { budgetsNow = budgets; drawQuestions(); }
