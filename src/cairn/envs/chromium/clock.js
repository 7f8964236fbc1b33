// Runs before world.js where a page's world shall repeat itself: a clock that moves only when it is told to, seeded random
// numbers, no animations.
(() => {
  if (window.__cairnClock) return;
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

  Object.defineProperty(window, '__cairnClock', { value: Object.freeze({ advance, settle, nextFrame }) });
})();
