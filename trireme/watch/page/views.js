// The sections of the page about one run. A view is made once, with its section's body and the page, and
// `refresh` asks the server and draws; `cursor` follows the step that the reader points at.
'use strict';

// One series in words: where it begins and ends, and where it is least and most.
function wordsOf(series, name = series.label) {
  const { steps, mean, min, max, unit } = series;
  let [first, last, low, high] = [-1, -1, -1, -1];
  for (let index = 0; index < steps.length; ++index) {
    if (!Number.isFinite(mean[index])) continue;
    if (first < 0) first = index;
    last = index;
    if (low < 0 || min[index] < min[low]) low = index;
    if (high < 0 || max[index] > max[high]) high = index;
  }
  if (first < 0) return `No value of ${series.label} is recorded.`;
  const change = mean[last] < mean[first] ? 'fell' : mean[last] > mean[first] ? 'rose' : 'stayed';
  return `${name} ${change} from ${quantity(mean[first], unit)} at step ${number(steps[first])} to ` +
    `${quantity(mean[last], unit)} at step ${number(steps[last])}; minimum ${quantity(min[low], unit)} near step ` +
    `${number(steps[low])}, maximum ${quantity(max[high], unit)} near step ${number(steps[high])}.`;
}

const kStates = { running: '▶', finished: '✓', stopped: '■', crashed: '✕', stalled: '‖', unknown: '?' };
const stateOf = (state) => element('span', { class: `state state-${state in kStates ? state : 'unknown'}` },
  `${kStates[state] ?? '?'} ${state}`);

const placeOf = (step, steps) => (Number.isFinite(steps) ? `${number(step)} of ${number(steps)}` : number(step));

// The three questions about a run that died, before everything else.
const crashLead = (about, step) => `${kStates[about.state]} The run ${about.state === 'crashed' ? 'has crashed' : 'makes no progress'}. ` +
  (step > 0 ? `Its last finished step is ${placeOf(step, about.steps)}.` : 'It has finished no step.');
const crashOf = ({ rank, call, lost }) => element('dl', { class: 'crash' }, [['Which rank', rank], ['In which call', call], ['What is lost', lost]]
  .map(([name, text]) => element('div', {}, element('dt', {}, name), element('dd', {}, text))));

class WellView {
  constructor(body, page) {
    this.page = page;
    this.body = body;
    this.first = element('div');
    body.append(this.first);
  }

  async refresh() {
    const { page } = this;
    const { about } = page;
    const row = page.row();
    const { step } = row;
    const recent = await page.latestSeries(this, ['step_seconds'], [Math.max(about.first_step, about.last_step - 100), about.last_step], 50);
    if (!recent) return;
    const each = medianOf(recent[0]?.mean ?? []);
    const unit = row.unit || 'units';
    const facts = [['state', stateOf(about.state)], ['step', placeOf(step, about.steps)],
      ['loss', number(row.loss)], [`${unit} per second`, number(row.units_per_second)],
      ['time per step', seconds(each)],
      about.state === 'running' ? ['time left', seconds((about.steps - step) * each)] : ['duration', seconds(row.seconds)],
      ['goodput', percent(about.goodput?.share ?? NaN)], ['ranks', number(about.ranks)]];
    const progress = about.steps > 0 && element('progress', { max: about.steps, value: step ?? 0, 'aria-label': 'steps done' });
    const why = about.why && !about.summary.includes(about.why) && element('p', { class: 'why' }, about.why);
    const lead = element('p', { class: 'lead' }, about.crash ? crashLead(about, step) : about.summary);
    put(this.first, lead, about.crash ? crashOf(about.crash) : why, progress, element('dl', { class: 'facts' }, facts.map(([name, value]) =>
        element('div', {}, element('dt', {}, name), element('dd', {}, value)))),
      about.crash && !about.findings?.length && element('p', { class: 'why' }, about.why),
      this.findings(about));
  }

  findings(about) {
    // That nothing is wrong is said above.
    const found = (about.findings ?? []).filter(({ kind }) => kind !== 'progress' && kind !== 'finished').slice(0, 20).map(({ text, ranks }) => element('li', {}, text, ' ',
      (ranks ?? []).slice(0, 8).map((rank) => rankButton(this.page, rank))));
    const alerts = (about.alerts ?? []).slice(-3).map((alert) => element('li', {}, `${alert.kind}: ${alert.text}`));
    const count = about.alerts?.length ?? 0;
    return [found.length > 0 && [element('h3', {}, 'Findings'), element('ul', { class: 'notes' }, found)],
      count > 0 && [element('h3', {}, `Alerts (${count})`), element('ul', { class: 'notes' }, alerts)]];
  }
}

function rankButton(page, rank) {
  const button = element('button', { type: 'button', class: 'small' }, `rank ${rank}`);
  button.addEventListener('click', () => page.setRank(rank));
  return button;
}

// Where the time went: spans of one cause each, over the clock.
class GoodputStrip {
  constructor(host, pick) {
    this.figure = new Figure(host, 'Goodput: where the time went');
    this.canvas = new Canvas(this.figure.picture, (context, width) => this.draw(context, width));
    this.spans = [];
    this.chosen = 0;
    this.pick = pick;
    this.figure.makeSlider('Goodput, span', (key) => {
      const moves = { ArrowLeft: this.chosen - 1, ArrowDown: this.chosen - 1, ArrowRight: this.chosen + 1, ArrowUp: this.chosen + 1, Home: 0, End: this.spans.length - 1 };
      if (!(key in moves)) return false;
      this.choose(moves[key], true);
      return true;
    });
    this.canvas.canvas.addEventListener('pointermove', (event) => {
      const box = this.canvas.canvas.getBoundingClientRect();
      const time = this.from + (event.clientX - box.left) / box.width * (this.to - this.from);
      this.choose(this.spans.findIndex((span) => time >= span.from && time < span.to), true);
    });
  }

  set(goodput) {
    this.spans = (goodput?.spans ?? []).filter(({ from, to }) => to >= from);
    this.from = this.spans[0]?.from ?? 0;
    this.to = Math.max(this.spans[this.spans.length - 1]?.to ?? 0, this.from + 1e-3);
    const sums = new Map();
    for (const { from, to, cause } of this.spans) sums.set(cause, (sums.get(cause) ?? 0) + to - from);
    const least = (this.to - this.from) / 1000;  // the table has all
    this.causes = [...sums].filter(([cause, sum]) => cause === 'training' || sum >= least).sort((a, b) => (b[0] === 'training') - (a[0] === 'training') || b[1] - a[1]);
    this.choose(this.chosen, false);
    const lost = this.causes.filter(([cause]) => cause !== 'training').map(([cause, sum]) => `${seconds(sum)} ${cause}`);
    this.figure.setSummary(this.spans.length ? `${Number.isFinite(goodput.share) ? percent(goodput.share) : 'An unknown share'} of ${seconds(this.to - this.from)} went into training${lost.length ? `; the rest: ${lost.join(', ')}` : ''}.` : 'When the run trained is not recorded.');
    put(this.figure.legend, legendOf(this.causes.map(([cause, sum]) => [this.fillOf(cause), `${cause} ${seconds(sum)}`])));
    this.figure.setTable(['from', 'to', 'cause', 'duration'], () => this.spans.map(({ from, to, cause }) =>
      [clock(from, true), clock(to), cause, seconds(to - from)]));
  }

  fillOf(cause) {
    if (cause === 'training') return colour('good');
    const place = this.causes.findIndex(([name]) => name === cause);
    return kindColour([1, 3, 4, 6, 7, 0][(place + 5) % 6]);  // those unlike the green of training
  }

  choose(index, isTold) {
    if (index < 0 || index >= this.spans.length) return;
    this.chosen = index;
    this.canvas.redraw();
    const { from, to, cause } = this.spans[index];
    this.figure.setSlider(index, 0, this.spans.length - 1, `${cause}: ${seconds(to - from)} from ${clock(from)} to ${clock(to)}`);
    if (isTold) this.pick((from + to) / 2);
  }

  mark(time) {
    this.marked = time;
    this.canvas.redraw();
  }

  draw(context, width) {
    const height = this.spans.length ? 30 : 8;
    if (!context) return height;
    const place = (time) => (time - this.from) / (this.to - this.from) * width;
    this.spans.forEach(({ from, to, cause }, index) => {
      const isTraining = cause === 'training';
      const x = place(from);
      const wide = Math.max(place(to) - x, isTraining ? 0.5 : 2);
      context.fillStyle = this.fillOf(cause);
      context.fillRect(x, isTraining ? 10 : 2, wide, isTraining ? height - 12 : height - 4);
      if (index === this.chosen) {
        context.fillStyle = colour('focus');
        context.fillRect(x, height - 3, wide, 3);
      }
    });
    if (Number.isFinite(this.marked)) {
      context.fillStyle = colour('ink');
      context.fillRect(place(this.marked), 0, 1.5, height);
    }
    return height;
  }
}

const marksOf = (about) => [
  ...(about.checkpoints ?? []).map(({ step }) => ({ step, text: 'checkpoint', isQuiet: true })),
  ...(about.alerts ?? []).filter(({ step }) => Number.isFinite(step)).slice(-200).map(({ step, kind }) => ({ step, text: kind })),
];

// One metric, or several with a picture of their own kind. `names(about)` are asked for together.
class SeriesView {
  constructor(body, page, { label, names, labelOf = (name) => name, words, hasMarks = false, ...options }) {
    Object.assign(this, { page, names, labelOf, words, hasMarks });
    this.chart = new LineChart(body, label, page.hooks(this), options);
  }

  async refresh() {
    const { page } = this;
    const list = await page.latestSeries(this, this.names(page.about));
    if (!list) return;
    const labelled = list.map((series) => ({ ...series, label: this.labelOf(series.name) }));
    this.chart.set(labelled, page.range, this.hasMarks ? marksOf(page.about) : []);
    this.chart.figure.setSummary(this.words ? this.words(labelled, page) : labelled.map((series) => wordsOf(series)).join(' '));
  }

  cursor(step) {
    this.chart.follow(step);
  }
}

class LossView extends SeriesView {
  constructor(body, page) {
    super(body, page, { label: 'Loss', names: () => ['loss'], hasMarks: true, height: 260,
      words: ([loss], { about }) => (loss ? wordsOf(loss, 'The loss') : 'No loss is recorded.') +
        (about.checkpoints?.length ? ` ${about.checkpoints.length > 1 ? `Short ticks are ${number(about.checkpoints.length)} checkpoints` : 'The short tick is a checkpoint'}.` : '') });
    this.strip = new GoodputStrip(body, (time) => page.setTime(time));
  }

  async refresh() {
    await super.refresh();
    this.strip.set(this.page.about.goodput);
  }

  cursor(step) {
    super.cursor(step);
    this.strip.mark(this.page.timeOf(step));
  }
}

function speedWords([speed], page) {
  if (!speed) return 'No throughput is recorded.';
  const middle = medianOf(speed.mean);
  const slow = speed.steps.filter((step, index) => speed.min[index] < middle / 2);
  return `The median is ${number(middle)} ${page.row().unit || 'units'} per second` +
    (slow.length ? `; ${number(slow.length)} of ${number(speed.steps.length)} shown points have a step below half of it, first near step ${number(slow[0])}.` : '; no step is below half of it.');
}
const speedName = (about) => (about.scalars ?? []).map(({ name }) => name).filter((name) => name.endsWith('_per_second')).slice(0, 1);

const kMostNames = 2000;  // in a list to choose from; the filter finds the others
class MetricView extends SeriesView {
  constructor(body, page) {
    super(body, page, { label: 'Metric by choice', names: () => (this.select.value ? [this.select.value] : []) });
    this.select = element('select', { 'aria-label': 'metric' });
    put(this.chart.figure.controls, element('label', {}, 'Metric ', this.select));
    this.select.addEventListener('change', () => this.refresh());
  }

  async refresh() {
    const { about, filter } = this.page;
    const all = [...(about.scalars ?? []).map(({ name }) => name).filter((name) => name !== 'time'), ...(about.rank_columns ?? []).map((name) => `ranks/${name}`)];
    const fitting = all.filter((name) => name.toLowerCase().includes(filter));
    chooseFrom(this.select, (fitting.length ? fitting : all).slice(0, kMostNames), 'grad_norm');
    await super.refresh();
    const meaning = about.scalars?.find(({ name }) => name === this.select.value)?.meaning;
    if (meaning) this.chart.figure.summary.append(element('span', { class: 'quiet' }, ` ${this.select.value}: ${meaning}`));
  }
}

const kCommunication = 'communication_seconds/';
const communicationNames = (about) => (about.rank_columns ?? []).filter((name) => name.startsWith(kCommunication)).slice(0, 32).map((name) => `ranks/${name}`);
function communicationWords(list) {
  const sums = list.map(({ label, mean }) => [label, mean.reduce((all, value) => all + (value ?? 0), 0) / Math.max(mean.length, 1)]);
  const all = sums.reduce((total, [, value]) => total + value, 0);
  const [largest] = sums.sort((a, b) => b[1] - a[1]);
  return largest && all > 0 ? `On average a rank waits ${seconds(all)} a step for communication that computing does not hide; ${percent(largest[1] / all)} of it on the axis ${largest[0]}.` : 'No exposed communication is recorded.';
}

// How long each stage of the pipeline waits for the others, as a share of the step.
class BubbleView {
  constructor(body, page) {
    this.page = page;
    this.summary = element('p', { class: 'summary' });
    this.bars = element('div');
    body.append(this.summary, this.bars);
  }

  async refresh() {
    const { about, mapStep } = this.page;
    const axis = about.axes.findIndex(({ name }) => name === 'pipeline');
    const step = mapStep ?? about.last_step;
    const answers = await this.page.latestOf(this, [`${kCommunication}pipeline`, 'step_seconds'].map((column) => ['/api/ranks', { column, step }]));
    if (!answers) return;
    const [waits, steps] = answers;
    const shares = Array.from({ length: about.axes[axis].size }, (_, stage) => {
      const ranks = about.coordinates.flatMap((place, rank) => (place[axis] === stage ? [rank] : []));
      return ranks.reduce((all, rank) => all + waits.values[rank] / steps.values[rank], 0) / Math.max(ranks.length, 1);
    });
    const most = shares.indexOf(Math.max(...shares));
    put(this.summary, `At step ${number(waits.step)}, the stages wait ${percent(shares.reduce((a, b) => a + b, 0) / shares.length)} of the step for each other; stage ${most} waits most, ${percent(shares[most])}.`);
    put(this.bars, barsOf('share of the step that a stage waits', shares.map((value, stage) => ({ label: `stage ${stage}`, value, text: percent(value) }))));
  }
}

class StragglerView {
  constructor(body, page) {
    this.page = page;
    this.rank = element('input', { type: 'number', min: 0, value: 0, 'aria-label': 'rank to replace by its peers' });
    this.rank.addEventListener('change', () => page.setRank(Number(this.rank.value)));
    this.summary = element('p', { class: 'summary' });
    this.bars = element('div');
    body.append(element('p', { class: 'controls' }, element('label', {}, 'Rank ', this.rank)), this.summary, this.bars);
  }

  async refresh() {
    const { page } = this;
    const { about } = page;
    let { rank } = page;
    if (rank === null) {
      const own = await page.latest(this, '/api/ranks', { column: 'own_seconds', step: page.mapStep ?? about.last_step });
      if (!own) return;
      const ratios = own.values.map((value, index) => value / own.median_by_stage[index] || 0);
      rank = Math.max(0, ratios.indexOf(Math.max(...ratios)));
    }
    this.rank.max = about.ranks - 1;
    this.rank.value = rank;
    const answer = await page.latest(this, '/api/straggler', { rank });
    if (!answer) return;
    if (!Number.isFinite(answer.step_seconds) || !(answer.without > 0)) {
      put(this.summary, `Of rank ${answer.rank}, or of any peer of it, no steps are recorded.`);
      put(this.bars);
      return;
    }
    const gain = answer.step_seconds / answer.without - 1;
    put(this.summary, gain > 0.02 ? `With rank ${answer.rank} as fast as its peers a step takes ${seconds(answer.without)} instead of ${seconds(answer.step_seconds)}: ${percent(gain)} more ${answer.unit || 'units'} per second. ` : `Rank ${answer.rank} does not slow the run: with it as fast as its peers a step takes ${seconds(answer.without)}, as it is ${seconds(answer.step_seconds)}. `,
      element('span', { class: 'quiet' }, `How: ${answer.how}.`));
    put(this.bars, gain > 0.02 && barsOf('time per step', [['as measured', answer.step_seconds, answer.units_per_second, 'bad'], ['without it', answer.without, answer.without_units_per_second, 'good']]
      .map(([label, value, speed, fill]) => ({ label, value, fill: colour(fill), text: `${seconds(value)} (${number(speed)} ${answer.unit || 'units'}/s)` }))));
  }
}

const kStarving = 0.1;  // of an even share
class ExpertsView {
  constructor(body, page) {
    this.page = page;
    this.picture = new GridPicture(body, 'Tokens of each expert');
  }

  async refresh() {
    const answer = await this.page.latest(this, '/api/experts', { step: this.page.mapStep ?? this.page.about.last_step });
    if (!answer) return;
    const lists = (answer.lists ?? []).filter(({ name, values }) => /expert/.test(name) && values.length > 1);
    const even = lists.map(({ values }) => values.reduce((all, value) => all + (value ?? 0), 0) / values.length);
    const cells = lists.flatMap(({ name, values }, row) => values.map((value, column) => ({ row, column,
      share: Number.isFinite(value) ? value / even[row] / 2 : null, isStarving: value < kStarving * even[row],
      text: number(value, 3), words: `${name}, expert ${column}: ${number(value)} tokens, ${number(value / even[row], 3)} of an even share`, ratio: value / even[row] })));
    const order = [...cells].sort((a, b) => b.ratio - a.ratio);
    const columns = Math.max(0, ...lists.map(({ values }) => values.length));
    this.picture.set({ columns, rows: lists.length, cells, rowLabels: lists.map(({ name }) => name), columnLabels: Array.from({ length: columns }, (_, index) => String(index)) }, cells.indexOf(order[0]));
    const starving = cells.filter(({ isStarving }) => isStarving).length;
    this.picture.figure.setSummary(order.length ? `At step ${number(answer.step)}: ${order[0].words}, the most. ${starving ? `${number(starving)} of ${number(cells.length)} experts starve (crossed out): they get less than ${percent(kStarving)} of an even share.` : 'No expert starves.'}` : 'No load of experts is recorded.');
    put(this.picture.figure.legend, legendOf([0, 0.5, 1].map((share, index) => [rampColour(share).fill, ['no token', 'an even share', '≥ 2 even shares'][index]])));
    this.picture.figure.setTable(['list and expert', 'tokens', 'of an even share'], () => order.map(({ row, column, text, ratio }) =>
      [`${lists[row].name} ${column}`, text, number(ratio, 3)]));
  }
}

class PredictedView {
  constructor(body, page) {
    this.page = page;
    this.body = body;
  }

  // Memory is that of the peak so far, so the last value counts; of the rest the median.
  async refresh() {
    const { about } = this.page;
    const names = Object.keys(about.predicted).filter((name) => Number.isFinite(about.predicted[name])).sort((a, b) => isMemory(a) - isMemory(b));
    const known = new Set(about.scalars.map(({ name }) => name));
    const list = await this.page.latestSeries(this, names.filter((name) => known.has(name)), null, 200);
    if (!list) return;
    const measured = new Map(list.map(({ name, mean }) => [name, isMemory(name) ? mean[mean.length - 1] : medianOf(mean)]));
    const rows = names.map((name) => ({ name, unit: unitOfColumn(name), predicted: about.predicted[name], measured: measured.get(name) ?? NaN }));
    const sum = (which) => rows.filter(({ name }) => isMemory(name)).reduce((all, row) => all + row[which], 0);
    const memory = { name: 'memory of a rank at its peak', unit: 'bytes', predicted: sum('predicted'), measured: sum('measured') };
    const main = [{ ...rows.find(({ name }) => name === 'step_seconds'), name: 'time per step' }, memory].filter(({ predicted }) => predicted > 0);
    put(this.body, element('p', { class: 'summary' }, main.map(({ name, unit, predicted, measured: found }, index) =>
      `${index ? ' ' : ''}The planner predicted ${quantity(predicted, unit)} for the ${name}; ${Number.isFinite(found) ? `measured is ${quantity(found, unit)}, ${number(found / predicted, 3)} times as much` : 'nothing is measured'}.`)),
    main.map(({ name, unit, predicted, measured: found }) => barsOf(`${name}, predicted and measured`, [
      { label: `predicted ${name === memory.name ? 'memory' : 'step'}`, value: predicted, text: quantity(predicted, unit), fill: colour('kind-2') },
      { label: `measured ${name === memory.name ? 'memory' : 'step'}`, value: found, text: quantity(found, unit) }])),
    tableOf(['number', 'predicted', 'measured', 'measured / predicted'], rows.filter((row) => row.predicted > 0 || row.measured > 0).map((row) =>
      [wordsOfName(row.name), quantity(row.predicted, row.unit), quantity(row.measured, row.unit), row.predicted > 0 ? number(row.measured / row.predicted, 3) : '–'])));
  }
}

const isMemory = (name) => /^memory_.*_bytes$/.test(name);
const wordsOfName = (name) => (isMemory(name) ? `memory: ${name.slice(7, -6)}` : name === 'step_seconds' ? 'time per step' : name.replaceAll('_', ' '));

class AlertsView {
  constructor(body, page) {
    this.page = page;
    this.body = body;
  }

  async refresh() {
    const alerts = [...(this.page.about.alerts ?? [])].reverse();
    put(this.body, element('p', { class: 'summary' }, alerts.length ? (alerts.length > 1 ? `${number(alerts.length)} alerts, newest first.` : '1 alert.') : 'No alert.'),
      alerts.length > 0 && tableOf(['time', 'step', 'kind', 'what'], alerts.map(({ time, step, kind, text }) => [clock(time, true), number(step), kind, text])));
  }
}

class ConfigView {
  constructor(body, page) {
    this.page = page;
    this.text = element('pre', { tabindex: '0', 'aria-label': 'config.toml' });
    this.version = element('p', { class: 'quiet' });
    body.append(element('details', {}, element('summary', {}, 'config.toml'), this.text), this.version);
  }

  async refresh() {
    put(this.text, this.page.about.config ?? '');
    const { version } = this.page.about;
    put(this.version, version ? `Trireme ${version}` : '');
  }
}

// "UTC+01:00", of this computer at `time`.
function zoneOf(time) {
  const minutes = -new Date(time * 1000).getTimezoneOffset();
  const two = (part) => String(part).padStart(2, '0');
  const size = Math.abs(minutes);
  return `UTC${minutes ? `${minutes < 0 ? '-' : '+'}${two(Math.floor(size / 60))}:${two(size % 60)}` : ''}`;
}

const kEventWords = { recovery: 'trains' };  // a run's first finished step is a recovery too
// Where it happened, as far as its text does not say so.
function placeOfEvent({ step, rank, text }) {
  const isNamed = (word) => String(text ?? '').includes(`${word} `);
  return (Number.isFinite(step) && !isNamed('step') ? ` step ${number(step)}` : '') + (Number.isFinite(rank) && !isNamed('rank') ? ` rank ${rank}` : '');
}

// Events and logs near the step under the cursor, or the newest.
class RecordsView {
  constructor(body, page) {
    this.page = page;
    this.where = element('p', { class: 'summary' });
    this.events = element('ul', { class: 'records' });
    this.rank = element('input', { type: 'number', min: 0, value: 0, 'aria-label': 'rank of the log' });
    this.rank.addEventListener('change', () => page.setRank(Number(this.rank.value)));
    this.log = element('ol', { class: 'records log', tabindex: '0', 'aria-label': 'log' });
    body.append(this.where, element('h3', {}, 'Events'), this.events,
      element('h3', {}, 'Log of rank ', this.rank), this.log);
  }

  cursor() {
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.page.refreshView(this), 150);
  }

  async refresh() {
    const { page } = this;
    const time = page.cursor === null ? NaN : page.timeOf(page.cursor);
    const rank = page.rank ?? 0;
    this.rank.value = rank;
    const near = Number.isFinite(time) ? { from_time: time - 60, to_time: time + 60 } : {};
    const answers = await page.latestOf(this, [['/api/events', { ...near, most: 100 }],
      ['/api/log', { rank, ...(Number.isFinite(time) ? { time } : {}), most: 60 }]]);
    if (!answers) return;
    const distance = ({ time: each }) => (Number.isFinite(time) ? Math.abs(each - time) : -each);
    const events = [...answers[0].events].sort((a, b) => distance(a) - distance(b)).slice(0, 30)
      .sort((a, b) => a.time - b.time);
    put(this.where, Number.isFinite(time) ? `Around step ${number(page.cursor)}, ${clock(time, true)} ${zoneOf(time)}.` : `The newest. Point at a step in a chart to see what happened there. Times are ${zoneOf(Date.now() / 1000)}.`);
    put(this.events, events.length ? events.map((each) => element('li', {}, element('time', {}, clock(each.time)), ' ',
      element('b', {}, kEventWords[each.event] ?? each.event), placeOfEvent(each), each.text ? ` ${each.text}` : '')) : element('li', {}, 'No event.'));
    const lines = answers[1].lines;
    put(this.log, lines.length ? lines.map((line) => element('li', {}, element('time', {}, clock(line.time)), ' ', line.text))
      : element('li', {}, 'No line.'));
    const nearest = lines.reduce((best, line, index) => (distance(line) < distance(lines[best]) ? index : best), 0);
    const row = this.log.children[Number.isFinite(time) ? nearest : this.log.children.length - 1];
    this.log.scrollTop = row.offsetTop - this.log.clientHeight / 2;
  }
}
