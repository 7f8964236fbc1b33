// Runs before any script of a page of states, after world.js: describes the page as numbered elements, finds them again
// by their number, and passes on what the page says of itself.
(() => {
  if (window.__cairn) return;
  const ROLES = { BUTTON: 'button', INPUT: 'input', CANVAS: 'image', P: 'text' };
  let nodes = []; // of the latest observation; element k is nodes[k - 1]

  const barred = (element) => {
    const open = document.querySelector('dialog:modal');
    return open !== null && !open.contains(element);
  };
  const row = (element) => {
    const box = element.getBoundingClientRect();
    const place = [box.left, box.top, box.width, box.height].map((each) => Math.round(each * 10) / 10);
    const states = [];
    if (barred(element)) states.push('disabled');
    if (document.activeElement === element) states.push('focused');
    const role = ROLES[element.tagName];
    const label = element.getAttribute('aria-label') || element.textContent.trim();
    return [role, label, element.value || '', states, role === 'button' || role === 'input', ...place];
  };
  const state = () => {
    const all = [...document.querySelectorAll(Object.keys(ROLES).join())];
    nodes = all.filter((element) => element.getClientRects().length);
    return JSON.stringify({ done: stage.done, elements: nodes.map(row) });
  };
  const place = (node) => {
    if (!node || !node.isConnected) return null;
    const box = node.getBoundingClientRect();
    return box.width || box.height ? [box.left + box.width / 2, box.top + box.height / 2] : null;
  };
  const locate = (id) => {
    const spot = place(nodes[id - 1]);
    return spot && [...spot, nodes[id - 1].tagName === 'INPUT' ? 'field' : ''];
  };
  const editable = () => document.activeElement?.tagName === 'INPUT';

  // ── the episode ──────────────────────────────────────────────────────────────
  // Lets `ms` go by, and what the page has begun come to its end.
  const act = async (ms) => {
    await new Promise((done) => setTimeout(done, ms));
    await stage.work;
    return stage.done;
  };
  const expert = (step) => {
    const command = stage.plan[step];
    if (!command || stage.done) return null;
    if (!command.selector) return command;
    window.__cairnNodes = [document.querySelector(command.selector)];
    const { selector: _, ...rest } = command;
    return { ...rest, node: 0 };
  };

  // ── what can be told of a page from outside, and told to another ─────────────
  const fields = () => [...document.querySelectorAll('input')];
  const scrolled = () => [...document.querySelectorAll('*')].filter((element) => element.scrollTop || element.scrollLeft);
  const order = (element) => [...document.querySelectorAll('*')].indexOf(element);
  const exported = () => ({
    local: { ...localStorage },
    session: { ...sessionStorage },
    cookies: document.cookie ? document.cookie.split('; ') : [],
    fields: fields().map((field) => [field.value, field.selectionStart, field.selectionEnd]),
    scrolled: scrolled().map((element) => [order(element), element.scrollLeft, element.scrollTop]),
    focused: order(document.activeElement),
  });
  const imported = (told) => {
    Object.assign(localStorage, told.local);
    Object.assign(sessionStorage, told.session);
    for (const cookie of told.cookies) document.cookie = cookie;
    const all = [...document.querySelectorAll('*')];
    told.fields.forEach(([value, start, end], index) => {
      fields()[index].value = value;
      fields()[index].setSelectionRange(start, end);
    });
    if (all[told.focused] !== document.body) all[told.focused].focus({ preventScroll: true });
    for (const [index, left, top] of told.scrolled) all[index].scrollTo(left, top);
  };

  const api = { editable, locate, place, state, act, expert, exported, imported, idOf: (node) => nodes.indexOf(node) + 1,
    goal: () => stage.goal, names: () => Object.keys(properties),
    judged: () => [stage.done, stage.reward, stage.complaint] };
  Object.defineProperty(window, '__cairn', { value: Object.freeze(api) });
})();
