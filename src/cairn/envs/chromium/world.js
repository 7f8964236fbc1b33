// Runs before any script of a page: keeps it from opening windows of the browser's own, remembers who listens for the
// pointer, and tells when the page has been drawn. Where clock.js ran before, the page's time is told here too.
(() => {
  if (window.__cairnWorld) return;
  const { nextFrame, ...time } = window.__cairnClock || { nextFrame: window.requestAnimationFrame.bind(window) };
  const painted = () => new Promise((done) => nextFrame(() => nextFrame(done)));

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

  const world = { ...time, painted, scrolled, listens, stir, errors: () => errors };
  Object.defineProperty(window, '__cairnWorld', { value: Object.freeze(world) });
})();
