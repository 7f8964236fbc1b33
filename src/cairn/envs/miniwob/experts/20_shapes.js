// Shapes that are described in words, coordinates, and things to drag.

const SHAPES = { rect: "rectangle", circle: "circle", polygon: "triangle" };
const look = (node) => {
  const name = SHAPES[node.tagName] ?? text(node);
  const type = node.tagName in SHAPES ? "shape" : /\d/.test(name) ? "digit" : "letter";
  const size = node.tagName === "text" ? parseFloat(node.getAttribute("font-size")) : node.getBBox().width;
  return { name, type, colour: node.getAttribute("fill"), size: size > 15 ? "large" : "small" };
};
const fits = (description) => (node) => {
  const words = description.split(" ");
  const noun = words.pop();
  const { name, type, colour, size } = look(node);
  return (noun === "item" || noun === name || noun === type) && words.every((word) => word === colour || word === size);
};

const countShapes = () => {
  const [description] = read(/^How many (.*)s are there/);
  const count = all("#area_svg > *").filter(fits(description)).length;
  return click(labelled("#count-buttons button", String(count)));
};

const nameShape = () => {
  const { name, type } = look(one("#area_svg > *"));
  const label = { digit: "Number", letter: "Letter" }[type] ?? name[0].toUpperCase() + name.slice(1);
  return click(labelled("#area-buttons button", label));
};

const STEPS = { left: [-1, 0], right: [1, 0], up: [0, -1], down: [0, 1] };
const dragShape = () => {
  const shape = one("svg > *");
  const [x, y] = STEPS[read(/ (left|right|up|down) then/)[0]];
  const [, dx, dy] = (shape.getAttribute("transform") ?? "").match(/\((-?[\d.]+),(-?[\d.]+)\)/) ?? [0, 0, 0];
  if (Number(dx) * x + Number(dy) * y > 0) return submit();
  const from = middle(shape.getBoundingClientRect());
  return drag(from, { x: from.x + 30 * x, y: from.y + 30 * y });
};

const boxInBox = () => {
  const small = one("#draggableSmall").getBoundingClientRect();
  const large = one("#draggableLarge").getBoundingClientRect();
  const inside =
    small.left > large.left && small.right < large.right && small.top > large.top && small.bottom < large.bottom;
  return inside ? submit() : drag(middle(small), middle(large));
};

const markText = (node) => {
  // Drag from before the first letter to behind the last.
  const plain = (value) => value.replace(/\s/g, "");
  if (plain(getSelection().toString()) === plain(node.textContent)) return submit();
  const range = document.createRange();
  range.selectNodeContents(node);
  const lines = [...range.getClientRects()].filter((box) => box.width > 0);
  const first = lines[0];
  const last = lines[lines.length - 1];
  return drag({ x: first.left + 0.5, y: middle(first).y }, { x: last.right + 2, y: middle(last).y });
};

const sortedPlace = (items) => {
  const order = [...items].sort((a, b) => Number(text(a)) - Number(text(b)));
  return order.findIndex((item, place) => item !== items[place]);
};
const dragOver = (item, other) => {
  // A sortable list makes room once the dragged item has passed the middle of the other.
  const from = middle(item.getBoundingClientRect());
  const to = middle(other.getBoundingClientRect());
  return drag(from, { x: to.x, y: to.y + 3 * Math.sign(to.y - from.y) });
};
const sortNumbers = () => {
  const items = all("#sortable li");
  const place = sortedPlace(items);
  if (place < 0) return submit();
  const least = items.slice(place).reduce((a, b) => (Number(text(b)) < Number(text(a)) ? b : a));
  return dragOver(least, items[place]);
};
const placeOf = (words, now, last) => {
  if (words.includes("top")) return 0;
  if (words.includes("bottom")) return last;
  if (words.includes("down by one")) return now + 1;
  if (words.includes("up by one")) return now - 1;
  return Number(words.match(/\b(\d)[a-z]{2}\b/)[1]) - 1;
};
const moveItem = () => {
  const items = all("#sortable li");
  const [name, words] = read(/^Drag (\S+) (.*)$/);
  const now = items.findIndex((item) => text(item) === name);
  return dragOver(items[now], items[placeOf(words, now, items.length - 1)]);
};

const resize = () => {
  const area = one("#tt");
  const start = (memory().start ??= { width: area.offsetWidth, height: area.offsetHeight });
  const [dimension, direction] = read(/the (width|height) is (smaller|larger)/);
  const change = dimension === "width" ? area.offsetWidth - start.width : area.offsetHeight - start.height;
  const sign = direction === "larger" ? 1 : -1;
  if (change * sign > 0) return submit();
  const from = middle(one(".ui-resizable-se").getBoundingClientRect());
  const shift = 12 * sign;
  return drag(from, dimension === "width" ? { x: from.x + shift, y: from.y } : { x: from.x, y: from.y + shift });
};

Object.assign(experts, {
  "click-shape": () => click(all("#area_svg > *").find(fits(read(/^Click on an? (.*)$/)[0]))),
  "count-shape": countShapes,
  "identify-shape": nameShape,
  "grid-coordinate": () => {
    const [place] = read(/(\(.*\))/);
    return click(all("circle").find((circle) => circle.id === place));
  },
  "drag-circle": dragShape,
  "drag-single-shape": dragShape,
  "drag-box": boxInBox,
  "drag-items": moveItem,
  "drag-sort-numbers": sortNumbers,
  "highlight-text": () => markText(one("#randomText")),
  "highlight-text-2": () => markText(all("#randomText p")[ordinal() - 1]),
  "resize-textarea": resize,
});
