/** The canonical form of the headers that a request lists as signed: sorted, each as `name:value`, separated by semicolons. */
import { findConnectionOptions, type HeaderFields, toFoldedName } from '../../core/head.ts';
import type { Refusal } from '../../core/refusal.ts';
import type { HeaderListPiece, SchemeDescription } from './description.ts';
import { malformed } from './head.ts';

/** Far more than any sender signs. */
const MAX_HEADERS = 64;
const TOKEN = /^[!#$%&'*+.^_`|~0-9a-z-]+$/;
/** Within a value, this would begin another header of the canonical form. */
const NEXT_HEADER = /;[!#$%&'*+.^_`|~0-9a-z-]+:/;

/** Compiles the function. The list must name itself and the header of the timestamp; otherwise an attacker could change them. */
export function compileHeaderList(
  { headersIn }: HeaderListPiece,
  description: SchemeDescription,
): (head: { readonly headers: HeaderFields }) => string | Refusal {
  const own = headersIn.toLowerCase();
  const required = listRequired(own, description);
  return ({ headers }) => {
    const list = headers.get(own) ?? '';
    if (list === '') return malformed(`the header ${headersIn} is missing`);
    const names = list.split(',').map((name) => name.trim().toLowerCase());
    if (names.length > MAX_HEADERS) return malformed(`${headersIn} lists more than ${MAX_HEADERS} headers`);
    const missing = required.find((name) => !names.includes(name));
    if (missing !== undefined) return malformed(`${headersIn} does not list ${missing}`);
    return formatHeaders(headers, names, headersIn);
  };
}

/** The headers that a list must name. */
export function listRequired(own: string, { timestamp }: SchemeDescription): string[] {
  const time = timestamp !== undefined && 'header' in timestamp.from ? [timestamp.from.header.toLowerCase()] : [];
  return [...new Set([own.toLowerCase(), ...time])];
}

/** The canonical form without the value of a header; no value contains what begins another header. */
export function blankHeader(text: string, name: string): string {
  const at = `;${text}`.indexOf(`;${name}:`);
  if (at === -1) return text;
  const from = at + name.length + ':'.length;
  const rest = text.slice(from);
  return text.slice(0, from) + rest.slice(NEXT_HEADER.exec(rest)?.index ?? rest.length);
}

/** Formats headers in their canonical form, or returns the refusal. */
function formatHeaders(headers: HeaderFields, names: readonly string[], title: string): string | Refusal {
  const lines: string[] = [];
  const dropped = findConnectionOptions(headers);
  for (const name of [...names].sort()) {
    if (!TOKEN.test(name)) return malformed(`${title} lists something that is not the name of a header`);
    // The app would not get the header.
    if (dropped?.has(name) === true) return malformed(`Connection names the signed header ${name}`);
    // An app that reads `_` as `-` would see two headers.
    const folded = toFoldedName(name);
    if (headers.names.filter((other) => toFoldedName(other) === folded).length !== 1)
      return malformed(`${title} lists ${name}, which the request does not have exactly once`);
    const value = headers.get(name) ?? '';
    if (NEXT_HEADER.test(value)) return malformed(`the signed header ${name} looks like several headers`);
    lines.push(`${name}:${value}`);
  }
  return new Set(names).size < names.length ? malformed(`${title} lists a header twice`) : lines.join(';');
}
