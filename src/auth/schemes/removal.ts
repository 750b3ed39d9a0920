/** Removes the signature from a body or a URL, byte for byte, as senders do that sign the rest. */
import type { JsonPath } from '../../core/json-path.ts';
import { type JsonMember, type JsonSpan, listElements, listMembers, toWholeSpan } from '../../core/json-scan.ts';
import { toPath } from './body-values.ts';
import type { SignatureDescription } from './description.ts';
import { findField, parseStrictForm, parseStrictQuery, type StrictForm } from './strict-form.ts';

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
  if (found === undefined || found === 'repeated' || found.span === undefined) return undefined;
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
