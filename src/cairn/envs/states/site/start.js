// Puts the page together, once every property is known.
const button = (id) => `<button id="${id}">${id}</button>`;
const shown = properties[name];
one('main').innerHTML = `<p id="goal">${shown.goal}</p>${shown.body || ''}${button('set')}${button('check')}`;
for (const id of ['set', 'check']) {
  for (const each of document.querySelectorAll(`#${id}`)) each.addEventListener('click', pressed[id]);
}
if (shown.ready) shown.ready();

const press = (id) => ({ kind: 'click', selector: `#${id}` });
stage.goal = shown.goal;
stage.plan = (shown.plan || ['set', 'check']).map((step) => (typeof step === 'string' ? press(step) : step));
