"use strict";

// What the page shows, as texts. Nothing here touches the document.

const states = { closed: "closed", open: "open", half_open: "half-open" };
const overrides = { open: "forced open", closed: "lets all through" };
const rules = {
	"threshold": "in a row",
	"rate": "by rate",
	"threshold+rate": "in a row and by rate",
	"pause": "it asked for a pause",
	"probe": "the probe failed",
	"reset": "reset",
	"fleet": "another worker saw it",
};

// look says under which filter a row counts, and how it is marked.
function look(row) {
	return row.override ? "forced" : row.state;
}

// rank is the order of rows: what needs a look comes first.
function rank(row) {
	return { open: 0, half_open: 1, forced: 2, closed: row.streak > 0 ? 3 : 4 }[look(row)];
}

function number(n) {
	return n.toLocaleString("en");
}

function many(n, one, more) {
	return number(n) + " " + (n === 1 ? one : more || one + "s");
}

// named is a name that can be seen.
function named(name) {
	return /[\p{L}\p{N}\p{P}\p{S}]/u.test(name) ? name : "(blank)";
}

// clock is a countdown: 0:42, 1:02:03.
function clock(ms) {
	const s = Math.max(0, Math.ceil(ms / 1000));
	const two = (n) => String(n).padStart(2, "0");
	const h = Math.floor(s / 3600);
	return (h > 0 ? h + ":" + two(Math.floor(s / 60) % 60) : Math.floor(s / 60)) + ":" + two(s % 60);
}

// ago is a rough length of time.
function ago(ms) {
	const s = Math.max(0, Math.floor(ms / 1000));
	if (s < 60) return s + " s";
	if (s < 3600) return Math.floor(s / 60) + " min";
	if (s < 86400) return Math.floor(s / 3600) + " h " + (Math.floor(s / 60) % 60) + " min";
	return Math.floor(s / 86400) + " d " + (Math.floor(s / 3600) % 24) + " h";
}

function timeOfDay(text) {
	return new Date(text).toLocaleTimeString("en", { hour12: false });
}

// since says since when a row is in its state: a time of the day, and how long ago. What stands
// above the state has no such time.
function since(row, now) {
	if (row.override) return { at: "", long: "" };
	const { seen } = row.timeline.at(-1), long = ago(now - Date.parse(row.since));
	return { at: timeOfDay(row.since) + (seen ? " or before" : ""), long: (seen ? "at least " : "") + long };
}

// again says when calls run again: a text, and whether a countdown goes before it.
function again(row, now) {
	if (row.override === "open") return { text: "when the override is lifted" };
	if (row.override === "closed" || row.state === "closed") return { text: "" };
	const left = row.retryAt ? Date.parse(row.retryAt) - now : 0;
	if (left <= 0) return { text: row.state === "half_open" ? "the next call is the probe" : "now" };
	if (row.state === "half_open") return { left, text: "at most; the probe is running" };
	return { left, part: Math.min(1, left / (Date.parse(row.retryAt) - Date.parse(row.since))), text: "at " + timeOfDay(row.retryAt) };
}

function cause(row) {
	if (!row.cause) return { kind: "", rule: "" };
	return { kind: row.cause.replaceAll("_", " "), rule: row.state === "closed" ? "" : rules[row.rule] || row.rule || "" };
}

function failures(row) {
	const most = row.threshold < 1e6 ? " of " + number(row.threshold) : "";
	return {
		streak: row.streak > 0 ? number(row.streak) + most + " in a row" : "",
		window: row.window.calls > 0
			? number(row.window.failures) + " of " + many(row.window.calls, "call") + " failed"
			: "",
	};
}

function calls(row) {
	const parts = [];
	if (row.refused) parts.push(number(row.refused) + " refused");
	if (row.busy) parts.push(number(row.busy) + " busy");
	if (row.inFlight) parts.push(number(row.inFlight) + " in flight");
	if (row.unclassified) parts.push(number(row.unclassified) + " unclassified");
	return { main: parts[0] || "", sub: parts.slice(1).join(", ") };
}

// facts are what the dialog lists: pairs of a name and a value.
function facts(row, now) {
	const w = failures(row), c = cause(row), from = since(row, now), next = again(row, now);
	const count = (n) => n ? number(n) : "";
	return Object.entries({
		"State": states[row.state] + (row.override ? ", " + overrides[row.override] : ""),
		"Since": from.at && from.at + ", " + from.long,
		"Tries again in": [next.left ? clock(next.left) : "", next.text].filter(Boolean).join(", "),
		"Cause": [c.kind, c.rule].filter(Boolean).join(", "),
		"Failures": w.streak,
		"Window": w.window,
		"Openings in memory": count(row.openings),
		"Calls refused": number(row.refused),
		"Refused as busy": count(row.busy),
		"In flight": count(row.inFlight),
		"Tools": row.hidden ? "hidden from the model" : "shown to the model",
		"Unclassified outcomes": count(row.unclassified),
		"Stale outcomes": count(row.stale),
		"Panics of hooks": count(row.hookPanics),
		"Shared state": row.shared || "",
	}).filter(([, value]) => value !== "");
}

// spans are the states of a row from begin to now, probes last, since they may be short.
function spans(row, begin, now) {
	const points = row.timeline.map((p) => ({ state: p.state, at: Date.parse(p.at) }));
	return points
		.map((p, i) => ({ state: p.state, from: Math.max(begin, p.at), to: i + 1 < points.length ? points[i + 1].at : now }))
		.filter((s) => s.to > begin)
		.sort((a, b) => (a.state === "half_open") - (b.state === "half_open"));
}

// story is a timeline for those who do not see it.
function story(row, begin) {
	const openings = row.timeline.filter((p) => p.state === "open" && Date.parse(p.at) > begin).length;
	const { at } = since(row, begin);
	return (openings ? "opened " + many(openings, "time") : "no known opening") + " in the last 10 minutes, "
		+ (overrides[row.override] || states[row.state]) + (at && " since " + at);
}

// text is what the search looks at.
function text(row) {
	return [row.dependency, row.scope, row.cause, ...(row.tools || [])].join(" ").toLowerCase();
}
