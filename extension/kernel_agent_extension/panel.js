// The panel's page: notes in, elements out; what was pressed goes back.
//
// Every text of a model, a kernel or a file becomes a text node. Nothing is parsed as HTML, no
// address comes from a note, and a picture is a data address of PNG or JPEG or it is not shown.

const NEAR = 48; // pixels from the bottom within which new lines are followed
const UNREAD_MS = 500; // within which nobody has read a question, and a second press of a double click comes
const KEEP_OPEN = 2; // finished steps that stay unfolded
const LEVELS_WITHOUT = new Set(["none"]);
const PICTURE = /^[A-Za-z0-9+/=]+$/;
const PAGE_MS = 300; // within which the static page takes the panel's place where it can
const OVER = "The run is over: %agent show brings its page.";

// --- elements ------------------------------------------------------------------------------------

function make(tag, name, text) {
  const element = document.createElement(tag);
  if (name) element.className = name.split(" ").map((part) => `kap-${part}`).join(" ");
  if (text !== undefined) element.textContent = text;
  return element;
}

// A script on the page, as another kernel's display may bring one, presses nothing: an event of its is
// not trusted. It raises the price and is no boundary.
function button(label, name, act, shortcut) {
  const element = make("button", `button ${name}`, label);
  element.type = "button";
  element.press = () => { if (!element.disabled) act(); };
  element.addEventListener("click", (event) => { if (event.isTrusted) element.press(); });
  if (shortcut) {
    element.setAttribute("aria-keyshortcuts", `Shift+${shortcut}`);
    element.title = `${label} (Shift+${shortcut} while the panel has the focus)`;
  }
  return element;
}

function shown(element, visible) {
  element.hidden = !visible;
}

// Code, coloured by runs: a letter and a length each.
function colouredCode(code, hues) {
  const pre = make("pre", "code");
  pre.tabIndex = 0;
  pre.setAttribute("aria-label", "Code");
  const inner = make("code");
  let at = 0;
  for (const [, hue, length] of (hues || "").matchAll(/([a-z])(\d+)/g)) {
    const piece = code.slice(at, at + Number(length));
    at += piece.length;
    inner.append(hue === "t" ? piece : make("span", `hue-${hue}`, piece));
  }
  if (at < code.length) inner.append(code.slice(at));
  pre.append(inner);
  return pre;
}

// A thought: paragraphs, `code` and **emphasis**; everything else stays as it was written.
function prose(text, name) {
  const block = make("div", name);
  for (const piece of text.split(/(`[^`\n]+`|\*\*[^*\n]+\*\*)/)) {
    if (piece.length > 2 && piece.startsWith("`")) block.append(make("code", "", piece.slice(1, -1)));
    else if (piece.length > 4 && piece.startsWith("**")) block.append(make("strong", "", piece.slice(2, -2)));
    else block.append(piece);
  }
  return block;
}

// A text that is still being written, with the marks closed that its last line has opened.
function closed(text) {
  const begun = text.replace(/[*`]+$/, "");
  const line = begun.slice(begun.lastIndexOf("\n") + 1);
  if (line.split("`").length % 2 === 0) return `${begun}\``;
  return line.replace(/`[^`]*`/g, "").split("**").length % 2 === 0 ? `${begun}**` : begun;
}

// The columns that hold numbers, which are read from the right. None where cells cover several.
function numericColumns(note) {
  const found = new Set();
  const lines = note.body.slice(0, 60);
  if (lines.some((line) => line.some((cell) => Array.isArray(cell) && cell[2] > 1))) return found;
  const width = Math.max(0, ...lines.map((line) => line.length));
  for (let k = 0; k < width; k++) {
    const texts = lines.map((line) => (Array.isArray(line[k]) ? line[k][0] : line[k] ?? ""));
    const told = texts.filter((text) => text && !/^(NaN|None|<NA>|NaT|\.\.\.)$/.test(text));
    if (told.length && told.every((text) => /^[-+]?(\d[\d,]*\.?\d*|\.\d+)(e[-+]?\d+)?%?$/i.test(text))) found.add(k);
  }
  return found;
}

function table(note) {
  const frame = make("div", "table");
  frame.tabIndex = 0;
  frame.setAttribute("role", "group");
  frame.setAttribute("aria-label", "Table");
  const whole = make("table");
  const numeric = numericColumns(note);
  for (const [part, lines] of [["thead", note.head], ["tbody", note.body]]) {
    const section = make(part);
    for (const line of lines) {
      const row = make("tr");
      for (const cell of line) {
        const [text, columns, rows, heading] = Array.isArray(cell) ? cell : [cell, 1, 1, false];
        const element = make(heading && text ? "th" : "td", "", text); // the corner above an index heads nothing
        if (columns > 1) element.colSpan = columns;
        if (rows > 1) element.rowSpan = rows;
        if (numeric.has(row.cells.length) && columns === 1) element.className = "kap-number";
        row.append(element);
      }
      section.append(row);
    }
    if (lines.length) whole.append(section);
  }
  frame.append(whole);
  if (note.below) frame.append(make("p", "below", note.below));
  else makeSortable(frame);
  return frame;
}

function picture(note) {
  const frame = make("figure", "picture");
  if (!["image/png", "image/jpeg"].includes(note.type) || !PICTURE.test(note.data)) {
    frame.append(make("p", "below", "A picture that cannot be shown."));
    return frame;
  }
  const image = make("img");
  image.alt = note.alt || "A figure made by this step";
  image.decoding = "async";
  image.src = `data:${note.type};base64,${note.data}`;
  frame.append(image);
  return frame;
}

// Text as a terminal would leave it: a carriage return begins its line anew.
function written(before, text) {
  if (!text.includes("\r")) return before + text;
  const lines = (before + text.replaceAll("\r\n", "\n")).split("\n");
  return lines.map((line, i) => {
    const open = i === lines.length - 1 && line.endsWith("\r");
    const parts = line.split("\r").filter((part) => part);
    return (parts.at(-1) || "") + (open ? "\r" : "");
  }).join("\n");
}

// What has been written of a string of a JSON object that is not complete yet.
function field(text, name) {
  const found = text.match(new RegExp(`"${name}"\\s*:\\s*"((?:[^"\\\\]|\\\\u[0-9a-fA-F]{4}|\\\\[^u])*)`));
  if (!found) return "";
  try { return JSON.parse(`"${found[1]}"`); } catch { return found[1]; }
}

// What can be read of a reply that is still being written: a thought, and code.
function drafted(text, call) {
  if (call) return [text.trim(), field(call, "code") || call];
  const json = /^\s*(?:```(?:json)?\s*)?\{/.test(text);
  if (json) {
    const [thought, code] = [field(text, "thought"), field(text, "code")];
    if (thought || code) return [thought, code];
  }
  const fence = text.match(/^([\s\S]*?)(?:^|\n)```[\w-]*\n([\s\S]*)$/);
  if (fence) return [fence[1].trim(), fence[2].replace(/\n?```[\s\S]*$/, "")];
  return [text.replace(/(?:^|\n)`{1,3}\w*$/, "").trim(), ""];
}

function seconds(value) {
  if (value < 10) return `${value.toFixed(1)} s`;
  if (value < 120) return `${Math.round(value)} s`;
  return `${Math.floor(value / 60)} min ${Math.round(value % 60)} s`;
}

const count = (value) => Math.round(value).toLocaleString("en-US");

// Where the notebook is served, seen from the page that is open; null when it cannot be said.
function address(path) {
  const config = document.getElementById("jupyter-config-data");
  if (!config) return null;
  let base;
  try { base = JSON.parse(config.textContent).baseUrl; } catch { return null; }
  const here = location.pathname.slice(base.length);
  const open = here.match(/^(notebooks)\/(.*)$/) || here.match(/^(lab|doc)(?:\/workspaces\/[^/]+)?\/tree\/(.*)$/);
  if (!open) return null;
  const parts = open[2].split("/").slice(0, -1).map(decodeURIComponent);
  for (const part of path.split("/")) {
    if (part === "..") { if (parts.pop() === undefined) return null; } else if (part !== ".") parts.push(part);
  }
  const view = open[1] === "notebooks" ? "notebooks/" : "lab/tree/";
  return base + view + parts.map(encodeURIComponent).join("/");
}

// --- one step --------------------------------------------------------------------------------------

class StepView {
  constructor(number) {
    this.number = number;
    this.notes = []; // what its body is made of, so that a folded step costs nothing
    this.built = false;
    this.touched = false; // a person folded or unfolded it
    this.element = make("details", "step");
    this.head = make("summary", "step-head");
    this.mark = make("span", "mark");
    this.title = make("span", "step-title");
    this.facts = make("span", "facts");
    this.head.append(this.mark, this.title, this.facts);
    this.rename(number);
    this.body = make("div", "step-body");
    this.element.append(this.head, this.body);
    this.head.addEventListener("click", () => { this.touched = true; });
    this.element.addEventListener("toggle", () => { this.element.open ? this.build() : this.drop(); });
    this.state("running", "running");
  }

  // The sentence that the page has, too; until there is one, the number.
  rename(number, sentence = "") {
    this.number = number;
    this.sentence = sentence;
    this.title.textContent = sentence || `Step ${number}`;
    this.facts.textContent = [sentence && `Step ${number}`, ...(this.told || [])].filter(Boolean).join(" · ");
  }

  state(name, words) {
    this.element.dataset.state = name;
    this.mark.setAttribute("role", "img");
    this.mark.setAttribute("aria-label", words);
    this.mark.title = words;
  }

  open(open) {
    this.element.open = open;
    open ? this.build() : this.drop();
  }

  build() {
    if (this.built) return;
    this.built = true;
    this.draw();
  }

  draw() {
    this.body.replaceChildren();
    this.stream = null;
    for (const note of this.built ? this.notes : []) this.show(note);
    if (this.draftElement) this.body.append(this.draftElement);
  }

  drop() {
    if (this.element.dataset.state === "running") return;
    this.built = false;
    this.draw();
  }

  take(note) {
    if (note.op === "text") {
      const part = note.reasoning ? "reasoning" : note.call ? "call" : "draft";
      this[part] = (this[part] || "") + note.text;
      this.showDraft();
      return;
    }
    if (note.op === "act") {
      this.dropDraft();
      this.forgetCode();
      this.rename(this.number, note.sentence);
    }
    this.notes.push(note);
    const [before, drawn] = [this.sentence, this.built];
    if (note.was) this.open(true);
    if (note.op === "step") this.finish(note);
    if (before !== this.sentence) this.draw(); // of a thought is shown what the sentence does not say
    else if (drawn) this.show(note);
  }

  // A person has changed the cell: what runs is announced anew.
  forgetCode() {
    const kept = this.notes.filter((note) => note.op !== "act");
    if (kept.length === this.notes.length) return;
    this.notes = kept;
    this.draw();
  }

  showDraft() {
    if (!this.draftElement) {
      this.draftElement = make("div", "draft");
      this.draftThought = make("div", "thought");
      this.draftCode = make("pre", "code");
      this.draftCode.setAttribute("aria-label", "Code being written");
      this.draftElement.append(this.draftThought, this.draftCode);
      this.body.append(this.draftElement);
    }
    const [thought, code] = drafted(this.draft || "", this.call);
    const thinking = !this.draft && !this.call && this.reasoning;
    this.draftThought.classList.toggle("kap-reasoning", Boolean(thinking));
    this.draftThought.replaceChildren(...prose(closed(thinking ? this.reasoning.slice(-1500) : thought)).childNodes);
    this.draftCode.textContent = code;
    shown(this.draftCode, Boolean(code));
  }

  dropDraft() {
    this.draftElement?.remove();
    this.draftElement = this.draft = this.call = this.reasoning = null;
  }

  show(note) {
    const body = this.body;
    if (note.op === "act") {
      const thought = note.sentence === this.sentence ? note.rest ?? note.thought : note.thought;
      if (thought) body.append(prose(thought, "thought"));
      if (note.code) body.append(colouredCode(note.code, note.hues));
      if (note.was) body.append(this.before(note.was));
    } else if (note.op === "out") {
      this.output(note);
    } else if (note.op === "told") {
      if (note.said) body.append(make("p", "said", note.said));
    } else if (note.op === "step" && note.denied) {
      body.append(make("p", "said", `Not run: ${note.denied}`));
    }
  }

  output(note) {
    if (note.kind === "stream") {
      if (!this.stream || this.stream.name !== note.name) {
        const pre = make("pre", `out ${note.name}`);
        pre.tabIndex = 0;
        pre.setAttribute("aria-label", note.name === "stderr" ? "Messages" : "Output");
        this.stream = { name: note.name, pre, text: "" };
        this.body.append(pre);
      }
      this.stream.text = written(this.stream.text, note.text);
      const follows = this.stream.pre.scrollHeight - this.stream.pre.scrollTop - this.stream.pre.clientHeight < NEAR;
      this.stream.pre.textContent = this.stream.text.replace(/\r$/, "");
      if (follows) this.stream.pre.scrollTop = this.stream.pre.scrollHeight;
      return;
    }
    this.stream = null;
    if (note.kind === "picture") this.body.append(picture(note));
    else if (note.kind === "table") this.body.append(table(note));
    else if (note.kind === "error") this.body.append(this.error(note));
    else if (note.kind === "more") this.body.append(make("p", "below", note.text));
    else {
      const pre = make("pre", "out", note.text);
      pre.tabIndex = 0;
      this.body.append(pre);
    }
  }

  before(was) {
    const box = make("details", "before");
    box.append(make("summary", "", "As the model had written it"), colouredCode(was.code, was.hues));
    return box;
  }

  error(note) {
    const box = make("details", "error");
    box.append(make("summary", "error-title", note.title));
    if (note.text) box.append(make("pre", "out", note.text));
    return box;
  }

  finish(note) {
    const words = note.denied ? "denied" : note.ok ? "done" : {
      timeout: "took too long", interrupted: "interrupted", dead: "the kernel was lost",
    }[note.status] || "failed";
    this.state(note.denied ? "denied" : note.ok ? "ok" : note.status === "interrupted" ? "interrupted" : "failed", words);
    this.told = [note.ok ? "" : words, seconds(note.seconds + note.model_seconds)];
    this.rename(this.number, note.sentence);
    this.facts.title = `model ${seconds(note.model_seconds)}, cell ${seconds(note.seconds)}, ${count(note.tokens)} tokens`;
  }
}

// --- the whole -----------------------------------------------------------------------------------

class PanelView {
  constructor(el, send) {
    this.send = send;
    this.view = crypto.getRandomValues(new Uint32Array(2)).join("-");
    this.root = make("section", "panel");
    this.root.setAttribute("aria-label", "Run of kernel-agent");
    this.build();
    el.append(this.root);
    this.reset();
    this.timer = setInterval(() => this.tick(), 200);
    // On the window, because Jupyter listens to all keys on the document, before the panel would.
    this.onKey = (event) => { if (this.root.contains(event.target)) this.key(event); };
    window.addEventListener("keydown", this.onKey, true);
    this.hello();
  }

  // Asks for the whole. Again when there is no answer: a front end that is still opening its
  // subshell sends to the main one, where a cell that blocks would hold it up.
  hello(wait = 150) {
    this.ready = false;
    this.send({ do: "hello", view: this.view });
    clearTimeout(this.again);
    if (wait < 6000) this.again = setTimeout(() => this.hello(2 * wait), wait);
  }

  close() {
    this.closed = true;
    if (this.offers && this.spot) this.row = offerBelow(...this.spot, this.offers, this.send);
    clearInterval(this.timer);
    clearTimeout(this.again);
    this.sizes.disconnect();
    this.sight.disconnect();
    this.dock.remove();
    window.removeEventListener("keydown", this.onKey, true);
  }

  build() {
    const head = make("header", "head");
    const line = make("div", "title-line");
    this.task = make("div", "task");
    this.task.setAttribute("role", "heading");
    this.task.setAttribute("aria-level", "3");
    this.status = make("span", "chip status");
    this.waits = make("span", "waits");
    line.append(this.task, this.waits, this.status);
    const facts = make("div", "fact-line");
    this.level = make("span", "chip level");
    this.model = make("span", "fact");
    this.data = make("span", "fact");
    this.eased = make("span", "eased"); // what asks or holds back less than by default
    facts.append(this.level, this.eased, this.model, this.data);
    this.buttons = make("div", "buttons");
    this.buttons.setAttribute("role", "group");
    this.buttons.setAttribute("aria-label", "What to do with the run");
    this.stop = button("Stop", "stop", () => this.pressStop(), "S");
    this.undo = button("Undo step", "", () => this.pressUndo(), "U");
    this.book = make("a", "button book", "Open notebook");
    this.book.target = "_blank";
    this.book.rel = "noopener";
    this.bookPath = make("span", "fact");
    this.buttons.append(this.stop, this.undo, this.book, this.bookPath);
    facts.append(this.buttons);
    head.append(line, facts);

    this.meters = make("div", "meters");
    this.meter = Object.fromEntries(["Steps", "Time", "Tokens", "Cost"].map((name) => {
      const box = make("div", "meter");
      const label = make("span", "meter-name", name);
      const value = make("span", "meter-value");
      const bar = make("span", "bar");
      const fill = make("span", "fill");
      bar.append(fill);
      box.append(label, value, bar);
      this.meters.append(box);
      return [name, { box, value, fill, bar }];
    }));

    this.steps = make("div", "steps");
    this.steps.tabIndex = 0;
    this.steps.setAttribute("role", "region");
    this.steps.setAttribute("aria-label", "Steps");
    this.list = make("div", "list");
    this.steps.append(this.list);
    this.latest = button("Newest step ↓", "latest", () => { this.follow = true; this.toBottom(); });
    this.steps.addEventListener("scroll", () => {
      const { scrollTop, scrollHeight, clientHeight } = this.steps;
      if (scrollHeight - scrollTop - clientHeight < NEAR) this.follow = true;
      else if (scrollTop < this.scrolled) this.follow = false; // a person looks at something above
      this.scrolled = scrollTop;
      shown(this.latest, !this.follow);
    }, { passive: true });
    // What is shown last stays in view also when a picture has been decoded or a step was folded.
    this.sizes = new ResizeObserver(() => { if (this.follow) this.toBottom(); });
    this.sizes.observe(this.list);
    const frame = make("div", "steps-frame");
    frame.append(this.steps, this.latest);

    this.asking = make("div", "asking");
    this.end = make("div", "end");
    this.live = make("div", "unseen");
    this.live.setAttribute("role", "status");
    this.live.setAttribute("aria-live", "polite");
    this.keys = make("p", "keys", "");
    this.news = make("p", "note");
    this.save = make("p", "note", "Save the notebook (Ctrl+S) to find this run again.");
    this.root.append(head, this.meters, this.save, this.news, frame, this.asking, this.end, this.keys, this.live);
    this.buildDock(head);
  }

  // What the head says, in a corner of the page while the head is out of sight and the run goes on: the
  // places that scroll in Jupyter let no head of an output stick.
  buildDock(head) {
    this.dock = make("aside", "panel dock");
    this.dock.setAttribute("aria-label", "Run out of sight");
    const line = make("div", "head");
    this.dockTask = button("", "dock-task", () => {
      (this.asked === undefined ? this.root : this.asking).scrollIntoView({ block: "nearest" });
    });
    this.dockTask.title = "Show the run";
    this.dockStatus = make("span", "chip status");
    this.dockStep = make("span", "fact");
    this.dockStop = button("Stop", "stop", () => this.pressStop());
    line.append(this.dockTask, this.dockStatus, this.dockStep, this.dockStop);
    this.dock.append(line);
    this.sight = new IntersectionObserver((seen) => {
      this.inSight = seen.at(-1).intersectionRatio >= 0.6;
      this.showDock();
    }, { threshold: 0.6 });
    this.sight.observe(head);
    const docks = document.querySelector("body > .kap-docks") || make("div", "docks");
    docks.append(this.dock);
    document.body.append(docks);
  }

  showDock() {
    const running = this.views?.size || this.spent ? `step ${Math.max(1, ...this.views.keys())}` : "";
    this.dock.dataset.state = this.root.dataset.state;
    for (const [element, words] of [[this.dockTask, this.task.textContent], [this.dockStatus, this.status.textContent], [this.dockStep, running]]) {
      if (element.textContent !== words) element.textContent = words;
    }
    this.dockStop.disabled = this.stop.disabled;
    shown(this.dock, this.inSight === false && !this.ended);
  }

  reset() {
    this.views = new Map();
    this.scrolled = 0;
    this.questions = new Map();
    this.current = null;
    this.follow = true;
    this.spent = null;
    this.ended = false;
    this.stopping = false;
    this.drafting = null;
    this.since = performance.now();
    this.waitsFor = "";
    for (const element of [this.list, this.asking, this.end]) element.replaceChildren();
    for (const element of [this.asking, this.end, this.latest, this.book, this.bookPath, this.undo, this.model, this.data,
      this.news, this.save]) {
      shown(element, false);
    }
    this.setStatus("starting", "Starting");
    this.showMeters();
    this.showKeys();
  }

  // --- messages ---------------------------------------------------------------------------------

  hear(message) {
    if (message.offers) {
      const child = this.root.closest(".jp-OutputArea-child");
      this.offers = message.offers;
      this.spot = child?.parentElement && [child, child.parentElement, [...child.parentElement.children].indexOf(child)];
      this.last = message.n;
      return;
    }
    if (message.over && message.for === undefined) {
      setTimeout(() => { if (!this.closed) this.hello(); }, PAGE_MS);
      return;
    }
    if (message.for !== undefined) {
      if (message.for !== this.view || this.ready) { this.last = message.n; return; }
      this.reset();
      this.said = "";
      this.canUndo = message.undo;
      this.replaying = true;
      this.takeAll(message.notes);
      this.replaying = false;
      if (this.said) this.say(this.said); // only the latest: what to do now, not all that happened
      this.fold();
      if (message.over) this.stay();
      this.ready = true;
      clearTimeout(this.again);
    } else if (this.ready && message.n !== this.last + 1) {
      this.hello(); // a message was lost on its way: ask for the whole
      return;
    } else if (this.ready) {
      this.takeAll(message.notes);
    }
    this.last = message.n;
  }

  // The run is over, and this panel still stands: its cell's output could not be reached. Otherwise
  // it is closed by then.
  stay() {
    clearInterval(this.timer);
    this.ended = true;
    this.showDock();
    shown(this.save, false);
    this.questions.clear();
    this.showQuestion();
    shown(this.stop, false);
    this.end.append(make("p", "note", OVER));
    shown(this.end, true);
  }

  takeAll(notes) {
    for (const note of notes) this.take(note);
    if (this.follow) this.toBottom();
  }

  take(note) {
    switch (note.op) {
      case "run": this.begin(note); break;
      case "text": this.stepBeingWritten().take(note); break;
      case "act": this.act(note); break;
      case "out": this.step(note.step).take(note); break;
      case "step": this.stepOver(note); break;
      case "ask": this.ask(note); break;
      case "told": this.told(note); break;
      case "note":
        this.drafting?.dropDraft(); // what was being written is begun anew, if at all
        this.tellNews(note.text);
        break;
      case "save": shown(this.save, note.wanted); break;
      case "spent": this.spent = { ...note, at: performance.now() }; this.showMeters(); break;
      case "end": this.over(note); break;
      case "book": this.offerBook(note.path); break;
    }
  }

  begin(note) {
    this.task.textContent = note.task || "A run";
    const none = LEVELS_WITHOUT.has(note.level);
    this.level.textContent = none ? "NOT SANDBOXED" : `Sandbox: ${note.level}`;
    this.level.classList.toggle("kap-warning", none);
    this.level.classList.toggle("kap-unknown", !note.begun && !none);
    this.level.title = note.statement || "The level that was asked for; the kernel is starting.";
    if (!note.begun) {
      this.waitsFor = note.waits || "";
      this.since = performance.now() - 1000 * (note.age || 0);
      this.showWaiting();
      return;
    }
    this.asks = `asking ${note.model || "the model"}`;
    this.model.textContent = note.model;
    this.model.title = "Model";
    shown(this.model, Boolean(note.model));
    const eased = note.eased || [];
    this.eased.replaceChildren(...eased.map((text) => make("span", "chip warning", text)));
    shown(this.eased, eased.length > 0);
    this.data.textContent = note.data.join(", ");
    shown(this.data, note.data.length > 0);
    this.setStatus("running", "Thinking");
  }

  step(number) {
    let found = this.views.get(number);
    if (!found) {
      found = this.drafting || new StepView(number);
      if (found === this.drafting) {
        this.drafting = null;
        found.rename(number);
      } else {
        this.append(found);
      }
      this.views.set(number, found);
      this.current = found;
    }
    return found;
  }

  // A reply has no number yet: its step gets one when the reply became an action.
  stepBeingWritten() {
    if (!this.drafting) {
      this.drafting = new StepView(Math.max(0, ...this.views.keys()) + 1);
      this.append(this.drafting);
    }
    this.setStatus("running", "Writing");
    return this.drafting;
  }

  append(view) {
    this.list.append(view.element);
    if (!this.replaying) { view.open(true); this.fold(); }
  }

  act(note) {
    this.step(note.step).take(note);
    this.setStatus("running", "Running the cell");
  }

  // One line, in the place of the one before: the page has them all. It goes with the step after it.
  tellNews(text) {
    this.news.textContent = text;
    this.newsOf = this.current?.number;
    shown(this.news, Boolean(text));
  }

  stepOver(note) {
    this.step(note.step).take(note);
    if (this.newsOf !== note.step) this.tellNews("");
    this.current = null;
    this.setStatus("running", "Thinking");
    this.say(`Step ${note.step} ${note.ok ? "done" : "did not succeed"}.`);
    this.undo.textContent = "Undo step";
    this.undo.title = `Stops the run and goes back to before step ${note.step} (Shift+U while the panel has the focus)`;
    shown(this.undo, this.canUndo);
    if (!this.replaying) this.fold();
  }

  // The newest steps are unfolded, the ones before them folded, unless a person chose otherwise.
  fold() {
    const all = [...this.list.children].filter((element) => element.matches("details"));
    const views = new Map([...this.views.values(), this.drafting].filter(Boolean).map((view) => [view.element, view]));
    all.forEach((element, i) => {
      const view = views.get(element);
      const open = i >= all.length - 1 - KEEP_OPEN;
      if (view && !view.touched && element.open !== open) view.open(open);
    });
  }

  over(note) {
    this.ended = true;
    this.showDock();
    shown(this.save, false);
    if (this.drafting) { this.drafting.dropDraft(); this.drafting.element.remove(); this.drafting = null; }
    if (this.spent) this.spent.runs = false;
    this.setStatus(note.ok ? "ok" : note.status === "interrupted" ? "stopped" : "failed", note.words);
    this.questions.clear();
    this.showQuestion();
    if (note.answer !== null) {
      this.end.append(make("div", "end-title", "Answer"), prose(note.answer, "answer"));
    }
    if (note.note) this.end.append(make("p", "note", note.note));
    if (note.why) this.end.append(make("p", "why", note.why));
    if (note.partial) this.end.append(make("pre", "out", note.partial));
    shown(this.end, this.end.childElementCount > 0);
    shown(this.stop, false);
    this.showKeys();
    this.say(note.answer !== null ? `Answer: ${note.answer.slice(0, 400)}` : `The run ended: ${note.words}.`);
  }

  offerBook(path) {
    const found = address(path);
    if (found) this.book.href = found;
    this.book.title = path;
    shown(this.book, Boolean(found));
    this.bookPath.textContent = `Notebook: ${path}`;
    shown(this.bookPath, !found);
  }

  // --- questions --------------------------------------------------------------------------------

  ask(note) {
    this.questions.set(note.id, note);
    this.showQuestion();
    this.say(`Approval wanted: ${note.reason}`);
  }

  told(note) {
    this.questions.delete(note.id);
    this.said = "";
    if (note.said) this.step(note.step).take(note);
    this.showQuestion();
    if (!this.questions.size && !this.ended) this.setStatus("running", "Running the cell");
  }

  showQuestion() {
    const note = this.questions.values().next().value;
    if (note && this.asked === note.id) { this.more.textContent = this.waiting(); return; }
    const had = this.asking.contains(document.activeElement);
    this.asked = note?.id;
    this.root.dataset.asks = note?.kind || "";
    this.asking.replaceChildren();
    shown(this.asking, Boolean(note));
    this.showKeys();
    if (!note) { if (had) this.steps.focus({ preventScroll: true }); return; }
    this.setStatus("asks", "Waits for you");
    const what = note.kind === "cell" ? "cell" : "call";
    const title = make("div", "ask-title", note.kind === "cell" ? `Run the cell of step ${note.step}?` : `Make this call in step ${note.step}?`);
    title.id = `kap-ask-${this.view}`;
    this.more = make("span", "fact", this.waiting());
    title.append(" ", this.more);
    this.asking.setAttribute("role", "group");
    this.asking.setAttribute("aria-labelledby", title.id);
    const reason = make("p", "ask-reason", note.reason);
    const code = colouredCode(note.code, note.hues);
    const editor = this.editor = make("textarea", "editor");
    editor.setAttribute("aria-label", "The cell, to be edited");
    editor.spellcheck = false;
    editor.value = note.code;
    editor.rows = Math.min(16, note.code.split("\n").length + 1);
    shown(editor, false);
    const why = this.why = make("input", "reason");
    why.type = "text";
    why.placeholder = "Reason, if you deny (the model is told)";
    why.setAttribute("aria-label", "Reason, if you deny; the model is told");
    why.maxLength = 1000;
    const standing = make("input");
    standing.type = "checkbox";
    const rest = make("label", "rest");
    rest.append(standing, note.rest);
    const decide = (allowed) => {
      const said = { do: "decide", id: note.id, allowed, reason: allowed ? "" : why.value };
      if (allowed && !editor.hidden) said.edited = editor.value;
      if (standing.checked) said.standing = true;
      for (const element of this.asking.querySelectorAll("button, input")) element.disabled = true;
      this.send(said);
    };
    this.approve = button("Approve", "primary", () => decide(true), "A");
    this.deny = button("Deny", "", () => decide(false), "D");
    this.edit = button("Edit, then run", "", () => {
      const editing = editor.hidden;
      shown(editor, editing);
      shown(code, !editing);
      this.approve.textContent = editing ? "Run as edited" : "Approve";
      this.edit.textContent = editing ? "Back to the original" : "Edit, then run";
      if (editing) editor.focus(); else editor.value = note.code;
    }, "E");
    shown(this.edit, what === "cell" && !note.cut); // a part of a cell is not to be run for the whole
    const row = make("div", "buttons");
    row.append(this.approve, this.edit, this.deny, why);
    this.asking.append(title, reason, code, editor, row, rest);
    this.holdAnswers(had);
  }

  // A press at once would answer a question that nobody has read.
  holdAnswers(focus) {
    const answers = [this.approve, this.deny];
    const free = () => {
      for (const answer of answers) answer.disabled = false;
      if (focus) answers[0].focus({ preventScroll: true });
    };
    for (const answer of answers) answer.disabled = true;
    setTimeout(free, UNREAD_MS);
  }

  waiting() {
    return this.questions.size > 1 ? `(1 of ${this.questions.size})` : "";
  }

  // --- what is pressed ------------------------------------------------------------------------------

  pressStop() {
    if (this.stopping || this.ended) return;
    this.stopping = true;
    this.steps.focus({ preventScroll: true }); // a button that is disabled would lose the focus
    this.stop.disabled = true;
    this.setStatus("stopped", "Stopping");
    this.send({ do: "stop" });
  }

  pressUndo() {
    this.undo.disabled = true;
    this.setStatus("stopped", "Undoing");
    this.send({ do: "undo" });
    setTimeout(() => { this.undo.disabled = false; }, 2000);
  }

  // Letters work with Shift while the panel has the focus, and never while text is typed. Escape
  // does nothing: a run is too dear to be ended by a habit.
  key(event) {
    if (!event.isTrusted) return;
    const strong = event.ctrlKey || event.metaKey;
    if (strong && event.key.toLowerCase() === "s") return; // saves the notebook, as everywhere in it
    const { target } = event;
    if (target.matches("textarea, input[type=text], input[type=search]")) {
      event.stopPropagation();
      const pressed = target === this.editor && strong ? this.approve : target === this.why && this.deny;
      if (event.key === "Enter" && pressed) {
        event.preventDefault();
        pressed.press();
      }
      return;
    }
    if (strong || event.altKey) return;
    event.stopPropagation(); // or it would be a command to the notebook's cells
    if (!event.shiftKey || event.repeat) return; // a key that is held answers one question
    const asked = this.asked !== undefined;
    const press = {
      S: !this.stop.hidden && this.stop, U: !this.undo.hidden && this.undo, A: asked && this.approve,
      D: asked && this.deny, E: asked && !this.edit.hidden && this.edit,
    }[event.key.toUpperCase()];
    if (!press) return;
    event.preventDefault();
    press.press();
  }

  // --- what is seen -----------------------------------------------------------------------------

  setStatus(state, words) {
    if (this.stopping && state === "running") return;
    this.root.dataset.state = state;
    if (this.status.textContent === words) return;
    this.status.textContent = words;
    this.since = performance.now();
    this.waitsFor = words === "Thinking" ? this.asks || "" : "";
    this.showWaiting();
  }

  say(words) {
    this.said = words;
    if (!this.replaying) this.live.textContent = words;
  }

  showKeys() {
    const keys = this.ended ? [] : ["Shift+S Stop"];
    if (this.questions.size) keys.push("Shift+A Approve", "Shift+D Deny", "Shift+E Edit");
    this.keys.textContent = keys.length ? `Keys in the panel: ${keys.join(" · ")}` : "";
  }

  // What is waited for, and how long by now; at once while the run begins, later for what is quick.
  showWaiting() {
    const { state } = this.root.dataset;
    const age = (performance.now() - this.since) / 1000;
    const told = state === "starting" || (state === "running" && age >= 1);
    const parts = [this.waitsFor, seconds(age)].filter(Boolean);
    this.waits.textContent = told && !this.ended ? parts.join(" · ") : "";
  }

  tick() {
    this.showWaiting();
    this.showDock();
    if (this.spent?.runs && !this.ended) this.showMeters();
  }

  showMeters() {
    const spent = this.spent;
    const caps = spent?.caps || [null, null, null, null];
    const age = spent?.runs ? (performance.now() - spent.at) / 1000 : 0;
    const clock = (spent?.seconds || 0) + age;
    const about = spent?.about ? "≈ " : "";
    const cost = spent?.cost;
    const of = (cap, words) => (cap === null || cap === undefined ? "" : ` / ${words(cap)}`);
    const money = (value) => `$${value < 1 ? value.toFixed(4).replace(/0{1,2}$/, "") : value.toFixed(2)}`;
    this.showMeter("Steps", spent?.steps || 0, caps[0], `${spent?.steps || 0}${of(caps[0], count)}`);
    this.showMeter("Time", clock, caps[1], `${seconds(clock)}${of(caps[1], (cap) => `${count(cap)} s`)}`);
    this.showMeter("Tokens", spent?.tokens || 0, caps[2], `${about}${count(spent?.tokens || 0)}${of(caps[2], count)}`);
    shown(this.meter.Cost.box, cost !== undefined);
    this.showMeter("Cost", cost || 0, caps[3], cost === undefined ? "" : `${money(cost)}${of(caps[3], money)}`);
  }

  showMeter(name, value, cap, words) {
    const meter = this.meter[name];
    if (meter.value.textContent !== words) meter.value.textContent = words;
    const part = cap ? Math.min(1, value / cap) : 0;
    meter.fill.style.width = `${(100 * part).toFixed(1)}%`;
    meter.box.dataset.near = part >= 0.9 ? "yes" : "no";
    shown(meter.bar, Boolean(cap));
  }

  toBottom() {
    this.steps.scrollTop = this.steps.scrollHeight;
  }
}

// What a person may do with a run that is over: a row below the page that takes the panel's place. It is no output, so
// no notebook is saved with it, and it goes with the widget, without which no kernel hears it.
function offerBelow(child, area, at, offers, send) {
  const row = make("div", "panel offers");
  row.setAttribute("role", "group");
  row.setAttribute("aria-label", "What to do with the answer");
  for (const { label, copy } of offers) {
    if (copy !== undefined && !navigator.clipboard) continue; // the page came over a line that is not safe
    const each = button(label, "", async () => {
      each.disabled = true;
      if (copy === undefined) { send({ do: "offer", label }); return; }
      each.textContent = await navigator.clipboard.writeText(copy).then(() => "Copied", () => "Not allowed here");
      setTimeout(() => { each.textContent = label; each.disabled = false; }, 1500);
    });
    row.append(each);
  }
  const place = (tries) => {
    const page = area.children[at] !== child && area.children[at]?.querySelector(".jp-RenderedHTMLCommon");
    if (!page) { if (tries) setTimeout(() => place(tries - 1), 50); return; }
    const put = () => { // again when the page is drawn anew
      if (row.over || row.parentElement === page) return;
      page.append(row);
      makeSortable(page);
    };
    new MutationObserver(put).observe(page, { childList: true });
    put();
  };
  place(40);
  return row;
}

// A function, so that each widget has views of its own.
export default () => {
  const panels = new Set();
  return {
    initialize: () => () => {
      for (const { row } of panels) { if (row) { row.over = true; row.remove(); } }
    },
    render({ model, el }) {
      const panel = new PanelView(el, (said) => model.send(said));
      panels.add(panel);
      const hear = (message) => panel.hear(message);
      model.on("msg:custom", hear);
      return () => {
        model.off("msg:custom", hear);
        panel.close();
        if (!panel.row) panels.delete(panel);
      };
    },
  };
};
