"""The frame and the style of the pages that `report` writes: light or dark, on a desk or a
phone."""

from __future__ import annotations

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
<main>
<header><h1>{title}</h1><p>{lead}</p></header>
{body}
</main>
</body>
</html>
"""

STYLE = """
:root { --page: #f6f7f9; --card: #ffffff; --text: #1b2330; --soft: #5d6878; --rule: #e3e7ed;
  --line-0: #2563eb; --line-1: #d9480f; --line-2: #0f8a5f; --line-3: #8b3fc7;
  --line-4: #b3256f; --line-5: #8a6a00; --level: #7b8594; --shadow: #c3cad4; }
@media (prefers-color-scheme: dark) { :root { --page: #10141b; --card: #181e28; --text: #e6eaf1; --soft: #98a3b5;
  --rule: #2a3240; --line-0: #6ea3ff; --line-1: #ff9a5c; --line-2: #4fcf9f; --line-3: #c795f5;
  --line-4: #ff8fc4; --line-5: #e0c04a; --level: #8e99ab; --shadow: #0a0d12; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--text); line-height: 1.55; -webkit-text-size-adjust: 100%;
  font-family: system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif; }
main { max-width: 70rem; margin: 0 auto; padding: 2.2rem 1rem 3rem; }
header { margin: 0 .2rem 1.4rem; }
h1 { font-size: clamp(1.55rem, 4.5vw, 2.2rem); line-height: 1.2; margin: 0 0 .5rem; letter-spacing: -.015em; }
header p { color: var(--soft); font-size: 1.06rem; margin: 0; max-width: 46rem; }
h1, h2, header p, .legend li { overflow-wrap: anywhere; }
h2 { font-size: 1.06rem; margin: 0 0 .55rem; line-height: 1.3; }
section { background: var(--card); border: 1px solid var(--rule); border-radius: .7rem; padding: 1.05rem 1.1rem;
  margin: 0 0 1rem; min-width: 0; }
section > p { max-width: 46rem; margin: 0 0 .6rem; overflow-wrap: anywhere; }
section > p:last-child { margin-bottom: 0; }
.note { color: var(--soft); font-size: .86rem; margin-top: .6rem; }
.charts { display: grid; gap: 1rem; grid-template-columns: repeat(auto-fit, minmax(min(100%, 25rem), 1fr));
  margin-bottom: 1rem; }
.charts section { margin: 0; }
.wide { overflow-x: auto; margin: 0 -1.1rem; padding: 0 1.1rem;
  background: linear-gradient(to right, var(--card) 1.4rem, transparent) left / 2.8rem 100% no-repeat local,
    linear-gradient(to left, var(--card) 1.4rem, transparent) right / 2.8rem 100% no-repeat local,
    linear-gradient(to right, var(--shadow), transparent) left 0 top 1px / .7rem calc(100% - 3px) no-repeat scroll,
    linear-gradient(to left, var(--shadow), transparent) right 1px top 1px / .7rem calc(100% - 3px) no-repeat scroll; }
/* The last two are shadows at the edges, which the first two, moving with the table, cover where it ends;
   they are a pixel smaller, so that no seam of them shows at the edge of a cover that was rounded down. */
table { border-collapse: collapse; min-width: min(100%, 24rem); font-size: .92rem; }
th, td { text-align: left; vertical-align: top; padding: .42rem 1.4rem .42rem 0; border-bottom: 1px solid var(--rule); }
th { color: var(--soft); font-weight: 600; font-size: .82rem; vertical-align: bottom; }
th:last-child, td:last-child { padding-right: 0; }
tbody tr:last-child td { border-bottom: 0; }
.number { text-align: right; font-variant-numeric: tabular-nums; }
td.number, td.short { white-space: nowrap; }
.headline { display: grid; gap: 1rem 2rem; grid-template-columns: repeat(auto-fit, minmax(8.5rem, 1fr)); margin: 0; }
.headline dt { color: var(--soft); font-size: .86rem; font-weight: 600; }
.headline dd { margin: 0; color: var(--soft); font-size: .86rem; font-variant-numeric: tabular-nums; }
.headline dt + dd { color: var(--text); white-space: nowrap; }
.headline b { font-size: 1.75rem; font-weight: 650; letter-spacing: -.02em; line-height: 1.35; }
.headline small { font-size: .95rem; color: var(--soft); }
svg { display: block; width: 100%; height: auto; overflow: visible; }
svg text { fill: var(--soft); font-size: 11px; font-variant-numeric: tabular-nums; }
svg path { fill: none; stroke-width: 1.8; stroke-linejoin: round; stroke-linecap: round; }
svg .grid { stroke: var(--rule); stroke-width: 1; }
svg .level { stroke: var(--level); stroke-dasharray: 5 4; stroke-width: 1.5; }
.line-0 { --own: var(--line-0); } .line-1 { --own: var(--line-1); } .line-2 { --own: var(--line-2); }
.line-3 { --own: var(--line-3); } .line-4 { --own: var(--line-4); } .line-5 { --own: var(--line-5); }
svg [class*=line-] { stroke: var(--own); } svg circle[class^=line] { fill: var(--own); }
svg .band { fill: var(--own); fill-opacity: .14; stroke: none; }
svg .whisker { stroke-width: 3.5; stroke-opacity: .45; }
p.axis { color: var(--soft); font-size: .84rem; margin: 0 0 .15rem; }
.legend { list-style: none; display: flex; flex-wrap: wrap; gap: .1rem 1.1rem; padding: 0; margin: 0 0 .6rem;
  font-size: .86rem; }
.legend li::before { content: ""; display: inline-block; width: 1.1em; margin-right: .45em; vertical-align: .28em;
  border-top: 3px solid var(--own); border-radius: 2px; }
.legend .level::before { border-top: 2px dashed var(--level); border-radius: 0; }
.legend b { font-variant-numeric: tabular-nums; }
.unseen { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
.charts { position: relative; }
.switch { grid-column: 1 / -1; display: flex; flex-wrap: wrap; align-items: center; gap: .4rem .35rem; font-size: .9rem;
  position: sticky; top: 0; z-index: 1; background: var(--page); padding: .5rem .2rem; }
.switch span { color: var(--soft); margin-right: .35rem; }
.switch label { border: 1px solid var(--rule); background: var(--card); border-radius: 1rem; padding: .3rem .8rem;
  cursor: pointer; }
.against { display: none; }
.show-0:checked ~ section .axis-0 { display: block; }
.show-0:checked ~ .switch label:nth-of-type(1) { background: var(--text); border-color: var(--text);
  color: var(--page); }
.show-0:focus-visible ~ .switch label:nth-of-type(1) { outline: 3px solid var(--line-0); outline-offset: 2px; }
.show-1:checked ~ section .axis-1 { display: block; }
.show-1:checked ~ .switch label:nth-of-type(2) { background: var(--text); border-color: var(--text);
  color: var(--page); }
.show-1:focus-visible ~ .switch label:nth-of-type(2) { outline: 3px solid var(--line-0); outline-offset: 2px; }
.show-2:checked ~ section .axis-2 { display: block; }
.show-2:checked ~ .switch label:nth-of-type(3) { background: var(--text); border-color: var(--text);
  color: var(--page); }
.show-2:focus-visible ~ .switch label:nth-of-type(3) { outline: 3px solid var(--line-0); outline-offset: 2px; }
.show-3:checked ~ section .axis-3 { display: block; }
.show-3:checked ~ .switch label:nth-of-type(4) { background: var(--text); border-color: var(--text);
  color: var(--page); }
.show-3:focus-visible ~ .switch label:nth-of-type(4) { outline: 3px solid var(--line-0); outline-offset: 2px; }
@media print { .wide { overflow: visible; } .switch { display: none; } }
@media (max-width: 40rem) { main { padding: 1.3rem .75rem 2rem; } svg text { font-size: 13px; }
  section { padding: .95rem .9rem; } .wide { margin: 0 -.9rem; padding: 0 .9rem; }
  .headline { grid-template-columns: 1fr 1fr; gap: 1rem; } .headline b { font-size: 1.5rem; }
  table.cards, .cards tbody, .cards tr, .cards td { display: block; }
  .cards { min-width: 0; } .cards thead { position: absolute; width: 1px; height: 1px; overflow: hidden;
    clip-path: inset(50%); }
  .cards tr { border: 1px solid var(--rule); border-radius: .55rem; padding: .5rem .75rem; }
  .cards tr + tr { margin-top: .6rem; }
  .cards td { display: grid; grid-template-columns: minmax(6.5rem, 38%) minmax(0, 1fr); gap: .9rem; border: 0;
    padding: .18rem 0; text-align: left; white-space: normal; overflow-wrap: break-word; }
  .cards td::before { content: attr(data-column); color: var(--soft); font-size: .86rem; }
  .cards td:empty { display: none; }
  .cards td:first-child { display: block; font-weight: 600; } .cards td:first-child::before { content: none; }
  .cards td.number:first-child::before { content: attr(data-column) " "; font-size: inherit; } }
"""
