"use strict";

// The page shows what the stream of events says, and asks for nothing by itself. All texts are put
// in as text, never as HTML.

const byId = (id) => document.getElementById(id);
const BUSY = ["DRAINING", "CHECKPOINT_PENDING", "RESETTING", "STARTED"];
const SHOWN = 100;
const WINDOW_MS = 10 * 60 * 1000;

const happenings = new Map();
let view = {known: false, running: "", error: ""};
let viewedAt = Date.now();

function element(name, text, kind) {
  const made = document.createElement(name);
  if (text !== undefined) made.textContent = text;
  if (kind) made.className = kind;
  return made;
}

// Roles are said, because a narrow screen shows rows as cards, which would end a table's roles.
function row(cells, head) {
  const made = element("tr");
  made.role = "row";
  cells.forEach(([content, label, kind], index) => {
    const isHead = head && index === 0;
    const cell = element(isHead ? "th" : "td", undefined, kind);
    cell.role = isHead ? "rowheader" : "cell";
    if (isHead) cell.scope = "row";
    if (label) cell.dataset.label = label;
    cell.append(...(Array.isArray(content) ? content : [content]));
    made.append(cell);
  });
  return made;
}

function fill(id, rows, columns, nothing) {
  if (rows.length === 0) {
    rows = [row([[nothing, "", "empty"]])];
    rows[0].firstChild.colSpan = columns;
  }
  byId(id).replaceChildren(...rows);
}

const count = (number) => number === null ? "?" : number.toLocaleString("en");
const clock = (ms) => new Date(ms).toLocaleTimeString("en-GB");

function bytes(number) {
  if (number < 1024) return `${number} B`;
  if (number < 1024 * 1024) return `${(number / 1024).toFixed(1)} KiB`;
  return `${(number / 1024 / 1024).toFixed(1)} MiB`;
}

function duration(ms) {
  if (ms < 1000) return `${ms} ms`;
  return ms < 60000 ? `${(ms / 1000).toFixed(1)} s` : `${(ms / 60000).toFixed(1)} min`;
}

function value(id, text, more) {
  const parts = [text];
  if (more) parts.push(element("small", more));
  byId(id).replaceChildren(...parts);
}

// "numbers 0, 1, 2": partitions of a topic together.
function named(partitions) {
  const topics = new Map();
  for (const each of partitions) {
    topics.set(each.topic, [...(topics.get(each.topic) || []), each.partition]);
  }
  return [...topics].map(([topic, numbers]) => `${topic} ${numbers.join(", ")}`).join("; ") || "–";
}

// ---------------------------------------------------------------------------------------- the state

function showPhase() {
  const phase = byId("phase");
  const name = view.known ? view.phase : "UNKNOWN";
  phase.textContent = name.toLowerCase().replaceAll("_", " ");
  const kind = name === "PROCESSING" ? "good" : BUSY.includes(name) ? "busy" : "bad";
  phase.className = `phase ${view.known || view.error ? kind : ""}`;
  const reading = view.error ? "" : "the control topic is being read";
  byId("waits-for").textContent = view.known ? view.waits_for + waiting() : reading;
  byId("problem").textContent = view.known ? view.problem : "";
}

// How long the region waits, which goes on while the server has nothing new to say.
function waiting() {
  if (view.waiting_s === null) return "";
  const seconds = view.waiting_s + Math.floor((Date.now() - viewedAt) / 1000);
  return ` (for ${seconds < 60 ? `${seconds} s` : duration(seconds * 1000)})`;
}

// The operators that are in the group.
const present = () => view.operators.filter((each) => each.condition !== "gone");

function showTiles() {
  const all = view.operators.flatMap((each) => each.partitions).concat(view.unowned);
  const lags = all.map((each) => each.lag);
  const lag = lags.includes(null) ? null : lags.reduce((sum, each) => sum + each, 0);
  const open = view.checkpoint > view.completed ? `last one begun: ${view.checkpoint}` : "complete";
  value("completed", count(view.completed), view.completed ? open : "none yet");
  value("lag", count(lag), `records in ${all.length} partitions`);
  value("size", bytes(all.reduce((sum, each) => sum + each.state_bytes, 0)), "in the checkpoint");
  const row_ = view.resets_in_a_row;
  value("attempt", count(view.attempt), row_ ? `resets in a row: ${row_}` : "no reset in a row");
  value("controller", view.controller || "none", `epoch ${view.epoch}`);
  value("group", view.group, view.mode);
}

function showOperators() {
  const rows = view.operators.map((each) => row([
    [[each.name, element("small", each.incarnation)]],
    [each.condition, "Condition", /^(unhealthy|gone)/.test(each.condition) ? "bad" : ""],
    [named(each.partitions), "Partitions"],
    [count(each.lag), "Lag", "number"],
    [bytes(each.state_bytes), "State", "number"],
    [each.host, "Host"],
    [each.process, "Process"],
  ], true));
  fill("operators", rows, 7, "No operator is running.");
  const owned = view.operators.flatMap((each) => each.partitions.map((p) => [p, each.name]));
  const all = owned.concat(view.unowned.map((each) => [each, "–"]));
  all.sort(([a], [b]) => a.topic.localeCompare(b.topic) || a.partition - b.partition);
  byId("partition-count").textContent = all.length;
  fill("partitions", all.map(([each, owner]) => row([
    [`${each.topic} ${each.partition}`],
    [owner, "Operator"],
    [count(each.position), "Position", "number"],
    [count(each.end), "End", "number"],
    [count(each.lag), "Lag", "number"],
    [bytes(each.state_bytes), "State", "number"],
  ], true)), 6, "No partition is known.");
}

// `aria-disabled` keeps the focus where it is, which `disabled` does not.
function showButtons() {
  const canAsk = view.known && !view.running && present().length > 0;
  for (const id of ["drain", "reset"]) byId(id).setAttribute("aria-disabled", String(!canAsk));
  byId("drain").textContent = view.running === "drain" ? "Draining…" : "Make a checkpoint";
  byId("reset").textContent = view.running === "reset" ? "Resetting…" : "Reset…";
}

function show() {
  byId("failure").hidden = !view.error;
  const error = view.error.charAt(0).toUpperCase() + view.error.slice(1);
  if (byId("failure-text").textContent !== error) byId("failure-text").textContent = error;
  const wasHidden = byId("known").hidden;
  byId("known").hidden = !view.known;
  showPhase();
  showButtons();
  if (view.known) {
    showTiles();
    showOperators();
    if (wasHidden) showTimeline(); // lanes have no width before
  }
}

// -------------------------------------------------------------------------------------- the timeline

function showTimeline() {
  const boxes = [...byId("kinds").querySelectorAll("input")];
  const kinds = new Set(boxes.filter((each) => each.checked).map((each) => each.value));
  const newest = [...happenings.values()].sort((a, b) => b.id - a.id);
  const shown = newest.filter((each) => kinds.has(each.kind)).slice(0, SHOWN);
  fill("happenings", shown.map((each) => {
    const mark = element("span", undefined, `kind ${each.kind}`);
    const when = element("time", clock(each.began));
    when.dateTime = new Date(each.began).toISOString();
    return row([
      [when],
      [[mark, each.title]],
      [each.took === null ? "–" : duration(each.took), "", "number"],
      [each.outcome || "–"],
      [[each.cause, each.detail].filter(Boolean).join("; ") || "–"],
    ]);
  }), 5, "Nothing yet.");
  drawLanes(newest);
}

function drawn(name, attributes, text) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, each] of Object.entries(attributes)) made.setAttribute(key, each);
  if (text !== undefined) made.textContent = text;
  return made;
}

function drawLanes(newest) {
  const lanes = byId("lanes");
  const [width, left, right] = [lanes.clientWidth || 800, 100, 14];
  const now = Math.max(Date.now(), ...newest.slice(0, 5).map((each) => each.began));
  const recent = newest.filter((each) => each.began > now - WINDOW_MS);
  const first = Math.min(now - 30000, ...recent.map((each) => each.began));
  const x = (ms) => left + (width - left - right) * (ms - first) / (now - first);
  const parts = [];
  ["checkpoint", "rebalance", "reset"].forEach((kind, lane) => {
    const y = 10 + lane * 32;
    parts.push(drawn("text", {x: 12, y: y + 16}, `${kind}s`));
    parts.push(drawn("line", {x1: left, x2: width - right, y1: y + 27, y2: y + 27}));
    for (const each of recent.filter((one) => one.kind === kind)) {
      const burnt = each.outcome.startsWith("burnt") ? " burnt" : "";
      const end = each.outcome === "running" ? now : each.began + (each.took || 0);
      const wide = Math.max(4, x(end) - x(each.began));
      const at = Math.min(x(each.began), width - right - wide);
      const bar = drawn("rect", {x: at, y, width: wide, height: 24, rx: 2, class: kind + burnt});
      const took = each.took === null ? "" : `, ${duration(each.took)}`;
      bar.append(drawn("title", {}, `${clock(each.began)} ${each.title}${took} ${each.cause}`));
      parts.push(bar);
    }
  });
  parts.push(drawn("text", {x: left, y: 124}, clock(first)));
  parts.push(drawn("text", {x: width - right, y: 124, "text-anchor": "end"}, clock(now)));
  lanes.replaceChildren(...parts);
}

// ------------------------------------------------------------------------------------------- actions

// With the time: the answer stays until the next one.
function tell(text, isBad) {
  byId("result").textContent = `${text} (${clock(Date.now())})`;
  byId("result").className = isBad ? "result bad" : "result";
}

async function post(path, what) {
  tell(`The ${what} runs…`, false);
  try {
    const answer = await fetch(path, {method: "POST"});
    const isJson = (answer.headers.get("content-type") || "").includes("json");
    const said = isJson ? await answer.json() : {error: await answer.text()};
    tell(said.done || said.error, !answer.ok);
  } catch (error) {
    tell(`The page's server does not answer: ${error.message}`, true);
  }
}

// A button that cannot ask says why at once.
function isDisabled(button) {
  if (button.getAttribute("aria-disabled") !== "true") return false;
  if (view.known && !view.running) tell(`Nothing to ask: ${view.waits_for}.`, true);
  return true;
}

byId("drain").addEventListener("click", () => {
  if (!isDisabled(byId("drain"))) post("drain", "checkpoint");
});

byId("reset").addEventListener("click", () => {
  if (isDisabled(byId("reset"))) return;
  byId("confirm-checkpoint").textContent = count(view.completed);
  byId("force").checked = Boolean(view.gave_up);
  byId("confirm").showModal();
});

// Not at "close": browsers may put off that event until the dialog is open again.
byId("confirm").addEventListener("submit", (event) => {
  if (event.submitter.value !== "reset") return;
  post(byId("force").checked ? "reset?force=true" : "reset", "reset");
});

byId("kinds").addEventListener("change", showTimeline);
window.addEventListener("resize", showTimeline);

// -------------------------------------------------------------------------------------------- events

// The token has become a cookie: it goes out of the address and of the browser's history.
if (location.search) history.replaceState(null, "", location.pathname);

const events = new EventSource("events");
events.addEventListener("view", (event) => {
  view = JSON.parse(event.data);
  viewedAt = Date.now();
  show();
});
setInterval(() => { if (view.known && view.waiting_s !== null) showPhase(); }, 1000);
events.addEventListener("timeline", (event) => {
  const told = JSON.parse(event.data);
  if (told.fresh) happenings.clear();
  for (const each of told.happenings) happenings.set(each.id, each);
  showTimeline();
});
events.addEventListener("open", () => { byId("connection").textContent = ""; });
events.addEventListener("error", async () => {
  const connection = byId("connection");
  connection.textContent = "The page's server does not answer; what is shown is old.";
  if (events.readyState !== EventSource.CLOSED) return; // else the browser tries again by itself
  const answer = await fetch("metrics").catch(() => null);
  if (!answer || answer.ok) {
    connection.append(" ", link("Reload the page"));
  } else if (answer.status === 401) {
    connection.textContent = "The page needs its token again: open the address that " +
      "kohort region ui has printed. What is shown is old. ";
    connection.append(link("Reload the page"));
  }
});

function link(text) {
  const made = element("a", text);
  made.href = location.pathname;
  return made;
}
