// The memory timeline in a real browser. Without PAGE the pages are made from the template and made-up timelines; PAGE
// names a page that sinter wrote, SVG a picture, and CHROMIUM a browser if none is found on PATH. With SCREENSHOTS a
// folder, pictures of what was tested are left there.
import assert from "node:assert/strict";
import { createHash } from "node:crypto";
import { accessSync, constants, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import path from "node:path";
import { after, before, describe, test } from "node:test";
import { fileURLToPath, pathToFileURL } from "node:url";
import { pageFrom, peakOf, sampleTimeline } from "./sample_timeline.mjs";

// NODE_MODULES names the folder playwright-core was installed in: modules' imports do not look at NODE_PATH.
const require = createRequire(process.env.NODE_MODULES ? path.join(process.env.NODE_MODULES, "index.js") : import.meta.url);
const { chromium } = require("playwright-core");

const here = path.dirname(fileURLToPath(import.meta.url));
const template = readFileSync(path.join(here, "../../src/lab/memory/pages/memory_timeline.html"), "utf8");
const work = mkdtempSync(path.join(tmpdir(), "sinter-browser-"));

function browserProgram() {
  if (process.env.CHROMIUM) return process.env.CHROMIUM;
  for (const name of ["chromium", "chromium-browser", "google-chrome"])
    for (const folder of process.env.PATH.split(path.delimiter)) {
      const file = path.join(folder, name);
      try { accessSync(file, constants.X_OK); return file; } catch { /* not here */ }
    }
  throw new Error("no browser: install chromium, or name one with CHROMIUM");
}

let browser;
before(async () => {
  const root = process.getuid?.() === 0;  // Chromium's sandbox does not work for root
  browser = await chromium.launch({ executablePath: browserProgram(), args: root ? ["--no-sandbox"] : [] });
});
after(async () => {
  await browser?.close();
  rmSync(work, { recursive: true, force: true });
});

function writePage(name, timeline, notes) {
  const file = path.join(work, name + ".html");
  writeFileSync(file, pageFrom(template, timeline, notes));
  return file;
}

// Opens a page and calls body; whatever the page says on the console, throws or asks for is a failure.
async function withPage(file, body, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1440, height: 900 }, ...options });
  try {
    const page = await context.newPage(), faults = [], url = pathToFileURL(file).href;
    page.on("console", message => faults.push(`console ${message.type()}: ${message.text()}`));
    page.on("pageerror", error => faults.push(`page error: ${error.stack}`));
    page.on("request", request => {
      if (request.url() !== url && !request.url().startsWith("data:")) faults.push(`request: ${request.url()}`);
    });
    await page.goto(url);
    await page.waitForFunction(() => window.sinterTimeline?.draws > 0, null, { timeout: 10000 });
    await body(page);
    await drawn(page);
    assert.deepEqual(faults, []);
  } finally {
    await context.close();
  }
}

const stats = page => page.evaluate(() => sinterTimeline.stats());
const view = page => page.evaluate(() => sinterTimeline.view());
const locate = (page, index) => page.evaluate(i => sinterTimeline.locate(i), index);
const drawn = page => page.evaluate(() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done))));
const dataOf = page => page.evaluate(() => sinterTimeline.data);
const peakShown = page => page.$eval("#peak", e => ({ bytes: Number(e.dataset.bytes), time: Number(e.dataset.time) }));
const press = (page, name) => page.click(`#legend button[data-name="${name}"]`);
const setSlider = (page, position) => page.$eval("#detail", (slider, value) => {
  slider.value = value;
  slider.dispatchEvent(new Event("input"));
}, position);

async function screenshot(page, name) {
  if (!process.env.SCREENSHOTS) return;
  mkdirSync(process.env.SCREENSHOTS, { recursive: true });
  await drawn(page);
  await page.screenshot({ path: path.join(process.env.SCREENSHOTS, name + ".png"), fullPage: true });
}

function chainOf(timeline, range) {  // outermost first
  const chain = [];
  for (let r = range; r >= 0; r = timeline.ranges[r].parent) if (timeline.ranges[r].name) chain.unshift(timeline.ranges[r]);
  return chain;
}
const pathOf = (timeline, range) => chainOf(timeline, range).map(r => r.name).join("/");

// Two allocations that can be pointed at: the largest, and the one in sight made deepest inside the model.
async function conspicuous(page, timeline) {
  const largest = timeline.bytes.indexOf(timeline.bytes.reduce((a, b) => Math.max(a, b)));
  const depths = timeline.range.map(r => chainOf(timeline, r).length);
  const deepest = depths.map((_, i) => i).filter(i => i !== largest)
      .sort((a, b) => depths[b] - depths[a] || timeline.bytes[b] - timeline.bytes[a]);
  const visible = await page.evaluate(order => order.find(i => sinterTimeline.locate(i) !== null), deepest.slice(0, 300));
  return [largest, visible].filter(i => i !== undefined);
}

async function chartCentre(page) {
  const box = await page.locator("#surface").boundingBox();
  return { x: box.x + box.width / 2, y: box.y + box.height / 2 };
}

// A category that holds something at the peak and is to be seen: largest first.
function largestCategory(timeline) {
  const sums = timeline.categories.map((_, c) => peakOf(timeline, i => timeline.category[i] === c).bytes);
  return sums.indexOf(Math.max(...sums));
}

// What must hold of any page, whoever made it.
function commonTests(open) {
  test("the peak is the one computed from the data", () => open(async page => {
    const timeline = await dataOf(page), expected = peakOf(timeline);
    assert.deepEqual(await peakShown(page), expected);
    assert.match(await page.textContent("#peak"), /^peak [\d.]+ (B|KiB|MiB|GiB) at /);
    assert.equal(await page.title(), timeline.title);
    assert.equal(await page.isVisible("#predicted"), timeline.predicted);
  }));

  test("hovering shows tensor, size and path", () => open(async page => {
    const timeline = await dataOf(page);
    for (const index of await conspicuous(page, timeline)) {
      const { x, y } = await locate(page, index);
      await page.mouse.move(x, y);
      await page.waitForSelector("#tooltip:not([hidden])");
      assert.equal((await stats(page)).hovered, index);
      const text = await page.textContent("#tooltip");
      const tensor = timeline.tensor[index] >= 0 ? timeline.tensors[timeline.tensor[index]] : "no tensor";
      assert.equal(await page.textContent("#tooltip .tensor"), tensor);
      assert.equal(await page.textContent("#tooltip .path"), pathOf(timeline, timeline.range[index]) || "outside any range");
      assert.ok(text.includes(timeline.categories[timeline.category[index]]), text);
      assert.match(text, timeline.end[index] === null ? /still held at the end/ : /, from .* to /);
    }
  }));

  test("a click pins details with the source, Esc unpins", () => open(async page => {
    const timeline = await dataOf(page);
    for (const index of await conspicuous(page, timeline)) {
      const { x, y } = await locate(page, index);
      await page.mouse.click(x, y);
      assert.equal((await stats(page)).pinned, index);
      const text = await page.textContent("#details");
      assert.ok(text.includes(`${timeline.bytes[index].toLocaleString("en-GB")} bytes`), text);
      assert.ok(text.includes("0x" + timeline.address[index].toString(16)), text);
      const sources = await page.$$eval("#details .chain li", items => items.map(i => [...i.children].map(c => c.textContent)));
      assert.deepEqual(sources, chainOf(timeline, timeline.range[index]).reverse()
          .map(({ name, kind, file, line }) => [name, kind, file ? `${file}:${line}` : ""]));
      assert.match(await page.textContent("#largest-title"), /at [\d.]+ (ns|µs|ms|s)/);
    }
    await page.keyboard.press("Escape");
    assert.equal((await stats(page)).pinned, null);
    assert.match(await page.textContent("#largest-title"), /at the peak/);
  }));

  test("the legend takes a category out of the stack and back", () => open(async page => {
    const timeline = await dataOf(page), category = largestCategory(timeline), name = timeline.categories[category];
    const middle = timeline.duration_us / 2;
    const held = timeline.bytes.reduce((sum, b, i) => sum + (timeline.category[i] === category &&
        timeline.begin[i] <= middle && (timeline.end[i] === null || timeline.end[i] > middle) ? b : 0), 0);
    const totalBefore = await page.evaluate(t => sinterTimeline.totalAt(t), middle);
    assert.ok(await page.evaluate(n => sinterTimeline.pixelsOf(n), name) > 0);
    await press(page, name);
    await drawn(page);
    assert.equal(await page.evaluate(t => sinterTimeline.totalAt(t), middle), totalBefore - held);
    assert.equal(await page.evaluate(n => sinterTimeline.pixelsOf(n), name), 0);
    assert.deepEqual(await peakShown(page), peakOf(timeline, i => timeline.category[i] !== category));
    assert.ok(await page.isVisible("#hidden-note"));
    await page.click("#show-all");
    await drawn(page);
    assert.deepEqual(await peakShown(page), peakOf(timeline));
    assert.ok(await page.evaluate(n => sinterTimeline.pixelsOf(n), name) > 0);
  }));

  test("wheel and dragging zoom, shift-drag pans, a double click resets", () => open(async page => {
    const whole = await view(page), { x, y } = await chartCentre(page);
    await page.mouse.move(x, y);
    await page.mouse.wheel(0, -400);
    await page.waitForFunction(span => sinterTimeline.view().end - sinterTimeline.view().begin < span * 0.7,
                               whole.end - whole.begin);
    const wheeled = await view(page);
    assert.ok(wheeled.begin > whole.begin && wheeled.end < whole.end, JSON.stringify(wheeled));
    await page.mouse.down();
    await page.mouse.move(x + 150, y + 3, { steps: 4 });
    await page.mouse.up();
    const selected = await view(page);
    assert.ok(selected.end - selected.begin < (wheeled.end - wheeled.begin) / 2, "a drag selects");
    assert.deepEqual([selected.low, selected.high], [wheeled.low, wheeled.high], "a flat one selects time alone");
    await page.keyboard.down("Shift");
    await page.mouse.down();
    await page.mouse.move(x + 50, y, { steps: 4 });
    await page.mouse.up();
    await page.keyboard.up("Shift");
    const panned = await view(page);
    assert.ok(panned.begin > selected.begin, "the picture follows the hand, here to the left");
    assert.ok(Math.abs((panned.end - panned.begin) / (selected.end - selected.begin) - 1) < 1e-6, "panning does not zoom");
    await page.mouse.dblclick(x, y);
    assert.deepEqual(await view(page), whole);
    assert.equal((await stats(page)).pinned, null, "a double click pins nothing");
    await page.mouse.move(x, y);
    await page.mouse.down();
    await page.mouse.move(x + 100, y + 100, { steps: 4 });
    await page.mouse.up();
    const boxed = await view(page);
    assert.ok(boxed.high - boxed.low < (whole.high - whole.low) / 2, "a tall selection zooms bytes as well");
    await page.click("#reset");
    assert.deepEqual(await view(page), whole);
  }));

  test("keys zoom and pan", () => open(async page => {
    const whole = await view(page);
    await page.keyboard.press("+");
    await page.keyboard.press("+");
    const closer = await view(page);
    assert.ok(closer.end - closer.begin < 0.6 * (whole.end - whole.begin));
    await page.keyboard.press("ArrowRight");
    assert.ok((await view(page)).begin > closer.begin);
    await page.keyboard.press("ArrowLeft");
    await page.keyboard.press("-");
    await page.keyboard.press("-");
    const back = await view(page);
    assert.ok(Math.abs(back.end - back.begin - (whole.end - whole.begin)) < 1e-6 * whole.end);
  }));

  test("colouring by layer", () => open(async page => {
    await page.click("#by-layer");
    await drawn(page);
    const { colourBy, groups } = await stats(page);
    assert.equal(colourBy, "layer");
    assert.ok(groups.some(g => /^layers\.\d+$/.test(g)), groups.join(" "));
    assert.ok(!groups.includes("attn") && !groups.some(g => g.includes("/")), groups.join(" "));
    assert.equal(await page.textContent("#legend-title"), "Layer");
    const timeline = await dataOf(page), layer = groups.find(g => /^layers\.\d+$/.test(g));
    const inLayer = timeline.range.map(r => pathOf(timeline, r).split("/").includes(layer));
    await press(page, layer);
    assert.deepEqual(await peakShown(page), peakOf(timeline, i => !inLayer[i]));
  }));

  test("the slider moves small allocations into one band, and the total stays", () => open(async page => {
    const whole = await stats(page);
    await setSlider(page, 300);
    await drawn(page);
    const few = await stats(page);
    assert.equal(few.drawnOneByOne, Math.round(whole.allocations ** 0.3));
    assert.equal(few.peakBytes, whole.peakBytes);
    await setSlider(page, 1000);
    assert.equal((await stats(page)).drawnOneByOne, whole.allocations);
  }));

  test("search counts what it finds, and says so", () => open(async page => {
    const timeline = await dataOf(page);
    const pathWanted = pathOf(timeline, timeline.range.at(-1)).split("/").at(-1).toUpperCase();
    const canvas = async () => createHash("sha256").update(await page.$eval("#bands", c => c.toDataURL())).digest("hex");
    const plain = await canvas();
    for (const wanted of [pathWanted, timeline.tensors.at(-1).toUpperCase()]) {
      const expected = timeline.range.filter((r, i) => pathOf(timeline, r).toUpperCase().includes(wanted) ||
          (timeline.tensor[i] >= 0 && timeline.tensors[timeline.tensor[i]].toUpperCase().includes(wanted))).length;
      assert.ok(expected > 0);
      await page.fill("#search", wanted);
      await drawn(page);
      assert.equal((await stats(page)).matches, expected);
      assert.ok((await page.textContent("#search-result")).startsWith(`${expected.toLocaleString("en-GB")} found`));
      assert.notEqual(await canvas(), plain, "what was not found is dimmed");
    }
    await page.fill("#search", "nothing is called this");
    assert.equal(await page.textContent("#search-result"), "none found");
    await page.fill("#search", "");
    await drawn(page);
    assert.equal(await canvas(), plain);
  }));

  test("the list of the largest allocations at the peak", () => open(async page => {
    const timeline = await dataOf(page), { time } = peakOf(timeline);
    const listed = await page.$$eval("#largest tr", rows => rows.map(r => Number(r.dataset.index)));
    const isLive = (begin, end) => begin <= time && (end === null || end > time || (end === begin && begin === time));
    const live = timeline.bytes.filter((_, i) => isLive(timeline.begin[i], timeline.end[i]));
    assert.deepEqual(listed.map(i => timeline.bytes[i]), live.sort((a, b) => b - a).slice(0, 20));
    await page.click("#largest tr:nth-child(2)");
    assert.equal((await stats(page)).pinned, listed[1]);
  }));
}

describe("a page from the template", () => {
  const timeline = sampleTimeline({ layers: 6, title: "tiny </script><script>throw 1</script> <!-- <script> & \"more\"",
                                    predicted: true, capacity: 2.6e9 });
  const file = writePage("small", timeline, "<p>one line of preamble</p><h2>A table</h2><div><table><tr><th>x</th></tr></table></div>");
  commonTests(body => withPage(file, body));

  test("every pixel of the stack is accounted for", () => withPage(file, async page => {
    const { high } = await view(page), total = await page.evaluate(() => sinterTimeline.stats().peakBytes);
    assert.ok(high >= total, "the peak is in sight");
    // The area of each category, in pixels, against its bytes times microseconds in the data; columns keep maxima, so
    // what lives for less than a column may come out larger. Parameters live throughout.
    const pixels = await page.evaluate(() => sinterTimeline.pixelsOf("parameter"));
    const share = pixels / (await stats(page)).pixels;
    assert.ok(Math.abs(share - timeline.bytes[0] / high) < 0.01, `${share} against ${timeline.bytes[0] / high}`);
  }));

  test("bands sink when what lies below is freed", async () => {
    // A below B; A goes first, and B must then lie where A lay.
    const two = { ...timeline, title: "two", duration_us: 100, phases: [], reserved: [], capacity: null, begin: [0, 10],
                  end: [50, null], bytes: [1000, 3000], address: [512, 4096], category: [4, 5], range: [1, 1], tensor: [0, 0] };
    await withPage(writePage("two", two), async page => {
      const box = await page.locator("#surface").boundingBox(), { high } = await view(page);
      const at = async (t, b) => {  // what is hovered at a time and a height
        await page.mouse.move(box.x + 74 + (box.width - 86) * t / 100, box.y + 30 + (box.height - 56) * (1 - b / high));
        return (await stats(page)).hovered;
      };
      assert.equal(await at(30, 500), 0);
      assert.equal(await at(30, 2500), 1);
      assert.equal(await at(30, 4200), null);
      assert.equal(await at(75, 500), 1);
      assert.equal(await at(75, 3500), null);
    });
  });

  test("at equal times the old goes before the new comes, and what lives for no time counts", async () => {
    const ties = { ...timeline, title: "ties", duration_us: 30, phases: [], reserved: [], capacity: null, begin: [0, 10, 20],
                   end: [10, 20, 20], bytes: [1000, 1500, 400], address: [0, 0, 0], category: [4, 4, 5], range: [1, 1, 1],
                   tensor: [0, 0, 0] };
    assert.deepEqual(peakOf(ties), { bytes: 1500, time: 10 });
    await withPage(writePage("ties", ties), async page => assert.deepEqual(await peakShown(page), { bytes: 1500, time: 10 }));
  });

  test("nothing allocated is no error", () => {
    const columns = Object.fromEntries(["begin", "end", "bytes", "address", "category", "range", "tensor"].map(c => [c, []]));
    const empty = { ...timeline, title: "empty", reserved: [], phases: [], duration_us: 0, ...columns };
    return withPage(writePage("empty", empty), async page => assert.equal((await stats(page)).peakBytes, 0));
  });

  for (const colorScheme of ["light", "dark"])
    test(`${colorScheme} colours`, () => withPage(file, async page => {
      const ground = await page.evaluate(() => getComputedStyle(document.body).backgroundColor);
      const brightness = ground.match(/\d+/g).slice(0, 3).reduce((a, b) => a + Number(b), 0) / 3;
      assert.ok(colorScheme === "light" ? brightness > 200 : brightness < 60, ground);
      const { x, y } = await locate(page, 2);
      await page.mouse.click(x, y);
      await page.mouse.move(x - 200, y - 40);
      await screenshot(page, `small-${colorScheme}`);
      await page.click("#by-layer");
      await press(page, "init");
      await screenshot(page, `small-${colorScheme}-layers`);
    }, { colorScheme }));
});

describe("a page of 100,000 events", () => {
  const timeline = sampleTimeline({ layers: 96, steps: 9, opsPerBlock: 9, width: 1024, title: "96 layers, 9 steps" });
  const file = writePage("large", timeline);

  test("draws and zooms, and says how long a picture takes", { timeout: 120000 }, () => withPage(file, async page => {
    const { events, drawnOneByOne } = await stats(page);
    assert.ok(events >= 100000, `${events} events`);
    assert.equal(drawnOneByOne, 15000);
    assert.deepEqual(await peakShown(page), peakOf(timeline));
    await screenshot(page, "large");
    const { x, y } = await chartCentre(page), times = [];
    await page.mouse.move(x, y);
    for (let k = 0; k < 24; ++k) {
      const draws = await page.evaluate(() => sinterTimeline.draws);
      await page.mouse.wheel(0, k < 12 ? -240 : 240);
      await page.waitForFunction(n => sinterTimeline.draws > n, draws);
      times.push(await page.evaluate(() => sinterTimeline.lastDrawMs));
    }
    times.sort((a, b) => a - b);
    console.log(`${events} events: a picture takes ${times[12].toFixed(1)} ms (median), ${times.at(-1).toFixed(1)} ms at most`);
    await page.mouse.dblclick(x, y);
    await page.click("#by-layer");
    await screenshot(page, "large-layers");
  }));

  test("one by one or nearly all in one band, the stack fills the same pixels", () => withPage(file, async page => {
    const filled = async position => {
      await setSlider(page, position);
      await drawn(page);
      return page.evaluate(() => sinterTimeline.pixelsFilled());
    };
    const all = await filled(1000), few = await filled(0);
    assert.ok(all > 0 && Math.abs(all - few) < 1e-3 * all, `${all} against ${few}`);
  }));
});

describe("the page sinter wrote", { skip: process.env.PAGE ? false : "PAGE names none" }, () => {
  commonTests(body => withPage(path.resolve(process.env.PAGE), body));
  test("screenshot", () => withPage(path.resolve(process.env.PAGE), page => screenshot(page, "sinter")));
});

test("the picture sinter wrote is sound XML", { skip: process.env.SVG ? false : "SVG names none" }, async () => {
  assert.ok(existsSync(process.env.SVG));
  const page = await browser.newPage();
  const fault = await page.evaluate(text =>
      new DOMParser().parseFromString(text, "image/svg+xml").querySelector("parsererror")?.textContent ?? null,
      readFileSync(process.env.SVG, "utf8"));
  await page.close();
  assert.equal(fault, null);
});
