// What lives in the memory of the page and of its workers, and what is under way.
{
  let count = 0;
  properties.heap = {
    goal: `set ${number} times, then check`,
    plan: [...Array(number).fill('set'), 'check'],
    set: () => { count += 1; },
    check: () => differs('the counter', count, number),
  };
}
{
  const DELAY = 3000;
  let begun = null;
  const fired = [];
  properties.timer = {
    goal: 'set a timer, then check',
    body: '<p id="due">no timer</p>',
    set: () => {
      begun = performance.now();
      one('#due').textContent = `due at ${performance.timeOrigin + begun + DELAY}`;
      setTimeout(() => fired.push(performance.now()), DELAY);
    },
    check: async () => {
      if (begun === null) return 'no timer was set';
      if (!(await until(() => fired.length, DELAY + 5000))) return 'the timer did not fire';
      await pause(50);
      if (fired.length > 1) return `the timer fired ${fired.length} times`;
      return fired[0] - begun >= DELAY - 5 ? '' : `the timer fired after ${fired[0] - begun} ms, not ${DELAY}`;
    },
  };
}
{
  let beats = 0;
  properties.interval = {
    goal: 'set an interval, then check',
    set: async () => {
      setInterval(() => { beats += 1; }, 30);
      await until(() => beats > 0, 3000);
    },
    check: async () => {
      const before = beats;
      if (!before) return 'the interval had never fired';
      return (await until(() => beats >= before + 3, 5000)) ? '' : 'the interval has stopped';
    },
  };
}
{
  let origin = null;
  let begun = 0;
  let last = 0;
  let wrong = '';
  const look = () => {
    const now = performance.now();
    if (now < last) wrong = `the clock went from ${last} ms back to ${now} ms`;
    last = now;
  };
  properties.clock = {
    goal: 'note the time, then check',
    body: '<p id="origin">not noted</p>',
    set: () => {
      [origin, begun] = [performance.timeOrigin, performance.now()];
      one('#origin').textContent = `counted from ${origin}`;
      last = begun;
      setInterval(look, 10);
    },
    check: () => {
      if (origin === null) return 'no time was noted';
      look();
      if (last - begun > 600000) wrong = wrong || `the clock has gone on by ${last - begun} ms`;
      return wrong || differs('the origin of time', performance.timeOrigin, origin);
    },
  };
}
{
  // Nothing in the page knows which number comes next; that it is the same in each copy of a state can be seen.
  let drawn = 0;
  const draw = () => {
    drawn += 1;
    one('#drawn').textContent = String(Math.random());
  };
  properties.random = {
    goal: 'draw a random number, then check, which draws the next',
    body: '<p id="drawn">none yet</p>',
    set: draw,
    check: () => {
      if (!drawn) return 'no number was drawn';
      draw();
      return '';
    },
  };
}
{
  const SLOW = 4000;
  let answer = null;
  properties.fetch = {
    goal: 'ask for a slow file, then check',
    set: () => { answer = fetch(`late.txt?slow=${SLOW}`, { cache: 'no-store' }).then((response) => response.text()); },
    check: async () => {
      if (answer === null) return 'nothing was asked for';
      const text = await Promise.race([answer, pause(SLOW + 5000).then(() => 'nothing')]);
      return differs('the answer', text.trim(), 'late');
    },
  };
}
{
  let worker = null;
  const ask = (each, ms) => Promise.race([
    new Promise((done) => { each.onmessage = (event) => done(event.data); each.postMessage('add'); }),
    pause(ms).then(() => null),
  ]);
  properties.worker = {
    goal: 'start a worker, then check',
    set: async () => {
      worker = new Worker('worker.js');
      for (let n = 0; n < number; n += 1) await ask(worker, 5000);
    },
    check: async () => {
      if (worker === null) return 'no worker was started';
      return differs("the worker's count", await ask(worker, 5000), number + 1);
    },
  };
  properties['ended-worker'] = {
    goal: 'start a worker and end it, then check',
    set: async () => {
      worker = new Worker('worker.js');
      if (await ask(worker, 5000) !== 1) throw new Error('the worker did not start');
      worker.terminate();
    },
    check: async () => {
      if (worker === null) return 'no worker was started';
      if (await ask(worker, 500) !== null) return 'a worker that had been ended has answered';
      return differs("a new worker's count", await ask(new Worker('worker.js'), 5000), 1);
    },
  };
}
