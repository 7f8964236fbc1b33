// One click, or a few, on things that the goal names.

const clickTab = () => {
  // Look into the tabs one after the other, starting from the open one.
  const link = labelled("#area .alink", quoted()[0]);
  if (link) return click(link);
  const tabs = all("#area > ul li");
  return click(one("a", after(tabs, one("#area > ul li.ui-tabs-active"))));
};

const openSections = () => {
  const link = labelled("#area .alink", quoted()[0]);
  if (link) return click(link);
  return click(after(all("#area h3"), one("#area h3.ui-accordion-header-active")));
};

const tickNamed = (names, matches) =>
  firstOf(
    ...all("#area label").map((label) => () => {
      const wanted = names.some((name) => matches(name, text(label)));
      return tick(one("input", label), wanted);
    }),
    submit,
  );
const namesOf = (list) => (list === "nothing" ? [] : list.split(", "));
const tickExact = () =>
  tickNamed(namesOf(read(/^Select (.*) and click Submit/)[0]), (name, label) => name === label);
const tickSimilar = () =>
  tickNamed(namesOf(read(/similar to (.*) and click Submit/)[0]), (name, label) =>
    SYNONYMS.some((group) => group.includes(name) && group.includes(label)),
  );

const pickRadio = () => {
  const name = read(/^Select (.*) and click Submit/)[0];
  const label = all("#area label").find((candidate) => text(candidate) === name);
  return tick(one("input", label), true) ?? submit();
};

const expandAndSubmit = () =>
  shown(".ui-accordion-content") ? submit() : click(one("#area h3"));

const browseTree = () => {
  const wanted = quoted()[0];
  const target = seen("#tree span").find((span) => text(span) === wanted);
  if (target) return click(target);
  return click(seen("#tree li.expandable > span.folder")[0]);
};

const openMenu = (item) => {
  // Submenus open under a resting pointer; a click on one may count as the choice.
  const label = one("div", item);
  return label.matches(":hover") ? wait(0.4) : hover(label);
};
const followMenu = () => {
  const path = read(/^Select (.*)$/)[0].split(">");
  let level = one("#menu");
  for (const [depth, name] of path.entries()) {
    const item = [...level.children].find((child) => text(one("div", child)) === name);
    if (depth === path.length - 1) return click(one("div", item));
    const inner = one("ul", item);
    if (!visible(inner)) return openMenu(item);
    level = inner;
  }
  return null;
};

const menuItem = () => {
  const icon = one("#query .ui-icon");
  if (icon === null) return all("#menu li").find((item) => text(item) === quoted()[1]);
  return one(`#menu .${[...icon.classList].find((name) => name !== "ui-icon")}`).closest("li");
};
const iconMenu = () => {
  if (!shown("#menu")) return click(one("#open-menu"));
  const item = menuItem();
  return visible(item) ? click(one("div", item)) : openMenu(item.parentElement.closest("li"));
};

const clickInOrder = () => {
  const first = one("#subbtn");
  return click(document.activeElement === first ? one("#subbtn2") : first);
};

const markParity = () =>
  firstOf(
    ...all("#numbers .row").map((row) => () => {
      const odd = Number(text(one(".display-number", row))) % 2 !== 0;
      const button = one(odd ? ".odd" : ".even", row);
      return button.classList.contains("selected") ? null : click(button);
    }),
    submit,
  );

const pickShades = () => {
  const [colour] = read(/shades of (\w+)/);
  const open = all("#area span").filter((span) => span.dataset.color === colour && span.className !== "selected");
  return open.length > 0 ? click(open[0]) : submit();
};

const turnCards = () => {
  // The cards show one number at a time: look at each, then go back to the greatest.
  const cards = all("#cardholder .card");
  const numbers = (memory().numbers ??= {});
  const open = cards.findIndex((card) => !card.classList.contains("hidden"));
  if (open >= 0) numbers[open] = Number(text(cards[open]));
  const unknown = cards.findIndex((_, position) => !(position in numbers));
  if (unknown >= 0) return click(cards[unknown]);
  const greatest = cards.reduce((best, _, position) => (numbers[position] > numbers[best] ? position : best), 0);
  return open === greatest ? submit() : click(cards[greatest]);
};

const numberWanted = (number) => {
  const [less] = read(/less than (\d+)/);
  const [greater] = read(/greater than (\d+)/);
  if (less) return number < Number(less);
  if (greater) return number > Number(greater);
  return number % 2 === (goal().includes("odd") ? 1 : 0);
};
const drawNumber = () => {
  const shownNumber = text(one("#display-number"));
  return shownNumber !== "-" && numberWanted(Number(shownNumber)) ? submit() : click(one("#generate"));
};

const ascend = () => {
  const numbers = all("svg text");
  if (numbers.length > 0) return click(numbers.find((number) => text(number) === "1"));
  return click(one("svg rect"));
};

const cheapTicket = () => {
  const price = (flight) => Number(text(one("button", flight)).match(/\$(\d+)/)[1]);
  const minutes = (flight) => {
    const [, hours, rest] = text(one(".time-duration", flight)).match(/(\d+)h (\d+)m/);
    return Number(hours) * 60 + Number(rest);
  };
  const score = goal().includes("duration") || goal().includes("shortest") ? minutes : price;
  const sign = /longest|expensive/.test(goal()) ? -1 : 1;
  const best = all(".flight").sort((a, b) => sign * (score(a) - score(b)))[0];
  return click(one("button", best));
};

const buyBelow = () => {
  const [limit] = read(/less than \$([\d.]+\d)/);
  const price = Number(text(one("#stock-price")).slice(1));
  return price > 0 && price <= Number(limit) ? click(one("#buy")) : wait(0.3);
};

const drawDigit = () => {
  const pattern = PATTERNS[Number(quoted()[0])];
  return firstOf(...all("#checkboxes p").flatMap((row, y) =>
    all("input", row).map((box, x) => () => tick(box, pattern[y][x] === 1))), submit);
};

const orderFood = () => {
  const items = all(".food-item");
  const count = (item) => Number(text(one(".quantity", item)));
  const [number, kind] = read(/^Order (\d) items that are (.*)$/);
  if (number) {
    const item = items.find((candidate) => one(`img[alt="${kind}"]`, candidate) !== null);
    return count(item) < Number(number) ? click(one(".add", item)) : click(one("#submit-order button"));
  }
  const names = read(/each item: (.*)$/)[0].split(/\s*,\s*/);
  const missing = items.find((item) => names.includes(text(one(".item-name", item))) && count(item) === 0);
  return click(missing ? one(".add", missing) : one("#submit-order button"));
};

const callContact = () => {
  const [name, property] = read(/^Find (.*) in the contact book and click on their (\w+)/);
  if (text(one("#contact .name")) === name) return click(one(`#contact .${property}`));
  return click(one("#pagination .next a"));
};

const pieItem = () => {
  const label = seen("#divWheel text").find((node) => text(node) === quoted()[0]);
  if (label && getComputedStyle(label).display !== "none" && reachable(label)) return click(label);
  const spreader = seen("#divWheel text").find((node) => text(node) === "+");
  return spreader ? click(spreader) : wait(0.3);
};

Object.assign(experts, {
  "click-test": submit,
  "click-test-2": () => click(labelled("button", read(/button (\w+)/)[0])),
  "click-test-transfer": () => click(labelled("button", read(/button (\w+)/)[0])),
  "click-button": () => click(labelled("#area button", quoted()[0])),
  "unicode-test": () => click(labelled("#area button", quoted()[0])),
  "click-button-sequence": clickInOrder,
  "click-dialog": () => click(one(".ui-dialog-titlebar-close")),
  "click-dialog-2": () =>
    click(quoted()[0] === "x" ? one(".ui-dialog-titlebar-close") : labelled(".ui-dialog button", quoted()[0])),
  "focus-text": () => click(one("#tt")),
  "focus-text-2": () => click(all("#area input")[ordinal() - 1]),
  "click-checkboxes": tickExact,
  "click-checkboxes-large": tickExact,
  "click-checkboxes-transfer": tickExact,
  "click-checkboxes-soft": tickSimilar,
  "click-option": pickRadio,
  "click-tab": () => click(labelled("#area > ul a", read(/(Tab #\d)/)[0])),
  "click-tab-2": clickTab,
  "click-tab-2-easy": clickTab,
  "click-tab-2-medium": clickTab,
  "click-tab-2-hard": clickTab,
  "click-color": () => click(one(`#area .color[data-color="${read(/the (\w+) colored/)[0]}"]`)),
  "click-shades": pickShades,
  "click-widget": () => click(one(`#area [data-type="${quoted()[0]}"]`)),
  "click-link": () => click(labelled("#area .alink", quoted()[0])),
  "click-collapsible": expandAndSubmit,
  "click-collapsible-nodelay": expandAndSubmit,
  "click-collapsible-2": openSections,
  "click-collapsible-2-nodelay": openSections,
  "navigate-tree": browseTree,
  "click-menu": followMenu,
  "click-menu-2": iconMenu,
  "click-pie": pieItem,
  "odd-or-even": markParity,
  "find-greatest": turnCards,
  "generate-number": drawNumber,
  "ascending-numbers": ascend,
  "buy-ticket": cheapTicket,
  "stock-market": buyBelow,
  "number-checkboxes": drawDigit,
  "order-food": orderFood,
  "phone-book": callContact,
});
