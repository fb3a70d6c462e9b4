// A timeline as sinter writes it, made up: training steps of a Transformer of many layers, with the lifetimes such steps
// have. Activations are saved by the forward pass and freed, last first, by the backward pass; temporaries and workspaces
// live for one operation; parameters and optimizer state stay. The same arguments always give the same timeline.

const kib = 1024;

const sources = {
  step: ["src/train/trainer.cpp", 20], forward: ["src/train/trainer.cpp", 31], backward: ["src/autograd/backward.cpp", 88],
  optimizer: ["src/optim/adamw.cpp", 54], init: ["src/train/trainer.cpp", 12], embedding: ["src/nn/transformer.cpp", 40],
  attn: ["src/nn/attention.cpp", 33], ffn: ["src/nn/ffn.cpp", 21], head: ["src/nn/transformer.cpp", 77],
};

class Recorder {
  constructor(categories) {
    this.now = 0;
    this.address = 0x7f2000000000;
    this.categories = categories;
    this.ranges = [{ name: "", parent: -1, kind: "module", file: "", line: 0 }];
    this.known = new Map();
    this.tensors = [];
    this.columns = { begin: [], end: [], bytes: [], address: [], category: [], range: [], tensor: [] };
    this.stack = [0];
    this.phases = [];
  }

  inside(name, kind, body) {
    const parent = this.stack.at(-1), key = `${parent}/${name}`;
    if (!this.known.has(key)) {
      this.known.set(key, this.ranges.length);
      const [file, line] = sources[name] ?? (kind === "op" ? [`src/ops/${name}.cpp`, 60] : ["src/nn/transformer.cpp", 58]);
      this.ranges.push({ name, parent, kind, file, line });
    }
    this.stack.push(this.known.get(key));
    const begin = this.now;
    body();
    if (kind === "phase") this.phases.push({ name, begin, end: this.now });
    this.stack.pop();
  }

  // Time goes on by a little each time; a fixed sequence of odd steps, so that no two events coincide.
  tick() { this.now = Math.round((this.now + 1.5 + (this.columns.begin.length * 7919 % 97) / 13) * 1000) / 1000; }

  allocate(category, type, ...dims) {
    this.tick();
    const width = { f32: 4, bf16: 2, u8: 1, i64: 8 }[type], c = this.columns;
    const size = Math.ceil(dims.reduce((a, b) => a * b, width) / 512) * 512;
    const description = category === "workspace" ? null : `${type} [${dims.join(", ")}]`;
    let tensor = description === null ? -1 : this.tensors.indexOf(description);
    if (description !== null && tensor < 0) tensor = this.tensors.push(description) - 1;
    c.begin.push(this.now);
    c.end.push(null);
    c.bytes.push(size);
    c.address.push(this.address);
    c.category.push(this.categories.indexOf(category));
    c.range.push(this.stack.at(-1));
    c.tensor.push(tensor);
    this.address += size;
    return c.begin.length - 1;
  }

  free(...allocations) {
    for (const i of allocations) {
      this.tick();
      this.columns.end[i] = this.now;
    }
  }
}

export function sampleTimeline({ layers = 4, steps = 1, batch = 4, context = 256, width = 768, vocabulary = 32000,
                                 opsPerBlock = 6, title = "sample", predicted = false, capacity = null } = {}) {
  const categories = ["parameter", "16-bit copy", "gradient", "optimizer state", "activation", "temporary", "workspace",
                      "communication"];
  const r = new Recorder(categories);
  const parameters = layers * 12 * width * width + 2 * vocabulary * width;

  const operation = (name, save, ...dims) => {  // returns what the backward pass will need
    let saved;
    r.inside(name, "op", () => {
      const workspace = name === "matmul" ? r.allocate("workspace", "u8", 4096 * kib) : null;
      const temporary = r.allocate("temporary", "f32", batch, context, width >> (dims.length % 2));
      saved = save ? r.allocate("activation", "bf16", ...dims) : null;
      r.free(temporary);
      if (workspace !== null) r.free(workspace);
    });
    return saved === null ? [] : [saved];
  };
  const block = (name, wide) => {
    const saved = [];
    r.inside(name, "module", () => {
      for (let k = 0; k < opsPerBlock; ++k)
        saved.push(...operation(["rms_norm", "matmul", "softmax", "silu"][k % 4], k % 3 !== 2, batch, context, wide));
    });
    return saved;
  };
  const undo = (name, saved) => r.inside(name, "module", () => {
    for (const activation of saved.slice().reverse()) {
      operation("matmul", false, batch, context, width);
      r.free(activation);
    }
  });

  r.inside("init", "phase", () => {
    r.allocate("parameter", "f32", parameters);
    r.allocate("16-bit copy", "bf16", parameters);
    r.allocate("gradient", "f32", parameters);
    r.inside("adamw", "module", () => {
      r.allocate("optimizer state", "f32", parameters);
      r.allocate("optimizer state", "f32", parameters);
    });
  });
  for (let step = 0; step < steps; ++step)
    r.inside("step", "module", () => {
      const saved = [];
      let logits;
      r.inside("forward", "phase", () => {
        r.inside("embedding", "module", () => saved.push([r.allocate("activation", "f32", batch, context, width)]));
        for (let l = 0; l < layers; ++l)
          r.inside(`layers.${l}`, "module", () => saved.push([block("attn", width), block("ffn", 4 * width)]));
        r.inside("head", "module", () => { logits = r.allocate("activation", "f32", batch, context, vocabulary); });
      });
      r.inside("backward", "phase", () => {
        r.inside("head", "module", () => {
          const gradient = r.allocate("temporary", "f32", batch, context, vocabulary);
          r.free(logits, gradient);
        });
        for (let l = layers - 1; l >= 0; --l) {
          const [attention, ffn] = saved[l + 1];
          r.inside(`layers.${l}`, "module", () => { undo("ffn", ffn); undo("attn", attention); });
        }
        r.inside("embedding", "module", () => r.free(...saved[0]));
      });
      r.inside("optimizer", "phase", () => {
        for (let k = 0; k < 8; ++k) r.inside("adamw_step", "op", () => r.free(r.allocate("temporary", "f32", 1 << (14 + k))));
      });
    });
  r.tick();
  return { title, predicted, device: "NVIDIA H200", duration_us: r.now, capacity,
           clock: "host time at which memory was handed out", categories, phases: r.phases, ranges: r.ranges,
           tensors: r.tensors, ...r.columns, reserved: reservedCurve(r.columns) };
}

// Memory is taken from the device in chunks as the need grows, and not given back.
function reservedCurve({ begin, end, bytes }) {
  const chunk = 64 * 1024 * kib, curve = [[0, 0]];
  let active = 0;
  for (const [t, change] of changesOf({ begin, end, bytes })) {
    active += change;
    const needed = Math.ceil(active / chunk) * chunk;
    if (needed > curve.at(-1)[1]) curve.push([t, needed]);
  }
  return curve;
}

// At equal times frees of what is older come first, then allocations, then frees of what was allocated at that very time.
function changesOf({ begin, end, bytes }) {
  const changes = [];
  begin.forEach((t, i) => {
    changes.push([t, bytes[i], 1]);
    if (end[i] !== null) changes.push([end[i], -bytes[i], end[i] > t ? 0 : 2]);
  });
  return changes.sort((a, b) => a[0] - b[0] || a[2] - b[2]);
}

// The highest total of bytes held at once, and when it is first reached.
export function peakOf(timeline, counts = () => true) {
  const some = { begin: [], end: [], bytes: [] };
  timeline.begin.forEach((_, i) => {
    if (counts(i)) for (const column of Object.keys(some)) some[column].push(timeline[column][i]);
  });
  let total = 0, peak = { bytes: 0, time: 0 };
  for (const [t, change] of changesOf(some)) {
    total += change;
    if (total > peak.bytes) peak = { bytes: total, time: t };
  }
  return peak;
}

// What memory_plot.cpp does: the two places filled in.
export function pageFrom(template, timeline, notes = "") {
  const json = JSON.stringify(timeline).replaceAll("<", "\\u003c");
  return template.replace("{{timeline}}", () => json).replace("{{notes}}", () => notes);
}
