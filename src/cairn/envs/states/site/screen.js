// What can be seen, and what the player has done with the pointer and the keyboard.
properties.text = {
  goal: `type ${word}, then check`,
  body: '<input id="field" aria-label="word" spellcheck="false" autocomplete="off">',
  plan: [{ kind: 'type', selector: '#field', text: word }, 'check'],
  set: () => {},
  check: () => differs('the text', one('#field').value, word) || differs('its default', one('#field').defaultValue, ''),
};
properties.focus = {
  goal: 'set the selection, then type x over it',
  body: `<input id="field" aria-label="word" spellcheck="false" autocomplete="off" value="${word}">`,
  plan: ['set', { kind: 'type', text: 'x' }],
  ready: () => one('#field').addEventListener('input', pressed.check),
  set: () => {
    one('#field').focus();
    one('#field').setSelectionRange(1, 3);
  },
  check: () => differs('the text', one('#field').value, `${word[0]}x${word.slice(3)}`)
    || (document.activeElement === one('#field') ? '' : 'the focus is elsewhere'),
};
{
  const distance = 20 + 10 * number;
  const lines = Array.from({ length: 40 }, (_, n) => `<p>line ${n + 1}</p>`).join('');
  properties.scroll = {
    goal: 'scroll the list, then check',
    body: `<div id="list">${lines}</div>`,
    plan: [{ kind: 'scroll', x: 60, y: 60, dx: 0, dy: distance }, 'check'],
    set: () => {},
    check: () => differs('the place in the list', one('#list').scrollTop, distance),
  };
}
properties.dialog = {
  goal: 'open the dialog, then check in it',
  body: '<dialog><p>Well?</p><button id="inside">inside</button></dialog>',
  plan: ['set', { kind: 'click', selector: '#inside' }],
  ready: () => one('#inside').addEventListener('click', pressed.check),
  set: () => one('dialog').showModal(),
  check: () => (one('dialog').matches(':modal') ? '' : 'the dialog is not open'),
};
{
  const paint = (canvas) => {
    const pen = canvas.getContext('2d');
    for (let n = 0; n < 12; n += 1) {
      pen.fillStyle = `hsl(${(n * 30 + seed * 17) % 360} 80% 50%)`;
      pen.fillRect((n * 13 + seed * 5) % 60, (n * 7 + seed * 3) % 40, 15, 9);
    }
  };
  const pixels = (canvas) => canvas.getContext('2d').getImageData(0, 0, 80, 50).data.join();
  properties.canvas = {
    goal: 'paint, then check',
    body: '<canvas id="canvas" width="80" height="50" aria-label="painting"></canvas><br>',
    set: () => paint(one('#canvas')),
    check: () => {
      const wanted = document.createElement('canvas');
      [wanted.width, wanted.height] = [80, 50];
      paint(wanted);
      return pixels(one('#canvas')) === pixels(wanted) ? '' : 'the painting is another';
    },
  };
}
{
  // It moves where nobody can see it: pictures of one state are equal.
  let animation = null;
  let frames = 0;
  let noted = null;
  const count = () => {
    frames += 1;
    requestAnimationFrame(count);
  };
  properties.animation = {
    goal: 'set it going, note how far it is, then check',
    body: '<div id="window"><div id="runner"></div></div><button id="note">note</button>',
    plan: ['set', { kind: 'click', selector: '#note' }, 'check'],
    ready: () => one('#note').addEventListener('click', () => { noted = [Number(animation?.currentTime), frames]; }),
    set: () => {
      const path = [{ transform: 'translateX(0)' }, { transform: 'translateX(100px)' }];
      animation = one('#runner').animate(path, { duration: 600000 });
      requestAnimationFrame(count);
    },
    check: () => {
      if (noted === null || animation === null) return 'nothing was set going';
      if (animation.playState !== 'running') return `the animation is ${animation.playState}`;
      if (!(Number(animation.currentTime) > noted[0])) return 'the animation stands still';
      return frames > noted[1] ? '' : 'no frames are drawn any more';
    },
  };
}
{
  // As real pages are: nothing is there at once. What it costs to come back is measured with it.
  let presses = 0;
  properties.settle = {
    goal: 'press set ten times, then check',
    body: '<p id="presses">0 presses</p>',
    plan: [...Array(10).fill('set'), 'check'],
    set: async () => {
      await pause(300);
      presses += 1;
      one('#presses').textContent = `${presses} presses`;
    },
    check: () => differs('the number of presses', presses, 10),
  };
}
