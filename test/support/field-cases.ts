/** Deliveries of schemes that sign more than headers with an ID and a time, and what a receiver reads from them, by other parsers. */
import { createHash } from 'node:crypto';
import type { SignedHead } from '../../src/core/event.ts';
import { HeaderFields } from '../../src/core/head.ts';
import { Refusal } from '../../src/core/refusal.ts';
import { Secret } from '../../src/core/secret.ts';
import { checkRecency } from '../../src/gateway/pipeline/gates/signature.ts';
import { needsFields } from '../../src/verify/schemes/coverage.ts';
import type { Piece, SchemeDescription } from '../../src/verify/schemes/description.ts';
import type { Scheme } from '../../src/verify/schemes/scheme.ts';
import { toQuery } from '../../src/verify/schemes/url.ts';
import { NOW, type PresetCase, PUBLIC_URL } from './preset-cases.ts';

/** A request as it arrives. */
export interface Arrived {
  readonly method: string;
  readonly url: string;
  readonly headers: readonly (readonly [string, string])[];
  readonly body: Buffer;
}

/** Whether a scheme has its signature in one header, which is no token, and signs only ID, time, URL, method and body. */
export function isPlain(description: SchemeDescription): boolean {
  const { signature, jwt } = description;
  return signature !== undefined && signature.content === undefined && jwt === undefined && !needsFields(description);
}

/** Reads head and body of a request as the gate does. */
export function readSigned(
  scheme: Scheme,
  { headers, url, body }: Pick<Arrived, 'headers' | 'url' | 'body'>,
  options = { allowDotInId: false },
): SignedHead | Refusal {
  const head = scheme.readHead(new HeaderFields(headers.flat()), options, toQuery(url));
  return head instanceof Refusal || scheme.readBody === undefined ? head : scheme.readBody(head, body, options);
}

/** Signs a request by the scheme itself. */
export function signArrived(one: PresetCase, given: Partial<Arrived> & { readonly id?: string; readonly at?: number }): Arrived {
  const { id = 'evt_1', at = NOW, method = 'POST', url = `${PUBLIC_URL}/hook`, headers = [], body = Buffer.from('{}') } = given;
  const request = { id, timestamp: at, method, url, body, headers: new HeaderFields(headers.flat()) };
  const signed = one.scheme.signRequest(request, new Secret(Buffer.from(one.signingSecret)), undefined);
  return { method, url: signed.url, headers: [...headers, ...signed.headers], body: signed.body };
}

/** What the gates make of it: `ok`, or what refused it. */
export function judgeArrived({ description, scheme, key }: PresetCase, arrived: Arrived): string {
  const head = readSigned(scheme, arrived);
  if (head instanceof Refusal) return head.detail ?? head.code;
  const message = { method: arrived.method, url: arrived.url, body: arrived.body };
  if (scheme.verify(head, message, [key]) === undefined) return 'mismatch';
  const identity = scheme.identify(head, message);
  if ('problem' in identity) return identity.problem;
  const { tolerance, timestamp } = description;
  if (timestamp === undefined || identity.timestamp === undefined) return 'ok';
  return checkRecency(identity.timestamp, NOW, { tolerance, onSkew: () => undefined })?.code ?? 'ok';
}

/** Everything that the sender signs, as a receiver reads it. */
export function toSignedMeaning(description: SchemeDescription, arrived: Arrived): unknown {
  const { signed, id, timestamp, onlySignedFields } = description;
  const toMeaning = (piece: Piece): unknown => {
    if (piece === 'id') return id === undefined ? undefined : readPlace(id, description, arrived);
    if (piece === 'timestamp') return timestamp === undefined ? undefined : readPlace(timestamp.from, description, arrived);
    if (piece === 'body') return arrived.body.toString('latin1');
    if (piece === 'bodyWithoutSignature') return toRest(description, arrived);
    if (piece === 'urlWithoutSignature') return toUrlRest(description, arrived);
    if (piece === 'method' || piece === 'url') return arrived[piece];
    if (piece === 'target') return arrived.url.slice(PUBLIC_URL.length);
    if (typeof piece === 'string') return undefined;
    if ('text' in piece) return piece.text;
    if ('bodySha256' in piece) return createHash('sha256').update(arrived.body).digest('hex');
    if ('sortedForm' in piece) return toSortedPairs(description, arrived);
    if ('headersIn' in piece) return toListed(piece.headersIn, arrived);
    return readPlace(piece, description, arrived);
  };
  const names = onlySignedFields === undefined ? [] : [...readForm(arrived.body).keys()].sort();
  return [signed.map(toMeaning), names];
}

/** All fields but the signature, also those that have only one value. */
function toSortedPairs({ signature }: SchemeDescription, { body }: Arrived): unknown {
  return [...new URLSearchParams(body.toString())].filter(([name]) => name !== signature?.form).sort();
}

function toListed(name: string, { headers }: Arrived): string[] {
  const fields = new Headers(headers.map(([each, value]) => [each, value]));
  return (fields.get(name) ?? '').split(',').map((each) => `${each.trim().toLowerCase()}=${fields.get(each.trim())}`);
}

function readPlace(place: object, { signature }: SchemeDescription, { headers, url, body }: Arrived): unknown {
  const { header, query, json, form, path, signaturePart, entry } = place as Readonly<Record<string, string | undefined>>;
  const fields = new HeaderFields(headers.flat());
  if (header !== undefined) return fields.get(header.toLowerCase());
  if (query !== undefined) return new URL(url).searchParams.get(query) ?? undefined;
  if (json !== undefined) return readJson(json, body.toString());
  const value = fields.get(signature?.header.toLowerCase() ?? '') ?? '';
  if (entry !== undefined) return value.split(signature?.list ?? '').find((each) => each.startsWith(entry));
  if (signaturePart !== undefined) return value.split(signature?.parts?.separator ?? '')[Number(signaturePart)];
  const text = readForm(body).get(form ?? '');
  return path === undefined || text === undefined ? text : readJson(path, text);
}

function readJson(path: string, text: string): unknown {
  const steps = [...path.matchAll(/\.([^.[\]]+)|\[(\d+)\]/g)].map(([, name, at]) => name ?? Number(at));
  let found: unknown = JSON.parse(text);
  for (const step of steps) found = (found as Readonly<Record<string | number, unknown>> | undefined)?.[step];
  // A missing value is signed as empty text.
  return found ?? '';
}

/** The fields of a form, the last one of each name. */
export function readForm(body: Buffer): Map<string, string> {
  const text = body.toString();
  if (!text.startsWith('--')) return new Map(new URLSearchParams(text));
  const [first = ''] = text.split('\r\n', 1);
  const parts = text.split(first).slice(1, -1);
  return new Map(
    parts.map((part) => {
      const at = part.indexOf('\r\n\r\n');
      return [/name="([^"]*)"/.exec(part.slice(0, at))?.[1] ?? '', part.slice(at + 4, -2)];
    }),
  );
}

/** The body without the signature, as a receiver understands it. */
function toRest({ signature }: SchemeDescription, { body }: Arrived): unknown {
  if (signature?.json === undefined) {
    const pairs = [...new URLSearchParams(body.toString())];
    return pairs.filter(([name]) => name !== signature?.form);
  }
  const content = JSON.parse(body.toString()) as Record<string, unknown>;
  delete content[signature.json.slice('$.'.length)];
  return content;
}

function toUrlRest({ signature }: SchemeDescription, { url }: Arrived): unknown {
  const { origin, pathname, searchParams } = new URL(url);
  return [origin, pathname, [...searchParams].filter(([name]) => name !== signature?.query)];
}
