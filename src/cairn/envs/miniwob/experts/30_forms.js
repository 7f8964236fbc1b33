// Things to read, type, choose and hand in.

const enter = (value) => fill(one("#tt") ?? one("#answer-input") ?? one("#math-answer"), value) ?? submit();
const logIn = () => {
  const popup = one("#popup-cancel");
  if (popup) return click(popup);
  const [user, password] = quoted();
  return fillAll([[one("#username"), user], [one("#password"), password]]) ?? submit();
};

const evaluate = (problem) => {
  const [, left, sign, right] = problem.match(/(\d+) ([-+x]) (\d+)/);
  const [a, b] = [Number(left), Number(right)];
  return { "+": a + b, "-": a - b, x: a * b }[sign];
};
const solve = (problem) => {
  const [, left, sign, right, value] = problem.match(/(\w+) ([-+]) (\w+) = (-?\d+)/);
  if (sign === "+") return Number(value) - Number(left === "x" ? right : left);
  return left === "x" ? Number(value) + Number(right) : Number(left) - Number(value);
};

const bottomReached = (area) => area.scrollTop + area.clientHeight >= area.scrollHeight - 2;
const lastWord = () => {
  const area = one("#text-area");
  if (scrolls(area) && !bottomReached(area)) return scrollBy(area, area.scrollHeight);
  return enter(area.value.trim().split(/\s+/).pop().replace(/\W/g, ""));
};
const scrollTo = () => {
  const area = one("#text-area");
  if (goal().includes("to the top")) return area.scrollTop < 5 ? submit() : scrollBy(area, -area.scrollTop);
  return bottomReached(area) ? submit() : scrollBy(area, area.scrollHeight);
};
const sign = () => {
  const [name] = read(/the name "(.*?)"/);
  if (!name) return click(one("#cancel"));
  const area = one("#text-area");
  if (one("#name").disabled) return scrollBy(area, area.scrollHeight);
  return fill(one("#name"), name) ?? click(one(goal().includes('"Agree"') ? "#agree" : "#cancel"));
};

const tableValue = (key) => text(all("#tab tr").find((row) => text(row.children[0]) === key).children[1]);
const fillLabelled = () =>
  fillAll([1, 2].map((place) => [one(`#tt${place}`), tableValue(text(one(`#ll${place}`)).replace(/:$/, ""))])) ??
  submit();

const nthWord = () => {
  const words = text(one("#area p")).split(" ");
  return enter(words[ordinal() - 1].replace(/[^a-zA-Z]/g, ""));
};

const LABELS = { genre: "genre", director: "director", year: "year", released: "year" };
const movieSearch = () => {
  const [genre, director, year] = read(/^Search for (.*) movies directed by (.*) from year (\d+)/);
  const values = { genre, director, year };
  const labelOf = (field) => text(field.closest("p, .row, tr, .field, .ui-entry")).toLowerCase();
  const keyOf = (field) => LABELS[Object.keys(LABELS).find((word) => labelOf(field).includes(word))];
  const pairs = seen("#area input[type=text]").map((field) => [field, values[keyOf(field)]]);
  return fillAll(pairs) ?? click(seen("#area button, #area .final, #area .ui-submit")[0]);
};

const guess = () => {
  const bounds = (memory().bounds ??= { low: 0, high: 9 });
  const [lower] = seen("#lower span").map((span) => Number(text(span)));
  const [higher] = seen("#higher span").map((span) => Number(text(span)));
  if (lower !== undefined) bounds.high = Math.min(bounds.high, lower - 1);
  if (higher !== undefined) bounds.low = Math.max(bounds.low, higher + 1);
  return enter(String(Math.floor((bounds.low + bounds.high) / 2)));
};

const search = () => {
  const position = ordinal();
  const results = all("#page-content a");
  const page = String(Math.floor((position - 1) / 3) + 1);
  if (results.length === 0) return fill(one("#search-text"), quoted()[0]) ?? click(one("#search"));
  if (text(one("#pagination .active")) !== page) return click(labelled("#pagination a", page));
  return click(results[(position - 1) % 3]);
};

const autocomplete = () => {
  const [start, end = ""] = quoted();
  const matches = (value) => value.startsWith(start) && value.endsWith(end);
  const box = one("#tags");
  const item = seen(".ui-autocomplete li").find((candidate) => matches(text(candidate)));
  if (item) return click(item);
  if (matches(box.value)) return submit();
  return fill(box, start) ?? wait(0.3);
};

const chooseOption = () =>
  choose(one("#options"), read(/^Select (.*) from the list/)[0]) ?? click(one("#area button"));

const MONTHS = ["January", "February", "March", "April", "May", "June", "July", "August", "September", "October",
  "November", "December"];
const pickDate = (box, date) => {
  if (box.value === date) return null;
  if (!shown("#ui-datepicker-div")) return click(box);
  const [month, day, year] = date.split("/").map(Number);
  const page = MONTHS.indexOf(text(one(".ui-datepicker-month"))) + 12 * Number(text(one(".ui-datepicker-year")));
  const distance = month - 1 + 12 * year - page;
  if (distance !== 0) return click(one(distance > 0 ? ".ui-datepicker-next" : ".ui-datepicker-prev"));
  return click(labelled("#ui-datepicker-div td a", String(day)));
};
const chooseDate = () => pickDate(one("#datepicker"), read(/(\d+\/\d+\/\d+)/)[0]) ?? submit();

const keyIn = (field, keys) => {
  // A date or time field takes single keys, from its first part on; the page cannot be asked for half a date.
  const state = memory();
  if (document.activeElement !== field) {
    const box = field.getBoundingClientRect();
    state.keyed = 0;
    return { kind: "click", x: box.left + 9, y: middle(box).y };
  }
  if (state.counting !== field) {
    state.counting = field;
    field.addEventListener("keydown", () => (state.keyed += 1));
  }
  return press(keys[state.keyed % keys.length]);
};
const enterDate = () => {
  const [month, day, year] = read(/(\d+)\/(\d+)\/(\d+)/);
  return one("#tt").value === `${year}-${month}-${day}` ? submit() : keyIn(one("#tt"), month + day + year);
};
const enterTime = () => {
  const [hour, minute, half] = read(/(\d+):(\d+)\s([AP])M/);
  const full = String((Number(hour) % 12) + (half === "P" ? 12 : 0)).padStart(2, "0");
  return one("#tt").value === `${full}:${minute}` ? submit() : keyIn(one("#tt"), hour.padStart(2, "0") + minute + half);
};

const airport = (box, name) => {
  if (DOMESTIC_FLIGHTS.includes(box.value) && box.value.includes(name)) return null;
  const item = seen(".ui-autocomplete li").find((candidate) => text(candidate).includes(name));
  if (box.value === name && item) return click(item);
  return fill(box, name) ?? wait(0.3);
};
const bookFlight = () => {
  if (shown("#results .flight")) return cheapTicket();
  const [from, to, date] = read(/from: (.*) to: (.*) on (\S+\d)/);
  return firstOf(
    () => airport(one("#flight-from"), from),
    () => airport(one("#flight-to"), to),
    () => pickDate(one("#datepicker"), date),
    () => click(one("#search")),
  );
};

const spin = () => {
  const missing = Number(read(/^Select (-?\d+) /)[0]) - Number(one("#spinner").value);
  if (missing === 0) return submit();
  return click(one(missing > 0 ? ".ui-spinner-up" : ".ui-spinner-down"));
};

const slide = (slider, wanted, now, range) => {
  // Drag the handle there, then set right by keys what a pixel is too coarse for.
  if (wanted === now) return null;
  const handle = one(".ui-slider-handle", slider);
  if (Math.abs(wanted - now) <= 2 && document.activeElement === handle) {
    return press(wanted > now ? "ArrowRight" : "ArrowLeft");
  }
  const box = slider.getBoundingClientRect();
  const share = (wanted - range[0]) / (range[1] - range[0]);
  const from = middle(handle.getBoundingClientRect());
  const vertical = slider.classList.contains("ui-slider-vertical");
  if (vertical) return drag(from, { x: from.x, y: box.bottom - share * box.height });
  return drag(from, { x: box.left + share * box.width, y: from.y });
};
const sliderRange = (slider) => ["min", "max"].map((name) => $(slider).slider("option", name));
const useSlider = () => {
  const slider = one("#slider");
  return slide(slider, Number(read(/^Select (-?\d+) /)[0]), Number(text(one("#val"))), sliderRange(slider)) ?? submit();
};
const useSliders = () => {
  const wanted = JSON.parse(read(/(\[.*\])/)[0]);
  return firstOf(...wanted.map((value, place) => () => {
    const slider = one(`#slider-${place + 1}`);
    return slide(slider, value, Number(text(one(`#val-${place + 1}`))), sliderRange(slider));
  }), submit);
};
const sliderThenBox = () => {
  const slider = one("#slider");
  const boxes = all("#area input[type=checkbox]");
  return firstOf(
    () => slide(slider, Number(read(/^Select (-?\d+) /)[0]), Number(text(one("#val"))), sliderRange(slider)),
    () => tick(boxes[ordinal() - 1], true),
    submit,
  );
};

const radioThenText = () => {
  const [radio, number, field] = read(/the (\d)\w\w radio .* number "(-?\d+)" into the (\d)/);
  return firstOf(
    () => tick(all("input[type=radio]")[radio - 1], true),
    () => fill(one(`#input-${field}`), number),
    submit,
  );
};

const dropdownThenButton = () => {
  const [option] = read(/^Choose (.*) from the dropdown/);
  if (text(one(".selectric .label")) === option) return click(labelled("#buttons button", quoted()[0]));
  return click(labelled(".selectric-items li", option) ?? one(".selectric"));
};

Object.assign(experts, {
  "enter-text": () => enter(quoted()[0]),
  "enter-text-dynamic": () => enter(quoted()[0]),
  "enter-text-2": () => enter(goal().includes("upper case") ? quoted()[0].toUpperCase() : quoted()[0].toLowerCase()),
  "enter-password": () =>
    fillAll([[one("#password"), quoted()[0]], [one("#verify"), quoted()[0]]]) ?? submit(),
  "login-user": logIn,
  "login-user-popup": logIn,
  "text-transform": () => enter(text(one("#captcha"))),
  "simple-arithmetic": () => enter(String(evaluate(text(one("#math-problem"))))),
  "simple-algebra": () => enter(String(solve(text(one("#math-problem"))))),
  "visual-addition": () => enter(String(all(".addition-block").length)),
  "find-word": nthWord,
  "read-table": () => enter(tableValue(read(/the value of (.*) into/)[0])),
  "read-table-2": fillLabelled,
  "copy-paste": () => enter(one("#to-copy").value),
  "copy-paste-2": () => enter(one(`#text-${ordinal()}`).value),
  "scroll-text": lastWord,
  "scroll-text-2": scrollTo,
  "sign-agreement": sign,
  "multi-layouts": movieSearch,
  "multi-orderings": movieSearch,
  "guess-number": guess,
  "search-engine": search,
  "use-autocomplete": autocomplete,
  "use-autocomplete-nodelay": autocomplete,
  "choose-list": chooseOption,
  "choose-date": chooseDate,
  "choose-date-easy": chooseDate,
  "choose-date-medium": chooseDate,
  "choose-date-nodelay": chooseDate,
  "book-flight": bookFlight,
  "book-flight-nodelay": bookFlight,
  "enter-date": enterDate,
  "enter-time": enterTime,
  "use-spinner": spin,
  "use-slider": useSlider,
  "use-slider-2": useSliders,
  "form-sequence": sliderThenBox,
  "form-sequence-2": radioThenText,
  "form-sequence-3": dropdownThenButton,
});
