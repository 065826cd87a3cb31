"use strict";
// Everything shown comes from the JSON in #data and goes into the page as
// text nodes and attributes, never as markup.

const data = JSON.parse(document.getElementById("data").textContent);
const ROWS_SHOWN = 50;
// Fields of a row, as Python writes them.
const [ID, SPEAKER, DURATION, WORDS, ERRORS, STEPS, OTHER_ERRORS, OTHER_STEPS] =
  [0, 1, 2, 3, 4, 5, 6, 7];
const SVG = "http://www.w3.org/2000/svg";

const byId = (id) => document.getElementById(id);

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes))
    node.setAttribute(name, value);
  node.append(...children);
  return node;
}

const make = (tag, attributes = {}, ...children) =>
  fill(document.createElement(tag), attributes, children);

const draw = (tag, attributes = {}, ...children) =>
  fill(document.createElementNS(SVG, tag), attributes, children);

const percent = (rate) => (rate === null ? "n/a" : rate.toFixed(2));

const pText = (p) =>
  p === null ? "p n/a" : p < 0.0001 ? "p < 0.0001" : `p = ${p.toFixed(4)}`;

const unitsOf = (range) =>
  `${range.size} ${range.unit}${range.few ? " (few, so too narrow)" : ""}`;

const rateOf = (errors, words) => (words ? (100 * errors) / words : null);

function showCards() {
  const totals = data.totals;
  const ranges = totals.confidence.intervals.map(
    (range) =>
      `${percent(range.low)} to ${percent(range.high)} over ` +
      `${unitsOf(range)}, ${totals.confidence.level}%`,
  );
  const counts =
    `${totals.substitutions} sub, ${totals.deletions} del, ` +
    `${totals.insertions} ins in ${totals.words} words`;
  const sentences = `${totals.sentence_errors} of ${totals.utterances}`;
  const cards = [
    ["WER", totals.WER, counts, ...ranges],
    ["CER", totals.CER],
    ["SER", totals.SER, sentences],
    ["MER", totals.MER],
    ["WIL", totals.WIL],
  ];
  for (const [name, rate, ...lines] of cards)
    byId("cards").append(
      make(
        "div",
        { class: "card", id: `card-${name}` },
        name,
        make("b", {}, rate === null ? "n/a" : `${percent(rate)} %`),
        ...lines.map((line) => make("small", {}, line)),
      ),
    );
  const { name, version, description, before } = totals.normalization;
  byId("settings").append(
    `Normalization: ${name} ${version} (${description}).`,
    before ? ` WER before it: ${percent(before.rate)} %.` : "",
  );
}

function showComparison() {
  const found = data.totals.comparison;
  if (!found) return;
  byId("comparison").hidden = false;
  const test = found.mapsswe;
  const lines = [
    `First system ${percent(data.totals.WER)} % WER, second system ` +
      `${percent(found.WER)} %.`,
    ...found.paired_bootstrap.map(
      (range) =>
        `Difference ${percent(range.low)} to ${percent(range.high)} over ` +
        `${unitsOf(range)}, ${pText(range.p_value)} (paired bootstrap).`,
    ),
    `Matched pairs (MAPSSWE): ${test.segments} segments, ` +
      `${pText(test.p_value)}.`,
  ];
  byId("compared").append(...lines.map((line) => make("p", {}, line)));
}

// A round number above the highest of them.
function ceiling(values) {
  const most = Math.max(1, ...values);
  const step = 10 ** Math.floor(Math.log10(most));
  return Math.ceil(most / step) * step;
}

function showPlot(place, groups, absent) {
  if (!groups.length) {
    place.append(make("p", {}, absent));
    return;
  }
  const rates = groups.map((group) => group.rate ?? 0);
  const top = ceiling(
    groups.map((group, i) => Math.min(group.interval?.high ?? 0, 300) || rates[i])
      .concat(rates),
  );
  const [left, height, bottom] = [50, 200, 90];
  const step = Math.max(15, Math.min(90, 900 / groups.length));
  const y = (rate) => 10 + height * (1 - Math.min(rate, top) / top);
  const width = left + step * groups.length + 10;
  const svg = draw("svg", {
    width,
    height: 10 + height + bottom,
    role: "img",
  });
  for (const part of [0, 0.25, 0.5, 0.75, 1])
    svg.append(
      draw("line", {
        class: part ? "grid" : "axis",
        x1: left,
        x2: width,
        y1: y(part * top),
        y2: y(part * top),
      }),
      draw(
        "text",
        { x: left - 6, y: y(part * top) + 4, "text-anchor": "end" },
        `${part * top} %`,
      ),
    );
  groups.forEach((group, i) => {
    const middle = left + step * (i + 0.5);
    const bar = draw(
      "rect",
      {
        class: "bar",
        x: middle - 0.35 * step,
        width: 0.7 * step,
        y: y(rates[i]),
        height: y(0) - y(rates[i]),
      },
      draw(
        "title",
        {},
        `${group.name}: ${percent(group.rate)} % of ${group.length} words ` +
          `in ${group.utterances} utterances`,
      ),
    );
    svg.append(bar);
    if (group.interval)
      svg.append(
        draw("line", {
          class: "whisker",
          x1: middle,
          x2: middle,
          y1: y(group.interval.low),
          y2: y(group.interval.high),
        }),
      );
    const foot = [middle + 4, height + 22];
    svg.append(
      draw(
        "text",
        {
          x: foot[0],
          y: foot[1],
          "text-anchor": "end",
          transform: `rotate(-45 ${foot[0]} ${foot[1]})`,
        },
        group.name.length > 14 ? `${group.name.slice(0, 13)}…` : group.name,
      ),
    );
  });
  place.append(svg);
}

// How a confusion stands in the text that the search looks through.
const confusion = (said, heard) => `${said ?? ""}>${heard ?? ""}`;

function showConfusions() {
  const found = data.confusions;
  const tables = {
    substitutions: found.substitutions,
    deletions: found.deletions.map(([word, n]) => [word, null, n]),
    insertions: found.insertions.map(([word, n]) => [null, word, n]),
  };
  for (const [name, rows] of Object.entries(tables)) {
    const body = rows.map(([said, heard, n]) => {
      const words = [said, heard].filter((word) => word !== null).join(" → ");
      const button = make("button", { type: "button" }, words);
      button.addEventListener("click", () => {
        byId("search").value = confusion(said, heard);
        change();
        byId("filters").scrollIntoView();
      });
      return make(
        "tr",
        {},
        make("td", { class: "number" }, `${n}`),
        make("td", {}, button),
      );
    });
    byId("confusions").append(
      make(
        "div",
        { id: name },
        make("h3", {}, name),
        make("table", {}, make("tbody", {}, ...body)),
      ),
    );
  }
}

const COLUMNS = [
  ["id", (row) => row[ID], false],
  ["speaker", (row) => row[SPEAKER] ?? "", false],
  ["seconds", (row) => row[DURATION], true],
  ["words", (row) => row[WORDS], true],
  ["errors", (row) => row[ERRORS], true],
  ["WER", (row) => rateOf(row[ERRORS], row[WORDS]), true],
];
if (data.totals.comparison)
  COLUMNS.push(
    ["errors of second", (row) => row[OTHER_ERRORS], true],
    ["difference", (row) => row[OTHER_ERRORS] - row[ERRORS], true],
  );

const state = { column: 4, down: true, page: 0, rows: [] };

function searchable(row) {
  const parts = [row[ID]];
  for (const steps of [row[STEPS], row[OTHER_STEPS] ?? []])
    for (const step of steps)
      parts.push(
        ...(typeof step === "string"
          ? [step]
          : [step[0] ?? "", step[1] ?? "", confusion(...step)]),
      );
  return ` ${parts.join(" ")} `.toLowerCase();
}
const haystacks = new Map(data.rows.map((row) => [row, searchable(row)]));

function compare(one, two) {
  const value = COLUMNS[state.column][1];
  const [a, b] = [value(one), value(two)];
  // Those without a value come last, whatever the direction.
  if (a === null || b === null) return (a === null) - (b === null);
  return (a < b ? -1 : a > b ? 1 : 0) * (state.down ? -1 : 1);
}

function change() {
  const wanted = byId("search").value.trim().toLowerCase();
  // A confusion is looked for as a whole, anything else as part of a word.
  const needle = wanted.includes(">") ? ` ${wanted} ` : wanted;
  const speaker = byId("speaker").value;
  state.rows = data.rows
    .filter(
      (row) =>
        haystacks.get(row).includes(needle) &&
        (speaker === "" || row[SPEAKER] === data.speakers[speaker]) &&
        (!byId("wrong").checked || row[ERRORS] > 0),
    )
    .sort(compare);
  state.page = 0;
  show();
}

function words(steps) {
  return steps.flatMap((step) => {
    if (typeof step === "string") return [step, " "];
    const [said, heard] = step;
    if (said === null) return [make("span", { class: "ins" }, heard), " "];
    if (heard === null) return [make("span", { class: "del" }, said), " "];
    const both = make("span", { class: "sub" }, make("s", {}, said), ` ${heard}`);
    return [both, " "];
  });
}

function cells(row) {
  const line = COLUMNS.map(([name, value, number]) => {
    const found = value(row);
    const text =
      found === null ? "n/a" : name === "WER" ? percent(found) : `${found}`;
    return make("td", number ? { class: "number" } : {}, text);
  });
  const aligned = make("td", { class: "words", colspan: COLUMNS.length });
  if (row.length > OTHER_STEPS)
    aligned.append(
      make("div", {}, make("span", { class: "system" }, "1: "), ...words(row[STEPS])),
      make("div", {}, make("span", { class: "system" }, "2: "), ...words(row[OTHER_STEPS])),
    );
  else aligned.append(...words(row[STEPS]));
  return [make("tr", { class: "utterance" }, ...line), make("tr", {}, aligned)];
}

function show() {
  const start = state.page * ROWS_SHOWN;
  const end = Math.min(start + ROWS_SHOWN, state.rows.length);
  byId("utterances").tBodies[0].replaceChildren(
    ...state.rows.slice(start, end).flatMap(cells),
  );
  byId("shown").textContent = end
    ? `${start + 1} to ${end} of ${state.rows.length}`
    : "none";
  byId("previous").disabled = state.page === 0;
  byId("next").disabled = end === state.rows.length;
  byId("utterances")
    .querySelectorAll("th")
    .forEach((head, i) =>
      head.setAttribute(
        "aria-sort",
        i !== state.column ? "none" : state.down ? "descending" : "ascending",
      ),
    );
}

function turn(pages) {
  state.page += pages;
  show();
}

function showHeads() {
  const heads = COLUMNS.map(([name, , number], i) => {
    const button = make("button", { type: "button" }, name);
    button.addEventListener("click", () => {
      state.down = state.column === i ? !state.down : number;
      state.column = i;
      change();
    });
    return make("th", number ? { class: "number" } : {}, button);
  });
  byId("utterances").tHead.append(make("tr", {}, ...heads));
}

showCards();
showComparison();
showPlot(
  byId("by-duration"),
  data.totals.groups.duration ?? [],
  "The files do not tell the durations.",
);
showPlot(
  byId("by-speaker"),
  data.totals.groups.speaker ?? [],
  "The files do not tell the speakers.",
);
showConfusions();
byId("speaker").append(
  make("option", { value: "" }, "all"),
  ...data.speakers.map((name, i) => make("option", { value: i }, name)),
);
showHeads();
byId("filters").addEventListener("input", change);
byId("filters").addEventListener("submit", (event) => event.preventDefault());
byId("previous").addEventListener("click", () => turn(-1));
byId("next").addEventListener("click", () => turn(1));
change();
