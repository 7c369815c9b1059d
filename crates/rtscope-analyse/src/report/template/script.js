// Read-out, zoom and toggles. Without this script the page says the same, only more quietly.
"use strict";
const grouped = (n) => n.toLocaleString("en-US");

// Numbers as the rest of the page writes them.
function latency(ns) {
  if (ns < 1) return "0";
  const [size, unit] = [[1, " ns"], [1e3, " us"], [1e6, " ms"]].find(([size]) => ns < size * 1e3) || [1e9, " s"];
  const value = ns / size;
  return Number(value.toFixed(value < 10 ? 2 : value < 1e3 ? 1 : 0)) + unit;
}
function instant(ns) {
  const s = Math.floor(ns / 1e9);
  if (s < 60) return (ns / 1e9).toFixed(2) + " s";
  const clock = [s / 3600, (s / 60) % 60, s % 60].map((n) => String(Math.floor(n)).padStart(2, "0"));
  return s < 3600 ? clock.slice(1).join(":") + " min" : clock.join(":") + " h";
}
const told = {
  count: grouped,
  latency,
  share: (p) => (p >= 0.67 ? "all" : "1 in " + grouped(Math.round(1 / p))),
  rate: (r) => grouped(Math.round(r)) + " / s",
  percent: (p) => p.toFixed(0) + " %",
};

// The steps 1, 2, 5 times a power of ten that lie on an axis.
function ticks(log, from, to, wanted) {
  const values = [];
  if (log && to / from > 4) {
    const every = Math.log10(to / from) * 2.4 <= wanted ? [1, 2, 5] : [1];
    for (let p = Math.floor(Math.log10(from)); p <= Math.ceil(Math.log10(to)); p++)
      for (const m of every) values.push(m * 10 ** p);
  } else {
    const rough = (to - from) / wanted;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = power * [1, 2, 5, 10].find((m) => rough <= m * power * 1.0001);
    for (let n = Math.ceil(from / step); n * step <= to; n++) values.push(n * step);
  }
  return values.filter((v) => v >= from && v <= to);
}

function set(element, attributes) {
  for (const name in attributes) element.setAttribute(name, attributes[name]);
  return element;
}
function draw(tag, attributes, parent) {
  const made = set(document.createElementNS(parent.namespaceURI, tag), attributes);
  parent.append(made);
  return made;
}
function html(tag, text, ...children) {
  const made = document.createElement(tag);
  made.append(text, ...children);
  return made;
}

// Legend entries show and hide their curves. An image holds nothing to press: the plot becomes a group, of which a
// screen reader is told the buttons; the numbers are in the table behind it.
function toggles(svg) {
  if (svg.querySelector(".key[data-toggles]")) {
    set(svg, { role: "group" });
    for (const part of svg.children) if (!part.matches("title, desc, .key")) set(part, { "aria-hidden": true });
  }
  for (const key of svg.querySelectorAll(".key[data-toggles]")) {
    const [name, value] = key.dataset.toggles.split("=");
    const flip = (event) => {
      if (event.key && event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      const show = key.getAttribute("aria-pressed") === "false";
      set(key, { "aria-pressed": show });
      for (const curve of svg.querySelectorAll(`[data-${name}="${value}"]`)) curve.classList.toggle("off", !show);
    };
    set(key, { role: "button", tabindex: 0, "aria-pressed": true });
    key.addEventListener("click", flip);
    key.addEventListener("keydown", flip);
  }
}

class Plot {
  constructor(figure, canvas, svg) {
    Object.assign(this, { figure, canvas, svg, data: JSON.parse(svg.dataset.readout) });
    [this.left, this.width] = this.data.range;
    // The visible part of the axis, from 0 to 1.
    this.view = [0, 1];
    this.axis = svg.querySelector(".x-axis");
    // New ticks look like those that were drawn.
    const look = (tag) => {
      const attributes = this.axis.querySelector(tag)?.attributes || [];
      return Object.fromEntries([...attributes].map(({ name, value }) => [name, value]));
    };
    [this.grid, this.tick, this.axisAsDrawn] = [look("path"), look("text"), this.axis.innerHTML];
    const [first, last] = [this.data.panels[0].range, this.data.panels.at(-1).range];
    [this.top, this.bottom] = [first[0], last[0] + last[1]];
    const height = this.bottom - this.top;
    this.cross = draw("line", { class: "cross off", y1: this.top, y2: this.bottom }, svg);
    this.chosen = draw("rect", { class: "glass-select off", y: this.top, height }, svg);
    this.glass = draw("rect", { class: "glass", x: this.left, y: this.top, width: this.width, height }, svg);
    // An empty title: the browser's own tooltip would cover the read-out.
    draw("title", {}, this.glass);
    this.tip = html("div", "");
    this.tip.className = "tip";
    this.tip.hidden = true;
    figure.append(this.tip);
    this.hint();
    this.listen();
  }

  hint() {
    const toggles = this.svg.querySelector(".key[role]") ? ", press a name above to hide it" : "";
    const reset = html("button", "Reset zoom");
    reset.addEventListener("click", () => this.zoom(0, 1));
    const by = (pointer, text) => Object.assign(html("span", text), { className: "by-" + pointer });
    const texts = [by("mouse", `Point to read values, drag to zoom${toggles}.`), by("touch", `Tap to read values${toggles}.`)];
    const hint = html("p", html("span", ...texts), reset);
    hint.className = "hint";
    this.canvas.after(hint);
  }

  listen() {
    const { glass, canvas } = this;
    let from = null;
    glass.addEventListener("pointerdown", (event) => {
      const { x, y } = this.at(event);
      // A finger that moves scrolls the page: it reads values, and doesn't zoom.
      if (event.pointerType === "touch") this.show(x, y);
      if (event.pointerType === "touch" || event.button) return;
      from = x;
      glass.setPointerCapture(event.pointerId);
      event.preventDefault();
    });
    glass.addEventListener("pointermove", (event) => {
      const { x, y } = this.at(event);
      this.show(x, y);
      if (from === null) return;
      set(this.chosen, { x: Math.min(from, x), width: Math.abs(x - from) });
      this.chosen.classList.remove("off");
    });
    glass.addEventListener("pointerup", (event) => {
      if (from === null) return;
      const to = this.at(event).x;
      if (Math.abs(to - from) > 6) this.zoom(...[this.part(from), this.part(to)].sort((a, b) => a - b));
      from = null;
      this.chosen.classList.add("off");
    });
    glass.addEventListener("pointerleave", () => this.hide());
    glass.addEventListener("dblclick", () => this.zoom(0, 1));
    for (const phase of this.svg.querySelectorAll(".phase")) {
      phase.style.cursor = "zoom-in";
      const part = (x) => (x - this.left) / this.width;
      phase.addEventListener("click", () => this.zoom(part(phase.dataset.from), part(phase.dataset.to)));
    }
    canvas.addEventListener("keydown", (event) => this.key(event));
    canvas.addEventListener("blur", () => this.hide());
  }

  // Arrow keys step through the values, Escape resets.
  key(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (event.key === "Escape") this.zoom(0, 1);
    if (!step || event.target !== this.canvas) return;
    event.preventDefault();
    const { steps } = this.data;
    this.index = Math.min(steps.length - 1, Math.max(0, (this.index ?? -1) + step));
    this.show(this.place((steps[this.index][0] + steps[this.index][1]) / 2), this.top + 1);
  }

  // Pointer in the coordinates of the drawing.
  at(event) {
    const box = this.svg.getBoundingClientRect();
    const scale = this.svg.viewBox.baseVal.width / box.width;
    const x = (event.clientX - box.left) * scale;
    return {
      x: Math.min(this.left + this.width, Math.max(this.left, x)),
      y: (event.clientY - box.top) * scale,
    };
  }

  part(x) {
    return this.view[0] + ((x - this.left) / this.width) * (this.view[1] - this.view[0]);
  }

  value(part) {
    const [from, to] = this.data.domain;
    return this.data.log ? from * (to / from) ** part : from + part * (to - from);
  }

  place(value) {
    const [from, to] = this.data.domain;
    const part = this.data.log ? Math.log(value / from) / Math.log(to / from) : (value - from) / (to - from);
    return this.left + (this.width * (part - this.view[0])) / (this.view[1] - this.view[0]);
  }

  show(x, y) {
    const value = this.value(this.part(x));
    const { steps, panels } = this.data;
    const index = steps.findIndex(([start, end]) => value >= start && value < end);
    const box = this.svg.getBoundingClientRect();
    const scale = box.width / this.svg.viewBox.baseVal.width;
    set(this.cross, { x1: x, x2: x }).classList.remove("off");
    this.tip.hidden = index < 0;
    if (index < 0) return;
    this.index = index;
    const panel = panels.find(({ range }) => y <= range[0] + range[1]) || panels[0];
    const say = this.data.x === "time" ? instant : latency;
    const phase = this.data.phases?.find(([start, end]) => value >= start && value < end);
    const names = [say(steps[index][0]) + " to " + say(steps[index][1]), phase?.[2], panel.name];
    const head = names.filter(Boolean).join(", ");
    this.tip.replaceChildren(html("b", head), ...this.lines(panel, index, y));
    const outer = this.figure.getBoundingClientRect();
    const at = box.left - outer.left + x * scale;
    const room = outer.width - this.tip.offsetWidth - 8;
    this.tip.style.left = Math.max(8, at + 16 > room ? at - this.tip.offsetWidth - 16 : at + 16) + "px";
    this.tip.style.top = box.top - outer.top + y * scale + 14 + "px";
  }

  lines(panel, index, y) {
    const line = (name, text) => html("div", name, html("span", text));
    const lines = panel.series
      .filter(({ values }) => values[index] !== null)
      .map(({ name, kind, values }) => line(name, told[kind](values[index])));
    const grid = this.data.grid;
    if (grid) {
      const [top, height] = panel.range;
      const level = grid.domain[0] * (grid.domain[1] / grid.domain[0]) ** ((top + height - y) / height);
      const row = grid.edges.findIndex((edge, n) => level >= edge && level < grid.edges[n + 1]);
      const cell = grid.cells[index].find(([at]) => at === row);
      const name = (n) => latency(grid.edges[n]);
      if (row >= 0) lines.push(line(name(row) + " to " + name(row + 1), grouped(cell ? cell[1] : 0)));
    }
    return lines;
  }

  hide() {
    this.tip.hidden = true;
    this.cross.classList.add("off");
  }

  zoom(from, to) {
    if (to - from < 1e-4) return;
    this.view = [Math.max(0, from), Math.min(1, to)];
    const whole = from <= 0 && to >= 1;
    this.figure.classList.toggle("zoomed", !whole);
    const scale = 1 / (this.view[1] - this.view[0]);
    const move = (x) => this.left + (x - this.left - this.view[0] * this.width) * scale;
    const right = this.left + this.width;
    for (const plane of this.svg.querySelectorAll(".plane"))
      plane.setAttribute("transform", whole ? "" : `translate(${move(0)} 0) scale(${scale} 1)`);
    for (const pin of this.svg.querySelectorAll("[data-x]")) {
      let x = move(pin.dataset.x);
      if (pin.dataset.to && move(pin.dataset.to) > this.left + 40) x = Math.max(this.left, x);
      pin.setAttribute("transform", `translate(${x} ${pin.dataset.y})`);
      pin.style.display = x >= this.left - 0.5 && x <= right + 0.5 ? "" : "none";
    }
    this.drawAxis(whole);
    this.hide();
  }

  drawAxis(whole) {
    if (whole) {
      this.axis.innerHTML = this.axisAsDrawn;
      return;
    }
    const [from, to] = this.view.map((part) => this.value(part));
    const units = [[1e6, " ms", 1e9], [1e9, " s", 18e10], [6e10, " min", 108e11], [36e11, " h", Infinity]];
    const [unit, name] = this.data.x === "time" ? units.find(([, , most]) => to - from < most) : [1, ""];
    this.axis.replaceChildren();
    for (const value of ticks(this.data.log, from / unit, to / unit, 8)) {
      const x = this.place(value * unit);
      const lines = this.data.panels.map(({ range }) => `M${x} ${range[0]}V${range[0] + range[1]}`);
      draw("path", { ...this.grid, d: lines.join("") }, this.axis);
      const text = name ? Number(value.toFixed(3)) + name : latency(value);
      draw("text", { ...this.tick, x }, this.axis).textContent = text;
    }
  }
}

for (const figure of document.querySelectorAll("figure")) {
  const canvas = figure.querySelector(".canvas");
  const svg = canvas && canvas.querySelector("svg.plot");
  if (!svg) continue;
  toggles(svg);
  if (svg.dataset.readout) new Plot(figure, canvas, svg);
}

// The section in sight is marked in the navigation.
const links = new Map([...document.querySelectorAll("nav a")].map((a) => [a.hash.slice(1), a]));
const seen = new IntersectionObserver(
  (entries) => {
    for (const { target, isIntersecting } of entries) {
      if (!isIntersecting) continue;
      for (const link of links.values()) link.removeAttribute("aria-current");
      links.get(target.id)?.setAttribute("aria-current", "true");
    }
  },
  { rootMargin: "-20% 0px -70% 0px" },
);
for (const id of links.keys()) seen.observe(document.getElementById(id));

document.documentElement.dataset.script = "ready";
