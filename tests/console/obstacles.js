// Finds what keeps people out of a page; gives a sentence for each. Run in the page by the tests.
() => {
  const found = [];
  const say = (node, what) => found.push(`${what}: ${node.outerHTML.slice(0, 120)}`);
  const seen = (node) =>
    node.checkVisibility({ visibilityProperty: true, opacityProperty: true }) && node.getClientRects().length > 0;

  const nameOf = (node) => {
    const by = (node.getAttribute("aria-labelledby") ?? "")
      .split(/\s+/)
      .map((id) => document.getElementById(id)?.textContent ?? "")
      .join(" ")
      .trim();
    const label = node.labels?.length ? [...node.labels].map((one) => one.textContent).join(" ") : "";
    return (
      by ||
      node.getAttribute("aria-label") ||
      label ||
      node.textContent ||
      node.getAttribute("title") ||
      ""
    ).trim();
  };

  for (const node of document.querySelectorAll(
    "a[href], button, input, select, textarea, [role=switch], [role=meter], [role=img], [role=group][tabindex], dialog, summary",
  )) {
    if (!seen(node) || node.getAttribute("aria-hidden") === "true") continue;
    const placeholderOnly =
      ["INPUT", "SELECT", "TEXTAREA"].includes(node.tagName) &&
      !node.labels?.length &&
      !node.getAttribute("aria-label") &&
      !node.getAttribute("aria-labelledby");
    if (placeholderOnly) say(node, "no label");
    else if (!["SELECT", "INPUT", "TEXTAREA"].includes(node.tagName) && !nameOf(node)) say(node, "no name");
  }
  for (const node of document.querySelectorAll("img")) if (!node.hasAttribute("alt")) say(node, "no alternative text");
  for (const node of document.querySelectorAll("svg"))
    if (!node.closest("[aria-hidden=true], [role=img]")) say(node, "a drawing without words");

  const ids = new Map();
  for (const node of document.querySelectorAll("[id]")) ids.set(node.id, (ids.get(node.id) ?? 0) + 1);
  for (const [id, count] of ids) if (count > 1) found.push(`${count} elements have the id ${id}`);
  for (const node of document.querySelectorAll("[aria-describedby], [aria-labelledby]")) {
    for (const name of ["aria-describedby", "aria-labelledby"]) {
      for (const id of (node.getAttribute(name) ?? "").split(/\s+/).filter(Boolean))
        if (!ids.has(id)) say(node, `${name} names ${id}, which is not there`);
    }
  }
  if (document.querySelectorAll("main").length !== 1) found.push("there must be one main landmark");
  const headings = [...document.querySelectorAll("main :is(h1, h2, h3, h4, h5, h6)")].filter((node) =>
    node.checkVisibility(),
  );
  if (headings[0]?.tagName !== "H1") found.push(`the first heading is ${headings[0]?.tagName}`);
  for (let place = 1; place < headings.length; place += 1) {
    if (Number(headings[place].tagName[1]) > Number(headings[place - 1].tagName[1]) + 1)
      say(headings[place], `a heading skips a level after ${headings[place - 1].tagName}`);
  }

  const parse = (text) => {
    const numbers = (text.match(/-?[\d.]+(?:e-?\d+)?/g) ?? []).map(Number);
    if (text.startsWith("color(srgb")) return [numbers[0] * 255, numbers[1] * 255, numbers[2] * 255, numbers[3] ?? 1];
    return [numbers[0], numbers[1], numbers[2], numbers[3] ?? 1];
  };
  const over = (top, under) =>
    top
      .slice(0, 3)
      .map((value, place) => value * top[3] + under[place] * (1 - top[3]))
      .concat(1);
  const ground = (node) => {
    const layers = [];
    for (let at = node; at; at = at.parentElement) {
      layers.push(parse(getComputedStyle(at).backgroundColor));
      if (layers.at(-1)[3] === 1) break;
      if (at.tagName === "DIALOG") break;
    }
    return layers.reverse().reduce((under, layer) => over(layer, under), [255, 255, 255, 1]);
  };
  const light = ([r, g, b]) =>
    [r, g, b]
      .map((value) => value / 255)
      .map((value) => (value <= 0.04045 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4))
      .reduce((sum, value, place) => sum + value * [0.2126, 0.7152, 0.0722][place], 0);
  const contrast = (a, b) => {
    const [low, high] = [light(a), light(b)].sort((x, y) => x - y);
    return (high + 0.05) / (low + 0.05);
  };
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  const told = new Set();
  for (let text = texts.nextNode(); text; text = texts.nextNode()) {
    const node = text.parentElement;
    if (
      !text.textContent.trim() ||
      !seen(node) ||
      node.closest(".unseen, .skip, [disabled], [aria-disabled=true], option, script, style, noscript")
    )
      continue;
    const style = getComputedStyle(node);
    const back = ground(node);
    const ratio = contrast(over(parse(style.color), back), back);
    const large =
      parseFloat(style.fontSize) >= 24 || (parseFloat(style.fontSize) >= 18.66 && Number(style.fontWeight) >= 700);
    const key = `${node.className} ${style.color}`;
    if (ratio < (large ? 3 : 4.5) && !told.has(key)) {
      told.add(key);
      say(node, `contrast ${ratio.toFixed(2)} (${style.color} on ${back.map(Math.round)})`);
    }
    if (parseFloat(style.fontSize) < 11) say(node, `text of ${style.fontSize}`);
  }
  for (const node of document.querySelectorAll("input, select, textarea")) {
    if (!seen(node) || node.type === "checkbox" || node.closest(".composer")) continue;
    const back = ground(node.parentElement);
    const ratio = contrast(over(parse(getComputedStyle(node).borderTopColor), back), back);
    if (ratio < 3) say(node, `the edge of a field has contrast ${ratio.toFixed(2)}`);
  }
  if (document.documentElement.scrollWidth > innerWidth)
    found.push(`the page is ${document.documentElement.scrollWidth} wide in a window of ${innerWidth}`);
  const main = document.querySelector("main");
  if (main.scrollWidth > main.clientWidth + 1)
    found.push(`the content is ${main.scrollWidth} wide in a place of ${main.clientWidth}`);
  for (const node of document.querySelectorAll("button, a[href], select, input")) {
    if (!seen(node) || node.closest(".prose, .unseen") || node.matches(".skip, .mark, .source, .link, [type=checkbox]"))
      continue;
    const box = node.getBoundingClientRect();
    if (box.height < 24 || box.width < 24)
      say(node, `a target of ${Math.round(box.width)} × ${Math.round(box.height)}`);
  }
  return found;
};
