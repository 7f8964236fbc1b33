// What the pages of this site have in common. `state.html?NAME&SEED` shows one property of a live page: the player brings
// it about ("set"), and later asks the page itself whether it still holds ("check"). In between nothing of it shows,
// unless that is in its nature.
//
// A property has
//   body    what the page shows beside the two buttons, as HTML; may be missing
//   set     brings it about; may be a promise
//   check   what is wrong, in words; empty where the property holds; may be a promise
//   plan    how it is solved: a list of steps ("set": press that button); ["set", "check"] where it is missing
const properties = {};

const [name, seedText] = location.search.slice(1).split('&');
const seed = Number(seedText);
const word = ['amber', 'birch', 'coral', 'delta', 'ember', 'fjord', 'grove'][seed % 7];
const number = 3 + seed % 5;

const one = (selector) => document.querySelector(selector);
const pause = (ms) => new Promise((done) => setTimeout(done, ms));
// Waits until `holds()` is true, at most `ms`; whether it is.
const until = async (holds, ms) => {
  const end = performance.now() + ms;
  while (!(await holds())) {
    if (performance.now() > end) return false;
    await pause(20);
  }
  return true;
};
const differs = (what, is, wanted) => (is === wanted ? '' : `${what} is ${is}, not ${wanted}`);

const stage = { work: Promise.resolve(), done: false, reward: 0, complaint: '' };

const attempt = (action) => {
  stage.work = stage.work.then(action).catch((error) => { stage.complaint = String(error); });
};
const pressed = {
  set: () => attempt(() => properties[name].set()),
  check: () => attempt(async () => {
    let wrong;
    try { wrong = await properties[name].check(); } catch (error) { wrong = String(error); }
    stage.complaint = stage.complaint || wrong;
    stage.reward = stage.complaint ? 0 : 1;
    stage.done = true;
  }),
};
