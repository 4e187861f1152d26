"""The style of report.html: no font, image or script from anywhere, light and dark, on paper and on a phone."""

CSS = """
:root { color-scheme: light dark; --back: #fff; --text: #1c2024; --dim: #5b6470; --line: #d5dae0; --soft: #f4f6f8;
  --good: #17693a; --bad: #b3261e; --bar: #4a7ebb; --limit: #8a4b00; }
@media (prefers-color-scheme: dark) {
  :root { --back: #14171a; --text: #e4e7ea; --dim: #9aa4af; --line: #343b43; --soft: #1d2226;
    --good: #6fcf97; --bad: #ff8a80; --bar: #6ea3e0; --limit: #f0b060; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 72rem; padding: 1rem; background: var(--back); color: var(--text);
  font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.4rem; margin: 0 0 .5rem; }
h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; border-bottom: 1px solid var(--line); }
code, dd { font-family: ui-monospace, monospace; font-size: .9em; }
nav a { display: inline-block; margin-right: 1rem; }
a { color: inherit; }
.state { display: inline-block; padding: .1rem .6rem; border: 2px solid; border-radius: .3rem; font-weight: 700; }
.good { color: var(--good); }
.bad { color: var(--bad); font-weight: 700; }
.note, .legend, figcaption { color: var(--dim); font-size: .9rem; }
.note { border-left: 3px solid var(--line); padding-left: .8rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .9rem; overflow-wrap: normal; }
th, td { padding: .25rem .6rem; border-bottom: 1px solid var(--line); text-align: left; vertical-align: top; }
th { background: var(--soft); }
th.number, td.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
td.long { min-width: 16rem; overflow-wrap: anywhere; }
summary { cursor: pointer; padding: .25rem 0; }
.failure { border-left: 3px solid var(--bad); background: var(--soft); padding: .2rem .8rem; margin: .8rem 0; }
dl { display: grid; grid-template-columns: 4.5rem minmax(0, 1fr); gap: .1rem .5rem; margin: .2rem 0 .5rem; }
dt { color: var(--dim); }
dd { margin: 0; white-space: pre-wrap; }
dd.replay { user-select: all; }
.pictures { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 25rem), 1fr)); gap: 1rem; }
figure { margin: 0; break-inside: avoid; }
figure svg { display: block; width: 100%; height: auto; }
.legend span { display: inline-block; }
.legend svg { width: 1.5rem; height: .75rem; margin: 0 .3rem 0 .8rem; }
svg text { fill: var(--dim); font: 11px system-ui, sans-serif; }
svg .bar { fill: var(--bar); }
svg .over { fill: var(--bad); }
svg .grid { stroke: var(--line); stroke-width: .5; }
svg .axis { stroke: var(--dim); }
svg polyline { fill: none; stroke-width: 1.5; }
svg .allowed { stroke: var(--limit); }
svg .rounding { stroke: var(--text); stroke-dasharray: 4 3; }
@media print {
  :root { --back: #fff; --text: #000; --dim: #444; --line: #bbb; --soft: #fff; --good: #17693a; --bad: #b3261e;
    --bar: #4a7ebb; --limit: #8a4b00; font-size: 9pt; }
  body { max-width: none; padding: 0; }
  nav { display: none; }
  .scroll { overflow: visible; }
  details::details-content { content-visibility: visible; block-size: auto; }
  .failure, tr { break-inside: avoid; }
  th, td { padding: .1rem .3rem; } }
"""
