// The dashboard's question form: posts a question and an image to /v1/chat/completions and shows the answer.
"use strict";
let canDrawFilmstrip = false; // set from /stakes/state

function dataUrl(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result);
    reader.onerror = () => reject(new Error("the image cannot be read"));
    reader.readAsDataURL(file);
  });
}

function setImage(files) {
  const first = [...files].find((file) => file.type.startsWith("image/"));
  if (!first) return;
  const list = new DataTransfer();
  list.items.add(first);
  $("image").files = list.files;
}

async function ask(event) {
  event.preventDefault();
  const button = event.target.querySelector("button");
  button.disabled = true;
  $("answer").replaceChildren(make("span", { className: "note" }, "Asking…"));
  try {
    const parts = [{ type: "text", text: $("question").value }];
    const image = $("image").files[0];
    if (image) parts.unshift({ type: "image_url", image_url: { url: await dataUrl(image) } });
    const tier = $("tier").value;
    const reply = await fetch("/v1/chat/completions", {
      method: "POST",
      headers: headers({ "content-type": "application/json", ...(tier ? { "x-stakes-tier": encodeURIComponent(tier) } : {}) }),
      body: JSON.stringify({ model: $("model").value, messages: [{ role: "user", content: parts }] }),
    });
    const body = await reply.json().catch(() => ({}));
    showAnswer(reply, body);
    if (reply.ok && parts.length > 1 && canDrawFilmstrip) offerFilmstrip(parts[0].image_url.url, reply, body);
  } catch (error) {
    $("answer").replaceChildren(make("p", { className: "warning" }, String(error.message || error)));
  } finally {
    button.disabled = false;
    refresh();
  }
}

function showAnswer(reply, body) {
  if (!reply.ok) {
    const why = body.error?.message || "no reason given";
    $("answer").replaceChildren(make("p", { className: "warning" }, `${reply.status}: ${why}`));
    return;
  }
  const details = make("dl");
  const add = (name, text) => text && details.append(make("dt", {}, name), make("dd", {}, text));
  const header = (name) => reply.headers.get(`x-stakes-${name}`)?.replace(/(?:%[0-9A-F]{2})+/g, decodeURIComponent);
  add("tier", header("tier"));
  add("why", header("why"));
  add("native tokens", header("native-tokens"));
  add("budget", header("budget"));
  add(header("outcome") === "observed" ? "would take" : "predicted tokens", header("predicted-tokens"));
  add("scale", header("scale"));
  add("outcome", header("outcome") || "text, forwarded unchanged");
  add("confidence", body.stakes?.confidence?.toFixed(2));
  const text = body.choices?.[0]?.message?.content || "(no text)";
  const warning = body.stakes?.warning ? [make("p", { className: "warning" }, body.stakes.warning)] : [];
  $("answer").replaceChildren(make("p", { className: "text" }, text), ...warning, details);
}

// The place of the answer at each budget. The image goes to the gateway once more, and is not kept there.
function offerFilmstrip(image, reply, body) {
  const answer = body.choices?.[0]?.message?.content, budget = parseInt(reply.headers.get("x-stakes-budget"), 10);
  if (!answer) return;
  const button = make("button", { type: "button" }, "Show what can be read at each budget");
  button.addEventListener("click", async () => {
    button.disabled = true;
    button.textContent = "Reading the page…";
    try {
      const made = await fetch("/stakes/filmstrip", {
        method: "POST",
        headers: headers({ "content-type": "application/json" }),
        body: JSON.stringify({ image, answer, budget: budget > 0 ? budget : null }),
      });
      const strip = await made.json();
      if (!made.ok) throw new Error(strip.error?.message || `the gateway answered ${made.status}`);
      button.replaceWith(filmstrip(strip));
    } catch (error) {
      button.replaceWith(make("p", { className: "note" }, `No filmstrip: ${error.message || error}.`));
    }
  });
  $("answer").append(button);
}

function filmstrip(strip) {
  const list = make("ol", { className: "film" }, ...strip.frames.map((frame) => {
    const mark = make("span", { className: frame.legible ? "read legible" : "read" }, `${frame.legible ? "✓" : "✗"} ${frame.read || "(nothing)"}`);
    const item = make("li", { className: frame.chosen ? "now" : "" },
      make("img", { src: frame.image, alt: `the answer's place at ${frame.budget} tokens` }),
      make("span", {}, `${frame.budget} tokens`), mark);
    if (frame.chosen) item.append(make("span", { className: "chosen" }, "this answer"));
    return item;
  }));
  const more = strip.places > 1 ? ` It is printed in ${strip.places} places, of which the first is shown.` : "";
  const note = `The place of the answer, enlarged, at each measured budget, and what OCR reads there (✓: as at full size).${more} Nothing of it is kept.`;
  return make("div", {}, make("p", { className: "note" }, note), list);
}

async function listModels() {
  const reply = await fetch("/v1/models", { headers: headers() }).catch(() => null);
  const list = reply?.ok ? await reply.json().catch(() => null) : null;
  const names = (list?.data || []).map((model) => model.id);
  $("models").replaceChildren(...names.map((name) => make("option", { value: name })));
  if (names.length && !$("model").value) $("model").value = names[0];
}

$("ask").addEventListener("submit", ask);
for (const kind of ["dragover", "dragleave", "drop"]) {
  $("try").addEventListener(kind, (event) => {
    event.preventDefault();
    $("try").classList.toggle("drop", kind === "dragover");
    if (kind === "drop") setImage(event.dataTransfer.files);
  });
}
document.addEventListener("paste", (event) => setImage(event.clipboardData.files));
listModels();
