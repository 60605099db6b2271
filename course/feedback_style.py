"""The frame of a feedback page: colours and layout, and the policy that lets it load and run nothing."""

import base64
import hashlib

from attnlib.palette import PAGE, ROLES


def _colours(side):
    roles = {"right": "value", "lost": "mistake", "waits": "active", "k": "query", "s": "value", "n": "key"}
    roles |= {"f": "output", "c": "masked"}
    pairs = {"page": PAGE["paper"], "ink": PAGE["ink"]} | {name: ROLES[role] for name, role in roles.items()}
    return " ".join(f"--{name}: {pair[side]};" for name, pair in pairs.items())


STYLE = (
    ":root { color-scheme: light dark; --box: #f5f6f8; --quiet: #4b5565; "
    f"--line: #c9ced6; --link: #0a6577; {_colours(0)} }}\n"
    "@media (prefers-color-scheme: dark) { :root { --box: #222832; "
    f"--quiet: #a9b2bf; --line: #48505c; --link: #6cc7d8; {_colours(1)} }} }}\n"
    + """
* { box-sizing: border-box; }
html { background: var(--page); color: var(--ink); -webkit-text-size-adjust: 100%; }
body { margin: 0 auto; max-width: 48rem; padding: 1.5rem 1rem 4rem; overflow-wrap: anywhere;
  font: 1.0625rem/1.6 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
a { color: var(--link); text-decoration-thickness: 1px; text-underline-offset: 0.18em; }
:focus-visible { outline: 2px solid var(--link); outline-offset: 2px; }
section:focus { outline: 0; }
.skip { position: absolute; left: -100rem; }
.skip:focus { left: 1rem; top: 0.5rem; padding: 0.4rem 0.8rem; background: var(--page); }
h1, h2, h3, h4, h5, h6 { line-height: 1.25; font-weight: 650; letter-spacing: -0.01em; text-wrap: balance; }
h1 { font-size: clamp(1.7rem, 1.3rem + 2vw, 2.2rem); margin: 0.5rem 0 0; }
h2 { font-size: 1.45rem; margin: 2.5rem 0 0.75rem; }
h3 { font-size: 1.3rem; margin: 1.5rem 0 0.5rem; }
h4 { font-size: 1.15rem; margin: 1.5rem 0 0.5rem; }
h5, h6 { font-size: 1rem; margin: 1.25rem 0 0.5rem; }
p, ul, ol, blockquote { margin: 0.75rem 0; }
.who { margin: 0.25rem 0 0; color: var(--quiet); }
main > section:first-child h2 { margin-top: 1.75rem; }
.total { font-size: 1.35rem; margin: 0 0 0.5rem; }
.total strong { font-size: 2.4rem; line-height: 1.1; letter-spacing: -0.02em; }
.bar { display: flex; gap: 3px; height: 0.9rem; margin: 0 0 1rem; }
.bar i { flex: 1 1 0; border-radius: 2px; border: 2px solid var(--quiet); min-width: 2px; }
.bar .right { background: var(--right); border-color: var(--right); }
.bar .part { border-color: var(--lost);
  background: linear-gradient(to top, var(--lost) 50%, transparent 50%); }
.bar .lost { border-color: var(--lost); }
.bar .waits { border: 2px dotted var(--waits); }
"""
    + "".join(f".bar .w{n} {{ flex-grow: {n}; }}\n" for n in range(2, 13))
    + """.words { white-space: pre-line; }
table { border-collapse: collapse; font-size: 1rem; }
th, td { padding: 0.4rem 0.7rem 0.4rem 0; text-align: left; vertical-align: baseline;
  border-bottom: 1px solid var(--line); }
td:last-child, th:last-child { padding-right: 0; }
th { font-weight: 600; }
.marks { width: 100%; table-layout: fixed; }
.marks th:first-child { width: 30%; }
.marks th:nth-child(2) { width: 5.5rem; }
.marks tbody th { font-weight: 500; }
.marks .figure { font-variant-numeric: tabular-nums; }
.marks thead th { color: var(--quiet); font-size: 0.9rem; }
.right > .sign { color: var(--right); }
:is(.lost, .part) > .sign { color: var(--lost); }
.waits > .sign { color: var(--waits); }
.cell { margin: 1.5rem 0; scroll-margin-top: 1rem; }
.what { margin: 0 0 0.3rem; font-size: 0.85rem; color: var(--quiet); }
.mark, .comment { margin: 0 0 0.5rem; padding: 0.5rem 0.8rem; background: var(--box);
  border-radius: 0.3rem; border-left: 0.3rem solid var(--quiet); }
.comment { margin: 0.5rem 0 0; border-left-color: var(--link); }
.mark.right { border-left-color: var(--right); }
.mark:is(.lost, .part) { border-left-color: var(--lost); }
.mark.waits { border-left-color: var(--waits); }
.note { color: var(--quiet); font-size: 0.95rem; }
.text { overflow: clip; overflow-clip-margin: 0.5rem; }
:is(.answer, .graded, .added) > .text { padding: 0 0.9rem; border: 1px solid var(--line);
  border-radius: 0.4rem; }
.text :is(ul, ol) { padding-left: 1.5rem; }
blockquote { margin-left: 0; padding-left: 0.9rem; border-left: 3px solid var(--line); }
.text .deep { margin-left: 0; padding-left: 0; border: 0; list-style-position: inside; }
.text hr { border: 0; border-top: 1px solid var(--line); }
code, pre { font: 0.875rem/1.5 ui-monospace, SFMono-Regular, Menlo, Consolas, "Liberation Mono", monospace; }
code { font-size: 0.9em; background: var(--box); padding: 0.05em 0.25em; border-radius: 0.2rem; }
pre { margin: 0.4rem 0; padding: 0.8rem 1rem; background: var(--box); border-radius: 0.4rem; overflow: auto;
  max-height: 36rem; white-space: pre; overflow-wrap: normal; tab-size: 4; unicode-bidi: isolate; }
.answer > pre:first-of-type { border-left: 0.3rem solid var(--link); border-radius: 0.3rem; }
.output { background: none; border: 1px solid var(--line); max-height: 24rem; }
.output.error { border-color: var(--lost); }
.wrapped { white-space: pre-wrap; overflow-wrap: anywhere; }
img { display: block; max-width: 100%; height: auto; margin: 0.5rem 0; background: #ffffff;
  border-radius: 0.3rem; }
.wide { overflow-x: auto; overflow-wrap: normal; }
.wide table { font-size: 0.95rem; }
.at-right { text-align: right; }
.at-center { text-align: center; }
.k { color: var(--k); } .s { color: var(--s); } .n { color: var(--n); }
.f { color: var(--f); } .c { color: var(--c); }
@media (max-width: 30rem) {
  body { font-size: 1rem; }
  .marks { font-size: 0.95rem; }
  .marks th:nth-child(2) { width: 4.2rem; }
  th, td { padding-right: 0.5rem; }
}
@media print {
  body { max-width: none; padding: 0; }
  pre { max-height: none; white-space: pre-wrap; overflow-wrap: anywhere; }
  .skip, .mark a { display: none; }
}
"""
)
_DIGEST = base64.b64encode(hashlib.sha256(STYLE.encode("utf-8")).digest()).decode("ascii")
POLICY = (
    f"default-src 'none'; img-src data:; style-src 'sha256-{_DIGEST}'; base-uri 'none'; form-action 'none'"
)
HEAD = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="referrer" content="no-referrer">
<meta name="robots" content="noindex">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
"""
