"use strict";
// The page shows what stands in the data; it computes nothing but places and colours.
const data = JSON.parse(document.getElementById("data").textContent);
const $ = (id) => document.getElementById(id);
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const number = (x) => (x === null || x === undefined ? "–" : x === "inf" ? "∞" : String(Number(Number(x).toPrecision(6))));
// Certified numbers are shown rounded towards privacy: leakages and noise never below what they are.
const rounded = (x, towards) => {
  const near = Number(Number(x).toPrecision(6));
  const off = towards * (Number(x) - near) > 0 ? towards * 10 ** (Math.floor(Math.log10(Math.abs(x))) - 5) : 0;
  return number(near + off);
};
const up = (x) => (Number.isFinite(Number(x)) && x !== null && x !== "" ? rounded(x, 1) : number(x));
const down = (x) => (Number.isFinite(Number(x)) && x !== null && x !== "" ? rounded(x, -1) : number(x));
const value = (x) => (x === "inf" ? Infinity : x);

function element(tag, text, className) {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (className) made.className = className;
  return made;
}

function facts(list, pairs) {
  for (const [name, text] of pairs) list.append(element("dt", name), element("dd", text));
}

// -- the first screen ----------------------------------------------------------------------------

function firstScreen() {
  document.title = data.title;
  $("title").textContent = data.title;
  $("sigma").textContent = "σ = " + up(data.sigma);
  $("scale-name").textContent = data.scale_name;
  $("sentence").textContent = data.sentence;
  const finite = data.bars.map((b) => value(b.sigma)).filter(Number.isFinite);
  const [most, least] = [Math.max(...finite), Math.min(...finite)];
  const wide = most > 60 * least; // then lengths are logarithms, and the page says so
  const length = (x) => (wide ? (1 + Math.log(x / least)) / (1 + Math.log(most / least)) : x / most);
  $("bars-say").hidden = !wide;
  for (const bar of data.bars) {
    const row = element("div", undefined, bar.ours ? "bar ours" : "bar");
    const track = element("div", undefined, "track");
    const fill = element("div", undefined, "fill");
    fill.style.width = 60 * Math.min(1, length(value(bar.sigma))) + "%";
    track.append(fill, element("b", bar.ours ? up(bar.sigma) : number(bar.sigma)), element("small", bar.remark));
    row.append(element("span", bar.label), track);
    $("bars").append(row);
  }
  $("bracket-says").textContent = data.bracket.says;
  $("certified").textContent = "≤ " + up(data.bracket.certified);
  $("attained").textContent = "≥ " + down(data.bracket.attained);
  $("bracket").hidden = data.bracket.attained === null;
}

// -- targets and curves ----------------------------------------------------------------------------

function curve(target, xs, series, xLabel) {
  const stroke = [css("--accent"), css("--high"), css("--quiet")];
  const options = {
    width: Math.max(260, target.clientWidth), height: 240, cursor: { points: { show: false } },
    scales: { x: { time: false, distr: 3 }, y: { distr: 3 } },
    axes: [0, 1].map(() => ({ stroke: css("--ink"), grid: { stroke: css("--line") }, ticks: { stroke: css("--line") },
      values: (_, ticks) => ticks.map((t) => (t === null ? "" : number(t))) })),
    series: [{ label: xLabel, value: (_, v) => number(v) },
      ...series.map((s, k) => ({ label: s.label, stroke: stroke[k], width: 2, points: { show: true }, value: (_, v) => number(v) }))],
  };
  const plot = new uPlot(options, [xs, ...series.map((s) => s.values.map((v) => (value(v) > 0 && Number.isFinite(value(v)) ? v : null)))], target);
  window.addEventListener("resize", () => plot.setSize({ width: Math.max(260, target.clientWidth), height: 240 }));
}

function targets() {
  const t = data.targets;
  const slider = $("target");
  slider.max = t.epsilon.length - 1;
  slider.value = t.chosen;
  const say = () => {
    const k = Number(slider.value);
    $("slider-says").textContent = `ε = ${number(t.epsilon[k])} needs σ = ${up(t.sigma[k])}`;
  };
  slider.addEventListener("input", say);
  say();
  curve($("curve-sigma"), t.epsilon, [{ label: "σ", values: t.sigma }], "ε");
  if (data.leakage.alpha.length) curve($("curve-leak"), data.leakage.alpha, data.leakage.series, "α");
  else $("curve-leak").closest("figure").hidden = true;
}

// -- the graph --------------------------------------------------------------------------------------

let drawing = null;
const most = Math.max(...data.records.map((r) => value(r.leaks)).filter(Number.isFinite), 0);
const least = Math.min(...data.records.map((r) => value(r.leaks)), most);
const share = (leak) => (most > least ? (Math.min(value(leak), most) - least) / (most - least) : 1);

function mixed(from, to, t) {
  const rgb = (hex) => [1, 3, 5].map((k) => parseInt(hex.slice(k, k + 2), 16));
  const [a, b] = [rgb(from), rgb(to)];
  return "rgb(" + a.map((x, k) => Math.round(x + (b[k] - x) * t)).join(",") + ")";
}

function draw() {
  const g = data.graph;
  $("graph-says").textContent = g.says;
  const place = new Map(data.records.map((r) => [r.name, r]));
  const elements = g.nodes.map((n) => ({ data: { id: n.id, label: n.label, shape: n.shape, latent: n.latent ? 1 : 0,
    colour: n.leaks === undefined || n.leaks === null ? css("--panel") : mixed(css("--low"), css("--high"), share(n.leaks)) },
    position: { x: n.x, y: n.y } }));
  for (const [a, b, arrow] of g.edges) elements.push({ data: { source: a, target: b, arrow: arrow ? "triangle" : "none" } });
  drawing = cytoscape({
    container: $("graph"), elements, layout: { name: "preset", padding: 24 }, wheelSensitivity: 0.2,
    autoungrabify: true, boxSelectionEnabled: false, hideEdgesOnViewport: g.edges.length > 2000, textureOnViewport: g.nodes.length > 800,
    style: [
      { selector: "node", style: { "background-color": "data(colour)", shape: "data(shape)", label: "data(label)", width: 22, height: 22,
        "font-size": 9, color: css("--ink"), "text-valign": "bottom", "text-margin-y": 3, "border-width": 1, "border-color": css("--quiet"),
        "min-zoomed-font-size": 7 } },
      { selector: "node[latent = 1]", style: { "border-style": "dashed" } },
      { selector: "edge", style: { width: 1, "line-color": css("--quiet"), "curve-style": "straight", "target-arrow-shape": "data(arrow)",
        "target-arrow-color": css("--quiet"), "arrow-scale": 0.7 } },
      { selector: ".target", style: { "border-width": 4, "border-color": css("--ink") } },
      { selector: ".separator", style: { "border-width": 4, "border-color": css("--accent") } },
      { selector: ".nearby", style: { "border-width": 4, "border-color": css("--high") } },
      { selector: ".remote", style: { opacity: 0.45 } },
    ],
  });
  drawing.on("tap", "node", (event) => {
    const id = event.target.id();
    if (place.has(id)) choose(id); else if (g.bins && g.bins[id]) chooseBin(id);
  });
  window.quiltdpDrawing = drawing;
}

// -- one record ---------------------------------------------------------------------------------------

function choose(name) {
  const record = data.records.find((r) => r.name === name);
  const box = $("detail");
  box.replaceChildren(element("h3", name));
  const list = element("dl");
  facts(list, [...Object.entries(record.leaks_to).map(([who, leak]) => ["leaks to " + who, up(leak)])]);
  if (record.method) facts(list, [["found by", record.method]]);
  const q = data.details[name];
  if (q && q.separator) {
    facts(list, [["separator", q.separator.join(", ") || "–"], ["nearby", q.nearby.join(", ") || "–"],
      ["remote", q.remote_count + (q.remote.length ? ": " + q.remote.join(", ") + (q.remote_count > q.remote.length ? ", …" : "") : "")],
      ...(q.influence === null ? [] : [["influence b", up(q.influence)]]), ["swing s", up(q.swing)]]);
  }
  if (q && q.known) facts(list, [["worst adversary knows", q.known.join(", ") || "nothing but the model"]]);
  if (q && q.told_apart) facts(list, [["and tells apart", q.told_apart.join(" from ")]]);
  box.append(list);
  if (drawing) {
    const quilt = q && q.separator ? q : { separator: [], nearby: [] };
    drawing.nodes().forEach((n) => {
      n.removeClass("target separator nearby remote");
      if (n.id() === name) n.addClass("target");
      else if (quilt.separator.includes(n.id())) n.addClass("separator");
      else if (quilt.nearby.includes(n.id())) n.addClass("nearby");
      else if (q && q.separator) n.addClass("remote");
    });
  }
}

function chooseBin(id) {
  $("search").value = "";
  const inside = new Set(data.graph.bins[id]);
  table.setFilter((row) => inside.has(row.name));
  $("records-says").textContent = `${inside.size} records of the chosen part`;
}

// -- the table ----------------------------------------------------------------------------------------

let table = null;

function records() {
  const number_ = (cell) => up(cell.getValue());
  const adversaries = Object.keys((data.records[0] || { leaks_to: {} }).leaks_to);
  const rows = data.records.map((r) => {
    const row = { name: r.name };
    adversaries.forEach((who, k) => { row["to" + k] = value(r.leaks_to[who]); });
    return row;
  });
  const before = (a, b) => (a === b ? 0 : a < b ? -1 : 1);
  const named = (cell) => { // a button: reachable by keyboard, and a name is only text
    const button = element("button", cell.getValue(), "name");
    button.type = "button";
    button.addEventListener("click", () => choose(cell.getValue()));
    return button;
  };
  table = new Tabulator("#table", {
    data: rows, height: rows.length > 10 ? 420 : false, layout: "fitColumns", index: "name", headerSortElement: "↕",
    initialSort: adversaries.length ? [{ column: "to0", dir: "desc" }] : [],
    columns: [{ title: "record", field: "name", formatter: named },
      ...adversaries.map((who, k) => ({ title: "leaks to " + who, field: "to" + k, formatter: number_, sorter: before, hozAlign: "right" }))],
  });
  table.on("rowClick", (_, row) => choose(row.getData().name));
  table.on("tableBuilt", () => { document.body.dataset.ready = "yes"; });
  $("search").addEventListener("input", (event) => {
    const wanted = event.target.value.toLowerCase();
    table.setFilter((row) => row.name.toLowerCase().includes(wanted));
  });
  $("csv").addEventListener("click", () => table.download("csv", "leakage.csv"));
  $("records-says").textContent = data.records_say;
  window.quiltdpTable = table;
}

function rest() {
  facts($("assumptions"), data.assumptions);
  facts($("how"), data.how);
  $("command").textContent = data.command;
  $("theorem-text").textContent = data.theorem;
  $("theorem").hidden = !data.theorem;
  $("wrong").hidden = false;
  $("wrong-says").textContent = data.wrong.says;
  $("wrong-lines").hidden = !data.wrong.lines.length;
  for (const line of data.wrong.lines) {
    const row = element("tr");
    const cells = [Number((100 * line.off_by).toPrecision(3)) + " %", up(line.sigma), (value(line.sigma) / data.sigma).toPrecision(3)];
    for (const text of cells) row.append(element("td", text));
    $("wrong-lines").tBodies[0].append(row);
  }
}

// -- located states -------------------------------------------------------------------------------------

function places() {
  if (!data.map) return;
  $("map-section").hidden = false;
  $("map-says").textContent = data.map.says;
  const top = Math.max(...data.map.nodes.map((n) => n.share));
  const elements = data.map.nodes.map((n) => ({ data: { id: n.id, colour: mixed(css("--low"), css("--high"), Math.sqrt(n.share / top)) }, position: { x: n.x, y: n.y } }));
  for (const [a, b, likely] of data.map.moves) elements.push({ data: { source: a, target: b, width: 1 + 3 * likely } });
  window.quiltdpMap = cytoscape({
    container: $("map"), elements, layout: { name: "preset", padding: 24 }, wheelSensitivity: 0.2, autoungrabify: true,
    style: [
      { selector: "node", style: { "background-color": "data(colour)", shape: "rectangle", label: "data(id)", width: 33, height: 33, "font-size": 7,
        color: css("--ink"), "text-valign": "bottom", "min-zoomed-font-size": 8 } },
      { selector: "edge", style: { width: "data(width)", "line-color": css("--quiet"), opacity: 0.6, "curve-style": "bezier",
        "target-arrow-shape": "triangle", "target-arrow-color": css("--quiet"), "arrow-scale": 0.6 } },
    ],
  });
}

firstScreen();
rest();
records();
targets();
draw();
places();
if (data.binding) choose(data.binding);
