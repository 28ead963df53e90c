// The views about several runs: their list, and one metric of some of them with what differs in their configs.
'use strict';

class RunsView {
  constructor(body, page) {
    Object.assign(this, { body, page });
  }

  async refresh() {
    const { page } = this;
    const rows = page.runs.slice(0, 500).map((row) => {
      const open = element('button', { type: 'button', class: 'link' }, row.name);
      open.addEventListener('click', () => page.openRun(row.run));
      const box = element('input', { type: 'checkbox', 'aria-label': `compare ${row.name}` });
      box.checked = page.compared.has(row.run);
      box.addEventListener('change', () => page.compare(row.run, box.checked));
      return [row.run === page.run ? [open, ' (shown)'] : open, box, stateOf(row.state), placeOf(row.step, row.steps),
        number(row.loss), `${number(row.units_per_second)} ${row.unit ?? ''}`, seconds(row.seconds), row.folder];
    });
    put(this.body, tableOf(['run', 'compare', 'state', 'step', 'loss', 'per second', 'duration', 'folder'], rows));
  }
}

class CompareView {
  constructor(body, page) {
    this.page = page;
    this.chart = new LineChart(body, 'Runs compared', { cursor() {}, zoom: (from, to) => this.zoom(from, to) });
    this.select = element('select', { 'aria-label': 'metric compared' });
    put(this.chart.figure.controls, element('label', {}, 'Metric ', this.select));
    this.select.addEventListener('change', () => this.refresh());
    this.differences = element('div');
    this.range = null;
    body.append(this.differences);
  }

  zoom(from, to) {
    this.range = from === null ? null : [from, Math.max(to, from + 2)];
    this.refresh();
  }

  async refresh() {
    const { page } = this;
    const runs = [...page.compared].filter((run) => page.runs.some((row) => row.run === run)).slice(0, 8);
    const names = page.about.scalars.map(({ name }) => name);
    chooseFrom(this.select, names.length ? names.slice(0, kMostNames) : ['loss'], 'loss');
    const name = this.select.value;
    const nameOf = (run) => {
      const row = page.runs.find((each) => each.run === run);
      return page.runs.filter((each) => each.name === row.name).length > 1 ? row.folder : row.name;
    };
    const span = this.range ? { from: this.range[0], to: this.range[1] } : {};
    const serial = (this.serial = (this.serial ?? 0) + 1);
    const answers = await Promise.all(runs.map((run) => page.ask('/api/series', { run, name, points: 800, ...span }).catch(() => ({ series: [] }))));
    const compared = runs.length > 1 ? await page.ask('/api/compare', { runs: runs.join(',') }).catch(() => ({})) : {};
    if (serial !== this.serial) return;
    const list = answers.flatMap(({ series }, index) => series.slice(0, 1).map((each) => ({ ...each, label: nameOf(runs[index]) })));
    // The answer may be about more runs than are chosen.
    const columns = runs.map((run) => (compared.runs ?? runs).indexOf(run));
    const differences = (compared.differences ?? []).map(({ key, values }) => ({ key, values: columns.map((column) => values[column] ?? null) }))
      .filter(({ values }) => new Set(values.map(String)).size > 1);
    this.chart.set(list, this.range);
    const lasts = list.filter(({ steps }) => steps.length).map(({ label, mean, steps, unit }) => `${label} ${quantity(mean[mean.length - 1], unit)} at step ${number(steps[steps.length - 1])}`);
    this.chart.figure.setSummary(runs.length > 1 ? `Last ${name}: ${lasts.join('; ')}. ${differences.length ? `Their configs differ in ${number(differences.length)} keys.` : 'No difference of their configs is known.'}` : 'Choose two or more runs in the list of runs.');
    put(this.differences, differences.length > 0 && [element('h3', {}, 'Differences of the configs'),
      tableOf(['key', ...runs.map(nameOf)], differences.map(({ key, values }) => [key, ...values.map((value) => value ?? '–')]))]);
  }
}
