// Runs before any script of a MiniWoB++ page, after world.js: starts episodes, describes the page as numbered elements,
// and finds elements again by their number.
(() => {
  if (window.__cairn) return;
  const world = window.__cairnWorld;
  const HIDDEN = new Set(['query', 'reward-display', 'click-canvas', 'attention-canvas', 'sync-task-cover']);
  const SILENT = new Set(['SCRIPT', 'STYLE', 'TEMPLATE', 'HEAD', 'NOSCRIPT', 'META', 'LINK', 'TITLE', 'BR', 'HR',
    'OPTION', 'OPTGROUP', 'defs', 'OBJECT']);
  const NATIVE = { A: 'link', BUTTON: 'button', SELECT: 'select', TEXTAREA: 'textarea', SUMMARY: 'button' };
  const TYPED = { checkbox: 'checkbox', radio: 'radio', button: 'button', submit: 'button', reset: 'button',
    image: 'button', range: 'slider', file: 'button', color: 'color' };
  const HANDLES = '.ui-draggable-handle,.ui-draggable,.ui-resizable-se,.ui-slider-handle,.ui-sortable-handle,'
    + '.ui-sortable>*,.ui-selectee,.ui-menu-item,.ui-tabs-anchor,.ui-accordion-header,[draggable=true],'
    + '[contenteditable=true],[role=button],[role=tab],[role=option],[role=menuitem],[role=link],[tabindex="0"]';
  const GRAPHICS = new Set(['circle', 'rect', 'polygon', 'ellipse', 'line', 'path', 'polyline', 'text', 'image']);
  const ON = new Set(['active', 'clicked', 'selected', 'ui-state-active', 'ui-tabs-active', 'ui-selected', 'highlighted', 'checked']);
  const LAYOUT = new Set(['wrap', 'area', 'boxes', 'main', 'content']);
  const COLORS = { '255,0,0': 'red', '0,0,255': 'blue', '128,128,0': 'olive', '0,255,0': 'lime', '0,0,0': 'black',
    '255,255,255': 'white', '128,128,128': 'grey', '128,0,128': 'purple', '255,165,0': 'orange', '255,255,0': 'yellow',
    '0,255,255': 'cyan', '255,192,203': 'pink', '255,0,255': 'magenta', '0,128,0': 'green', '165,42,42': 'brown',
    '0,128,128': 'teal', '0,0,128': 'navy', '192,192,192': 'silver', '128,0,0': 'maroon', '238,130,238': 'violet',
    '255,215,0': 'gold', '75,0,130': 'indigo', '211,211,211': 'lightgrey', '169,169,169': 'darkgrey' };

  const squeeze = (text) => text.replace(/\s+/g, ' ').trim();
  const short = (text, limit = 80) => (text.length > limit ? text.slice(0, limit - 1) + '…' : text);
  const words = (name) => squeeze(name.replace(/([a-z])([A-Z])/g, '$1 $2').replace(/[-_]+/g, ' ')).toLowerCase();
  const rect = (node) => {
    if (node.nodeType === Node.TEXT_NODE) {
      const range = document.createRange();
      range.selectNodeContents(node);
      return range.getBoundingClientRect();
    }
    return node.getBoundingClientRect();
  };

  // ── what is visible, and what can be acted on ────────────────────────────────
  let nodes = []; // of the latest observation; element k is nodes[k - 1]

  const delegated = () => {
    const found = new Set();
    const jq = window.jQuery;
    if (!jq || !jq._data) return found;
    for (const element of document.querySelectorAll('body, body *')) {
      const events = jq._data(element, 'events');
      if (!events) continue;
      for (const type of ['click', 'mousedown', 'mouseup', 'dblclick']) {
        for (const handler of events[type] || []) {
          if (!handler.selector) continue;
          for (const hit of jq(element).find(handler.selector).get()) found.add(hit);
        }
      }
    }
    return found;
  };
  const onlyDelegates = (element) => {
    const events = window.jQuery && jQuery._data && jQuery._data(element, 'events');
    if (!events) return false;
    const all = ['click', 'mousedown', 'mouseup', 'dblclick'].flatMap((type) => events[type] || []);
    return all.length > 0 && all.every((handler) => handler.selector);
  };
  const acts = (element, style, parentPointer, hits) => {
    const tag = element.tagName;
    if (tag === 'INPUT') return element.type !== 'hidden';
    if (tag in NATIVE) return tag !== 'A' || element.hasAttribute('href') || world.listens(element) || hits.has(element)
      || style.cursor === 'pointer';
    if (tag === 'LABEL' || element.getAttribute('role') === 'dialog') return false;
    if (element.matches('.ui-resizable-handle:not(.ui-resizable-se)')) return false;
    if (hits.has(element) || element.matches(HANDLES)) return true;
    if (world.listens(element) && !LAYOUT.has(element.id) && tag !== 'BODY' && !onlyDelegates(element)) return true;
    return style.cursor === 'pointer' && !parentPointer;
  };

  // ── labels ───────────────────────────────────────────────────────────────────
  const ownText = (node, interactive, taken) => {
    if (taken && taken.has(node)) return ' ';
    if (node.nodeType === Node.TEXT_NODE) return node.data;
    if (node.nodeType !== Node.ELEMENT_NODE || SILENT.has(node.tagName) || interactive.has(node)) return ' ';
    if (!node.getClientRects().length) return ' ';
    const block = getComputedStyle(node).display.startsWith('inline') ? '' : ' ';
    return block + [...node.childNodes].map((child) => ownText(child, interactive, taken)).join('') + block;
  };
  const beside = (element, step, taken) => {
    for (let node = element[step]; node; node = node[step]) {
      if (node.nodeType === Node.TEXT_NODE) {
        if (!squeeze(node.data)) continue;
        taken.add(node);
        return squeeze(node.data);
      }
      if (node.nodeType !== Node.ELEMENT_NODE || node.tagName === 'BR') return '';
      if (node.matches('input,select,textarea,button,a')) return '';
      const text = squeeze(node.textContent);
      if (!text) continue;
      if (text.length > 40 || node.querySelector('input,select,textarea,button,a')) return '';
      taken.add(node);
      return text;
    }
    return '';
  };
  const given = (element) => squeeze(element.getAttribute('aria-label') || element.getAttribute('alt')
    || element.getAttribute('title') || element.getAttribute('placeholder') || '');
  const byLabel = (element, interactive, taken) => {
    const label = element.labels && element.labels[0];
    if (!label) return '';
    taken.add(label);
    return squeeze(ownText(label, new Set([...interactive, element])));
  };
  const fieldLabel = (element, interactive, taken) => {
    const toggle = element.type === 'checkbox' || element.type === 'radio';
    return given(element) || byLabel(element, interactive, taken)
      || (toggle ? beside(element, 'nextSibling', taken) : '') || beside(element, 'previousSibling', taken)
      || pictured(element) || above(element, taken) || (element.id.length > 3 ? words(element.id) : '');
  };
  // A field that is alone in its row is named by the row before.
  const above = (element, taken) => {
    for (let box = element.parentElement, n = 0; box && n < 3 && !LAYOUT.has(box.id); box = box.parentElement, n++) {
      if (box.querySelectorAll('input,select,textarea,button').length > 1) return '';
      const text = beside(box, 'previousSibling', taken);
      if (text) return text;
    }
    return '';
  };
  // A checkbox may stand beside a picture, as in number-checkboxes.
  const pictured = (element) => {
    const image = element.nextElementSibling;
    return image && image.tagName === 'IMG' ? words(image.src.split('/').pop().replace(/\.\w+$/, '')) : '';
  };
  const named = (element) => {
    const classes = [...element.classList].filter((name) => !/^(ui-|icon$|hide$)/.test(name) && !ON.has(name));
    const name = words(classes.join(' ')) || words(element.id);
    return [...new Set(name.split(' '))].filter((word) => !/^(icon|span|div)$/.test(word)).join(' ');
  };
  const colorName = (color) => {
    const parts = (color.match(/[\d.]+/g) || []).map(Number);
    if (!parts.length || (parts.length > 3 && parts[3] === 0)) return '';
    const rgb = parts.slice(0, 3);
    return COLORS[rgb.join(',')] || '#' + rgb.map((part) => Math.round(part).toString(16).padStart(2, '0')).join('');
  };
  const shapeLabel = (element, style) => {
    const tag = element.tagName;
    const fill = element.getAttribute('fill') || element.style.fill;
    const painted = fill && /^[a-z]+$/i.test(fill) && fill !== 'none' ? fill.toLowerCase()
      : colorName(style.fill === 'none' ? style.stroke : style.fill);
    const box = element.getBBox();
    const id = /^\(.*\)$/.test(element.id) ? ' ' + element.id : '';
    if (tag === 'text') {
      const text = squeeze(element.textContent);
      const size = parseFloat(element.getAttribute('font-size') || '0');
      const kind = /^\d$/.test(text) ? 'digit ' : /^[a-z]$/i.test(text) ? 'letter ' : '';
      return squeeze(`${size ? (size > 15 ? 'large' : 'small') : ''} ${kind ? painted : ''} ${kind}${text}${id}`);
    }
    const corners = element.points ? element.points.numberOfItems : 0;
    const name = { circle: 'circle', rect: 'rectangle', ellipse: 'ellipse', line: 'line', image: 'picture' }[tag]
      || (corners === 3 ? 'triangle' : corners ? `polygon with ${corners} corners` : 'shape');
    const size = tag === 'line' || tag === 'path' ? '' : Math.max(box.width, box.height) > 15 ? 'large' : 'small';
    return squeeze(`${size} ${painted} ${name}${id}`);
  };

  // ── one element ──────────────────────────────────────────────────────────────
  const statesOf = (element) => {
    const states = [];
    const is = (name) => element.getAttribute(name) === 'true';
    if (element.checked === true || is('aria-checked')) states.push('checked');
    if (element.disabled === true || is('aria-disabled')) states.push('disabled');
    if (is('aria-expanded')) states.push('expanded');
    if (document.activeElement === element) states.push('focused');
    const tab = element.matches('.ui-tabs-anchor') ? element.parentElement : element;
    if (element.readOnly === true && element.tagName !== 'SELECT') states.push('readonly');
    if (tab.getAttribute('aria-selected') === 'true' || (element.tagName === 'OPTION' && element.selected)
      || [...(tab.classList || [])].some((name) => ON.has(name))) states.push('selected');
    return states;
  };
  const valueOf = (element) => {
    const tag = element.tagName;
    if (tag === 'SELECT') return [...element.selectedOptions].map((option) => squeeze(option.text)).join(', ');
    if (tag === 'TEXTAREA') return element.value;
    if (tag === 'INPUT') return ['checkbox', 'radio', 'button', 'submit', 'reset', 'image'].includes(element.type)
      ? '' : element.value;
    if (element.classList && element.classList.contains('ui-slider-handle') && window.jQuery) {
      const slider = jQuery(element.parentElement);
      try { return String(slider.slider('value')); } catch { return ''; }
    }
    return element.isContentEditable ? squeeze(element.textContent) : '';
  };
  const roleOf = (element, style, label) => {
    const tag = element.tagName;
    if (tag === 'INPUT') return TYPED[element.type] || 'input';
    if (element.matches('.ui-tabs-anchor')) return 'tab';
    if (tag in NATIVE) return NATIVE[tag];
    if (element.isContentEditable) return 'input';
    if (element.classList.contains('ui-slider-handle')) return 'slider';
    if (element.ownerSVGElement) return 'shape';
    if (tag === 'CANVAS' || tag === 'svg') return 'area';
    const role = element.getAttribute('role');
    if (role && role !== 'presentation' && role !== 'none') return role;
    if (element.matches('.alink')) return 'link';
    if (element.matches('.ui-accordion-header,.ui-button')) return 'button';
    if (tag === 'IMG' || (isPicture(style) && !squeeze(element.textContent))) return 'icon';
    if (!label && colorName(style.backgroundColor)) return 'color';
    return 'item';
  };
  const isPicture = (style) => /url\(/.test(style.content) || /url\(/.test(style.backgroundImage);
  const labelOf = (element, style, interactive, taken) => {
    const tag = element.tagName;
    if (tag === 'INPUT' && ['button', 'submit', 'reset'].includes(element.type)) return element.value || given(element);
    if (['INPUT', 'SELECT', 'TEXTAREA'].includes(tag)) return fieldLabel(element, interactive, taken);
    if (element.ownerSVGElement) return shapeLabel(element, style);
    const text = squeeze([...element.childNodes].map((child) => ownText(child, interactive, taken)).join(''));
    if (element.isContentEditable) return given(element) || 'editor';
    if (text && !(tag === 'BUTTON' && given(element) && text === '×')) return short(text);
    const name = given(element);
    if (name) return name;
    if (tag === 'IMG') return named(element) || words(element.src.split('/').pop().replace(/\.\w+$/, ''));
    return isPicture(style) && !squeeze(element.textContent) ? named(element) : '';
  };

  const describe = () => {
    const rows = [];
    const found = [];
    const styles = new Map();
    const interactive = new Set();
    const holders = new Set(); // ancestors of interactive elements
    const taken = new Set(); // texts that serve as some field's label
    const shown = (element, style) => style.display !== 'none' && style.visibility !== 'hidden';
    const hits = delegated();
    const survey = (element, parentPointer) => {
      if (HIDDEN.has(element.id) || SILENT.has(element.tagName)) return;
      const style = getComputedStyle(element);
      if (style.display === 'none') return;
      styles.set(element, style);
      const pointer = style.cursor === 'pointer';
      if (shown(element, style) && acts(element, style, parentPointer, hits)) {
        interactive.add(element);
        for (let up = element.parentElement; up && !holders.has(up); up = up.parentElement) holders.add(up);
      }
      for (const child of element.children) survey(child, pointer);
    };
    for (const child of document.body.children) survey(child, false);

    const round = (value) => Math.round(value * 10) / 10;
    const emit = (node, role, label, value, states, can) => {
      const box = rect(node);
      if (box.width <= 0 && box.height <= 0) return;
      if (box.right <= 0 || box.left >= innerWidth) return;
      found.push(node);
      rows.push([role, label, value, states, can, round(box.left), round(box.top), round(box.width), round(box.height)]);
    };
    const emitText = (node, text) => {
      const label = squeeze(text);
      if (label && !taken.has(node)) emit(node, 'text', label, '', [], false);
    };
    const emitOptions = (select) => {
      for (const option of select.options) emit(option, 'option', squeeze(option.text), '', statesOf(option), true);
    };
    const isLeaf = (element) => !holders.has(element) && [...element.querySelectorAll('*')].every((child) => {
      const style = styles.get(child) || getComputedStyle(child);
      return style.display === 'none' || (style.display.startsWith('inline') && !isPicture(style)
        && child.tagName !== 'IMG' && child.tagName !== 'svg' && !taken.has(child));
    });
    const emitActor = (element, style) => {
      const label = labelOf(element, style, interactive, taken);
      if (holders.has(element) && !label && !element.matches('input,button,a,select')) return; // its parts speak for it
      emit(element, roleOf(element, style, label), label, valueOf(element), statesOf(element), true);
      if (element.tagName === 'SELECT' && (element.multiple || element.size > 1)) emitOptions(element);
    };
    const walk = (element, inside) => {
      const style = styles.get(element);
      if (!style || taken.has(element) && !holders.has(element)) return;
      const visible = style.visibility !== 'hidden';
      if (interactive.has(element)) {
        emitActor(element, style);
        inside = true;
      } else if (visible && !inside) {
        if (element.ownerSVGElement && GRAPHICS.has(element.tagName)) {
          emit(element, element.tagName === 'text' ? 'text' : 'shape', shapeLabel(element, style), '', [], false);
          return;
        }
        if (element.tagName === 'IMG' || element.tagName === 'CANVAS' || (isPicture(style) && !element.textContent.trim()
          && !element.children.length)) {
          emit(element, element.tagName === 'CANVAS' ? 'area' : 'image', given(element) || named(element)
            || (element.src ? words(element.src.split('/').pop().replace(/\.\w+$/, '')) : ''), '', [], false);
          return;
        }
        if (!element.children.length && !element.textContent.trim() && element.style && element.style.backgroundColor) {
          emit(element, 'color', colorName(style.backgroundColor), '', [], false);
          return;
        }
        if (isLeaf(element) && !element.ownerSVGElement && element.tagName !== 'svg') {
          emitText(element, element.innerText ?? element.textContent);
          return;
        }
      }
      for (const child of element.childNodes) {
        if (child.nodeType === Node.ELEMENT_NODE) walk(child, inside);
        else if (child.nodeType === Node.TEXT_NODE && visible && !inside && !(taken.has(element))) emitText(child, child.data);
      }
    };
    // Fields claim their labels before any text is listed on its own.
    for (const element of interactive) {
      if (['INPUT', 'SELECT', 'TEXTAREA'].includes(element.tagName)) labelOf(element, styles.get(element), interactive, taken);
    }
    for (const child of document.body.children) if (!HIDDEN.has(child.id)) walk(child, false);
    for (const row of rows) {
      if (row[0] !== 'item' && row[0] !== 'color' || row[1]) continue;
      const element = found[rows.indexOf(row)];
      row[1] = (row[0] === 'color' && colorName(styles.get(element).backgroundColor)) || named(element);
    }
    nodes = found;
    return rows;
  };

  // ── finding an element again ─────────────────────────────────────────────────
  const SCREEN = { width: 160, height: 210 };
  const owns = (node, x, y) => {
    const hit = document.elementFromPoint(x, y);
    return hit && (hit === node || node.contains(hit) && !nodes.includes(hit) || (hit.tagName === 'LABEL' && hit.contains(node)));
  };
  const inScreen = (x, y) => x >= 0 && y >= 0 && x < SCREEN.width && y < SCREEN.height;
  const spots = function* (element) {
    for (const box of element.getClientRects()) yield [box.left + box.width / 2, box.top + box.height / 2];
    const texts = document.createTreeWalker(element, NodeFilter.SHOW_TEXT);
    for (let text = texts.nextNode(); text; text = texts.nextNode()) {
      if (!text.data.trim()) continue;
      const box = rect(text);
      yield [box.left + box.width / 2, box.top + box.height / 2];
    }
    const box = element.getBoundingClientRect();
    for (const fy of [0.5, 0.2, 0.8]) for (const fx of [0.1, 0.3, 0.7, 0.9]) yield [box.left + box.width * fx, box.top + box.height * fy];
  };
  // Where to click a node, scrolled into view: [x, y]; null where it is gone.
  const place = (node) => {
    const element = node.nodeType === Node.TEXT_NODE ? node.parentElement : node;
    if (!element || !element.isConnected) return null;
    let box = rect(node);
    const visible = () => inScreen(box.left + box.width / 2, box.top + box.height / 2);
    if (!visible() || (element === node && !owns(element, box.left + box.width / 2, box.top + box.height / 2))) {
      element.scrollIntoView({ block: 'nearest', inline: 'nearest', behavior: 'instant' });
      box = rect(node);
    }
    if (!box.width && !box.height) return null;
    if (node === element) for (const [x, y] of spots(element)) if (inScreen(x, y) && owns(element, x, y)) return [x, y];
    const first = node === element ? element.getClientRects()[0] || box : box;
    return [first.left + first.width / 2, first.top + first.height / 2];
  };
  const locate = (id) => {
    const node = nodes[id - 1];
    const spot = node && place(node);
    if (!spot) return null;
    const select = node.tagName === 'SELECT' ? node : node.tagName === 'OPTION' ? node.closest('select') : null;
    if (!select) return [spot[0], spot[1], node.matches?.('input,textarea,[contenteditable=true]') ? 'field' : ''];
    const list = select.multiple || select.size > 1;
    return [spot[0], spot[1], list ? 'list' : 'select'];
  };
  // Which option a text names, and which is chosen: [index, chosen]; index -1 where there is no such option.
  const selectOf = (id) => nodes[id - 1].closest('select'); // an option stands for the list that it is in
  const option = (id, text) => {
    const select = selectOf(id);
    const options = [...select.options].filter((each) => !each.disabled);
    const wanted = squeeze(text).toLowerCase();
    let index = options.findIndex((each) => squeeze(each.text) === squeeze(text));
    if (index < 0) index = options.findIndex((each) => squeeze(each.text).toLowerCase() === wanted);
    return [index, options.findIndex((each) => each.selected), document.activeElement === select];
  };
  const optionPlace = (id, text) => {
    const [index] = option(id, text);
    const node = selectOf(id).options[index];
    return index < 0 ? null : place(node);
  };

  // ── the episode ──────────────────────────────────────────────────────────────
  const goal = () => {
    const said = core.getUtterance();
    return typeof said === 'string' ? said : said.utterance;
  };
  const ready = () => typeof window.core === 'object' && typeof window.genProblem === 'function';
  const start = async (seed) => {
    await world.advance(0);
    const style = document.createElement('style');
    style.textContent = '#reward-display,#click-canvas{display:none!important}';
    document.head.appendChild(style);
    core.EPISODE_MAX_TIME = 1e9;
    core.setDataMode('train');
    Math.seedrandom(seed);
    core.startEpisodeReal();
    await world.settle(0, 500, 1000);
    return goal();
  };
  const done = () => typeof WOB_DONE_GLOBAL !== 'undefined' && WOB_DONE_GLOBAL === true;
  const state = () => JSON.stringify({ done: done(), elements: describe() });
  // Whether the next frame shows the page as it will stay, with the pointer at x, y. One frame late are the hovering of
  // what came to lie under the pointer, and the focus of what can no longer have it.
  const settled = (x, y) => {
    const focus = document.activeElement || document.body;
    if (focus !== document.body && (focus.disabled || !focus.getClientRects().length)) return false;
    const under = document.elementFromPoint(x, y);
    if (!under || under === document.body || under === document.documentElement) return !document.querySelector('body :hover');
    const inner = under.querySelector(':hover');
    return under.matches(':hover') && (!inner || inner === under.closest('label')?.control);
  };
  const look = (x, y) => [location.pathname.split('/').pop() + location.hash, state(), settled(x, y)];
  // Lets `ms` go by, or the page come to rest: [done, settled].
  const act = async (ms, x, y) => {
    if (ms > 0) await world.advance(ms);
    else await world.settle(100, 500, 1000);
    return [done(), settled(x, y)];
  };
  const judged = () => [done(), ready() ? Number(WOB_RAW_REWARD_GLOBAL) || 0 : 0];
  const editable = () => document.activeElement?.matches('input,textarea,[contenteditable=true]') === true;
  const api = { editable, start, look, act, judged, state, locate, option, optionPlace, place,
    get nodes() { return nodes; }, idOf: (node) => nodes.indexOf(node) + 1 };
  Object.defineProperty(window, '__cairn', { value: Object.freeze(api) });
  window.__cairnIdOf = api.idOf;
})();
