/** Removes the signature from a body or a URL, byte for byte, as senders do that sign the rest; and single values, to compare the rest. */
import type { JsonPath } from '../../core/json-path.ts';
import { type JsonMember, type JsonSpan, listElements, listMembers, toWholeSpan } from '../../core/json-scan.ts';
import { toPath } from './body-values.ts';
import type { BodyPlace, SignatureDescription } from './description.ts';
import type { Message } from './scheme.ts';
import { findField, parseStrictForm, parseStrictQuery, type StrictForm, splitParts } from './strict-form.ts';

const AMPERSAND = '&';
const COMMA = 0x2c;
const SPACE = 0x20;

/** Returns the body without the signature; undefined if it cannot be removed. */
type Remove = (body: Buffer) => Buffer | undefined;

/** Compiles the removal from JSON or a URL-encoded form. Only for bodies that were read strictly, in which the place is unique. */
export function compileRemoval(signature: SignatureDescription | undefined): Remove {
  if (signature?.json !== undefined) {
    const path = toPath(signature.json);
    return (body) => removeMember(body, path);
  }
  const name = signature?.form ?? '';
  return (body) => {
    const text = body.toString('latin1');
    const rest = removePair(text, parseStrictForm(body), name);
    return rest === undefined ? undefined : Buffer.from(rest, 'latin1');
  };
}

/** Removes a parameter from a URL; undefined if the URL does not have it exactly once. */
export function removeParameter(url: string, name: string): string | undefined {
  const mark = url.indexOf('?');
  if (mark === -1) return undefined;
  const query = url.slice(mark + 1);
  const rest = removePair(query, parseStrictQuery(query), name);
  if (rest === undefined) return undefined;
  return url.slice(0, mark) + (rest === '' ? '' : `?${rest}`);
}

function removePair(text: string, parsed: StrictForm, name: string): string | undefined {
  const found = parsed.kind === 'fields' ? findField(parsed.fields, name) : undefined;
  if (found === undefined || found === 'ambiguous' || found.span === undefined) return undefined;
  const { from, to } = found.span;
  // With one of the two separators around it.
  if (text[to] === AMPERSAND) return text.slice(0, from) + text.slice(to + 1);
  return text.slice(0, Math.max(0, from - 1)) + text.slice(to);
}

/** With the comma before the member, or the one after it if it is the first. */
function removeMember(body: Buffer, { steps }: JsonPath): Buffer | undefined {
  let span: JsonSpan | undefined = toWholeSpan(body);
  for (const step of steps.slice(0, -1)) span = span && findStep(body, span, step);
  const members = span === undefined ? [] : [...listMembers(body, span)];
  const at = members.findIndex(({ name }) => name === steps.at(-1));
  const member = members[at];
  if (span === undefined || member === undefined) return undefined;
  const previous = members[at - 1];
  const next = members[at + 1];
  const { from, to } = toRemoved({ body, member, previous, next });
  return Buffer.concat([body.subarray(0, from), body.subarray(to)]);
}

interface Neighbors {
  readonly body: Buffer;
  readonly member: JsonMember;
  readonly previous: JsonMember | undefined;
  readonly next: JsonMember | undefined;
}

function toRemoved({ body, member, previous, next }: Neighbors): JsonSpan {
  const { to } = member.value;
  if (next !== undefined && previous === undefined) return { from: member.from, to: next.from };
  return { from: previous === undefined ? member.from : findComma(body, previous.value.to), to };
}

/** The comma after a value; only white space can be before it. */
function findComma(body: Buffer, from: number): number {
  let at = from;
  while (body[at] !== COMMA && (body[at] ?? 0) <= SPACE && at < body.length) at++;
  return at;
}

function findStep(body: Buffer, span: JsonSpan, step: string | number): JsonSpan | undefined {
  if (typeof step === 'number') return [...listElements(body, span)][step];
  return [...listMembers(body, span)].find(({ name }) => name === step)?.value;
}

/** What to cut at the end of a path: a plain value, or the member with any value, as if it was missing. */
type Cut = 'value' | 'member';
/** The values to cut: each path of JSON as a tree of its steps. */
type PathTree = Map<string | number, PathTree | Cut>;

/** The form fields to cut, by name: their values, or those at some paths of their JSON. */
type FieldCuts = ReadonlyMap<string, PathTree | true>;

/** A text, boolean or integer whose bytes follow from its value. A list, an object and null are kept in the places of plain values. */
const PLAIN_LITERAL = /^(?:true|false|0|-?[1-9][0-9]{0,15})$/;
const MAX_LITERAL_BYTES = 17;
const QUOTE = 0x22;

/**
 * Compiles a function that cuts the plain values at `places`, whole `members`, and the boundary of a multipart body. Two bodies with equal results differ
 * in nothing else. It reads a body once for each level of the longest path. Only for bodies of which every app reads the same values there.
 */
export function compileCut(
  places: readonly BodyPlace[],
  members: readonly BodyPlace[] = [],
): (message: Pick<Message, 'body' | 'isMultipart'>) => Buffer {
  const json: PathTree = new Map();
  const fields = new Map<string, PathTree | true>();
  for (const place of [...places, ...members]) {
    const cut = members.includes(place) ? 'member' : 'value';
    if ('json' in place) addPath(json, place.json, cut);
    else if (place.path === undefined) fields.set(place.form, true);
    else fields.set(place.form, addPath(fields.get(place.form) ?? new Map(), place.path, cut));
  }
  return ({ body, isMultipart }) => {
    if (isMultipart === true) return cutParts(body, fields);
    if (fields.size > 0) return Buffer.from(cutPairs(body.toString('latin1'), parseStrictForm(body), fields), 'latin1');
    return json.size > 0 ? cutJson(body, json) : body;
  };
}

function addPath(tree: PathTree | true, path: string, cut: Cut): PathTree | true {
  if (tree === true) return tree;
  const { steps } = toPath(path);
  let at = tree;
  for (const step of steps.slice(0, -1)) {
    const next = at.get(step) ?? new Map();
    // A shorter path cuts the whole value.
    if (typeof next === 'string') return tree;
    at.set(step, next);
    at = next;
  }
  at.set(steps.at(-1) ?? '', cut);
  return tree;
}

function cutJson(body: Buffer, tree: PathTree): Buffer {
  const kept: Buffer[] = [];
  let from = 0;
  for (const span of listCuts(body, toWholeSpan(body), tree)) {
    kept.push(body.subarray(from, span.from));
    from = span.to;
  }
  return Buffer.concat([...kept, body.subarray(from)]);
}

/** In the order of the text. */
function* listCuts(body: Buffer, span: JsonSpan, tree: PathTree): Generator<JsonSpan> {
  let index = 0;
  for (const element of listElements(body, span)) yield* listCutsOf(body, element, tree.get(index++));
  const members = [...listMembers(body, span)];
  const hasMembers = [...tree.values()].includes('member');
  for (const [at, { name, from, value }] of members.entries()) {
    const cut = tree.get(name);
    const to = members[at + 1]?.from ?? value.to;
    if (cut !== 'member') yield* listCutsOf(body, value, cut);
    // With all commas: of the rest, nobody sees whether a member is missing.
    if (hasMembers) yield { from: cut === 'member' ? from : value.to, to };
  }
}

function* listCutsOf(body: Buffer, value: JsonSpan, cut: PathTree | Cut | undefined): Generator<JsonSpan> {
  if (cut === undefined) return;
  if (typeof cut !== 'string') yield* listCuts(body, value, cut);
  else if (cut === 'member' || isPlain(body, value)) yield value;
}

function isPlain(body: Buffer, { from, to }: JsonSpan): boolean {
  return body[from] === QUOTE || (to - from <= MAX_LITERAL_BYTES && PLAIN_LITERAL.test(body.toString('latin1', from, to)));
}

/** Cuts parameters of a form or a query; the text as it is if it has several interpretations. */
export function cutPairs(text: string, parsed: StrictForm, cuts: FieldCuts): string {
  if (parsed.kind === 'problem') return text;
  let kept = '';
  let at = 0;
  for (const { name, value, span } of parsed.fields) {
    const cut = cuts.get(name);
    const equals = span === undefined ? -1 : text.indexOf('=', span.from);
    if (cut === undefined || span === undefined || equals === -1 || equals >= span.to) continue;
    // The rest of the value is encoded in one way only, so it has the end that it had.
    kept += text.slice(at, equals + 1) + (cut === true ? '' : encodeURIComponent(cutText(value, cut)));
    at = span.to;
  }
  return kept + text.slice(at);
}

/** The parts without their boundary, as a list, in JSON; the body as it is if it has several interpretations. */
function cutParts(body: Buffer, cuts: FieldCuts): Buffer {
  const parsed = parseStrictForm(body);
  if (parsed.kind === 'problem') return body;
  const parts = splitParts(body).map((part, at) => {
    const { name = '', value = '' } = parsed.fields[at] ?? {};
    const cut = cuts.get(name);
    if (cut === undefined) return part;
    return part.slice(0, part.length - value.length) + (cut === true ? '' : cutText(value, cut));
  });
  return Buffer.from(JSON.stringify(parts));
}

function cutText(value: string, tree: PathTree): string {
  return cutJson(Buffer.from(value, 'latin1'), tree).toString('latin1');
}
