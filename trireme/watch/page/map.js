// Pictures with a place for each rank, and the views that use them: the mesh, who waits for whom, memory,
// experts, and the run without one slow rank. Colour is always lightness too.
'use strict';

// Where the ranks stand: the last axes run across, the others down, about twice as wide as high.
// Ranks of a role stand below the mesh, each role in lines of its own. A rank that is neither has no place: an elastic
// run had other ranks at an earlier step.
function meshLayout(axes, coordinates, numRanks, roles = []) {
  const product = (list) => list.reduce((all, { size }) => all * size, 1);
  const beside = new Map(roles.flatMap(({ name, first, count }) => Array.from({ length: Math.min(count, 1 << 15) }, (_, index) => [first + index, { name, index }])));
  const onMesh = Math.min(numRanks, ...beside.keys());
  const fits = axes.length > 0 && axes.every(({ size }) => size > 0) && product(axes) === onMesh && coordinates.length >= onMesh &&
    coordinates.slice(0, onMesh).every((place) => Array.isArray(place) && place.length === axes.length);
  const used = fits ? axes : [{ name: 'rank', size: Math.max(onMesh, 1) }];
  const places = fits ? coordinates.slice(0, onMesh) : Array.from({ length: onMesh }, (_, rank) => [rank]);
  let split = 0;
  const shape = (at) => Math.abs(Math.log(product(used.slice(at)) / (2 * product(used.slice(0, at)))));
  for (let at = 1; at < used.length; ++at) if (shape(at) < shape(split)) split = at;
  const wrap = used.length === 1 && onMesh > 64 ? 64 : 0;  // one long axis in lines
  const fold = (place, list, from) => list.reduce((all, { size }, index) => all * size + place[from + index], 0);
  const gapsOf = (list) => (index) => {
    let [gaps, inner] = [0, 1];
    for (let at = list.length - 1; at > 0; --at) {
      inner *= list[at].size;
      gaps += inner > 1 && inner < product(list) ? Math.floor(index / inner) : 0;
    }
    return gaps;
  };
  const [down, across] = [used.slice(0, split), used.slice(split)];
  const columns = wrap || product(across);
  const meshRows = wrap ? Math.ceil(onMesh / wrap) : product(down);
  const meshGap = gapsOf(down);
  const rowGap = (row) => (row < meshRows ? meshGap(row) : meshGap(meshRows - 1) + 1);
  const labels = Array.from({ length: wrap ? 0 : product(down) }, (_, row) => {
    let rest = row;
    const parts = [];
    for (const { name, size } of [...down].reverse()) {
      if (size > 1) parts.unshift(`${name} ${rest % size}`);
      rest = Math.floor(rest / size);
    }
    return parts.join(' ');
  });
  let rows = meshRows;
  const placeOf = new Map();
  for (const { name, first, count } of roles) {
    while (labels.length < rows) labels.push('');
    for (let index = 0; index < Math.min(count, 1 << 15); ++index) placeOf.set(first + index, { row: rows + Math.floor(index / columns), column: index % columns });
    rows += Math.ceil(count / columns);
    labels.push(name);
  }
  const named = (list) => list.filter(({ size }) => size > 1).map(({ name, size }) => `${name} (${size})`).join(', then ');
  return {
    columns, rows, numRanks: Math.max(numRanks, ...[...beside.keys()].map((rank) => rank + 1)),
    columnGap: wrap ? () => 0 : gapsOf(across), rowGap,
    placeOf: (rank) => placeOf.get(rank) ?? (rank >= onMesh ? undefined : wrap ? { row: Math.floor(rank / wrap), column: rank % wrap }
      : { row: fold(places[rank], down, 0), column: fold(places[rank], across, split) }),
    words: (rank) => (beside.has(rank) ? `${beside.get(rank).name} ${beside.get(rank).index}` : used.map(({ name }, axis) => `${name} ${places[rank]?.[axis] ?? '?'}`).join(', ')),
    rowLabels: labels,
    caption: [named(across) && `Across: ${named(across)}.`, named(down) && `Down: ${named(down)}.`].filter(Boolean).join(' '),
  };
}

const kSlowest = 2;  // times the median: the dark end of the ramp

class MeshView {
  constructor(body, page) {
    this.page = page;
    this.picture = new GridPicture(body, 'Ranks on the mesh', (cell) => page.setRank(cell.rank));
    const { controls, legend } = this.picture.figure;
    this.column = element('select', { 'aria-label': 'number of each rank' });
    this.slider = element('input', { type: 'range', 'aria-label': 'step of the map', min: 1, max: 1, value: 1 });
    this.stepText = element('output');
    put(controls, element('label', {}, 'Number ', this.column),
      element('label', { class: 'wide' }, 'Step ', this.slider, this.stepText));
    this.column.addEventListener('change', () => this.refresh());
    this.slider.addEventListener('input', () => page.setMapStep(Number(this.slider.value)));
    this.legend = legend;
  }

  async refresh() {
    const { page } = this;
    const { about } = page;
    chooseFrom(this.column, about.rank_columns, 'own_seconds');
    const last = about.last_step;
    const wanted = page.mapStep ?? last;
    Object.assign(this.slider, { min: about.first_step, max: last, value: wanted });
    const column = this.column.value;
    const answer = await page.latest(this, '/api/ranks', { column, step: wanted });
    if (!answer) return;
    put(this.stepText, ` ${number(answer.step)}`);
    // With servers or learners a part of the ranks has numbers; an elastic run had other ranks at an earlier step.
    const isPart = about.roles?.length > 0 || about.axes.some(({ name }) => name === 'learner');
    const shown = meshLayout(about.axes, about.coordinates, isPart ? Math.max(about.ranks, answer.values.length) : answer.values.length, about.roles);
    const unit = unitOfColumn(column);
    const ratios = answer.values.map((value, rank) => value / answer.median_by_stage[rank]);
    const cells = Array.from({ length: shown.numRanks }, (_, rank) => rank).filter(shown.placeOf).map((rank) => {
      const value = answer.values[rank];
      const ratio = Number.isFinite(value) && Number.isFinite(ratios[rank]) ? ratios[rank] : null;
      return { rank, ...shown.placeOf(rank), share: ratio === null ? null : (ratio - 0.9) / (kSlowest - 0.9),
        text: ratio === null ? '' : `${ratio.toFixed(2)}×`,
        words: `Rank ${rank} (${shown.words(rank)}): ${Number.isFinite(value) ? quantity(value, unit) : 'no number'}, ${ratio === null ? 'no median' : `${number(ratio, 3)} times the median of its stage`}` };
    });
    const order = cells.filter(({ share }) => share !== null).sort((a, b) => b.share - a.share);
    const worst = order[0];
    this.picture.set({ ...shown, cells }, cells.indexOf(worst));
    const slow = order.filter(({ share }) => share > (1.2 - 0.9) / (kSlowest - 0.9)).length;
    this.picture.figure.setSummary(worst ? `At step ${number(answer.step)}, ${slow ? `${number(slow)} of ${number(order.length)} ranks ${slow === 1 ? 'is' : 'are'} above 1.2 times the median of ${slow === 1 ? 'its' : 'their'} stage. Largest: ${worst.words}.` : order.length === 1 ? 'one rank has a number.' : `${order.length === cells.length ? 'all' : 'the'} ${number(order.length)} ranks are within 1.2 times the median of their stage.`}${order.length < cells.length ? ` Of ${number(cells.length - order.length)} others no number is recorded (crossed out).` : ''} ${shown.caption}` : 'No rank has a number at this step.');
    put(this.legend, legendOf([0.9, 1, 1.25, 1.5, kSlowest].map((ratio, index) => [rampColour((ratio - 0.9) / (kSlowest - 0.9)).fill,
      index === 0 ? '≤ 0.9' : index === 4 ? '≥ 2 times the median' : number(ratio)])));
    this.picture.figure.setTable(['rank', 'place', column, 'median of its stage', 'ratio'], () =>
      order.map(({ rank }) => [number(rank), shown.words(rank), quantity(answer.values[rank], unit), quantity(answer.median_by_stage[rank], unit), number(ratios[rank], 3)]));
  }
}

const unitOfColumn = (column) => (/seconds/.test(column) ? 's' : /bytes/.test(column) ? 'bytes' : '');

// Fills a select with names, keeping what was chosen.
function chooseFrom(select, names, preferred, textOf = (name) => name) {
  const key = names.join('\n');
  if (select.names === key) return;
  select.names = key;
  const before = select.value;
  put(select, names.map((name) => element('option', { value: name }, textOf(name))));
  // A name whose characters are shown differently still has to be asked for as it is.
  names.forEach((name, index) => { select.options[index].value = name; });
  select.value = names.includes(before) ? before : names.includes(preferred) ? preferred : names[0] ?? '';
}

const kMatrixRanks = 48;
class WaitsView {
  constructor(body, page) {
    this.page = page;
    this.picture = new GridPicture(body, 'Seconds waited, waiter by awaited rank', (cell) => page.setRank(cell.awaited));
    this.axis = element('select', { 'aria-label': 'axis' });
    put(this.picture.figure.controls, element('label', {}, 'Axis ', this.axis));
    this.axis.addEventListener('change', () => this.draw());
    this.bars = element('div');
    body.append(this.bars);
  }

  async refresh() {
    const [from, to] = this.page.shownSteps();
    const answer = await this.page.latest(this, '/api/waits', { from, to });
    if (!answer) return;
    this.answer = answer;
    chooseFrom(this.axis, ['', ...answer.axes], '', (name) => name || 'all');
    this.draw();
  }

  draw() {
    const entries = this.answer.entries.filter(({ axis }) => !this.axis.value || axis === this.axis.value);
    const sum = (key) => {
      const sums = new Map();
      for (const entry of entries) sums.set(entry[key], (sums.get(entry[key]) ?? 0) + entry.seconds);
      return [...sums].sort((a, b) => b[1] - a[1]);
    };
    const [awaited, waiters] = [sum('awaited'), sum('waiter')];
    const total = awaited.reduce((all, [, value]) => all + value, 0);
    // By number, or, of many, those with the longest waits first.
    const ranks = (list) => (list.length > kMatrixRanks ? list.slice(0, kMatrixRanks).map(([rank]) => rank) : list.map(([rank]) => rank).sort((a, b) => a - b));
    const [across, down] = [ranks(awaited), ranks(waiters)];
    const [column, row] = [across, down].map((list) => new Map(list.map((rank, index) => [rank, index])));
    const pairs = new Map();
    for (const { waiter, awaited: other, seconds: value, axis } of entries) {
      if (!column.has(other) || !row.has(waiter)) continue;
      const key = `${waiter} ${other}`;
      const cell = pairs.get(key) ?? { waiter, awaited: other, row: row.get(waiter), column: column.get(other), seconds: 0, axes: [] };
      cell.seconds += value;
      cell.axes.push(`${axis} ${seconds(value)}`);
      pairs.set(key, cell);
    }
    const most = Math.max(...[...pairs.values()].map((cell) => cell.seconds), 0);
    const cells = [...pairs.values()].sort((a, b) => a.row - b.row || a.column - b.column).map((cell) => ({ ...cell,
      share: cell.seconds / most, text: cell.seconds >= 0.01 ? number(cell.seconds, 2) : '',
      words: `Rank ${cell.waiter} waited ${seconds(cell.seconds)} for rank ${cell.awaited} (${cell.axes.join(', ')})` }));
    this.picture.set({ columns: across.length, rows: down.length, cells, rowLabels: down.map((rank) => `rank ${rank} waits`), columnLabels: across.map((rank) => `for ${rank}`) },
      cells.findIndex(({ seconds: value }) => value === most));
    const top = awaited[0];
    const isCut = awaited.length > kMatrixRanks || waiters.length > kMatrixRanks;
    this.picture.figure.setSummary(top ? `Ranks waited ${seconds(total)} for each other, ${percent(top[1] / total)} of it for rank ${top[0]}. Rows wait for columns; a stronger colour is a longer wait.${isCut ? ` The ${kMatrixRanks} ranks with the longest waits are drawn.` : ''}` : 'No waits are recorded in these steps.');
    put(this.bars, top && barsOf('Seconds that others waited for a rank', awaited.slice(0, 8).map(([rank, value], index) =>
      ({ label: `rank ${rank}`, value, text: `${seconds(value)} (${percent(value / total)})`, fill: colour(index ? 'kind-0' : 'bad') }))));
    this.picture.figure.setTable(['waiter', 'awaited', 'axis', 'seconds'], () => entries.map((entry) =>
      [number(entry.waiter), number(entry.awaited), entry.axis, seconds(entry.seconds)]));
  }
}

// Bars with their numbers as text; entries: {label, value, text, fill}.
function barsOf(label, entries) {
  const most = Math.max(...entries.map(({ value }) => (Number.isFinite(value) ? value : 0)), 1e-30);
  return element('ul', { class: 'bars', 'aria-label': label }, entries.map(({ label: name, value, text, fill }) => {
    const bar = element('span', { class: 'bar', 'aria-hidden': 'true' });
    bar.style.width = `${Math.max(0.5, 100 * (Number.isFinite(value) ? value : 0) / most)}%`;
    bar.style.backgroundColor = fill ?? colour('kind-0');
    return element('li', {}, element('span', { class: 'bar-name' }, name),
      element('span', { class: 'bar-room', 'aria-hidden': 'true' }, bar), element('span', { class: 'bar-text' }, text));
  }));
}

// A column for each rank, its parts stacked; arrow keys walk over the ranks.
class StackedColumns {
  constructor(host, label) {
    this.figure = new Figure(host, label);
    this.canvas = new Canvas(this.figure.picture, (context, width, height) => this.draw(context, width, height));
    this.parts = [];
    this.count = 0;
    this.chosen = null;
    this.figure.makeSlider(label, (key, isFast) => {
      const stride = isFast ? 10 : 1;
      const moves = { ArrowLeft: this.chosen - stride, ArrowDown: this.chosen - stride, ArrowRight: this.chosen + stride, ArrowUp: this.chosen + stride, Home: 0, End: this.count - 1 };
      if (!(key in moves)) return false;
      this.choose(moves[key]);
      return true;
    });
    this.canvas.canvas.addEventListener('pointermove', (event) => {
      const box = this.canvas.canvas.getBoundingClientRect();
      this.choose(Math.floor((event.clientX - box.left - this.left) / this.step));
    });
  }

  // parts: {name, values by rank}
  set(parts) {
    this.parts = parts;
    this.count = Math.max(0, ...parts.map(({ values }) => values.length));
    this.sums = Array.from({ length: this.count }, (_, rank) =>
      parts.reduce((all, { values }) => all + (Number.isFinite(values[rank]) ? values[rank] : 0), 0));
    this.canvas.redraw();
    this.choose(this.chosen ?? this.sums.indexOf(Math.max(...this.sums)));
    put(this.figure.legend, legendOf(parts.map(({ name }, index) => [kindColour(index), name])));
  }

  choose(rank) {
    this.chosen = Math.min(Math.max(rank, 0), Math.max(this.count - 1, 0));
    if (!this.count) return;
    this.canvas.redraw();
    const parts = this.parts.map(({ name, values }) => `${name} ${bytes(values[this.chosen])}`).join(' · ');
    this.figure.setSlider(this.chosen, 0, this.count - 1, `Rank ${this.chosen}: ${bytes(this.sums[this.chosen])}: ${parts}`);
  }

  draw(context, width) {
    const height = this.count ? 190 : 24;
    if (!context || !this.count) return height;
    this.left = 76;
    this.step = Math.min((width - this.left - 4) / this.count, 60);
    const most = Math.max(...this.sums, 1);
    const base = height - 20;
    context.fillStyle = colour('quiet');
    context.textAlign = 'right';
    context.textBaseline = 'middle';
    for (const share of [0, 0.5, 1]) context.fillText(bytes(most * share), this.left - 6, base - (base - 10) * share);
    context.textAlign = 'center';
    const every = Math.ceil(36 / this.step);
    for (let rank = 0; rank < this.count; ++rank) {
      let y = base;
      const x = this.left + rank * this.step;
      const wide = this.step > 4 ? this.step - 1 : this.step + 0.3;
      this.parts.forEach(({ values }, index) => {
        const high = (base - 10) * (Number.isFinite(values[rank]) ? values[rank] : 0) / most;
        context.fillStyle = kindColour(index);
        context.fillRect(x, y - high, wide, high);
        y -= high;
      });
      context.fillStyle = colour('quiet');
      if (rank % every === 0) context.fillText(String(rank), x + wide / 2, height - 8);
    }
    context.strokeStyle = colour('focus');
    context.lineWidth = 2;
    const high = (base - 10) * (this.sums[this.chosen] ?? 0) / most;
    context.strokeRect(this.left + this.chosen * this.step - 0.5, base - high - 1, Math.max(this.step, 3), high + 2);
    return height;
  }
}

class MemoryView {
  constructor(body, page) {
    this.page = page;
    this.picture = new StackedColumns(body, 'Memory by kind on each rank');
    this.peak = element('div');
    body.append(this.peak);
  }

  async refresh() {
    const { about, mapStep } = this.page;
    const columns = about.rank_columns.filter((name) => name.startsWith('memory_bytes/')).slice(0, 32);
    const answers = await this.page.latestOf(this, columns.map((column) =>
      ['/api/ranks', { column, step: mapStep ?? about.last_step }]).concat([['/api/memory', {}]]));
    if (!answers) return;
    const peak = answers.pop();
    const parts = columns.map((column, index) => ({ name: column.slice(13), values: answers[index].values }))
      .filter(({ values }) => values.some((value) => value > 0));
    this.picture.set(parts);
    const { sums } = this.picture;
    const full = sums.indexOf(Math.max(...sums));
    const largest = parts.map(({ name, values }) => [name, values[full]]).sort((a, b) => b[1] - a[1])[0];
    this.picture.figure.setSummary(parts.length ? `At step ${number(answers[0].step)}, rank ${full} holds the most: ${bytes(sums[full])}, of which ${largest[0]} ${bytes(largest[1])}. The median is ${bytes(medianOf(sums))}.` : 'No memory by kind is recorded.');
    this.picture.figure.setTable(['rank', 'all', ...parts.map(({ name }) => name)], () => sums.map((sum, rank) =>
      [number(rank), bytes(sum), ...parts.map(({ values }) => bytes(values[rank]))]));
    const rows = peak.largest ?? [];
    put(this.peak, rows.length > 0 && [element('h3', {}, 'Largest tensors at the peak'),
      element('p', { class: 'quiet' }, `Rank ${number(peak.rank)} at step ${number(peak.step)}: ${bytes(peak.total_bytes)}${peak.failed_bytes > 0 ? `; ${bytes(peak.failed_bytes)} more could not be allocated` : ''}`),
      tableOf(['bytes', 'kind', 'operator', 'unit'], rows.map((row) => [bytes(row.bytes), row.kind, row.operator || '–', row.unit || '–']))]);
  }
}
