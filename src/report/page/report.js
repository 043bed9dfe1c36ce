"use strict";
// Draws the document in #data. All values are set as text or numbers, so a log cannot contain markup.
// The document is a run; with two runs, its member "other" is the second one.
const data = JSON.parse(document.getElementById("data").textContent);
const runs = [data, data.other].filter(Boolean), two = runs.length > 1;
for (const run of runs) Object.assign(run, { ended: Boolean(run.end), start: run.start || {}, end: run.end || {} });
const page = document.getElementById("main");

// ---- elements and texts --------------------------------------------------------------------------

function make(space, name, attributes, ...children) {
    const made = document.createElementNS(space, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
}
const html = make.bind(null, "http://www.w3.org/1999/xhtml");
const svg = make.bind(null, "http://www.w3.org/2000/svg");

const known = (x) => Number.isFinite(x);
const last = (list) => list[list.length - 1];
const words = (name) => String(name).replaceAll("_", " ");
const title = (name) => words(name).charAt(0).toUpperCase() + words(name).slice(1);
const whole = (x) => (known(x) ? Math.round(x).toLocaleString("en-GB") : "–");
const short = (x) => (known(x) ? String(Number(x.toPrecision(4))) : "–");
const percent = (x) => (known(x) ? Number((100 * x).toFixed(1)) + "\u00a0%" : "–");
const text = (x) => (Array.isArray(x) ? x.map(text).join(", ") : String(x ?? "–"));
const measures = { mae: "MAE", rmse: "RMSE", r2: "R²", mean_f1: "Mean F1" };
const metric = (name, x) => (name === "accuracy" ? percent(x) : short(x));

function duration(s) {
    if (!known(s)) return "–";
    if (s < 120) return s < 1e-3 ? short(s * 1e6) + " µs" : s < 1 ? short(s * 1e3) + " ms" : short(s) + " s";
    const minutes = Math.round(s / 60);
    return minutes < 120 ? minutes + " min" : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

// Names of the runs, for headings and curves: names of files, or paths if the names are equal.
const file = (path) => text(path).split("/").filter(Boolean).pop() || "";
const same = two && file(data.log) === file(data.other.log);
runs.forEach((run, i) => (run.name = two ? (same ? (data.log === data.other.log ? `run ${i + 1}` : run.log) : file(run.log)) : ""));
const of = (run) => (two ? `: ${run.name}` : "");

function section(name, ...children) {
    return page.appendChild(html("section", { "aria-label": name }, html("h2", {}, name), ...children));
}

// Makes a table in a box that scrolls, also by keyboard, if the table is wider than the window. The
// first cell of a row is its header; a cell that is an element is used unchanged.
function table(name, look, heads, rows, foot = []) {
    const cell = (value, i) =>
        value instanceof Element ? value : html(i ? "td" : "th", i ? {} : { scope: "row" }, value);
    const lines = (part, list) => html(part, {}, ...list.map((row) => html("tr", {}, ...row.map(cell))));
    const head = heads.map((title) => html("th", { scope: "col" }, title));
    const made = html("table", { class: look });
    if (heads.length) made.append(html("thead", {}, html("tr", {}, ...head)));
    made.append(lines("tbody", rows));
    if (foot.length) made.append(lines("tfoot", foot));
    return html("div", { class: "wide", tabindex: 0, role: "region", "aria-label": name }, made);
}

// ---- curves --------------------------------------------------------------------------------------

// Returns about `wanted` round numbers from low to high; on a log scale powers of ten, if the range
// contains two.
function ticks(low, high, wanted, log) {
    if (log && Math.floor(Math.log10(high)) > Math.ceil(Math.log10(low))) {
        const from = Math.ceil(Math.log10(low)), to = Math.floor(Math.log10(high));
        const by = Math.ceil((to - from) / wanted);
        return Array.from({ length: Math.floor((to - from) / by) + 1 }, (_, k) => 10 ** (from + k * by));
    }
    const rough = high / wanted - low / wanted, power = 10 ** Math.floor(Math.log10(rough));
    const by = [1, 2, 5, 10].find((k) => k * power >= rough) * power;
    const from = Math.ceil(low / by - 1e-9), to = Math.floor(high / by + 1e-9);
    return Array.from({ length: to - from + 1 }, (_, k) => Number(((from + k) * by).toPrecision(12)));
}

// Returns the index of the item that is nearest to x.
const nearest = (list, x) => list.reduce((at, y, i) => (Math.abs(y - x) < Math.abs(list[at] - x) ? i : at), 0);

// Makes a figure of series over training steps: {name, look, x, y[, low, high][, dots]}; `say`
// formats a value.
function chart(name, series, say) {
    const log = html("input", { type: "checkbox" });
    const boxes = series.map(() => html("input", { type: "checkbox", checked: "" }));
    const key = (s, i) => html("label", { class: s.look }, boxes[i], html("i", {}), html("span", {}, s.name));
    const keys = html("div", { class: "keys" }, ...series.map(key), html("label", {}, log, "log scale"));
    const picture = svg("svg", { role: "img", tabindex: 0 });
    const readout = html("output", {}), note = html("p", { class: "note" });
    const box = section(name, keys, picture, readout, note);
    const all = [...new Set(series.flatMap((s) => s.x))].sort((a, b) => a - b);
    const first = all[0], final = all.length > 1 ? last(all) : first + 1;
    const chosen = () => series.filter((s, i) => boxes[i].checked);
    const drawable = (y) => known(y) && (!log.checked || y > 0);
    let marked = null, left, right, top, bottom, toX, toY;
    function bounds() {
        const values = chosen().flatMap((s) => [s.y, s.low || [], s.high || []].flat()).filter(drawable);
        if (!values.length) return [1, 10];
        const low = values.reduce((a, b) => Math.min(a, b)), high = values.reduce((a, b) => Math.max(a, b));
        const more = low === high ? Math.abs(low) / 2 || 1 : 0;
        if (log.checked) return more ? [low / 2, high * 2] : [low, high];
        return [low > 0 && low < high / 4 ? 0 : low - more, high + more];
    }
    const corner = (x, y) => toX(x).toFixed(2) + " " + toY(y).toFixed(2);
    function curve(s) {
        const pen = (i) => (i > 0 && drawable(s.y[i - 1]) ? "L" : "M");
        return s.x.map((x, i) => (drawable(s.y[i]) ? pen(i) + corner(x, s.y[i]) : "")).join("");
    }
    function band(s) {
        const good = [...s.x.keys()].filter((i) => drawable(s.low[i]) && drawable(s.high[i]));
        const edge = (list, values) => list.map((i) => corner(s.x[i], values[i]));
        return good.length ? `M${[...edge(good, s.high), ...edge(good.reverse(), s.low)].join("L")}Z` : "";
    }
    function drawn(s) {
        const group = svg("g", { class: s.look, "data-series": s.name });
        if (s.low) group.append(svg("path", { class: "band", d: band(s) }));
        group.append(svg("path", { class: "curve", d: curve(s) }));
        const dot = (i) => svg("circle", { class: "dot", r: 2.5, cx: toX(s.x[i]), cy: toY(s.y[i]) });
        if (s.dots) group.append(...[...s.x.keys()].filter((i) => drawable(s.y[i])).map(dot));
        return group;
    }
    function draw() {
        const padding = parseFloat(getComputedStyle(box).paddingLeft);
        const width = Math.max(240, box.clientWidth - 2 * padding), height = width < 500 ? 246 : 336;
        const [low, high] = bounds(), scale = log.checked ? Math.log10 : Number;
        [left, right, top, bottom] = [56, width - 12, 8, height - 42];
        toX = (x) => left + ((right - left) * (x - first)) / (final - first);
        const part = (y) => scale(y) / 2 - scale(low) / 2; // halved first, so that the difference cannot overflow
        toY = (y) => bottom - (bottom - top) * (part(y) / part(high));
        const label = (x, y, anchor, what) => svg("text", { x, y, "text-anchor": anchor }, what);
        const line = (y) => svg("path", { class: "grid", d: `M${left} ${toY(y).toFixed(1)}H${right}` });
        const anchor = (x) => (toX(x) > right - 20 ? "end" : "middle");
        const range = `training steps ${whole(first)} to ${whole(last(all))}, from ${say(low)} to ${say(high)}`;
        picture.setAttribute("viewBox", `0 0 ${width} ${height}`);
        picture.setAttribute("aria-label", `${name}, ${range}`);
        Object.assign(picture.dataset, { first, final, low, high, left, right, top, bottom, log: log.checked });
        picture.replaceChildren(
            ...ticks(low, high, 5, log.checked).flatMap((y) => [line(y), label(left - 6, toY(y) + 4, "end", say(y))]),
            ...ticks(first, final, width < 500 ? 3 : 8).map((x) => label(toX(x), height - 24, anchor(x), whole(x))),
            label((left + right) / 2, height - 6, "middle", "training step"), ...chosen().map(drawn));
        const hidden = chosen().flatMap((s) => s.y).filter((y) => known(y) && !drawable(y)).length;
        note.textContent = hidden ? `${whole(hidden)} values are not above 0 and are missing on the log scale.` : "";
        point(marked);
    }
    function point(step) {
        marked = step;
        picture.querySelector(".cursor")?.remove();
        readout.textContent = "Move the pointer over the curves, or use the arrow keys, to see the values of a training step.";
        if (marked === null) return;
        picture.append(svg("path", { class: "cursor", d: `M${toX(marked).toFixed(2)} ${top}V${bottom}` }));
        const value = (s) => {
            const i = nearest(s.x, marked), range = s.low && s.low[i] !== s.high[i];
            return `${s.name} ${say(s.y[i])}` + (range ? ` (${say(s.low[i])} to ${say(s.high[i])})` : "");
        };
        const { steps } = data, i = nearest(steps.step, marked);
        const about = !two && steps.step.length ? [`epoch ${whole(steps.epoch[i])}`, duration(steps.seconds[i])] : [];
        const there = chosen().filter((s) => !two || marked <= last(s.x)); // the other run may be longer
        readout.textContent = [`training step ${whole(marked)}`, ...about, ...there.map(value)].join(" · ");
    }
    function pointAt(event) {
        const at = picture.getBoundingClientRect();
        const x = ((event.clientX - at.left) * picture.viewBox.baseVal.width) / at.width;
        point(all[nearest(all, first + ((x - left) / (right - left)) * (final - first))]);
    }
    function moveByKey(event) {
        const by = { ArrowRight: 1, ArrowLeft: -1, Home: -Infinity, End: Infinity }[event.key];
        if (!by) return;
        event.preventDefault();
        const from = marked === null ? (by > 0 ? -1 : all.length) : all.indexOf(marked);
        point(all[Math.min(all.length - 1, Math.max(0, from + by))]);
    }
    const does = { pointermove: pointAt, pointerdown: pointAt, pointerleave: () => point(null), keydown: moveByKey };
    for (const [event, action] of Object.entries(does)) picture.addEventListener(event, action);
    [log, ...boxes].forEach((input) => input.addEventListener("change", draw));
    new ResizeObserver(draw).observe(box);
    draw();
}

// The numbers of a metric of each epoch as a series, or undefined.
function perEpoch({ epochs }, name, label, look) {
    const found = epochs.metrics.find((m) => m.name === name);
    return found && { name: label, look, x: epochs.step, y: found.values, dots: epochs.step.length <= 200 };
}

function lossOf(run) {
    const { step: x, loss: y, least: low, most: high, smooth } = run.steps;
    return [
        x.length && { name: "loss", look: "pale", x, y, low, high, dots: x.length === 1 },
        smooth && { name: "smoothed", look: "blue", x, y: smooth },
        perEpoch(run, "loss", "mean of the epoch", "green"), perEpoch(run, "validation_loss", "validation loss", "orange"),
    ];
}

// With two runs, each has its own colour, and the style of a line tells which curve it is.
const looks = ["blue", "orange"];
function lossOfTwo(run, i) {
    const { step: x, loss, smooth } = run.steps, look = looks[i];
    return [
        x.length && { name: run.name + (smooth ? ", smoothed" : ", loss"), look: look + " thin", x, y: smooth || loss, dots: x.length === 1 },
        perEpoch(run, "loss", run.name + ", mean of the epoch", look),
        perEpoch(run, "validation_loss", run.name + ", validation loss", look + " dashed"),
    ];
}

function curves() {
    const loss = runs.flatMap(two ? lossOfTwo : lossOf).filter(Boolean);
    if (loss.length) chart("Loss", loss, short);
    const names = new Set(runs.flatMap((run) => run.epochs.metrics.map((m) => m.name)));
    for (const name of [...names].filter((n) => !["loss", "validation_loss"].includes(n))) {
        const label = (run) => (two ? `${run.name}, ${words(name)}` : words(name));
        const series = runs.map((run, i) => perEpoch(run, name, label(run), looks[i]));
        chart(title(name), series.filter(Boolean), (x) => metric(name, x));
    }
}

// ---- facts, tables and samples -------------------------------------------------------------------

function best({ epochs }, name, sign) {
    const values = epochs.metrics.find((m) => m.name === name)?.values || [];
    const top = values.reduce((at, x, i) => (known(x) && !(sign * x <= sign * values[at]) ? i : at), -1);
    if (top < 0) return null;
    const more = `best ${metric(name, values[top])}, epoch ${whole(epochs.epoch[top])}`;
    return [title(name), metric(name, last(values.filter(known))), more];
}

// What one run reached: lists of a name, a value and perhaps a note.
function results(run) {
    const { start, end, steps, epochs, times } = run;
    const ends = { finished: "finished", patience: "stopped early", interrupted: "interrupted", error: "failed" };
    const planned = known(start.epochs) && `of ${whole(start.epochs)}`;
    return [
        ["Run", run.ended ? ends[end.why] || text(end.why) : "no end event", end.message],
        epochs.epoch.length && ["Epochs", whole(last(epochs.epoch)), planned],
        ["Training steps", whole(end.step ?? last(steps.step) ?? last(epochs.step))],
        best(run, "loss", -1), best(run, "validation_loss", -1), best(run, "accuracy", 1),
        ...Object.entries(run.scores || {}).map(([name, x]) => [measures[name] || title(name), metric(name, x)]),
        ["Time", duration(last(steps.seconds) ?? last(epochs.seconds) ?? end.seconds)],
        times && ["Time per training step", duration(times.median), `median; 95 % within ${duration(times.p95)}`],
        known(start.parameters) && ["Parameters", whole(start.parameters)],
    ].filter(Boolean);
}

const more = (note) => (note ? [html("small", {}, note)] : []);
function tiles() {
    const tile = ([name, value, note]) =>
        html("div", {}, html("dt", {}, name), html("dd", {}, value, ...more(note)));
    page.append(html("dl", { class: "tiles" }, ...results(data).map(tile)));
}

// Makes a row for each name that one of the runs has, from maps of names to cells.
function side(maps, only = () => true) {
    const names = [...new Set(maps.flatMap((map) => [...map.keys()]))];
    return names.map((name) => [name, ...maps.map((map) => map.get(name) ?? "–")]).filter(only);
}

function scores() {
    const cell = ([name, value, note]) => [name, html("td", {}, value, ...more(note))];
    const maps = runs.map((run) => new Map(results(run).map(cell)));
    section("Scores", table("Scores", "words", ["", ...runs.map((run) => run.name)], side(maps)));
}

function warnings() {
    const all = runs.flatMap((run) => run.warnings.map((warning) => (two ? `${run.name}: ${warning}` : warning)));
    if (all.length) section("Warnings", html("ul", { class: "warnings" }, ...all.map((warning) => html("li", {}, warning))));
}

function confusion(run) {
    const counts = run.confusion || [], names = run.classes || [], name = "Confusion matrix" + of(run);
    const sum = (list) => list.reduce((a, b) => a + b, 0);
    const share = (part, total) => (total ? String(Math.round((100 * part) / total)) : "–");
    const shade = (part) => ({ style: `background: rgb(var(--heat) / ${(part / 2 || 0).toFixed(3)})` });
    const heat = (row) => row.map((x) => html("td", shade(x / sum(row)), whole(x)));
    const rows = counts.map((row, i) => [names[i], ...heat(row), share(row[i], sum(row))]);
    const right = names.map((_, i) => share(counts[i][i], sum(counts.map((row) => row[i]))));
    const f1 = names.map((_, i) => share(2 * counts[i][i], sum(counts[i]) + sum(counts.map((row) => row[i]))));
    const good = sum(counts.map((row, i) => row[i])), total = sum(counts.map(sum));
    if (!counts.length) return;
    section(name,
        html("p", { class: "note" }, "Rows: actual class, columns: predicted class; " +
            `the margins give the share of correct predictions (right: recall, below: precision) and F1, in %. Total: ${whole(good)} of ${whole(total)} correct, ${percent(good / total)}.`),
        table(name, "heat", ["", ...names, "%"], rows, [["%", ...right, ""], ["F1", ...f1, ""]]));
}

function picture(sample) {
    const { width, height, channels, target } = sample, bytes = atob(sample.pixels), area = width * height;
    const name = { role: "img", "aria-label": `${width} by ${height} pixels: ${text(target)}` };
    const canvas = html("canvas", { width, height, ...name });
    const context = canvas.getContext("2d"), image = context.createImageData(width, height);
    const byte = (i) => bytes.charCodeAt((channels === 3 ? (i % 4) * area : 0) + (i >> 2));
    image.data.forEach((_, i) => (image.data[i] = i % 4 === 3 ? 255 : byte(i)));
    context.putImageData(image, 0, 0);
    return canvas;
}

// Points of predictions over targets, and the line where both are equal.
function pairs(run) {
    const list = run.pairs || [], all = list.flat(), size = 320, edge = 56, end = size - 12;
    if (!list.length) return;
    const low = all.reduce((a, b) => Math.min(a, b)), high = all.reduce((a, b) => Math.max(a, b));
    const more = low === high ? Math.abs(low) / 2 || 1 : 0;
    const [from, to] = [low - more, high + more];
    const part = (v) => (v / 2 - from / 2) / (to / 2 - from / 2); // halved first, so that the difference cannot overflow
    const x = (v) => edge + (end - edge) * part(v), y = (v) => size - 26 - (size - 38) * part(v);
    const label = (atX, atY, anchor, what) => svg("text", { x: atX, y: atY, "text-anchor": anchor }, what);
    const dot = ([t, p]) => svg("circle", { class: "dot", r: 2.5, cx: x(t).toFixed(2), cy: y(p).toFixed(2) });
    const name = `Predicted against true values, ${whole(list.length)} points, from ${short(low)} to ${short(high)}`;
    const picture = svg("svg", { role: "img", viewBox: `0 0 ${size} ${size}`, "aria-label": name, class: "square" },
        ...ticks(from, to, 5).flatMap((v) => [
            svg("path", { class: "grid", d: `M${edge} ${y(v).toFixed(1)}H${end}` }),
            label(edge - 6, y(v) + 4, "end", short(v)), label(x(v), size - 8, "middle", short(v))]),
        svg("path", { class: "cursor", d: `M${x(from)} ${y(from)}L${x(to)} ${y(to)}` }),
        svg("g", { class: "blue" }, ...list.map(dot)));
    section("Predicted against true" + of(run), picture,
        html("p", { class: "note" }, "Horizontal axis: true values; vertical axis: predictions. On the line they are equal."));
}

function samples(worst) {
    const chosen = data.samples.filter((s) => Boolean(s.worst) === worst);
    const images = chosen.filter((s) => s.pixels), others = chosen.filter((s) => !s.pixels);
    const columns = (data.columns || []).slice(0, Math.max(0, ...others.map((s) => s.input.length)));
    const named = columns.length > 0 && others.every((s) => s.input.length === columns.length);
    const heads = named ? columns.map(text) : ["Input"];
    const sureness = (s) => known(s.chance) ? `, ${percent(s.chance)}` : known(s.score) ? `, score ${text(s.score)}` : "";
    const guess = (s) => html("span", { class: s.right === false ? "wrong" : "right" },
        (s.right === false ? "✗ " : "") + text(s.guess) + sureness(s));
    const input = (s) => text(s.input) + (s.length > s.input.length ? `, … (${whole(s.length)})` : "");
    const figure = (s) =>
        html("figure", {}, picture(s), html("figcaption", {}, `true ${text(s.target)}, predicted `, guess(s)));
    const inputs = (s) => (named ? s.input.map(text) : [input(s)]);
    const rows = others.map((s) => [...inputs(s), text(s.target), html("td", {}, guess(s))]);
    const parts = images.length ? [html("div", { class: "samples" }, ...images.map(figure))] : [];
    if (rows.length) parts.push(table("Samples", "words", [...heads, "Target", "Prediction"], rows));
    if (parts.length) section(worst ? "Worst mistakes" : "Sample predictions", ...parts);
}

function model() {
    const layers = Array.isArray(data.layers) ? data.layers : [], timed = layers.some((l) => known(l.seconds));
    const total = (name) => whole(layers.reduce((sum, l) => sum + (l[name] || 0), 0));
    // The output is a list of sizes, or for a tuple a list of such lists.
    const shape = (o) => (Array.isArray(o[0]) ? o.map(shape).join(", ") : o.map(whole).join(" × "));
    const sizes = (l) => (Array.isArray(l.output) ? shape(l.output) : "–");
    const time = (cell) => (timed ? [cell] : []);
    const row = (l) => [text(l.layer), sizes(l), whole(l.parameters), whole(l.bytes), ...time(duration(l.seconds))];
    const parts = data.start.model ? [html("pre", {}, text(data.start.model))] : [];
    if (layers.length)
        parts.push(table("Layers", "words", ["Layer", "Output", "Parameters", "Bytes", ...time("Time")],
            layers.map(row), [["Total", "", total("parameters"), total("bytes"), ...time("")]]));
    if (parts.length) section("Model", ...parts);
}

// The settings of a run as a map of names to texts.
function settingsOf({ start }, without) {
    const flat = Object.entries({ ...start, event: null, data: null, ...start.data, ...without });
    return new Map(flat.filter(([, value]) => value !== null).map(([key, value]) => [words(key), text(value)]));
}

function settings() {
    const cells = [...settingsOf(data, { model: null })];
    if (cells.length) section("Settings", table("Settings", "plain", [], cells));
}

function settingsOfTwo() {
    const maps = runs.map((run) => settingsOf(run, { time: null }));
    const differ = side(maps, ([, a, b]) => a !== b), equal = side(maps, ([, a, b]) => a === b);
    const none = html("p", { class: "note" }, "All settings in the logs are equal.");
    const name = "Settings that differ";
    section(name, differ.length ? table(name, "plain", ["", ...runs.map((run) => run.name)], differ) : none);
    const alike = table("Settings that are equal", "plain", [], equal.map(([key, value]) => [key, value]));
    if (equal.length) section("Settings", html("details", {}, html("summary", {}, "Settings that are equal"), alike));
}

function epochTable(run) {
    const { epochs } = run, details = html("details", {}, html("summary", {}, "Every epoch as numbers"));
    const heads = ["Epoch", "Training step", "Time", ...epochs.metrics.map((m) => title(m.name))];
    const metrics = (i) => epochs.metrics.map((m) => metric(m.name, m.values[i]));
    const row = (e, i) => [whole(e), whole(epochs.step[i]), duration(epochs.seconds[i]), ...metrics(i)];
    const fill = () => details.append(table("Epochs", "words", heads, epochs.epoch.map(row)));
    details.addEventListener("toggle", fill, { once: true });
    if (epochs.epoch.length) section("Epochs" + of(run), details);
}

// Notes on how the curves of a run were made.
function notes(run) {
    const { steps, epochs } = run;
    const thinned = (what, s) => s.drawn < s.logged && `${whole(s.drawn)} of ${whole(s.logged)} ${what} in the log are drawn: ` +
        `the first, the last, and the extremes of each interval.`;
    const list = [
        steps.least && "Short training steps share a line of the log: the curve is their mean, the band their range.",
        steps.smooth && `The smooth curve is the mean over ${whole(steps.window)} lines around a training step.`,
        thinned("lines of training steps", steps), thinned("epochs", epochs),
    ].filter(Boolean);
    return list.length && two ? [`${run.name}:`, ...list] : list;
}

function frame() {
    const path = ({ start }) => (start.data && start.data.path ? file(start.data.path) : "");
    const paths = [...new Set(runs.map(path))].filter(Boolean), what = two ? "Two training runs" : "Training run";
    const about = ({ name, start }) => (two ? [name + ":"] : []).concat([start.time, start.device].filter(Boolean).map(text).join(" · "));
    const made = `Made by cflux ${data.cflux} from ${runs.map((run) => run.log).join(" and ")}.`;
    document.getElementById("foot").textContent = [...runs.flatMap(notes), made].join(" ");
    document.getElementById("title").textContent = document.title =
        paths.length ? `${two ? what : "Training"} on ${paths.join(" and ")}` : what;
    document.getElementById("subtitle").textContent = runs.map((run) => about(run).join(" ")).join("; ");
}

const each = (part) => () => runs.forEach(part);
const parts = two
    ? [frame, scores, warnings, curves, settingsOfTwo, each(confusion), each(pairs), each(epochTable)]
    : [frame, tiles, warnings, curves, each(confusion), each(pairs), () => samples(false), () => samples(true), model, settings,
        each(epochTable)];
for (const part of parts) part();
