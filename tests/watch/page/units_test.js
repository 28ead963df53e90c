// The page's functions that need no browser: node units_test.js.
'use strict';

const assert = require('assert');
const { readFileSync } = require('fs');
const vm = require('vm');

// The scripts in one scope, as the page loads them, with the little of a browser that they touch when they load.
const page = `${__dirname}/../../../trireme/watch/page/`;
const code = ['charts', 'map', 'views', 'replay', 'runs', 'app'].map((name) => readFileSync(`${page}${name}.js`, 'utf8')).join('\n');
const names = ['plain', 'number', 'seconds', 'bytes', 'clock', 'short', 'medianOf', 'meshLayout', 'readTrace', 'readEmbedded', 'askEmbedded', 'wordsOf', 'keyOf', 'zoneOf', 'wordsOfName'];
const load = (block) => vm.runInNewContext(`${code}\n({${names.join(',')}})`, {
  document: { readyState: 'loading', addEventListener() {}, getElementById: () => block }, URLSearchParams, URL });
const scope = load(null);
const same = (found, wanted) => assert.deepStrictEqual(JSON.parse(JSON.stringify(found)), wanted);

// Text of a run: control characters are visible, and nothing turns the line around.
assert.strictEqual(scope.plain('a\u001b[31m\u0000\u202eb'), 'a\u241b[31m\u2400\ufffdb');
assert.strictEqual(scope.plain('x'.repeat(200000)).length, 100001);

// Numbers.
assert.strictEqual(scope.number(NaN), '–');
assert.strictEqual(scope.number(null), '–');
assert.strictEqual(scope.number(1234567), '1,234,567');
assert.strictEqual(scope.number(0.00001234), '1.23e-5');
assert.strictEqual(scope.seconds(0.0123), '12.3\u00a0ms');
assert.strictEqual(scope.seconds(151), '2\u00a0min\u00a031\u00a0s');
assert.strictEqual(scope.seconds(7300), '2\u00a0h\u00a02\u00a0min');
assert.strictEqual(scope.bytes(3 * 2 ** 30), '3\u00a0GiB');
assert.strictEqual(scope.short(4e7, ''), '40 M');
assert.strictEqual(scope.clock(NaN), '–');
assert.strictEqual(scope.clock(1e300), '–');
assert.ok(Number.isNaN(scope.medianOf([null, NaN])));
assert.match(scope.zoneOf(1764480000), /^UTC([+-]\d\d:\d\d)?$/);
assert.deepStrictEqual(['memory_weights_bytes', 'step_seconds', 'tokens_per_second'].map(scope.wordsOfName), ['memory: weights', 'time per step', 'tokens per second']);

// Every rank has a place of its own on the mesh, whatever the axes are.
for (const sizes of [[2, 2], [8, 16, 8], [1, 1], [3], [5, 1, 7], [300], [2, 2, 2, 2, 2]]) {
  const count = sizes.reduce((a, b) => a * b, 1);
  const axes = sizes.map((size, index) => ({ name: `axis${index}`, size }));
  const coordinates = Array.from({ length: count }, (_, rank) => {
    let rest = rank;
    return sizes.map((_, index) => {
      const below = sizes.slice(index + 1).reduce((a, b) => a * b, 1);
      const place = Math.floor(rest / below);
      rest %= below;
      return place;
    });
  });
  const { placeOf, columns, rows } = scope.meshLayout(axes, coordinates, count);
  const places = Array.from({ length: count }, (_, rank) => placeOf(rank));
  assert.strictEqual(new Set(places.map(({ row, column }) => `${row} ${column}`)).size, count);
  assert.ok(places.every(({ row, column }) => row < rows && column < columns));
}
// Axes that do not fit the ranks are not believed.
assert.strictEqual(scope.meshLayout([{ name: 'data', size: 2 }], [[0]], 3).numRanks, 3);
assert.strictEqual(scope.meshLayout([{ name: 'data', size: 1e9 }], [], 2).numRanks, 2);

// Servers and teachers stand below the mesh, each in lines of their own.
for (const known of [4, 9]) {
  const shown = scope.meshLayout([{ name: 'data', size: 2 }, { name: 'tensor', size: 2 }], [[0, 0], [0, 1], [1, 0], [1, 1], [], [], [], [], []], known,
    [{ name: 'servers', first: 4, count: 5 }]);
  assert.strictEqual(shown.numRanks, 9);
  const places = Array.from({ length: 9 }, (_, rank) => shown.placeOf(rank));
  assert.strictEqual(new Set(places.map(({ row, column }) => row * shown.columns + column)).size, 9);
  assert.ok(places.slice(4).every(({ row }) => row > Math.max(...places.slice(0, 4).map((place) => place.row)) && row < shown.rows));
  assert.strictEqual(shown.rowLabels[places[4].row], 'servers');
  assert.strictEqual(shown.words(5), 'servers 1');
  assert.ok(shown.rowGap(places[4].row) > shown.rowGap(places[0].row));
}
for (const [known, placeless] of [[2, 3], [7, 6]]) {
  const shown = scope.meshLayout([{ name: 'data', size: 4 }], [[0], [1], [2], [3]], known, [{ name: 'servers', first: 4, count: 2 }]);
  assert.strictEqual(shown.placeOf(placeless), undefined);
  assert.ok(shown.placeOf(5).row > shown.placeOf(1).row);
}

// Nested spans of a trace lie below each other; what is no span is left out.
const span = (ts, dur, name) => ({ ph: 'X', pid: 1, tid: 2, ts, dur, name });
const { lanes, spans, dropped } = scope.readTrace({ traceEvents: [span(0, 10, 'outer'), span(2, 3, 'inner'), span(12, 1, 'next'),
  { ph: 'M', pid: 1, name: 'process_name', args: { name: 'rank 0' } }, null, 7, { ph: 'X' }, span('a', 1, 'bad')] });
same(lanes, ['rank 0 2', '']);
same(spans.map(({ name, lane }) => [name, lane]), [['outer', 0], ['inner', 1], ['next', 0]]);
assert.strictEqual(dropped, 0);
same(scope.readTrace({ other: 1 }), { lanes: [], spans: [], dropped: 0 });

// Data in the file: keys in any order and encoding, several names, the nearest of drawn steps, a sentence for what is not there.
const block = { textContent: JSON.stringify({
  '/api/runs': { runs: [] }, '/api/series?name=ranks%2Fown_seconds&run=0': { series: [{ name: 'a' }] }, '/api/series?run=0&name=loss': { series: [{ name: 'b' }] },
  '/api/ranks?run=0&column=own_seconds': [{ step: 1 }, { step: 50 }, { step: 99 }], '/api/experts?run=0': { step: 7 } }) };
const answers = load(block).readEmbedded();
same(scope.askEmbedded(answers, '/api/runs', {}), { runs: [] });
same(scope.askEmbedded(answers, '/api/series', { run: 0, name: ['loss', 'ranks/own_seconds'], from: 3, points: 9 }), { series: [{ name: 'b' }, { name: 'a' }] });
same(scope.askEmbedded(answers, '/api/ranks', { run: 0, column: 'own_seconds', step: 60 }), { step: 50 });
same(scope.askEmbedded(answers, '/api/ranks', { run: 0, column: 'own_seconds' }), { step: 99 });
same(scope.askEmbedded(answers, '/api/experts', { run: 0, step: 3 }), { step: 7 });
assert.throws(() => scope.askEmbedded(answers, '/api/calls', { run: 0 }), /does not contain/);

// A series in words.
const words = scope.wordsOf({ steps: [1, 2, 3], mean: [4, null, 2], min: [4, null, 1], max: [5, null, 2], unit: '', label: 'loss' });
assert.strictEqual(words, 'loss fell from 4 at step 1 to 2 at step 3; minimum 1 near step 3, maximum 5 near step 1.');
assert.match(scope.wordsOf({ steps: [1], mean: [null], min: [null], max: [null], label: 'x' }), /No value of x/);
