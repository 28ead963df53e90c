// Spans over time in lanes, and the two views that use them: the last calls of all ranks before a crash,
// and a profile's trace. What is drawn is bounded, whatever the file holds.
'use strict';

const kMostSpans = 400000;
const kMostLanes = 2048;

// Lanes of spans {lane, begin, end (null: open), name, kind}. The reader moves `now` and chooses the window.
class Timeline {
  constructor(host, label, moved = () => {}) {
    this.figure = new Figure(host, label);
    this.canvas = new Canvas(this.figure.picture, (context, width, height) => this.draw(context, width, height));
    this.moved = moved;
    this.lanes = [];
    this.spans = [];
    this.lane = 0;
    this.figure.makeSlider(`${label}, time`, (key, isFast) => this.key(key, isFast));
    this.makeButtons();
    const { canvas } = this.canvas;
    const timeAt = (event) => this.timeAt(event.clientX - canvas.getBoundingClientRect().left);
    canvas.addEventListener('pointerdown', (event) => {
      this.dragged = timeAt(event);
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener('pointermove', (event) => {
      this.lane = this.laneAt(event.clientY - canvas.getBoundingClientRect().top);
      if (this.dragged === undefined) this.tell(timeAt(event));
    });
    canvas.addEventListener('pointerup', (event) => {
      const [from, to] = [this.dragged, timeAt(event)].sort((a, b) => a - b);
      this.dragged = undefined;
      if (to - from > (this.to - this.from) * 0.01) this.look(from, to); else this.moveTo(to);
    });
  }

  makeButtons() {
    const act = { 'zoom in': '+', 'zoom out': '-', 'show all': '0', earlier: 'ArrowLeft', later: 'ArrowRight' };
    put(this.figure.controls, Object.entries(act).map(([text, key]) => {
      const button = element('button', { type: 'button' }, text);
      button.addEventListener('click', () => this.key(key, key.startsWith('Arrow')));
      return button;
    }));
  }

  // `room`: seconds to show after the last span; `named`: lanes that are to be seen first.
  set(lanes, spans, room = 0, named = new Set()) {
    this.named = named;
    this.lanes = lanes.slice(0, kMostLanes);
    this.byLane = this.lanes.map(() => []);
    for (const span of spans) this.byLane[span.lane]?.push(span);
    for (const list of this.byLane) list.sort((a, b) => a.begin - b.begin);
    let [least, most] = [Infinity, -Infinity];
    for (const { begin, end } of spans) {
      least = Math.min(least, begin);
      most = Math.max(most, end ?? begin);
    }
    this.all = least <= most ? [least, most + room + (most - least) * 1e-3 + 1e-9] : [0, 1];
    this.now ??= this.all[1];
    this.look(...this.all);
    this.tell(this.now);
  }

  look(from, to) {
    const least = (this.all[1] - this.all[0]) * 1e-7;
    this.from = Math.max(from, this.all[0]);
    this.to = Math.max(Math.min(to, this.all[1]), this.from + least);
    this.canvas.redraw();
  }

  moveTo(time) {
    this.now = Math.min(Math.max(time, this.all[0]), this.all[1]);
    if (this.now < this.from || this.now > this.to) {
      const half = (this.to - this.from) / 2;
      this.look(this.now - half, this.now + half);
    }
    this.canvas.redraw();
    this.tell(this.now);
    this.moved(this.now);
  }

  // The last span of a lane that begins at or before `time`.
  spanAt(lane, time) {
    const list = this.byLane[lane] ?? [];
    let [low, high] = [0, list.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (list[middle].begin <= time) low = middle + 1; else high = middle;
    }
    return low ? list[low - 1] : null;
  }

  tell(time) {
    const span = this.spanAt(this.lane, time);
    const inside = span && (span.end === null || span.end >= time);
    const what = !span ? 'nothing yet' : inside ? `${span.name}, ${span.end === null ? 'which never ended' : seconds(span.end - span.begin)}`
      : `between spans, ${seconds(time - span.end)} after ${span.name}`;
    const place = Math.round((time - this.all[0]) / (this.all[1] - this.all[0]) * 1000);
    this.figure.setSlider(place, 0, 1000, `${seconds(time - this.all[0])}, ${this.lanes[this.lane] ?? ''}: ${what}`);
  }

  get left() {
    return Math.min(Math.max(0, ...this.lanes.slice(0, 200).map((name) => name.length)) * 6.6 + 10, this.canvas.width * 0.25);
  }

  get high() {
    return Math.min(Math.max(Math.floor(560 / Math.max(this.lanes.length, 1)), 1), 20);
  }

  timeAt(x) {
    return this.from + (x - this.left) / (this.canvas.width - this.left) * (this.to - this.from);
  }

  laneAt(y) {
    return Math.min(Math.max(Math.floor(y / this.high), 0), Math.max(this.lanes.length - 1, 0));
  }

  draw(context, width, height) {
    if (!context) return Math.max(this.lanes.length * this.high + 20, 24);
    if (!this.lanes.length) return height;
    const { left, high } = this;
    const scale = (width - left) / (this.to - this.from);
    context.textBaseline = 'middle';
    this.lanes.forEach((name, lane) => {
      context.fillStyle = colour(this.named.has(lane) ? 'bad' : lane === this.lane ? 'ink' : 'quiet');
      context.textAlign = 'right';
      if (high >= 12 || lane % Math.ceil(12 / high) === 0) {
        context.fillText(plain(name).slice(0, 40), left - 6, lane * high + Math.max(high, 12) / 2, left - 8);
      }
      context.textAlign = 'left';
      this.drawLane(context, lane, left, width, scale);
    });
    const x = left + (this.now - this.from) * scale;
    context.fillStyle = colour('ink');
    if (x >= left) context.fillRect(x - 0.75, 0, 1.5, height - 16);
    context.fillStyle = colour('quiet');
    context.textAlign = 'left';
    context.fillText(seconds(this.from - this.all[0]), left, height - 7);
    context.textAlign = 'right';
    context.fillText(seconds(this.to - this.all[0]), width, height - 7);
    return height;
  }

  drawLane(context, lane, left, width, scale) {
    const { high } = this;
    let edge = left;
    let shown = left;  // to here something is drawn
    const list = this.byLane[lane];
    let index = Math.max(0, list.indexOf(this.spanAt(lane, this.from)));
    for (; index < list.length && list[index].begin <= this.to; ++index) {
      const span = list[index];
      const x = Math.max(left + (span.begin - this.from) * scale, left);
      const end = Math.min(left + ((span.end ?? this.all[1]) - this.from) * scale, width);
      if (end < edge + 0.4 && span.end !== null) continue;  // within a pixel that is drawn already
      const wide = Math.max(end - x, 0.8);
      context.fillStyle = span.end === null ? colour('bad') : kindColour(span.kind);
      context.fillRect(x, lane * high, wide, Math.max(high - 1, 1));
      edge = shown = x + wide;
      if (wide > 40 && high >= 12) {
        context.fillStyle = colour('on-kind');
        context.save();
        context.beginPath();
        context.rect(x, lane * high, wide - 2, high);
        context.clip();
        context.fillText(plain(span.name), x + 3, lane * high + high / 2);
        context.restore();
      }
    }
    if (this.named.has(lane) && index === list.length && width - shown > 90 && high >= 12) {
      context.fillStyle = colour('bad');
      context.fillText('no call since', shown + 6, lane * high + high / 2);
    }
  }

  key(name, isFast) {
    if (!this.lanes.length) return false;
    const stride = (this.to - this.from) * (isFast ? 0.1 : 0.01);
    const half = (this.to - this.from) / 2;
    const acts = {
      ArrowLeft: () => this.moveTo(this.now - stride), ArrowRight: () => this.moveTo(this.now + stride),
      ArrowUp: () => this.lane = Math.max(this.lane - 1, 0), ArrowDown: () => this.lane = Math.min(this.lane + 1, this.lanes.length - 1),
      Home: () => this.moveTo(this.all[0]), End: () => this.moveTo(this.all[1]), 0: () => this.look(...this.all),
      '+': () => this.look(this.now - half / 2, this.now + half / 2), '=': () => this.look(this.now - half / 2, this.now + half / 2),
      '-': () => this.look(this.now - half * 2, this.now + half * 2),
    };
    if (!(name in acts)) return false;
    acts[name]();
    if (name === 'ArrowUp' || name === 'ArrowDown') {
      this.canvas.redraw();
      this.tell(this.now);
    }
    return true;
  }
}

// Names get a colour by the order in which they are seen.
function kindsOf() {
  const kinds = new Map();
  return (name) => {
    if (!kinds.has(name)) kinds.set(name, kinds.size);
    return kinds.get(name);
  };
}

class ReplayView {
  constructor(body, page) {
    this.page = page;
    this.timeline = new Timeline(body, 'Last calls of all ranks', (now) => this.tell(now));
    this.caption = element('p', { class: 'caption', 'aria-live': 'polite' });
    this.play = element('button', { type: 'button' }, 'play');
    this.play.addEventListener('click', () => this.toggle());
    this.timeline.figure.controls.prepend(this.play);
    this.timeline.figure.picture.after(this.caption);
  }

  async refresh() {
    const answer = await this.page.latest(this, '/api/calls', {});
    if (!answer) return;
    const kind = kindsOf();
    const spans = [];
    const ranks = (answer.ranks ?? []).slice(0, kMostLanes);
    ranks.forEach(({ calls }, lane) => {
      for (const { name, group, begin, end, sequence } of calls ?? []) {
        if (!Number.isFinite(begin) || spans.length >= kMostSpans) continue;
        spans.push({ lane, begin, end: Number.isFinite(end) ? end : null, name: group ? `${name} of ${group}` : String(name), kind: kind(name), sequence });
      }
    });
    this.ranks = ranks.map(({ rank }) => rank);
    this.findings = (answer.findings ?? []).filter(({ text }) => text);
    const named = new Set(this.findings[0]?.ranks ?? []);  // the most likely cause comes first
    const lanes = this.ranks.map((rank) => `${named.has(rank) ? '✕ ' : ''}rank ${rank}`);
    const begins = spans.map(({ begin }) => begin).sort((a, b) => a - b);
    const drawn = `${spans.length} ${begins[begins.length - 1]}`;  // full recorders keep their number of calls
    if (drawn !== this.drawn) {
      this.drawn = drawn;
      const longest = Math.max(1, ...ranks.map(({ calls }) => calls?.length ?? 0));
      const shown = (begins[begins.length - 1] - begins[0] || 0) * Math.min(1, 60 / longest);  // about 60 calls of a rank
      this.timeline.set(lanes, spans, spans.some(({ end }) => end === null) ? shown * 0.3 : 0,
        new Set(this.ranks.flatMap((rank, lane) => (named.has(rank) ? [lane] : []))));
      const [, last] = this.timeline.all;
      // So far back that every rank has its last call in the picture.
      const oldest = Math.min(last - shown * 0.3, ...this.timeline.byLane.filter((lane) => lane.length).map((lane) => lane[lane.length - 1].begin));
      this.timeline.look(oldest - shown, last);
    }
    const last = this.lasts(this.timeline.all[1]);
    const first = last[0];
    this.timeline.figure.setSummary(first ? `${this.sentence(first, this.timeline.all[1])} Red: never ended; ✕: the likely cause.` : 'No calls are recorded.');
    this.timeline.figure.setTable(['rank', 'last call', 'number', 'began', 'state'], () => this.lasts(this.timeline.now).map((each) =>
      [number(each.rank), each.span?.name ?? '–', number(each.span?.sequence), each.span ? clock(each.span.begin) : '–', this.stateOf(each, this.timeline.now)]));
    this.tell(this.timeline.now);
  }

  // The last call of each rank at `time`; the rank whose last sign is oldest first.
  lasts(time) {
    const sign = ({ span }) => (span ? (span.end !== null && span.end <= time ? span.end : span.begin) : -Infinity);
    return this.ranks.map((rank, lane) => ({ rank, span: this.timeline.spanAt(lane, time) })).sort((a, b) => sign(a) - sign(b));
  }

  stateOf({ span }, time) {
    if (!span) return 'no call yet';
    if (span.end === null && time >= this.timeline.all[1]) return 'which never ended';
    return span.end === null || span.end > time ? `in it for ${seconds(time - span.begin)}` : `ended ${seconds(time - span.end)} earlier`;
  }

  sentence(each, time) {
    return each.span ? `The oldest last sign is of rank ${each.rank}: ${each.span.name}, call ${number(each.span.sequence)}, ${this.stateOf(each, time)}.` : `Rank ${each.rank} has made no call.`;
  }

  tell(now) {
    if (!this.ranks?.length) return;
    const past = this.findings.filter(({ time }) => !Number.isFinite(time) || time <= now);
    const open = this.lasts(now).filter(({ span }) => span && (span.end === null || span.end > now)).length;
    put(this.caption, `${clock(now, true)}: ${number(open)} of ${number(this.ranks.length)} ranks are in a call. `,
      past.length ? `The likely cause: ${past[0].text}.` : '');
    this.timeline.figure.fillTable();
  }

  toggle() {
    if (this.timer) {
      clearInterval(this.timer);
      this.timer = null;
    } else {
      const { timeline } = this;
      if (timeline.now >= timeline.to) timeline.moveTo(timeline.from);
      const stride = (timeline.to - timeline.from) / 100;
      this.timer = setInterval(() => {
        timeline.moveTo(timeline.now + stride);
        if (timeline.now >= timeline.all[1]) this.toggle();
      }, 80);
    }
    put(this.play, this.timer ? 'pause' : 'play');
  }
}

// Spans of a Chrome trace, nested spans in lanes below each other. Times in seconds.
function readTrace(trace) {
  const events = Array.isArray(trace) ? trace : trace?.traceEvents ?? [];
  const names = new Map();
  const threads = new Map();
  const kind = kindsOf();
  let [count, dropped] = [0, 0];
  for (const event of events) {
    const key = `${event?.pid} ${event?.tid}`;
    if (event?.ph === 'M' && event.name === 'process_name') names.set(String(event.pid), String(event.args?.name ?? ''));
    if (event?.ph === 'M' && event.name === 'thread_name') names.set(key, String(event.args?.name ?? ''));
    if (event?.ph !== 'X' || !Number.isFinite(event.ts) || !Number.isFinite(event.dur)) continue;
    if (count >= kMostSpans) {
      dropped += 1;
      continue;
    }
    count += 1;
    if (!threads.has(key)) threads.set(key, { pid: String(event.pid), key, spans: [] });
    threads.get(key).spans.push({ begin: event.ts / 1e6, end: (event.ts + event.dur) / 1e6, name: String(event.name), kind: kind(event.name) });
  }
  const [lanes, spans] = [[], []];
  for (const { pid, key, spans: list } of threads.values()) {
    list.sort((a, b) => a.begin - b.begin || b.end - a.end);
    const ends = [];
    const base = lanes.length;
    for (const span of list) {
      let depth = ends.findIndex((end) => end <= span.begin);
      if (depth < 0) depth = ends.length;
      if (depth >= 12) continue;
      ends.length = depth + 1;  // what lies deeper has ended with its parent
      ends[depth] = span.end;
      while (lanes.length <= base + depth) lanes.push(lanes.length === base ? `${names.get(pid) || pid} ${names.get(key) || key.split(' ')[1]}` : '');
      spans.push({ ...span, lane: base + depth });
    }
  }
  return { lanes, spans, dropped };
}

class ProfileView {
  constructor(body, page) {
    this.page = page;
    this.files = element('p', { class: 'controls' });
    this.body = element('div');
    body.append(this.files, this.body);
  }

  async refresh() {
    const answer = await this.page.latest(this, '/api/profile', {});
    if (!answer) return;
    const files = (answer.files ?? []).slice(0, 50);
    const key = JSON.stringify(files);
    if (key === this.key) return;
    this.key = key;
    put(this.files, files.length ? files.map(({ name, url }) => {
      const button = element('button', { type: 'button' }, `draw ${name}`);
      button.addEventListener('click', () => this.open(name, url).catch((error) => put(this.body, element('p', { class: 'why' }, error.message))));
      return button;
    }) : embedded ? 'This file holds no profile.' : 'No profile is recorded. Train with --profile.');
  }

  async open(name, url) {
    const asked = new URL(url, location.href).searchParams.get('name') ?? name;
    put(this.body, element('p', {}, `Reading ${name} …`));
    const { lanes, spans, dropped } = readTrace(await this.page.ask('/api/trace', { run: this.page.run, name: asked }));
    put(this.body);
    const timeline = new Timeline(this.body, `Trace ${name}`);
    const totals = new Map();
    for (const { name: each, begin, end } of spans) totals.set(each, (totals.get(each) ?? 0) + end - begin);
    const order = [...totals].sort((a, b) => b[1] - a[1]);
    timeline.figure.setSummary(`${number(spans.length)} spans in ${number(lanes.length)} lanes${dropped ? `; ${number(dropped)} more are left out` : ''}. Longest together: ${order.slice(0, 3).map(([each, sum]) => `${each} ${seconds(sum)}`).join(', ')}. Drag over a span of time to look closer.`);
    timeline.figure.setTable(['name', 'seconds, nested ones included'], () => order.map(([each, sum]) => [each, seconds(sum)]));
    timeline.set(lanes, spans);
  }
}
