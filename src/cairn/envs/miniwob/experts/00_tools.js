// What every expert is built from. The files of this folder are joined in name order into one function, so that they
// share these names; `experts` maps a task to a function that looks at the page and returns one command, or null.
//
// Commands ({kind, ...}; coordinates are CSS pixels of the 160 x 210 screen):
//   click | double_click | right_click | hover  node | x, y
//   type    node, text       replaces what the field holds; on a native <select>, chooses that option
//   key     keys             to whatever has the focus
//   drag    node | x, y      to node2 | x2, y2
//   scroll  node | x, y      by dx, dy
//   wait    seconds          of the page's own time
//   answer  text
// A node is its index in window.__cairnNodes. Asking twice without acting must give the same command: state is read
// from the page; window.__cairnMemory may only hold what the page has shown before.

const SCREEN = { left: 0, top: 0, right: 160, bottom: 210 };
const LONGEST_SCROLL = 200;
const experts = {};

// ── the goal ──
const goal = () => {
  const utterance = core.getUtterance();
  return typeof utterance === "string" ? utterance : utterance.utterance;
};
const fields = () => core.getUtterance().fields ?? {};
const quoted = () => [...goal().matchAll(/"([^"]*)"/g)].map((match) => match[1]);
const read = (pattern) => (goal().match(pattern) ?? []).slice(1);
const ordinal = () => Number(goal().match(/\b(\d+)[a-z]{2}\b/)[1]);

// ── the page ──
const all = (selector, root = document) => [...root.querySelectorAll(selector)];
const one = (selector, root = document) => root.querySelector(selector);
const text = (node) => node.textContent.replace(/\s+/g, " ").trim();
const visible = (node) => {
  if (node === null || node === undefined || node.getClientRects().length === 0) return false;
  return getComputedStyle(node).visibility !== "hidden";
};
const seen = (selector, root = document) => all(selector, root).filter(visible);
const shown = (selector) => seen(selector).length > 0;
const labelled = (selector, label) => seen(selector).find((node) => text(node) === label);
const memory = () => (window.__cairnMemory ??= {});
const after = (items, current) => items[(items.indexOf(current) + 1) % items.length];

// ── geometry ──
const clip = (box, frame) => ({
  left: Math.max(box.left, frame.left),
  top: Math.max(box.top, frame.top),
  right: Math.min(box.right, frame.right),
  bottom: Math.min(box.bottom, frame.bottom),
});
const middle = (box) => ({ x: (box.left + box.right) / 2, y: (box.top + box.bottom) / 2 });
const scrolls = (node) =>
  /auto|scroll/.test(getComputedStyle(node).overflowY) && node.scrollHeight > node.clientHeight + 1;
const scroller = (node) => {
  for (let parent = node.parentElement; parent && parent !== document.body; parent = parent.parentElement) {
    if (scrolls(parent)) return parent;
  }
  return null;
};
const hits = (node, point) => {
  const found = document.elementFromPoint(point.x, point.y);
  return found !== null && (found === node || node.contains(found));
};
const reachable = (node) => {
  // The middle first; else the first point of a grid over the visible parts where the node is on top.
  const center = middle(node.getBoundingClientRect());
  const frame = clip({ left: center.x, right: center.x, top: center.y, bottom: center.y }, SCREEN);
  if (frame.left === center.x && frame.top === center.y && frame.bottom === center.y && hits(node, center)) {
    return { central: true };
  }
  for (const rect of node.getClientRects()) {
    const box = clip(rect, SCREEN);
    if (box.right <= box.left || box.bottom <= box.top) continue;
    for (const row of [0.5, 0.25, 0.75, 0.1, 0.9]) {
      for (const column of [0.5, 0.25, 0.75, 0.1, 0.9]) {
        const x = box.left + (box.right - box.left) * column;
        const y = box.top + (box.bottom - box.top) * row;
        if (hits(node, { x, y })) return { central: false, x, y };
      }
    }
  }
  return null;
};

// ── commands ──
const index = (node) => window.__cairnNodes.push(node) - 1;
const scrollBy = (node, distance) => {
  const dy = Math.round(Math.max(-LONGEST_SCROLL, Math.min(LONGEST_SCROLL, distance)));
  if (node !== null) return { kind: "scroll", node: index(node), dx: 0, dy };
  return { kind: "scroll", x: 80, y: 130, dx: 0, dy };
};
const reveal = (node) => {
  // A scroll that brings the node into view, where it is clipped; else null.
  const box = node.getBoundingClientRect();
  const parent = scroller(node);
  const frame = parent === null ? SCREEN : clip(parent.getBoundingClientRect(), SCREEN);
  const y = middle(box).y;
  if (y > frame.top + 1 && y < frame.bottom - 1) return null;
  return scrollBy(parent, y - middle(frame).y);
};
const pointAt = (kind, node) => {
  if (!visible(node)) return null;
  const place = reachable(node);
  if (place === null) return reveal(node) ?? { kind, node: index(node) };
  return place.central ? { kind, node: index(node) } : { kind, x: place.x, y: place.y };
};
const click = (node) => pointAt("click", node);
const hover = (node) => pointAt("hover", node);
const press = (keys) => ({ kind: "key", keys });
const wait = (seconds) => ({ kind: "wait", seconds });
const drag = (from, to) => ({ kind: "drag", x: from.x, y: from.y, x2: to.x, y2: to.y });
const fill = (node, value) => {
  // Nothing to do (null) where the field already holds the value.
  if (!visible(node) || node.value === value) return null;
  return reveal(node) ?? { kind: "type", node: index(node), text: value };
};
const choose = (select, label) =>
  text(select.selectedOptions[0]) === label ? null : { kind: "type", node: index(select), text: label };
const tick = (box, wanted) => (box.checked === wanted ? null : click(box));

// ── patterns that several tasks share ──
const firstOf = (...steps) => {
  for (const step of steps) {
    const command = step();
    if (command !== null && command !== undefined) return command;
  }
  return null;
};
const submit = () => click(one("#subbtn") ?? one("#submit"));
const fillAll = (pairs) => firstOf(...pairs.map(([node, value]) => () => fill(node, value)));
