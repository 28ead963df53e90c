// The tree of modules from the comparison in this file: each node has the largest difference within it.
'use strict';

const kRank = { same: 0, rounding: 1, undecided: 2, bug: 3 };
const kFp64Roundoff = 2 ** -53;
const kFp32Roundoff = 2 ** -24;
const kManyRoundoffs = 1000;
const kMostOpened = 400;  // nodes that are open at first

const comparison = JSON.parse(document.getElementById('trireme-data').textContent).comparison;

function make(tag, text, attributes = {}) {
  const element = document.createElement(tag);
  if (text !== undefined) element.textContent = text;
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

function short(value) {
  if (value === null) return 'not finite';
  if (value === undefined) return '';
  return value === 0 ? '0' : value.toExponential(1);
}

// What a probe differs by, in roundoffs of the precision that it is judged in.
function roundoffsOf(probe) {
  if (probe.finding === 'same') return 0;
  const relative = comparison.proved ? probe.fp64_relative : probe.relative;
  if (relative === null || relative === undefined) return relative === null ? Infinity : 0;
  return relative / (comparison.proved ? kFp64Roundoff : kFp32Roundoff);
}

function levelOf(finding, roundoffs) {
  if (finding === 'rounding') return roundoffs < kManyRoundoffs ? 'low' : 'high';
  return finding;
}

function wordsOf(finding, roundoffs) {
  if (finding === 'same') return 'same bits';
  const size = Number.isFinite(roundoffs) ? `${roundoffs < 10 ? roundoffs.toFixed(1) : roundoffs.toExponential(1)} roundoffs` : 'not finite';
  return `${finding === 'bug' ? 'BUG' : finding}, ${size}`;
}

function badge(finding, roundoffs) {
  return make('span', wordsOf(finding, roundoffs), { class: 'badge', 'data-level': levelOf(finding, roundoffs) });
}

// The module's path and the probe's own name: a state is named after its parameter, a gradient after its activation.
function pathOf(probe) {
  let name = probe.name.replace(/@(gradient|choices)$/, '');
  if (probe.kind === 'optimizer state') name = name.replace(/^optimizer\.[^.]+\./, '');
  const path = name === '' ? [probe.kind] : name.split('.');
  return probe.learner === undefined ? path : [`learner ${probe.learner}`, ...path];
}

function allProbes() {
  const same = comparison.same.map((probe) => ({ ...probe, finding: 'same' }));
  return [...comparison.probes, ...same];
}

function wanted() {
  const text = document.getElementById('filter').value.trim().toLowerCase();
  const step = document.getElementById('step').value;
  const onlyDiffering = document.getElementById('differing').checked;
  return (probe) => (step === '' || String(probe.step) === step) && !(onlyDiffering && probe.finding === 'same') &&
    (text === '' || `${probe.name} ${probe.kind}`.toLowerCase().includes(text));
}

function treeOf(probes) {
  const root = { children: new Map(), probes: [], finding: 'same', roundoffs: 0, size: 0 };
  for (const probe of probes) {
    const roundoffs = roundoffsOf(probe);
    let node = root;
    for (const part of ['', ...pathOf(probe)]) {
      if (part !== '') {
        if (!node.children.has(part)) node.children.set(part, { children: new Map(), probes: [], finding: 'same', roundoffs: 0, size: 0 });
        node = node.children.get(part);
      }
      if (kRank[probe.finding] > kRank[node.finding] || (probe.finding === node.finding && roundoffs > node.roundoffs)) {
        node.roundoffs = roundoffs;
        node.finding = probe.finding;
      }
      node.size += 1;
    }
    node.probes.push(probe);
  }
  return root;
}

function tableOf(probes) {
  const titles = comparison.proved ? ['step', 'what', 'finding', 'fp32', 'fp64', 'first difference'] : ['step', 'what', 'finding', 'relative', 'by roundoffs', 'first difference'];
  const table = make('table');
  const head = table.createTHead().insertRow();
  for (const title of titles) head.append(make('th', title, { scope: 'col' }));
  const body = table.createTBody();
  for (const probe of probes) {
    const row = body.insertRow();
    const [low, high] = comparison.proved ? [probe.fp32_relative, probe.fp64_relative] : [probe.relative, probe.bound_relative];
    const first = probe.first ? `[${probe.first.index.join(', ')}]: ${probe.first.a} in A, ${probe.first.b} in B` : '';
    row.append(make('td', probe.step), make('td', probe.kind));
    const cell = make('td');
    cell.append(badge(probe.finding, roundoffsOf(probe)));
    row.append(cell, make('td', short(low), { class: 'number' }), make('td', short(high), { class: 'number' }),
      make('td', [first, probe.note ?? ''].filter((text) => text !== '').join('; ')));
  }
  const scroll = make('div', undefined, { class: 'scroll' });
  scroll.append(table);
  return scroll;
}

// Fills a node when it is opened: a model has many.
function elementOf(name, node, isOpen) {
  const details = make('details');
  details.dataset.finding = node.finding;
  details.dataset.own = node.probes.reduce((worst, { finding }) => (kRank[finding] > kRank[worst] ? finding : worst), 'same');
  const summary = make('summary', name);
  summary.append(badge(node.finding, node.roundoffs));
  details.append(summary);
  const fill = () => {
    if (details.children.length > 1) return;
    const inside = make('div');
    for (const [part, child] of node.children) inside.append(elementOf(part, child, isOpen));
    if (node.probes.length > 0) inside.append(tableOf(node.probes));
    details.append(inside);
  };
  details.addEventListener('toggle', () => { if (details.open) fill(); });
  details.fill = fill;
  if (isOpen(node)) {
    fill();
    details.open = true;
  }
  return details;
}

function draw() {
  const root = treeOf(allProbes().filter(wanted()));
  const worst = root.finding;
  let opened = 0;
  const isOpen = (node) => node.finding === worst && kRank[worst] >= kRank.undecided && (opened += 1) < kMostOpened;
  const tree = document.getElementById('tree');
  tree.replaceChildren();
  for (const [name, node] of root.children) tree.append(elementOf(name, node, isOpen));
  if (root.size === 0) tree.append(make('p', 'Nothing that was compared fits this filter.'));
}

function openAll(isOpen) {
  const open = (details) => {
    if (isOpen) details.fill();
    details.open = isOpen;
    for (const child of details.querySelectorAll('details')) if (child.open !== isOpen) open(child);
  };
  for (const details of document.querySelectorAll('#tree > details')) open(details);
}

// Nodes that have a finding of their own, in the order of the page.
function goTo(direction) {
  const fillFindings = (details) => {
    if (kRank[details.dataset.finding] < kRank.undecided) return;
    details.fill();
    for (const child of details.querySelectorAll('details')) fillFindings(child);
  };
  for (const details of document.querySelectorAll('#tree > details')) fillFindings(details);
  const found = [...document.querySelectorAll('#tree details')].filter((details) => kRank[details.dataset.own] >= kRank.undecided);
  if (found.length === 0) return;
  const at = found.findIndex((details) => details.querySelector('summary') === document.activeElement);
  const next = found[at < 0 ? (direction > 0 ? 0 : found.length - 1) : (at + direction + found.length) % found.length];
  for (let parent = next; parent; parent = parent.parentElement.closest('details')) parent.open = true;
  next.querySelector('summary').focus();
}

function describe() {
  const { finding, first, proved } = comparison;
  const words = { same: 'SAME', rounding: 'ROUNDING', undecided: 'UNDECIDED', bug: 'BUG' };
  document.getElementById('verdict').append(make('span', words[finding] + (proved ? '' : ', not proved'), { class: 'badge', 'data-level': levelOf(finding, 0) }));
  const place = first ? `First at step ${first.step}, ${first.learner === undefined ? '' : `learner ${first.learner}, `}${first.kind}${first.name === '' ? '' : ` of ${first.name}`}. ` : '';
  const reasons = {
    same: 'Every bit of A and B is the same.',
    rounding: proved ? 'The differences shrink with the precision.' : 'The differences are as those of roundoffs.',
    undecided: `${place}It shrinks with the precision, but not as rounding does.`,
    bug: `${place}It stays in fp64, where rounding would not.` };
  if (!proved) reasons.undecided = `${place}It is larger than what roundoffs make.`;
  if (!proved) reasons.bug = `${place}It is much larger than what roundoffs make, which proves nothing.`;
  document.getElementById('reason').textContent = `${reasons[finding]} ${comparison.compared} probes of ${comparison.steps} steps were compared.`;
  const sides = document.getElementById('sides');
  for (const side of ['a', 'b']) sides.append(make('dt', side.toUpperCase()), make('dd', comparison[side]));
  const notes = [];
  if (comparison.left_out.length > 0) notes.push(`Not compared, because no ranks have them whole: ${comparison.left_out.join(', ')}.`);
  if (comparison.left_out_of_page > 0) notes.push(`${comparison.left_out_of_page} probes without a finding are not in this page; --json has all.`);
  document.getElementById('notes').textContent = notes.join(' ');
  const legend = document.getElementById('legend');
  for (const [level, text] of [['same', 'same bits'], ['low', `rounding, below ${kManyRoundoffs} roundoffs`], ['high', 'rounding, more'], ['undecided', 'undecided'], ['bug', 'BUG']]) {
    const item = make('li');
    item.append(make('span', text, { class: 'badge', 'data-level': level }));
    legend.append(item);
  }
  const steps = document.getElementById('step');
  steps.append(make('option', 'all', { value: '' }));
  // Of a run that goes on from a checkpoint, the first is not 1.
  const compared = [...new Set(allProbes().map((probe) => probe.step))].sort((a, b) => a - b);
  for (const step of compared) steps.append(make('option', step, { value: step }));
}

function nextTheme() {
  const themes = ['auto', 'light', 'dark'];
  const now = document.documentElement.dataset.theme ?? 'auto';
  const next = themes[(themes.indexOf(now) + 1) % themes.length];
  document.documentElement.dataset.theme = next;
  document.getElementById('theme').textContent = `theme: ${next}`;
}

const kKeys = { n: () => goTo(1), p: () => goTo(-1), e: () => openAll(true), c: () => openAll(false), t: nextTheme, '/': () => document.getElementById('filter').focus() };
document.addEventListener('keydown', (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || ['INPUT', 'SELECT'].includes(event.target.tagName)) return;
  const act = kKeys[event.key];
  if (!act) return;
  event.preventDefault();
  act();
});
document.getElementById('theme').addEventListener('click', nextTheme);
for (const id of ['filter', 'step', 'differing']) document.getElementById(id).addEventListener('input', draw);
describe();
draw();
