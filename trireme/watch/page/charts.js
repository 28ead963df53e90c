// What every picture of the page shares: elements whose text is only ever text, numbers in words, the
// frame of a figure (summary, picture, readout, table), and lines over steps, drawn by uPlot.
// Nothing here asks the server.
'use strict';

const kHidden = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]/g;

// Text from a run as it may be shown: control characters and marks that turn text around become visible.
function plain(text) {
  const shown = (character) => {
    const code = character.charCodeAt(0);
    return code < 0x20 ? String.fromCharCode(0x2400 + code) : '\ufffd';
  };
  const value = String(text);
  return (value.length > 100000 ? `${value.slice(0, 100000)}…` : value).replace(kHidden, shown);
}

// An element with attributes; children are elements, or text that becomes text nodes.
function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== false && value !== null && value !== undefined) {
      made.setAttribute(name, value === true ? '' : plain(value));
    }
  }
  put(made, ...children);
  return made;
}

// Replaces what is in `parent`.
function put(parent, ...children) {
  const nodes = children.flat(3).filter((child) => child !== null && child !== undefined && child !== false);
  parent.replaceChildren(...nodes.map((child) =>
    child instanceof Node ? child : document.createTextNode(plain(child))));
}

function number(value, digits = 4) {
  if (typeof value !== 'number' || !Number.isFinite(value)) return '–';
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e9)) return value.toExponential(2);
  if (Number.isInteger(value)) return value.toLocaleString('en-US');
  return Number(value.toPrecision(digits)).toLocaleString('en-US', { maximumFractionDigits: 6 });
}

// Short enough for an axis.
function short(value, unit) {
  if (unit === 's' || unit === 'bytes') return quantity(value, unit);
  const power = [[1e12, 'T'], [1e9, 'G'], [1e6, 'M']].find(([size]) => Math.abs(value) >= size);
  return power ? `${number(value / power[0])} ${power[1]}` : number(value);
}

// A number and its unit stay in one line.
const joined = (text) => text.replaceAll(' ', '\u00a0');
const seconds = (value) => joined(duration(value));

function duration(value) {
  if (typeof value !== 'number' || !Number.isFinite(value)) return '–';
  const size = Math.abs(value);
  if (size === 0) return '0 s';
  if (size < 1e-3) return `${number(value * 1e6, 3)} µs`;
  if (size < 1) return `${number(value * 1e3, 3)} ms`;
  if (size < 120) return `${number(value, 3)} s`;
  const minutes = Math.round(value / 60);
  if (size < 600) return `${Math.floor(Math.round(value) / 60)} min ${Math.round(value) % 60} s`;
  if (minutes < 120) return `${minutes} min`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} d ${hours % 24} h`;
}

function bytes(value) {
  if (typeof value !== 'number' || !Number.isFinite(value)) return '–';
  const names = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB'];
  let power = 0;
  while (Math.abs(value) >= 1024 && power < names.length - 1) {
    value /= 1024;
    power += 1;
  }
  return joined(`${number(value, 3)} ${names[power]}`);
}

const percent = (share) => (Number.isFinite(share) ? joined(`${number(share * 100, 3)} %`) : '–');

function quantity(value, unit) {
  if (unit === 's') return seconds(value);
  if (unit === 'bytes') return bytes(value);
  return unit && unit !== '1/s' && unit.length <= 12 && value !== null ? `${number(value)} ${unit}` : number(value);
}

function clock(time, withDay = false) {
  const date = new Date(time * 1000);
  if (!Number.isFinite(time) || Number.isNaN(date.getTime())) return '–';
  const two = (part) => String(part).padStart(2, '0');
  const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())} `;
  return `${withDay ? day : ''}${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}

function medianOf(values) {
  const known = values.filter((value) => Number.isFinite(value)).sort((a, b) => a - b);
  return known.length ? known[Math.floor(known.length / 2)] : NaN;
}

// Colours of the theme, from the style sheet; forgotten when the theme changes.
const themeColours = new Map();
function colour(name) {
  if (!themeColours.has(name)) {
    themeColours.set(name, getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim());
  }
  return themeColours.get(name);
}
const kKinds = 8;
const kindColour = (index) => colour(`kind-${index % kKinds}`);

// From light to dark (in the dark theme from dark to light) as `share` goes from 0 to 1: it reads without hue.
function rampColour(share) {
  const stops = [0, 1, 2, 3, 4].map((index) => colour(`ramp-${index}`));
  const place = Math.min(Math.max(share, 0), 1) * (stops.length - 1);
  const low = Math.min(Math.floor(place), stops.length - 2);
  const channel = (text, at) => parseInt(text.slice(1 + 2 * at, 3 + 2 * at), 16);
  const mixed = [0, 1, 2].map((at) =>
    Math.round(channel(stops[low], at) + (channel(stops[low + 1], at) - channel(stops[low], at)) * (place - low)));
  return { fill: `rgb(${mixed.join(',')})`, isLight: mixed[0] * 0.299 + mixed[1] * 0.587 + mixed[2] * 0.114 > 140 };
}

function swatch(fill) {
  const made = element('span', { class: 'swatch', 'aria-hidden': 'true' });
  made.style.backgroundColor = fill;
  return made;
}

const legendOf = (entries) =>
  element('ul', { class: 'legend' }, entries.map(([fill, text]) => element('li', {}, swatch(fill), text)));

const kTableRows = 200;
function tableOf(headers, rows) {
  const body = rows.slice(0, kTableRows).map((row) => element('tr', {}, row.map((cell, index) =>
    element(index === 0 ? 'th' : 'td', index === 0 ? { scope: 'row' } : {}, cell))));
  const table = element('table', {},
    element('thead', {}, element('tr', {}, headers.map((header) => element('th', { scope: 'col' }, header)))),
    element('tbody', {}, body));
  const more = rows.length > kTableRows && element('p', { class: 'quiet' },
    `${number(rows.length - kTableRows)} more rows are left out.`);
  return element('div', { class: 'table', tabindex: '0', role: 'group', 'aria-label': `table: ${headers.join(', ')}` }, table, more);
}

// Frame of a picture: a summary in words above it, what is under the cursor below it, and its numbers in a table.
class Figure {
  constructor(host, label) {
    this.label = label;
    this.summary = element('p', { class: 'summary' });
    this.controls = element('div', { class: 'controls' });
    this.picture = element('div', { class: 'picture' });
    this.legend = element('div');
    this.readout = element('p', { class: 'readout' });
    this.tableBody = element('div');
    this.details = element('details', {}, element('summary', {}, `Table: ${label}`), this.tableBody);
    this.rows = null;
    this.details.addEventListener('toggle', () => this.fillTable());
    this.root = element('figure', { 'aria-label': label },
      this.summary, this.controls, this.picture, this.legend, this.readout, this.details);
    host.append(this.root);
  }

  setSummary(...text) {
    put(this.summary, ...text);
  }

  // `makeRows` is called only when the table is open.
  setTable(headers, makeRows) {
    this.rows = () => tableOf(headers, makeRows());
    this.fillTable();
  }

  fillTable() {
    if (this.details.open && this.rows) put(this.tableBody, this.rows());
  }

  // Makes the picture a slider for keyboard and screen reader: `move` gets the key and returns whether it knew it.
  makeSlider(label, move) {
    const attributes = { role: 'slider', tabindex: '0', 'aria-label': label, 'aria-valuemin': '0', 'aria-valuemax': '1', 'aria-valuenow': '0' };
    for (const [name, value] of Object.entries(attributes)) this.picture.setAttribute(name, value);
    this.picture.addEventListener('keydown', (event) => {
      if (!event.ctrlKey && !event.metaKey && !event.altKey && move(event.key, event.shiftKey)) {
        event.preventDefault();
        event.stopPropagation();
      }
    });
  }

  setSlider(now, least, most, text) {
    this.picture.setAttribute('aria-valuemin', String(least));
    this.picture.setAttribute('aria-valuemax', String(most));
    this.picture.setAttribute('aria-valuenow', String(now));
    this.picture.setAttribute('aria-valuetext', plain(text));
    put(this.readout, text);
  }
}

// The canvas of a figure's picture, sharp on this screen, drawn again when its width changes.
class Canvas {
  constructor(host, draw) {
    this.canvas = element('canvas', { 'aria-hidden': 'true' });
    this.draw = draw;
    this.height = 40;
    this.host = host;
    host.append(this.canvas);
    new ResizeObserver(() => {
      if (host.clientWidth !== this.width) this.redraw();
    }).observe(host);
  }

  redraw() {
    this.width = this.host.clientWidth;
    if (!this.width) return;
    const context = this.canvas.getContext('2d');
    const ratio = window.devicePixelRatio || 1;
    this.height = this.draw(null, this.width) || this.height;  // without a context: how high it wants to be
    this.canvas.width = Math.round(this.width * ratio);
    this.canvas.height = Math.round(this.height * ratio);
    this.canvas.style.width = `${this.width}px`;
    this.canvas.style.height = `${this.height}px`;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, this.width, this.height);
    context.font = '12px system-ui, sans-serif';
    this.draw(context, this.width, this.height);
  }
}

// Lines over steps with the span from min to max of each bucket, or areas stacked on each other.
// `hooks`: cursor(step) when the reader moves it, zoom(from, to) when a span is chosen, zoom(null) for all.
class LineChart {
  constructor(host, label, hooks, { isStacked = false, height = 220, fromZero = false } = {}) {
    this.figure = new Figure(host, label);
    this.hooks = hooks;
    this.options = { isStacked, height, fromZero };
    this.list = [];
    this.marks = [];
    this.plot = null;
    this.at = null;
    this.figure.makeSlider(`${label}, step`, (key, isFast) => this.key(key, isFast));
    new ResizeObserver(() => {
      const width = this.figure.picture.clientWidth;
      if (this.plot && width && width !== this.plot.width) this.plot.setSize({ width, height });
    }).observe(this.figure.picture);
  }

  // list: {label, unit, steps, min, mean, max}; range: the steps shown, or null for all.
  set(list, range, marks = []) {
    this.list = list.filter((each) => each.steps.length);
    this.marks = marks;
    this.range = range;
    const step = this.at === null ? null : this.data[0][this.at];
    this.data = this.columns();
    this.at = step === null || !this.data[0].length ? null : this.indexOf(step);  // the cursor stays on its step
    const shape = this.list.map((each) => each.label).join('\n');
    if (this.plot && this.shape === shape) {
      this.plot.setData(this.data, false);
      this.rescale();
    } else {
      this.shape = shape;
      this.rebuild();
    }
    const several = this.list.length > 1;
    put(this.figure.legend, several && legendOf(this.list.map((each, index) => [kindColour(index), each.label])));
    this.figure.setTable(['step', ...this.list.flatMap((each) => [each.label, 'min', 'max'])], () => this.rows());
    if (!this.list.length) put(this.figure.readout, 'Nothing is recorded.');
    else if (this.at === null) this.tell(this.data[0].length - 1);
  }

  columns() {
    if (!this.list.length) return [[]];
    const first = this.list[0].steps;
    const isSame = this.list.every(({ steps }) => steps.length === first.length && steps[0] === first[0] &&
      steps[steps.length - 1] === first[first.length - 1]);
    const tables = this.list.map((each) => [each.steps, each.mean, each.min, each.max]);
    const joined = isSame ? [first, ...tables.flatMap((table) => table.slice(1))] : uPlot.join(tables);
    if (!this.options.isStacked) return joined;
    const stacked = [joined[0]];
    let below = joined[0].map(() => 0);
    for (let index = 0; index < this.list.length; ++index) {
      const values = joined[1 + 3 * index];
      below = below.map((value, at) => value + (Number.isFinite(values[at]) ? values[at] : 0));
      stacked.push(below);
    }
    this.unstacked = joined;
    return stacked;
  }

  rescale() {
    if (!this.plot || !this.data[0].length) return;
    const all = this.data[0];
    const [from, to] = this.range || [all[0], all[all.length - 1]];
    this.isQuiet = true;  // the cursor keeps its step, not its pixel
    this.plot.batch(() => this.plot.setScale('x', { min: from, max: Math.max(to, from + 1) }));
    this.isQuiet = false;
    if (this.at !== null) this.show(this.at);
  }

  rebuild() {
    if (this.plot) this.plot.destroy();
    this.plot = null;
    const width = this.figure.picture.clientWidth;
    if (!this.list.length || !width) return;
    const series = [{}];
    const bands = [];
    const { isStacked, height, fromZero } = this.options;
    this.list.forEach((each, index) => {
      const stroke = kindColour(index);
      if (isStacked) {
        series.push({ stroke, width: 1, fill: index === 0 ? `${stroke}d0` : undefined, points: { show: false } });
        if (index) bands.push({ series: [index + 1, index], fill: `${stroke}d0` });
      } else {
        const edge = { stroke: `${stroke}90`, width: 1, points: { show: false }, spanGaps: this.list.length > 1 };
        series.push({ stroke, width: 1.6, points: { show: each.steps.length < 3 }, spanGaps: this.list.length > 1,
          dash: index % 3 === 1 ? [8, 4] : index % 3 === 2 ? [2, 3] : undefined }, edge, edge);
        bands.push({ series: [3 * index + 3, 3 * index + 2], fill: `${stroke}30` });
      }
    });
    const axis = { stroke: colour('quiet'), grid: { stroke: colour('line'), width: 1 }, ticks: { stroke: colour('line'), width: 1 }, font: '12px system-ui, sans-serif' };
    const unit = this.list[0].unit;
    this.plot = new uPlot({
      width, height, series, bands, legend: { show: false },
      scales: { x: { time: false }, y: { range: (plot, low, high) => this.rangeOfY(low, high, fromZero || isStacked) } },
      axes: [{ ...axis, label: 'step', size: 30, labelSize: 18, labelGap: 0, labelFont: axis.font, values: (plot, ticks) => ticks.map((tick) => (Number.isInteger(tick) ? short(tick) : '')) },
        { ...axis, size: 76, values: (plot, ticks) => ticks.map((tick) => short(tick, unit)) }],
      cursor: { y: false, drag: { x: true, y: false, setScale: false }, bind: { dblclick: () => () => this.hooks.zoom(null) },
        points: { size: 6 } },
      hooks: {
        setCursor: [(plot) => this.moved(plot)],
        setSelect: [(plot) => this.selected(plot)],
        draw: [(plot) => this.drawMarks(plot)],
      },
    }, this.data, this.figure.picture);
    this.rescale();
  }

  rangeOfY(low, high, fromZero) {
    if (!Number.isFinite(low) || !Number.isFinite(high)) return [0, 1];
    const least = fromZero ? Math.min(0, low) : low;
    const room = (high - least || Math.abs(high) || 1) * 0.06;
    return [least === 0 ? 0 : least - room, high + room];
  }

  drawMarks(plot) {
    const { ctx, bbox } = plot;
    ctx.save();
    ctx.font = `${11 * devicePixelRatio}px system-ui, sans-serif`;
    let [last, tick] = [-Infinity, -Infinity];
    for (const mark of this.marks) {
      const x = Math.round(plot.valToPos(mark.step, 'x', true));
      if (x < bbox.left || x > bbox.left + bbox.width) continue;
      ctx.strokeStyle = ctx.fillStyle = colour(mark.isQuiet ? 'quiet' : 'bad');
      if (mark.isQuiet && x - tick < 3 * devicePixelRatio) continue;
      if (mark.isQuiet) tick = x;
      ctx.setLineDash(mark.isQuiet ? [] : [6, 3]);
      ctx.beginPath();
      ctx.moveTo(x, mark.isQuiet ? bbox.top + bbox.height - 8 * devicePixelRatio : bbox.top);
      ctx.lineTo(x, bbox.top + bbox.height);
      ctx.stroke();
      if (mark.isQuiet || x - last < 60 * devicePixelRatio) continue;
      last = x;
      const isRight = x > bbox.left + bbox.width * 0.8;
      ctx.textAlign = isRight ? 'right' : 'left';
      ctx.fillText(plain(mark.text).slice(0, 24), x + (isRight ? -4 : 4), bbox.top + 12 * devicePixelRatio);
    }
    ctx.restore();
  }

  selected(plot) {
    if (plot.select.width < 4) return;
    const from = Math.floor(plot.posToVal(plot.select.left, 'x'));
    const to = Math.ceil(plot.posToVal(plot.select.left + plot.select.width, 'x'));
    plot.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
    this.hooks.zoom(from, to);
  }

  moved(plot) {
    if (this.isQuiet || plot.cursor.idx === null || plot.cursor.idx === undefined) return;
    this.at = plot.cursor.idx;
    this.tell();
    this.hooks.cursor(this.data[0][this.at]);
  }

  // Puts the cursor on the bucket of `step` without telling anyone.
  follow(step) {
    if (!this.plot || step === null) return;
    this.show(this.indexOf(step));
  }

  indexOf(step) {
    const steps = this.data[0];
    let low = 0;
    let high = steps.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (steps[middle] <= step) low = middle; else high = middle - 1;
    }
    return low;
  }

  show(index) {
    this.at = Math.min(Math.max(index, 0), this.data[0].length - 1);
    this.isQuiet = true;
    const left = this.plot.valToPos(this.data[0][this.at], 'x');
    this.plot.setCursor({ left, top: 10 }, false);
    this.isQuiet = false;
    this.tell();
  }

  tell(at = this.at) {
    const step = this.data[0][at];
    const table = this.options.isStacked ? this.unstacked : this.data;
    const texts = this.list.map((each, index) => {
      const [mean, least, most] = [1, 2, 3].map((column) => table[3 * index + column][at]);
      const isWide = Number.isFinite(least) && Number.isFinite(most) && most !== least && !this.options.isStacked;
      const span = isWide ? ` (${quantity(least, each.unit)} to ${quantity(most, each.unit)})` : '';
      return `${each.label} ${quantity(mean, each.unit)}${span}`;
    });
    const steps = this.data[0];
    this.figure.setSlider(step, steps[0], steps[steps.length - 1], `Step ${number(step)}: ${texts.join(' · ')}`);
  }

  key(name, isFast) {
    const steps = this.data?.[0] ?? [];
    if (!this.plot || !steps.length) return false;
    const now = this.at ?? steps.length - 1;
    const stride = isFast ? Math.max(1, Math.round(steps.length / 20)) : 1;
    const moves = { ArrowLeft: now - stride, ArrowDown: now - stride, ArrowRight: now + stride, ArrowUp: now + stride, Home: 0, End: steps.length - 1 };
    if (name in moves) {
      this.show(moves[name]);
      this.hooks.cursor(steps[this.at]);
      return true;
    }
    if (name === '0') this.hooks.zoom(null);
    if (name !== '+' && name !== '=' && name !== '-') return name === '0';
    const [from, to] = this.range || [steps[0], steps[steps.length - 1]];
    const half = Math.max(2, (to - from) * (name === '-' ? 1 : 0.25));
    this.hooks.zoom(Math.round(steps[now] - half), Math.round(steps[now] + half));
    return true;
  }

  rows() {
    const table = this.options.isStacked ? this.unstacked : this.data;
    const stride = Math.max(1, Math.ceil(table[0].length / kTableRows));
    const indices = table[0].map((step, index) => index).filter((index) => index % stride === 0);
    return indices.map((index) => [number(table[0][index]), ...this.list.flatMap((each, at) =>
      [1, 2, 3].map((column) => quantity(table[3 * at + column][index], each.unit)))]);
  }
}
