// Opens the page in Chromium and prints what it saw, a JSON object per line. page_test.py starts it and judges.
// browse.js MODULES CHROMIUM ACTION ADDRESS [FILE]
'use strict';

const [modules, chromium, action, address, file] = process.argv.slice(2);
const { readFileSync } = require('fs');
const { pathToFileURL } = require('url');
const playwright = require(`${modules}/playwright-core`);
const axe = readFileSync(`${modules}/axe-core/axe.min.js`, 'utf8');
const kShots = [
  ['healthy', 0, 1280, 'light'], ['straggler', 1, 1280, 'light'], ['crash', 2, 1280, 'dark'], ['experts', 3, 1280, 'light'],
  ['thousand', 4, 1600, 'dark'], ['hostile', 5, 1280, 'light'], ['narrow', 1, 400, 'light'], ['long', 6, 1600, 'light'],
  ['empty', 7, 1280, 'dark'],
];

// A page whose errors, messages of the console and foreign requests are kept.
async function open(browser, width, colorScheme, url) {
  const context = await browser.newContext({ viewport: { width, height: 900 }, colorScheme });
  const page = await context.newPage();
  page.problems = [];
  page.on('console', (message) => message.type() === 'error' && page.problems.push(`console: ${message.text()}`));
  page.on('pageerror', (error) => page.problems.push(`error: ${error.message}`));
  page.on('dialog', (dialog) => page.problems.push(`dialog: ${dialog.message()}`) && dialog.dismiss());
  page.on('request', (request) => {
    const from = request.url();
    if (!from.startsWith(address) && !from.startsWith('data:') && from !== url) page.problems.push(`request: ${from}`);
  });
  await page.goto(url);
  await page.waitForSelector('#well .facts');
  return page;
}

// Makes the window as high as the page, so that every section is drawn, and waits until nothing is asked any more.
async function unfold(page, width) {
  for (const height of [9000, 0]) {
    const bottom = await page.evaluate(() => Math.ceil(document.querySelector('footer').getBoundingClientRect().bottom + scrollY));
    await page.setViewportSize({ width, height: height || Math.min(bottom, 9000) });
    await page.waitForFunction(() => [...document.querySelectorAll('section:not([hidden])')].every((each) => each.children[2].childElementCount || each.children[2].textContent));
    await page.waitForLoadState('networkidle');
  }
}

const textsOf = (page) => page.$$eval('section:not([hidden])', (all) => Object.fromEntries(all.map((each) =>
  [each.id, [...each.querySelectorAll('.summary, .lead, .caption, .readout')].map((part) => part.textContent).join('\n')])));

async function survey(browser, url, name, width, scheme) {
  const page = await open(browser, width, scheme, url);
  await unfold(page, width);
  const { violations, passes } = await page.evaluate(`${axe}; axe.run()`);
  const seen = {
    name, problems: page.problems, passes: passes.length, texts: await textsOf(page),
    violations: violations.map(({ id, nodes }) => `${id}: ${nodes[0].html.slice(0, 200)}`),
    refused: await page.$$eval('section > .why:not([hidden])', (all) => all.map((each) => each.textContent)),
    overflow: await page.evaluate(() => document.documentElement.scrollWidth - innerWidth),
    elements: await page.evaluate(() => document.querySelectorAll('img, iframe, section script, header script').length),
    top: await page.$eval('#well', (well) => well.innerText.slice(0, 800)), title: await page.title(), connection: await page.textContent('#connection'),
    order: await page.$$eval('main section:not([hidden])', (all) => all.map((each) => each.id)),
    untabled: await page.$$eval('section:not([hidden]) figure', (all) => all.filter((each) => !each.querySelector('details')).length),
  };
  await page.context().close();
  return seen;
}

async function surveyAll(browser) {
  for (const [name, run, width, scheme] of kShots) {
    console.log(JSON.stringify(await survey(browser, `${address}/?run=${run}`, name, width, scheme)));
  }
}

async function keys(browser) {
  const page = await open(browser, 1280, 'light', `${address}/?run=6&token=secret`);
  const focused = () => page.evaluate(() => document.activeElement.id || document.activeElement.tagName);
  const seen = { address: page.url() };
  for (const key of ['j', 'j', 'k']) {
    await page.keyboard.press(key);
    seen[`${key}${Object.keys(seen).length}`] = await focused();
  }
  await page.keyboard.press('/');
  seen.slash = await focused();
  await page.keyboard.type('through');
  seen.filtered = await page.$$eval('main section:not([hidden])', (all) => all.map((each) => each.id));
  await page.fill('#filter', '');
  await page.keyboard.press('Escape');
  await page.keyboard.press('?');
  seen.help = await page.evaluate(() => document.getElementById('help').open);
  await page.click('#help-close');
  const slider = '#loss .picture[role=slider]';
  await page.waitForFunction(() => /maximum/.test(document.querySelector('#loss .summary').textContent));
  seen.spike = (await textsOf(page)).loss;
  await page.focus(slider);
  await page.keyboard.press('Home');
  seen.home = await page.getAttribute(slider, 'aria-valuenow');
  await page.keyboard.press('ArrowRight');
  seen.right = Number(await page.getAttribute(slider, 'aria-valuenow'));
  seen.valuetext = await page.getAttribute(slider, 'aria-valuetext');
  await page.keyboard.press('End');
  for (let index = 0; index < 5; ++index) await page.keyboard.press('Shift+ArrowLeft');
  const each = [];
  for (const key of ['+', '+', '-', '+', '+', '+', '-', '-', '+']) each.push(await zoomed(page, key));
  seen.zoomMilliseconds = each.sort((a, b) => a - b);
  seen.status = await page.textContent('#status');
  await page.waitForLoadState('networkidle');
  seen.zoomed = (await textsOf(page)).loss;
  await page.keyboard.press('Escape');
  seen.all = await page.textContent('#status');
  await page.keyboard.press('t');
  seen.theme = await page.evaluate(() => document.documentElement.dataset.theme);
  seen.problems = page.problems;
  console.log(JSON.stringify(seen));
}

// With the pointer: over the loss, a span of it, the slider of the map, a rank of it, another theme, another run.
async function point(browser) {
  const page = await open(browser, 1280, 'light', `${address}/?run=1`);
  await page.waitForSelector('#loss .u-over');
  const box = await (await page.$('#loss .u-over')).boundingBox();
  const at = (share) => [box.x + box.width * share, box.y + box.height / 2];
  await page.mouse.move(...at(0.5));
  await page.waitForFunction(() => /^Around step/.test(document.querySelector('#records .summary').textContent));
  const seen = { readout: await page.textContent('#loss .readout'), records: await page.textContent('#records .summary') };
  await page.mouse.move(...at(0.25));
  await page.mouse.down();
  await page.mouse.move(...at(0.5), { steps: 4 });
  await page.mouse.up();
  seen.status = await page.textContent('#status');
  await page.click('#all-steps');
  await page.evaluate(() => document.getElementById('mesh').scrollIntoView());
  await page.waitForSelector('#mesh input[type=range]');
  seen.late = (await textsOf(page)).mesh;
  await page.focus('#mesh input[type=range]');
  await page.keyboard.press('Home');
  await page.waitForFunction(() => /At step 1, /.test(document.querySelector('#mesh .summary').textContent));
  seen.early = (await textsOf(page)).mesh;
  const cell = await (await page.$('#mesh canvas')).boundingBox();
  await page.mouse.click(cell.x + 120, cell.y + 10);
  seen.rank = await page.textContent('#status');
  await page.waitForFunction(() => document.querySelector('#records input').value === '0');
  const pageColour = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  seen.colours = [await pageColour()];
  await page.click('#theme');
  await page.click('#theme');
  seen.colours.push(await pageColour());
  await page.evaluate(() => document.getElementById('runs').scrollIntoView());
  await page.click('#runs button >> text=experts');
  await page.waitForFunction(() => document.getElementById('name').textContent === 'experts');
  await page.waitForFunction(() => /all 800 steps are made/.test(document.querySelector('#well .lead')?.textContent ?? ''));
  console.log(JSON.stringify({ ...seen, address: page.url(), problems: page.problems }));
}

// Milliseconds from a key to the picture that follows it.
const zoomed = async (page, key) => {
  await page.evaluate(() => delete window.passed && addEventListener('keydown', () => {
    const begin = performance.now();
    requestAnimationFrame(() => requestAnimationFrame(() => { window.passed = performance.now() - begin; }));
  }, { capture: true, once: true }));
  await page.keyboard.press(key);
  await page.waitForFunction(() => window.passed !== undefined);
  return page.evaluate(() => window.passed);
};

// The map of 1,024 ranks: milliseconds from scrolling there to its cells, and what an arrow key says.
async function map(browser) {
  const page = await open(browser, 1600, 'dark', `${address}/?run=4`);
  const begin = Date.now();
  await page.evaluate(() => document.getElementById('mesh').scrollIntoView());
  await page.waitForFunction(() => /Rank/.test(document.querySelector('#mesh .readout')?.textContent ?? ''));
  const seen = { mapMilliseconds: Date.now() - begin };
  await page.focus('#mesh .picture');
  for (const key of ['Home', 'ArrowRight', 'ArrowDown']) await page.keyboard.press(key);
  seen.readout = await page.textContent('#mesh .readout');
  seen.drawMilliseconds = await zoomed(page, 'ArrowUp');
  seen.colours = await page.$eval('#mesh canvas', (canvas) => {
    const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
    const found = new Set();
    for (let at = 0; at < pixels.length; at += 4) found.add(pixels[at] << 16 | pixels[at + 1] << 8 | pixels[at + 2]);
    return found.size;
  });
  console.log(JSON.stringify(seen));
}

// Prints the connection's words while page_test.py ends and restarts the server, which it is told by lines on stdin.
async function stale(browser) {
  const page = await open(browser, 1280, 'light', `${address}/?run=0`);
  const words = (start) => page.waitForFunction((text) => document.getElementById('connection').textContent.startsWith(text), start, { timeout: 60000 });
  await words('live');
  console.log(JSON.stringify({ seen: 'live' }));
  await words('stale');
  console.log(JSON.stringify({ seen: await page.textContent('#connection'), loss: (await textsOf(page)).loss }));
  await words('live');
  console.log(JSON.stringify({ seen: 'live' }));
}

async function trace(browser) {
  const page = await open(browser, 1280, 'light', `${address}/?run=1`);
  await page.evaluate(() => document.getElementById('profile').scrollIntoView());
  await page.click('#profile button');
  await page.waitForSelector('#profile figure canvas');
  await page.click('#profile details summary');
  console.log(JSON.stringify({ summary: (await textsOf(page)).profile, rows: await page.$$eval('#profile tbody tr', (all) => all.map((row) => row.textContent)), problems: page.problems }));
}

async function oneFile(browser) {
  console.log(JSON.stringify(await survey(browser, String(pathToFileURL(file)), 'file', 1280, 'light')));
}

// Pictures for the guide: the top of the page, or from `from` on.
async function shots(browser) {
  const wanted = [['healthy', 0, 1200, 'light', null, 1000], ['straggler', 1, 1200, 'light', 'mesh', 1000], ['crash', 2, 1200, 'dark', null, 1000],
    ['experts', 3, 1200, 'light', 'experts', 720], ['compare', 0, 1200, 'light', 'compare', 720], ['narrow', 1, 400, 'dark', null, 1100]];
  for (const [name, run, width, scheme, from, height] of wanted) {
    const page = await open(browser, width, scheme, `${address}/?run=${run}`);
    await unfold(page, width);
    const top = from ? await page.$eval(`#${from}`, (each) => each.getBoundingClientRect().top + scrollY) : 0;
    await page.screenshot({ path: `${file}/watch-${name}.png`, clip: { x: 0, y: top, width: from ? width - 400 : width, height } });
    await page.context().close();
  }
}

(async () => {
  const browser = await playwright.chromium.launch({ executablePath: chromium, args: ['--no-sandbox'] });
  try {
    await { surveyAll, keys, point, map, stale, trace, oneFile, shots }[action](browser);
  } finally {
    await browser.close();
  }
})().catch((error) => {
  console.error(error);
  process.exitCode = 1;
});
