// Runs before any script of a page. It gives the page a world that repeats itself: a clock that moves only when it is
// told to, seeded random numbers, no animations; and it remembers who listens for the pointer.
(() => {
  if (window.__cairnWorld) return;
  const START = Date.UTC(2020, 0, 15, 12, 0, 0);
  const FRAME = 1000 / 60;

  // ── the clock: timers fire in `advance` alone ────────────────────────────────
  let now = 0;
  let last = 0; // both the newest timer's id and its rank among those due at one moment
  const timers = new Map();
  const add = (callback, delay, args, repeats) => {
    const wait = Math.max(repeats ? 1 : 0, Number(delay) || 0);
    timers.set(++last, { id: last, rank: last, at: now + wait, wait, callback, args, repeats });
    return last;
  };
  const remove = (id) => { timers.delete(Number(id)); };
  const fire = (timer) => {
    if (timer.repeats) { timer.at += timer.wait; timer.rank = ++last; } else timers.delete(timer.id);
    try {
      if (typeof timer.callback === 'function') timer.callback.apply(window, timer.args);
      else (0, eval)(String(timer.callback));
    } catch (error) { reportError(error); }
  };
  const earliest = (until) => {
    let due = null;
    for (const timer of timers.values()) {
      if (timer.at <= until && (!due || timer.at < due.at || (timer.at === due.at && timer.rank < due.rank))) due = timer;
    }
    return due;
  };
  const advance = async (ms) => {
    const end = now + ms;
    for (let due = earliest(end), n = 0; due && n < 20000; due = earliest(end), n++) {
      now = Math.max(now, due.at);
      fire(due);
      await null; // promises settle between two timers, as they do between two tasks
    }
    now = end;
  };
  // At least `least` ms, then on while something that happens once is due within `horizon`; at most `most`.
  const settle = async (least, horizon, most) => {
    const end = now + most;
    await advance(least);
    for (;;) {
      let next = Infinity;
      for (const timer of timers.values()) if (!timer.repeats && timer.at < next) next = timer.at;
      if (next > now + horizon || next > end) return;
      await advance(Math.max(0, next - now));
    }
  };
  window.setTimeout = (callback, delay, ...args) => add(callback, delay, args, false);
  window.setInterval = (callback, delay, ...args) => add(callback, delay, args, true);
  window.clearTimeout = window.clearInterval = window.cancelAnimationFrame = window.cancelIdleCallback = remove;
  const nextFrame = window.requestAnimationFrame.bind(window);
  const painted = () => new Promise((done) => nextFrame(() => nextFrame(done)));
  window.requestAnimationFrame = (callback) =>
    add(() => callback(now), (Math.floor(now / FRAME + 1e-6) + 1) * FRAME - now, [], false);
  window.requestIdleCallback = (callback) =>
    add(() => callback({ didTimeout: false, timeRemaining: () => 10 }), 1, [], false);
  const NativeDate = Date;
  const date = () => START + Math.floor(now);
  NativeDate.now = date;
  window.Date = new Proxy(NativeDate, {
    construct: (target, args, made) => Reflect.construct(target, args.length ? args : [date()], made),
    apply: () => new NativeDate(date()).toString(),
  });
  NativeDate.prototype.constructor = window.Date;
  performance.now = () => now;

  // ── random numbers (mulberry32) ──────────────────────────────────────────────
  let state = 0x9e3779b9;
  Math.random = () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
  crypto.getRandomValues = (array) => {
    const bytes = new Uint8Array(array.buffer, array.byteOffset, array.byteLength);
    for (let i = 0; i < bytes.length; i++) bytes[i] = Math.floor(Math.random() * 256);
    return array;
  };
  const hex = (n) => Array.from({ length: n }, () => Math.floor(Math.random() * 16).toString(16)).join('');
  crypto.randomUUID = () => `${hex(8)}-${hex(4)}-4${hex(3)}-8${hex(3)}-${hex(12)}`;

  // ── nothing moves by itself ──────────────────────────────────────────────────
  const still = new CSSStyleSheet();
  still.replaceSync('*,*::before,*::after{transition:none!important;animation:none!important;'
    + 'caret-color:transparent!important;scroll-behavior:auto!important}');
  document.adoptedStyleSheets = [still];
  document.addEventListener('DOMContentLoaded', () => { if (window.jQuery && jQuery.fx) jQuery.fx.off = true; });

  // ── no windows of the browser's own ──────────────────────────────────────────
  // A drop-down's list and a picker of dates are no part of the page: no picture shows them, and while one is open it holds
  // up every frame. A click gives the focus to the drop-down, and the arrow keys choose in it, as they do with the list open.
  const PICKERS = 'input[type=date],input[type=time],input[type=month],input[type=week],input[type=datetime-local],input[type=color]';
  const dropDown = (node) => {
    const select = node instanceof Element && node.closest('select');
    return select && !select.multiple && select.size <= 1 ? select : null;
  };
  const picker = (node) => node instanceof Element && node.matches(PICKERS);
  const keyOpens = (key, alt) => key === ' ' || key === 'F4' || (alt && /^Arrow(Up|Down)$/.test(key));
  const early = (type, handle) => window.addEventListener(type, (event) => { if (event.isTrusted) handle(event); }, true);
  early('mousedown', (event) => {
    const select = dropDown(event.target);
    if (!select) return;
    event.preventDefault();
    if (!select.disabled) select.focus();
  });
  early('click', (event) => { if (picker(event.target)) event.preventDefault(); });
  for (const type of ['keydown', 'keypress']) {
    early(type, (event) => {
      if (keyOpens(event.key, event.altKey) && (dropDown(event.target) || picker(event.target))) event.preventDefault();
    });
  }

  // ── who listens for the pointer ──────────────────────────────────────────────
  const POINTER = new Set(['click', 'mousedown', 'mouseup', 'dblclick', 'pointerdown', 'pointerup', 'touchstart',
    'contextmenu']);
  const heard = new WeakMap();
  const listen = EventTarget.prototype.addEventListener;
  const ignore = EventTarget.prototype.removeEventListener;
  EventTarget.prototype.addEventListener = function (type, listener, options) {
    if (POINTER.has(type) && listener && this instanceof Element) {
      if (!heard.has(this)) heard.set(this, new Map());
      const byType = heard.get(this);
      if (!byType.has(type)) byType.set(type, new Set());
      byType.get(type).add(listener);
    }
    return listen.call(this, type, listener, options);
  };
  EventTarget.prototype.removeEventListener = function (type, listener, options) {
    const byType = heard.get(this);
    if (byType && byType.has(type)) {
      byType.get(type).delete(listener);
      if (!byType.get(type).size) byType.delete(type);
    }
    return ignore.call(this, type, listener, options);
  };
  const listens = (element) => Boolean(heard.get(element)?.size || element.onclick || element.onmousedown
    || element.onmouseup || element.ondblclick || element.onpointerdown);

  // Where everything is scrolled to, as one number.
  const scrolled = () => {
    let sum = 0;
    for (const element of document.querySelectorAll('*')) sum = sum * 31 % 1e9 + element.scrollTop + 7 * element.scrollLeft;
    return sum;
  };

  // Makes the whole page be drawn anew: once on, once off.
  const stir = (on) => {
    const root = document.documentElement;
    if (on) root.style.opacity = '0.99';
    else root.style.removeProperty('opacity');
    if (!root.getAttribute('style')) root.removeAttribute('style');
  };

  // ── what goes wrong ──────────────────────────────────────────────────────────
  let errors = 0;
  listen.call(window, 'error', (event) => { if (event instanceof ErrorEvent) errors++; });
  listen.call(window, 'unhandledrejection', () => { errors++; });
  const complain = console.error;
  console.error = (...words) => { errors++; complain.apply(console, words); };

  const world = { advance, settle, painted, scrolled, listens, stir, errors: () => errors };
  Object.defineProperty(window, '__cairnWorld', { value: Object.freeze(world) });
})();
