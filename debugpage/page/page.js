"use strict";

const byID = (id) => document.getElementById(id);
const rows = new Map(); // id -> {data, element, parts}
const minutes10 = 600_000;
const page = 300; // rows that are shown at first
let offset = 0; // of the server's clock from ours
let heard = 0; // when the last message came
let filter = "all";
let limit = page;
let inDialog = null; // the id of the row
let controls = false;
let stream = null;

const now = () => Date.now() + offset;

// make returns an element. What it is told is text, never markup.
function make(tag, attributes, ...children) {
	const e = document.createElement(tag);
	for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
	e.append(...children);
	return e;
}

// set changes a text only if it is another, so that a selection or a screen reader is left alone.
function set(e, value) {
	if (e.textContent !== value) e.textContent = value;
}

function badge(state) {
	return make("span", { class: "badge", "data-state": state }, states[state]);
}

// cell is a cell with a main line and a quiet one.
function cell(label, main, sub, ...more) {
	return make("td", { role: "cell", "data-label": label }, main, sub, ...more);
}

function addRow(data) {
	const line = () => make("span", { class: "main" });
	const sub = () => make("span", { class: "sub" });
	const p = {
		name: make("button", { type: "button", class: "name" }), tools: sub(), scope: make("span", { class: "chip" }),
		state: make("span", {}), since: sub(), forced: make("span", { class: "chip forced" }), hidden: make("span", { class: "chip" }),
		count: make("span", { class: "count" }), when: sub(), track: make("span", { class: "track" }, make("i", {})),
		kind: line(), rule: sub(), streak: line(), window: sub(), calls: line(), callsSub: sub(),
		line: make("td", { role: "cell", "data-label": "Last 10 minutes" }),
	};
	p.again = cell("Tries again in", p.count, p.when, p.track);
	p.causeCell = cell("Cause", p.kind, p.rule);
	p.failuresCell = cell("Failures", p.streak, p.window);
	p.callsCell = cell("Calls", p.calls, p.callsSub);
	set(p.hidden, "hidden from model");
	const element = make("tr", { role: "row" },
		make("th", { role: "rowheader", scope: "row" }, p.name, p.tools, p.scope),
		cell("State", p.state, p.since, p.forced, " ", p.hidden),
		p.again, p.causeCell, p.failuresCell, p.callsCell, p.line);
	p.name.addEventListener("click", () => openDialog(data.id));
	element.row = { data, element, parts: p };
	rows.set(data.id, element.row);
}

// fill shows the data of a row, except for what passes with time.
function fill({ data, element, parts: p }) {
	const why = cause(data), bad = failures(data), met = calls(data);
	element.dataset.look = look(data);
	set(p.name, named(data.dependency));
	set(p.tools, (data.tools || []).map(named).join(", "));
	set(p.scope, data.scope ? "scope " + named(data.scope) : "");
	p.scope.hidden = !data.scope;
	if (p.state.firstChild?.dataset.state !== data.state) p.state.replaceChildren(badge(data.state));
	set(p.forced, overrides[data.override] || "");
	p.forced.hidden = !data.override;
	p.hidden.hidden = !data.hidden;
	set(p.kind, why.kind);
	set(p.rule, why.rule);
	set(p.streak, bad.streak);
	set(p.window, bad.window);
	set(p.calls, met.main);
	set(p.callsSub, met.sub);
	p.causeCell.classList.toggle("none", !why.kind);
	p.failuresCell.classList.toggle("none", !bad.streak && !bad.window);
	p.callsCell.classList.toggle("none", !met.main && !met.sub);
	p.drawn = 0;
}

// pass shows what passes with time.
function pass({ data, parts: p }) {
	const t = now(), next = again(data, t), { long } = since(data, t);
	set(p.since, long && "for " + long);
	set(p.count, next.left ? clock(next.left) : "");
	set(p.when, next.text);
	p.track.hidden = !next.part;
	p.track.firstChild.style.transform = "scaleX(" + (next.part || 0) + ")";
	p.again.classList.toggle("none", !next.left && !next.text);
	if (t - p.drawn < 5000) return;
	p.drawn = t;
	p.line.replaceChildren(drawing(data));
}

// drawing is the last ten minutes of a row.
function drawing(data) {
	const svg = (tag, attributes) => {
		const e = document.createElementNS("http://www.w3.org/2000/svg", tag);
		for (const [k, v] of Object.entries(attributes)) e.setAttribute(k, v);
		return e;
	};
	const t = now(), begin = t - minutes10;
	const picture = svg("svg", { class: "line", viewBox: "0 0 600 28", preserveAspectRatio: "none", role: "img", "aria-label": story(data, begin) });
	const height = { closed: 6, half_open: 28, open: 28 };
	for (const s of spans(data, begin, t)) {
		const x = (s.from - begin) / 1000, h = height[s.state];
		picture.append(svg("rect", { class: s.state, x, y: 28 - h, width: Math.max(3, (s.to - begin) / 1000 - x), height: h }));
	}
	return picture;
}

// arrange puts the rows that are to be seen into the table, in order.
function arrange() {
	const query = byID("search").value.trim().toLowerCase();
	const counts = { all: rows.size, open: 0, half_open: 0, closed: 0, forced: 0 };
	for (const { data } of rows.values()) counts[look(data)]++;
	for (const b of byID("filters").children) {
		b.dataset.count = counts[b.dataset.filter];
		set(b.firstChild, number(counts[b.dataset.filter]));
		b.setAttribute("aria-pressed", String(b.dataset.filter === filter));
	}
	document.title = (counts.open ? counts.open + " open: " : "") + "Circuits";

	const found = [...rows.values()]
		.filter(({ data }) => (filter === "all" || look(data) === filter) && text(data).includes(query))
		.sort(({ data: a }, { data: b }) => rank(a) - rank(b)
			|| a.dependency.localeCompare(b.dependency) || (a.scope || "").localeCompare(b.scope || ""));
	const shown = found.slice(0, limit);
	const body = byID("rows"), focused = document.activeElement;
	const wanted = new Set(shown.map((r) => r.element));
	for (const e of [...body.children]) if (!wanted.has(e)) e.remove();
	shown.forEach(({ element }, i) => {
		if (body.children[i] !== element) body.insertBefore(element, body.children[i] || null);
	});
	if (focused !== document.activeElement && body.contains(focused)) focused.focus();
	shown.forEach(pass);

	byID("circuits").hidden = shown.length === 0;
	byID("empty").hidden = shown.length > 0;
	set(byID("empty"), rows.size ? "No circuit matches." : "There is no circuit yet. A tool gets one with its first call.");
	byID("rest").hidden = found.length === shown.length;
	set(byID("shown"), number(shown.length) + " of " + number(found.length) + " are shown.");
}

// receive takes a message: everything, or what has changed.
function receive(sheet) {
	offset = Date.parse(sheet.now) - Date.now();
	heard = Date.now();
	link("live", "live");
	const there = new Set(sheet.circuits.map((c) => c.id));
	const gone = sheet.changes ? sheet.gone || [] : [...rows.keys()].filter((id) => !there.has(id));
	const first = rows.size === 0, news = [];
	for (const id of gone) rows.delete(id);
	for (const data of sheet.circuits) {
		const row = rows.get(data.id);
		if (row && (row.data.state !== data.state || row.data.override !== data.override)) news.push(data);
		if (row) row.data = data;
		else addRow(data);
		fill(rows.get(data.id));
	}
	byID("disabled").hidden = !sheet.disabled;
	if (!first && news.length) announce(news);
	arrange();
	fillDialog();
}

// announce tells a screen reader what changed, in short.
function announce(news) {
	const one = (r) => named(r.dependency) + " is " + (overrides[r.override] || states[r.state]);
	set(byID("news"), news.length <= 3 ? news.map(one).join(". ") : many(news.length, "circuit") + " changed");
}

// link says how it is with the stream and, if there is none, why.
function link(state, words, reason = "") {
	byID("link").dataset.link = state;
	set(byID("link"), words);
	byID("reason").hidden = !reason;
	set(byID("reason"), reason);
}

// connect opens the stream. A tab that nobody sees has none.
function connect() {
	if (stream || document.hidden) return;
	stream = new EventSource("events");
	stream.onopen = () => link("live", "live");
	stream.onmessage = (m) => receive(JSON.parse(m.data));
	stream.addEventListener("controls", (m) => { controls = JSON.parse(m.data); fillDialog(); });
	stream.onerror = () => {
		if (stream.readyState !== EventSource.CLOSED) return link("lost", "connection lost, trying again");
		disconnect(); // the browser does not try again by itself
		explain();
		setTimeout(connect, 5000);
	};
}

function disconnect() {
	stream?.close();
	stream = null;
	heard = 0;
}

// explain says why there is no stream, which an EventSource keeps to itself.
async function explain() {
	const request = new AbortController();
	let reason = "";
	try {
		const answer = await fetch("events", { signal: request.signal });
		const type = answer.headers.get("Content-Type") || "";
		if (!answer.ok) reason = answer.status + " " + (type.startsWith("text/plain") ? (await answer.text()).slice(0, 300) : answer.statusText);
		else if (!type.startsWith("text/event-stream")) reason = "the answer is of type " + type + ", not a stream. Are you still signed in?";
	} catch { // there is no answer at all
	}
	request.abort();
	if (!stream) link("lost", "connection lost, trying again", reason);
}

function openDialog(id) {
	inDialog = id;
	set(byID("outcome"), "");
	byID("detail").showModal();
	fillDialog();
}

// fillDialog shows the row of the dialog, or that it is gone.
function fillDialog() {
	if (!byID("detail").open) return;
	const data = rows.get(inDialog)?.data;
	set(byID("gone"), data ? "" : "The Set has no such circuit any more. This is what it was.");
	byID("gone").hidden = !!data;
	byID("controls").hidden = !controls || !data;
	if (!data) return;
	const name = named(data.dependency);
	set(byID("name"), name + (data.scope ? ", scope " + named(data.scope) : ""));
	set(byID("tools"), data.tools ? "Tools: " + data.tools.map(named).join(", ") : "A tool of the same name");
	list("settings", Object.entries(data.policy));
	byID("policy").hidden = Object.keys(data.policy).length === 0;
	byID("transitions").replaceChildren(...data.timeline.toReversed()
		.map((p) => make("li", {}, make("time", { datetime: p.at }, timeOfDay(p.at)), badge(p.state), p.seen ? "or before" : "")));
	set(byID("reach"), "They act on every circuit of " + name + ".");
	for (const b of byID("buttons").children) b.hidden = b.dataset.action === "none" ? !data.override : b.dataset.action === data.override;
	passDialog();
}

// passDialog shows what passes with time in the dialog.
function passDialog() {
	const data = rows.get(inDialog)?.data;
	if (!data) return;
	list("facts", facts(data, now()));
	byID("big").replaceChildren(drawing(data));
}

// list shows pairs of a name and a value. Where the names are the same it changes the values alone.
function list(id, pairs) {
	const e = byID(id), names = (all) => all.join("\n");
	if (names([...e.children].map((c) => c.firstChild.textContent)) === names(pairs.map(([k]) => k))) {
		pairs.forEach(([, v], i) => set(e.children[i].lastChild, String(v)));
	} else {
		e.replaceChildren(...pairs.map(([k, v]) => make("div", {}, make("dt", {}, k), make("dd", {}, String(v)))));
	}
}

// act asks the server to do something with the dependency in the dialog.
async function act(button) {
	set(byID("outcome"), button.textContent + " …");
	try {
		const answer = await fetch("control", { method: "POST", body: new URLSearchParams({ id: inDialog, action: button.dataset.action }) });
		set(byID("outcome"), button.textContent + ": " + (answer.ok ? "done" : await answer.text()));
	} catch (e) {
		set(byID("outcome"), button.textContent + ": " + e.message);
	}
}

function start() {
	set(byID("host"), location.host);
	const names = { all: "all", open: "open", half_open: "half-open", closed: "closed", forced: "overridden" };
	for (const [value, name] of Object.entries(names)) {
		const b = make("button", { type: "button", "data-filter": value, "aria-pressed": "false" }, make("strong", {}, "0"), make("span", {}, name));
		b.addEventListener("click", () => { filter = value; limit = page; arrange(); });
		byID("filters").append(b);
	}
	const actions = { open: "Force open", closed: "Let all through", none: "Lift the override", reset: "Reset" };
	for (const [action, name] of Object.entries(actions)) {
		const b = make("button", { type: "button", "data-action": action }, name);
		b.addEventListener("click", () => act(b));
		byID("buttons").append(b);
	}
	byID("search").addEventListener("input", () => { limit = page; arrange(); });
	byID("more").addEventListener("click", () => { limit += page; arrange(); });
	byID("detail").addEventListener("close", (e) => { if (!e.target.open) inDialog = null; });
	document.addEventListener("visibilitychange", () => document.hidden ? disconnect() : connect());
	setInterval(() => {
		for (const e of byID("rows").children) pass(e.row);
		passDialog();
		if (stream && heard && Date.now() - heard > 40_000) link("lost", "no news for " + ago(Date.now() - heard));
	}, 1000);
	connect();
}

start();
