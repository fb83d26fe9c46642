// Tables that a person sorts by a click on a head, and searches where they are long. Nothing is loaded, and what is
// saved stays as it was. Left alone are tables of which a part is shown, or whose cells cover several.
const SEARCHED = 10; // rows from which on a table has a field

function makeSortable(root) {
  for (const table of root.querySelectorAll("table")) {
    const heads = headsOf(table), body = table.tBodies[0];
    const rows = [...(body?.rows ?? [])];
    const about = table.parentElement?.nextElementSibling?.textContent ?? "";
    const inParts = table.querySelector("[colspan], [rowspan]") || / shown$/.test(about.trim());
    const isCut = rows.some((row) => [...row.cells].some((cell) => cell.textContent.trim() === "..."));
    if (rows.length < 3 || !heads.length || inParts || isCut || table.querySelector("button")) continue;
    heads.forEach((head, at) => { if (head.textContent.trim()) makeSorting(heads, head, at, body, rows); });
    if (rows.length > SEARCHED) table.before(searchField(rows));
  }
}

// One head of each column, or none where a column has two. (pandas writes an index's name in a line of its own.)
function headsOf(table) {
  const [first, second, ...more] = [...(table.tHead?.rows ?? [])].map((row) => [...row.cells]);
  if (!first || more.length || (second && second.length !== first.length)) return [];
  const isBlank = (cell) => !cell.textContent.trim();
  if (second?.some((cell, at) => !isBlank(cell) && !isBlank(first[at]))) return [];
  return first.map((cell, at) => (second && isBlank(cell) ? second[at] : cell));
}

function makeSorting(heads, head, at, body, rows) {
  const press = document.createElement("button");
  press.type = "button";
  press.style.cssText = "all:unset;cursor:pointer;font:inherit;outline:revert";
  press.title = "Sort by this column";
  press.append(...head.childNodes);
  head.append(press);
  press.addEventListener("click", () => {
    const order = { ascending: "descending", descending: "none" }[head.getAttribute("aria-sort")] ?? "ascending";
    for (const other of heads) other.removeAttribute("aria-sort");
    if (order !== "none") head.setAttribute("aria-sort", order);
    const sign = { ascending: 1, descending: -1, none: 0 }[order];
    const keyed = rows.map((row) => [sortKey(row.cells[at]?.textContent ?? ""), row]);
    if (sign) keyed.sort(([a], [b]) => (a === null) - (b === null) || sign * inOrder(a, b));
    body.append(...keyed.map(([, row]) => row));
  });
}

// A number, a text, or null for what is missing, which comes last in both orders.
function sortKey(text) {
  const told = text.trim();
  if (!told || /^(—|NaN|NaT|None|<NA>)$/.test(told)) return null;
  const number = /^[-+−]?[\d,]*\.?\d+(e[-+]?\d+)?%?$/i.test(told) ? Number(told.replace(/[,%]/g, "").replace("−", "-")) : NaN;
  return Number.isNaN(number) ? told : number;
}

function inOrder(a, b) {
  if (typeof a === "number" && typeof b === "number") return a - b;
  return String(a).localeCompare(String(b), undefined, { numeric: true });
}

function searchField(rows) {
  const field = document.createElement("input");
  field.type = "search";
  field.placeholder = `Search ${rows.length.toLocaleString("en-US")} rows`;
  field.setAttribute("aria-label", "Search the table");
  field.style.cssText = "display:block;margin:0 0 0.4em;padding:0.2em 0.5em;font:inherit;max-width:100%";
  field.addEventListener("input", () => {
    const wanted = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const row of rows) {
      const told = [...row.cells].map((cell) => cell.textContent.toLowerCase()).join(" ");
      row.hidden = !wanted.every((word) => told.includes(word));
    }
  });
  return field;
}
