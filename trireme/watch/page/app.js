// The page: answers from the data in this file or from the server, polling while the run is live, what is
// chosen (run, steps, cursor, rank), the order of the sections, and the keys.
'use strict';

const kMostBytes = 64 * 1024 * 1024;  // of one answer
const kPatienceMilliseconds = 15000;  // a server that is stopped keeps the connection
const kPollMilliseconds = 2000;
const kMostPollMilliseconds = 60000;

// Keys of the embedded data: the path with those parameters that choose an answer there, in one order.
const kKeyNames = ['column', 'name', 'rank', 'run', 'runs'];
function keyOf(path, parameters) {
  const parts = kKeyNames.filter((name) => parameters[name] !== undefined).map((name) => `${name}=${parameters[name]}`);
  return `${path}?${parts.join('&')}`;
}

function readEmbedded() {
  const block = document.getElementById('trireme-data');
  if (!block) return null;
  const answers = new Map();
  for (const [key, answer] of Object.entries(JSON.parse(block.textContent))) {
    const [path, query] = key.split(/\?(.*)/s);
    const parameters = Object.fromEntries(new URLSearchParams(query ?? ''));
    answers.set(keyOf(path, parameters), answer);
    if (parameters.runs !== undefined) answers.set(keyOf(path, {}), answer);  // it has all runs of the file
  }
  return answers;
}

function askEmbedded(answers, path, parameters) {
  if (Array.isArray(parameters.name)) {
    const all = parameters.name.map((name) => askEmbedded(answers, path, { ...parameters, name }));
    return { series: all.flatMap(({ series }) => series) };
  }
  const { rank, runs, ...others } = parameters;
  const answer = answers.get(keyOf(path, parameters)) ?? answers.get(keyOf(path, others));
  if (answer === undefined) throw new Error('This file does not contain these numbers; "trireme watch" on the run does.');
  if (!Array.isArray(answer)) return answer;
  const distance = (each) => Math.abs(each.step - (parameters.step ?? Infinity));
  return answer.reduce((best, each) => (distance(each) < distance(best) ? each : best), answer[answer.length - 1]);
}

async function readBounded(response) {
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  const parts = [];
  for (let size = 0; ;) {
    const { done, value } = await reader.read();
    if (done) break;
    size += value.length;
    if (size > kMostBytes) {
      reader.cancel();
      throw new Error(`The answer is larger than ${bytes(kMostBytes)}.`);
    }
    parts.push(decoder.decode(value, { stream: true }));
  }
  return JSON.parse(parts.join('') + decoder.decode());
}

const embedded = readEmbedded();

// The one way to numbers. Throws: Error with a sentence for the reader.
async function ask(path, parameters = {}) {
  if (embedded) return askEmbedded(embedded, path, parameters);
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    for (const each of [value].flat()) query.append(name, each);
  }
  const response = await fetch(`${path}?${query}`, { headers: { Accept: 'application/json' }, signal: AbortSignal.timeout(kPatienceMilliseconds) });
  const answer = await readBounded(response);
  // The server's own refusals have a message in the error.
  if (!response.ok) throw new Error(answer.error?.message ?? answer.error ?? `The server answers ${response.status}.`);
  return answer;
}

const hasColumn = (about, start) => about.rank_columns.some((name) => name.startsWith(start));
const isDead = ({ state }) => state === 'crashed' || state === 'stalled';

// In the order of the page, from "is it well?" to details. `wanted` says whether the run has it.
const kSections = [
  { id: 'well', title: 'Is it well?', make: (...all) => new WellView(...all) },
  { id: 'replay', title: 'Replay: last calls of all ranks', make: (...all) => new ReplayView(...all), wanted: (about) => about.state !== 'running', isLast: (about) => !isDead(about) },
  { id: 'loss', title: 'Loss and goodput', make: (...all) => new LossView(...all) },
  { id: 'speed', title: 'Throughput', wanted: (about) => speedName(about).length > 0,
    make: (body, page) => new SeriesView(body, page, { label: 'Throughput', names: speedName, fromZero: true, words: speedWords }) },
  { id: 'mesh', title: 'Mesh map: own computing of each rank', make: (...all) => new MeshView(...all), wanted: (about) => hasColumn(about, '') },
  { id: 'straggler', title: 'Without this straggler', make: (...all) => new StragglerView(...all), wanted: (about) => hasColumn(about, 'own_seconds') && about.ranks > 1 },
  { id: 'waits', title: 'Who waits for whom', make: (...all) => new WaitsView(...all), wanted: (about) => about.ranks > 1 },
  { id: 'communication', title: 'Exposed communication by axis', wanted: (about) => hasColumn(about, kCommunication),
    make: (body, page) => new SeriesView(body, page, { label: 'Exposed communication', names: communicationNames, labelOf: (name) => name.slice(6 + kCommunication.length), isStacked: true, words: communicationWords }) },
  { id: 'bubble', title: 'Bubble by stage', make: (...all) => new BubbleView(...all),
    wanted: (about) => hasColumn(about, `${kCommunication}pipeline`) && about.axes.some(({ name, size }) => name === 'pipeline' && size > 1) },
  { id: 'memory', title: 'Memory by kind', make: (...all) => new MemoryView(...all), wanted: (about) => hasColumn(about, 'memory_bytes/') },
  { id: 'experts', title: 'Expert load', make: (...all) => new ExpertsView(...all),
    wanted: (about) => about.scalars.some(({ name }) => /expert/.test(name)) },
  { id: 'predicted', title: 'Predicted and measured', make: (...all) => new PredictedView(...all), wanted: (about) => Boolean(about.predicted) },
  { id: 'metric', title: 'Any other metric', make: (...all) => new MetricView(...all), wanted: (about) => about.scalars.length + about.rank_columns.length > 0 },
  { id: 'alerts', title: 'Alerts', make: (...all) => new AlertsView(...all) },
  { id: 'compare', title: 'Comparison of runs', make: (...all) => new CompareView(...all), wanted: (about, page) => page.runs.length > 1 },
  { id: 'profile', title: 'Profile', make: (...all) => new ProfileView(...all) },
  { id: 'config', title: 'Config', make: (...all) => new ConfigView(...all) },
  { id: 'runs', title: 'Runs', make: (...all) => new RunsView(...all) },
  { id: 'records', title: 'Events and logs', make: (...all) => new RecordsView(...all) },
];

class Page {
  constructor() {
    Object.assign(this, { run: 0, runs: [], compared: new Set(), range: null, cursor: null, rank: null, mapStep: null, filter: '', times: null, sections: [] });
    this.status = document.getElementById('status');
    this.observer = new IntersectionObserver((entries) => {
      for (const { target, isIntersecting } of entries) {
        const section = this.sections.find(({ root }) => root === target);
        section.isNear = isIntersecting;
        if (isIntersecting && section.isOld) this.refreshSection(section);
      }
    }, { rootMargin: '600px' });
    for (const plan of kSections) this.addSection(plan);
  }

  addSection(plan) {
    const heading = element('h2', { tabindex: '-1', id: `${plan.id}-title` }, plan.title);
    const body = element('div');
    const problem = element('p', { class: 'why', hidden: true });
    const root = element('section', { id: plan.id, 'aria-labelledby': heading.id, hidden: true }, heading, problem, body);
    document.getElementById(plan.id === 'records' ? 'beside' : 'column').append(root);
    this.sections.push({ ...plan, root, heading, body, problem, view: null, isOld: true, isNear: false });
    this.observer.observe(root);
  }

  ask(path, parameters) {
    return ask(path, parameters);
  }

  // The answers for a view, or undefined when the view has asked again since.
  async latestOf(view, questions) {
    const serial = (view.serial = (view.serial ?? 0) + 1);
    const answers = await Promise.all(questions.map(([path, parameters]) => ask(path, { run: this.run, ...parameters })));
    return serial === view.serial ? answers : undefined;
  }

  async latest(view, path, parameters) {
    return (await this.latestOf(view, [[path, parameters]]))?.[0];
  }

  async latestSeries(view, names, range = this.range, points = Math.min(1000, Math.max(200, document.getElementById('column').clientWidth))) {
    if (!names.length) return [];
    const span = range ? { from: range[0], to: range[1] } : {};
    return (await this.latest(view, '/api/series', { name: names, ...span, points }))?.series.map((each) => ({ ...each, label: each.name }));
  }

  hooks(view) {
    return { cursor: (step) => this.setCursor(step, view), zoom: (from, to) => this.zoom(from, to) };
  }

  shownSteps() {
    return this.range ?? [this.about.first_step, this.about.last_step];
  }

  row() {
    return this.runs.find(({ run }) => run === this.run) ?? {};
  }

  setCursor(step, source) {
    this.cursor = step;
    this.source = source;
    this.frame ??= requestAnimationFrame(() => {
      this.frame = null;
      for (const { view } of this.sections) if (view && view !== this.source) view.cursor?.(this.cursor);
    });
  }

  // Steps and clock, by the metric `time`; NaN where it is not recorded.
  timeOf(step) {
    return this.interpolate(step, 'steps', 'min');
  }

  setTime(time) {
    const step = this.interpolate(time, 'min', 'steps');
    if (Number.isFinite(step)) this.setCursor(Math.round(step), null);
  }

  interpolate(value, from, to) {
    const known = this.times?.[from] ?? [];
    const after = known.findIndex((each) => each >= value);
    if (!known.length) return NaN;
    if (after <= 0) return this.times[to][after < 0 ? known.length - 1 : 0];
    const share = (value - known[after - 1]) / (known[after] - known[after - 1] || 1);
    return this.times[to][after - 1] + share * (this.times[to][after] - this.times[to][after - 1]);
  }

  zoom(from, to) {
    const { first_step: first, last_step: last } = this.about;
    const low = Math.min(Math.max(from ?? first, first), Math.max(last - 2, first));
    this.range = from === null || (from <= first && to >= last) ? null : [low, Math.min(Math.max(to, low + 2), last)];
    for (const { view, isNear } of this.sections) {
      if (!isNear || !(view instanceof SeriesView)) continue;
      view.chart.range = this.range;
      view.chart.rescale();  // what is there at once, finer numbers when they come
    }
    document.getElementById('all-steps').hidden = this.range === null;
    this.say(this.range ? `Steps ${number(this.range[0])} to ${number(this.range[1])} are shown.` : 'All steps are shown.');
    this.makeOld();
  }

  setRank(rank) {
    this.rank = Number.isInteger(rank) && rank >= 0 && rank < this.about.ranks ? rank : null;
    for (const section of this.sections) if (['straggler', 'records'].includes(section.id)) this.refreshSection(section);
    if (this.rank !== null) this.say(`Rank ${rank} is chosen.`);
  }

  setMapStep(step) {
    this.mapStep = step;
    for (const section of this.sections) {
      if (!['mesh', 'memory', 'experts', 'bubble', 'straggler'].includes(section.id)) continue;
      section.isOld = true;
      if (section.isNear) this.refreshSection(section);
    }
    this.setCursor(step, null);
  }

  compare(run, isWanted) {
    if (isWanted) this.compared.add(run); else this.compared.delete(run);
    this.makeOld();
  }

  say(text) {
    put(this.status, text);
  }

  makeOld() {
    for (const section of this.sections) {
      section.isOld = true;
      if (section.isNear) this.refreshSection(section);
    }
  }

  refreshView(view) {
    return this.refreshSection(this.sections.find((section) => section.view === view));
  }

  async refreshSection(section) {
    if (section.root.hidden || !this.about) return;
    section.isOld = false;
    try {
      section.view ??= section.make(section.body, this);
      await section.view.refresh();
      section.problem.hidden = true;
    } catch (error) {
      put(section.problem, error.message);
      section.problem.hidden = false;
    }
  }

  openRun(run) {
    Object.assign(this, { run, range: null, cursor: null, rank: null, mapStep: null, text: null, times: null });
    document.getElementById('all-steps').hidden = true;
    for (const section of this.sections) {
      section.view = null;  // with what was chosen in it
      put(section.body);
    }
    const address = new URL(location.href);
    address.searchParams.set('run', run);
    if (!embedded) history.replaceState(null, '', address);
    window.scrollTo(0, 0);
    return this.load();
  }

  // Asks what the runs are now, and draws again what has changed.
  async load() {
    const { run } = this;
    const [{ runs }, about] = await Promise.all([ask('/api/runs'), ask('/api/run', { run })]);
    if (run !== this.run) return;
    this.runs = runs;
    const text = JSON.stringify([about, runs]);
    if (text === this.text) return;
    this.text = text;
    const known = Object.fromEntries(Object.entries(about).filter(([, value]) => value !== null));
    this.about = { name: '', state: 'unknown', summary: '', ranks: 1, axes: [], coordinates: [], scalars: [], rank_columns: [], roles: [], first_step: 1, last_step: 1, ...known };
    if (!this.compared.size && runs.length > 1) for (const row of runs.slice(0, 2)) this.compared.add(row.run);
    if (this.about.scalars.some(({ name }) => name === 'time')) {
      this.times = (await ask('/api/series', { run, name: ['time'], points: 1000 })).series[0];
    }
    this.arrange();
    this.makeOld();
  }

  arrange() {
    const { about } = this;
    const column = document.getElementById('column');
    const isMatch = ({ id, title }) => !this.filter || title.toLowerCase().includes(this.filter) ||
      (id === 'metric' && about.scalars.some(({ name }) => name.toLowerCase().includes(this.filter)));
    const order = [...this.sections].sort((a, b) => Boolean(a.isLast?.(about)) - Boolean(b.isLast?.(about)));
    for (const section of order) {
      section.root.hidden = !isMatch(section) || !(section.wanted?.(about, this) ?? true);
      if (section.id !== 'records') section.place = section.root;
    }
    const roots = order.filter(({ place }) => place).map(({ root }) => root);
    if (roots.some((root, index) => column.children[index] !== root)) column.append(...roots);
    this.shown = order.filter(({ root }) => !root.hidden);
    put(document.getElementById('sections'), element('ul', {}, this.shown.map(({ id, title }) =>
      element('li', {}, element('a', { href: `#${id}` }, title.split(':')[0])))));
    put(document.getElementById('name'), about.name);
    document.title = `${kStates[about.state] ?? '?'} ${plain(about.name)} · trireme watch`;
  }

  // Moves to the next (1) or the previous (-1) section.
  step(direction) {
    const tops = this.shown.map(({ root }) => root.getBoundingClientRect().top);
    const now = this.shown.findIndex(({ root }) => root.contains(document.activeElement));
    const seen = now >= 0 ? now : tops.filter((top) => top < 60).length - 1;
    const next = this.shown[Math.min(Math.max(seen + direction, 0), this.shown.length - 1)];
    next.heading.focus({ preventScroll: true });
    next.root.scrollIntoView({ block: 'start' });
  }
}

class Poller {
  constructor(page) {
    Object.assign(this, { page, delay: kPollMilliseconds, connection: document.getElementById('connection') });
    document.addEventListener('visibilitychange', () => {
      clearTimeout(this.timer);
      if (!document.hidden) this.poll();
    });
  }

  async poll() {
    const { page } = this;
    clearTimeout(this.timer);
    let isLost = false;
    try {
      await page.load();
      this.delay = kPollMilliseconds;
      this.seen = Date.now() / 1000;
    } catch (error) {
      isLost = true;
      this.delay = Math.min(this.delay * 2, kMostPollMilliseconds);
      if (!page.about) page.say(error.message);
    }
    const isLive = page.about && ['running', 'stalled', 'unknown'].includes(page.about.state);
    const text = embedded ? 'one file' : isLost ? `stale${this.seen ? ` since ${clock(this.seen)}` : ''}` : isLive ? 'live' : 'ended';
    this.connection.dataset.state = text.split(' ')[0];
    put(this.connection, text);
    // A run that has ended may be resumed.
    const delay = isLive || isLost ? this.delay : kMostPollMilliseconds;
    if (!embedded && !document.hidden) this.timer = setTimeout(() => this.poll(), delay);
  }
}

const kThemes = ['auto', 'light', 'dark'];
function useTheme(page, theme) {
  document.documentElement.dataset.theme = theme;
  put(document.getElementById('theme'), `theme: ${theme}`);
  themeColours.clear();
  for (const { view } of page.sections) if (view?.chart) view.chart.shape = null;
  page.makeOld();
}

// What the reader chose last time, where the browser keeps such things.
function stored(name, value) {
  try {
    if (value !== undefined) localStorage.setItem(name, value);
    return localStorage.getItem(name);
  } catch {
    return null;
  }
}

function bindControls(page) {
  const find = (id) => document.getElementById(id);
  const nextTheme = () => {
    const theme = kThemes[(kThemes.indexOf(document.documentElement.dataset.theme) + 1) % kThemes.length];
    stored('trireme-theme', theme);
    useTheme(page, theme);
  };
  const help = () => find('help').showModal();
  const acts = { j: () => page.step(1), k: () => page.step(-1), '/': () => find('filter').focus(), '?': help, t: nextTheme, Escape: () => page.zoom(null) };
  find('theme').addEventListener('click', nextTheme);
  find('help-button').addEventListener('click', help);
  find('help-close').addEventListener('click', () => find('help').close());
  find('all-steps').addEventListener('click', () => page.zoom(null));
  find('filter').addEventListener('input', () => {
    page.filter = find('filter').value.trim().toLowerCase();
    page.arrange();
    page.makeOld();
  });
  document.addEventListener('keydown', (event) => {
    const isTyping = event.target.matches('input:not([type=range], [type=checkbox]), select, textarea');
    if (isTyping && event.key === 'Escape') event.target.blur();
    if (isTyping || !page.about || event.ctrlKey || event.metaKey || event.altKey || find('help').open || !(event.key in acts)) return;
    event.preventDefault();
    acts[event.key]();
  });
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => useTheme(page, document.documentElement.dataset.theme));
}

function start() {
  const page = new Page();
  const address = new URL(location.href);
  page.run = Number(address.searchParams.get('run')) || 0;
  if (address.searchParams.has('token')) {  // it is in a cookie now, and not to be copied with the address
    address.searchParams.delete('token');
    history.replaceState(null, '', address);
  }
  const theme = stored('trireme-theme');
  useTheme(page, kThemes.includes(theme) ? theme : 'auto');
  bindControls(page);
  new Poller(page).poll();
}

if (document.readyState === 'loading') document.addEventListener('DOMContentLoaded', start); else start();
