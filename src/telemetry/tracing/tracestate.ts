/** Parses `tracestate` (W3C Trace Context §3.3): vendor-specific data, forwarded unchanged within the limits. */
import { type Characters, trimEnds } from '../../core/text.ts';

const MAX_MEMBERS = 32;
/** §3.3.1.5: a vendor should forward at least this many. */
const MAX_CHARACTERS = 512;
/** Longer members are dropped first. */
const LONG_MEMBER = 128;
/** §3.3.1.3.1 and §3.3.1.3.2: printable ASCII except `,` and `=`, no trailing space. */
const MEMBER = /^([a-z0-9][a-z0-9_\-*/@]{0,255})=[\x20-\x2b\x2d-\x3c\x3e-\x7e]{0,255}[\x21-\x2b\x2d-\x3c\x3e-\x7e]$/;
const OPTIONAL_WHITESPACE: Characters = new Set('\t ');

/** Combines the field lines into one value; undefined if there is none, or if any part is malformed (§3.3.1.4). */
export function parseTracestate(lines: readonly string[]): string | undefined {
  const keys = new Set<string>();
  const members: string[] = [];
  for (const part of lines.join(',').split(',')) {
    const member = trimEnds(part, OPTIONAL_WHITESPACE);
    if (member === '') continue;
    const key = MEMBER.exec(member)?.[1];
    if (key === undefined || keys.has(key) || members.length === MAX_MEMBERS) return undefined;
    keys.add(key);
    members.push(member);
  }
  const kept = shorten(members);
  return kept.length === 0 ? undefined : kept.join(',');
}

/** §3.3.1.5: drops whole members, long ones first, then from the end. */
function shorten(members: readonly string[]): readonly string[] {
  let kept = members;
  if (toLength(kept) > MAX_CHARACTERS) kept = kept.filter(({ length }) => length <= LONG_MEMBER);
  while (toLength(kept) > MAX_CHARACTERS) kept = kept.slice(0, -1);
  return kept;
}

function toLength(members: readonly string[]): number {
  return members.reduce((sum, { length }) => sum + length, members.length - 1);
}
