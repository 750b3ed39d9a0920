/** A key, a message and a judge for any scheme, made from its description alone. */
import { createHash, createHmac, generateKeyPairSync } from 'node:crypto';
import { HeaderFields } from '../../src/core/head.ts';
import { Secret } from '../../src/core/secret.ts';
import { checkRecency } from '../../src/gateway/pipeline/gates/signature.ts';
import { findPreset } from '../../src/verify/presets/catalogue.ts';
import { compileScheme } from '../../src/verify/schemes/compile.ts';
import { TIMESTAMP_FORMATS } from '../../src/verify/schemes/coverage.ts';
import { type Piece, type SchemeDescription, withReceiverId } from '../../src/verify/schemes/description.ts';
import type { Message, Scheme, VerifyKey } from '../../src/verify/schemes/scheme.ts';
import { readAsymmetricVectors } from './oracles/vectors.ts';
import { fc } from './property.ts';
import { RSA_PAIR, toPem } from './tokens.ts';

/** The time of every judgement; senders sign within a minute of it. */
export const NOW = 1_800_000_000_000;
/** The secret of deliveries that are signed by hand. */
export const SECRET = '8f742231b10e8888abcd99yyyzzz85a5';
/** What the gate puts before the target of every URL that a sender signs. */
export const PUBLIC_URL = 'https://hooks.example.com';

/** A delivery in the parts that a scheme may sign; headers are made of them anew after each change. */
export interface Parts {
  readonly id: string;
  readonly timestamp: string;
  readonly method: string;
  readonly url: string;
  readonly body: Buffer;
  /** The signature header without the entry that holds the time. */
  readonly signature: string;
}

/** One scheme with a key of its own. */
export interface PresetCase {
  readonly description: SchemeDescription;
  readonly scheme: Scheme;
  /** What the route is given. */
  readonly secret: string;
  /** What the sender signs with. */
  readonly signingSecret: string;
  readonly key: VerifyKey;
}

const RECEIVER_ID = '1JE4291016473214C';
const HMAC_SECRET = 'whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw';

function toHmacSecret({ encoding, prefix }: SchemeDescription['secret']): string {
  if (encoding === 'hex') return '0123456789abcdef0123456789abcdef';
  return encoding === 'base64' && prefix === undefined ? HMAC_SECRET.slice('whsec_'.length) : HMAC_SECRET;
}

/** The text of a secret as an operator would paste it, and of its private half. */
function toSecrets({ signature, publicKey, secret, jwt }: SchemeDescription): { secret: string; signingSecret: string } {
  const algorithm = signature?.forms[0]?.algorithm;
  if (jwt?.chain !== undefined) {
    // A root, which verifies no signature of a delivery itself.
    const text = readAsymmetricVectors().find(({ preset }) => preset === 'apple-app-store')?.secret.text ?? '';
    return { secret: text, signingSecret: text };
  }
  if (algorithm?.startsWith('rsa') === true)
    return { secret: toPem(RSA_PAIR.publicKey), signingSecret: toPem(RSA_PAIR.privateKey) };
  if (publicKey === undefined || (algorithm !== 'ed25519' && algorithm !== 'ecdsa-p256')) {
    const text = toHmacSecret(secret);
    return { secret: text, signingSecret: text };
  }
  const pair = algorithm === 'ed25519' ? generateKeyPairSync('ed25519') : generateKeyPairSync('ec', { namedCurve: 'prime256v1' });
  const der = pair.publicKey.export({ format: 'der', type: 'spki' });
  return {
    secret: (publicKey.format === 'raw' ? der.subarray(-32) : der).toString(publicKey.encoding),
    signingSecret: pair.privateKey.export({ format: 'pem', type: 'pkcs8' }).toString(),
  };
}

/** The scheme, ready to judge and to sign. */
export function toCase(base: SchemeDescription, secrets = toSecrets(base)): PresetCase {
  const description = withReceiverId(base, RECEIVER_ID);
  const scheme = compileScheme(description);
  const parsed = scheme.parseKey('k', new Secret(Buffer.from(secrets.secret)), undefined);
  if ('problem' in parsed) throw new Error(`${description.name}: ${parsed.problem}`);
  return { description, scheme, ...secrets, key: parsed.key };
}

/** The description of a preset. */
export function toPreset(name: string): SchemeDescription {
  const found = findPreset(name);
  if (found === undefined) throw new Error(`no preset ${name}`);
  return found;
}

/** The preset with `SECRET`. */
export function toSecretCase(name: string): PresetCase {
  return toCase(toPreset(name), { secret: SECRET, signingSecret: SECRET });
}

/** The HMAC of these pieces by `SECRET`. */
export function hmac(algorithm: string, encoding: 'hex' | 'base64', ...pieces: readonly (string | Buffer)[]): string {
  const mac = createHmac(algorithm, SECRET);
  for (const piece of pieces) mac.update(piece);
  return mac.digest(encoding);
}

/** Content that the sender could send: bytes of any kind where nothing says more. */
function toBody(description: SchemeDescription): fc.Arbitrary<Buffer> {
  const json = (value: fc.Arbitrary<unknown>): fc.Arbitrary<Buffer> =>
    value.map((content) => Buffer.from(JSON.stringify(content)));
  const object = fc.dictionary(fc.string({ maxLength: 6 }), fc.jsonValue({ maxDepth: 1 }), { maxKeys: 3 });
  const { timestamp, contentShape, signed } = description;
  if (timestamp !== undefined && 'json' in timestamp.from) {
    const name = timestamp.from.json.slice('$.'.length);
    const write = (time: number): unknown => (timestamp.unit === 'ms' ? time : TIMESTAMP_FORMATS[timestamp.unit].format(time));
    return json(
      fc.tuple(object, fc.integer({ min: NOW - 60_000, max: NOW })).map(([rest, time]) => ({ ...rest, [name]: write(time) })),
    );
  }
  if (contentShape !== undefined) return json(contentShape === 'json-array' ? fc.array(object, { maxLength: 2 }) : object);
  // A form that began with a dash could be multipart.
  const name = fc.string({ maxLength: 5 }).filter((text) => !text.startsWith('-'));
  if (signed.includes('form'))
    return fc
      .array(fc.tuple(name, fc.string({ unit: 'grapheme', maxLength: 5 })), { maxLength: 4 })
      .map((pairs) => Buffer.from(new URLSearchParams(pairs).toString()));
  const bytes = fc.uint8Array({ maxLength: 40 }).map((content) => Buffer.from(content));
  // Looks like the boundary before it once more.
  const tempting = bytes.map((rest) => Buffer.concat([Buffer.from(`${NOW / 1000}${description.separator}`), rest]));
  return fc.oneof(bytes, tempting);
}

/** Signed deliveries of a scheme. */
export function toDelivery(one: PresetCase): fc.Arbitrary<Parts> {
  const { description } = one;
  const id = fc.string({ unit: fc.constantFrom(...'abcXYZ0159_-+='), minLength: 1, maxLength: 20 });
  const target = fc.webPath().map((path) => (path.startsWith('/') ? path : `/${path}`));
  const query = fc.option(fc.webQueryParameters(), { nil: undefined });
  return fc
    .record({ id, target, query, body: toBody(description), ago: fc.integer({ min: 0, max: 60 }), isBound: fc.boolean() })
    .map(({ id, target, query, body, ago, isBound }) => {
      const plain = `${PUBLIC_URL}${target}${query === undefined ? '' : `?${query}`}`;
      const parameter = description.contentDigestParameter;
      const digest = createHash('sha256').update(body).digest('hex');
      const url =
        parameter === undefined || !isBound ? plain : `${plain}${plain.includes('?') ? '&' : '?'}${parameter}=${digest}`;
      return sign(one, { id, method: 'POST', url, body, timestamp: NOW - ago * 1000 });
    });
}

/** Signs by the scheme itself. */
export function sign(
  one: PresetCase,
  request: { id: string; method: string; url: string; body: Buffer; timestamp: number },
): Parts {
  const { timestamp: time, signature } = one.description;
  const headers = new HeaderFields(one.scheme.sign(request, new Secret(Buffer.from(one.signingSecret)), undefined).flat());
  const whole = headers.get(signature?.header.toLowerCase() ?? '') ?? '';
  const { id, method, url, body } = request;
  if (time === undefined || 'json' in time.from) return { id, timestamp: '', method, url, body, signature: whole };
  if ('header' in time.from)
    return { id, timestamp: headers.get(time.from.header.toLowerCase()) ?? '', method, url, body, signature: whole };
  if (!('entry' in time.from)) throw new Error(`${one.description.name} has its time elsewhere`);
  const [entry = '', ...rest] = whole.split(signature?.list ?? '');
  return { id, timestamp: entry.slice(time.from.entry.length), method, url, body, signature: rest.join(signature?.list) };
}

/** The header fields of a delivery. */
export function toFields({ signature, id, timestamp }: SchemeDescription, parts: Parts): HeaderFields {
  const fields: string[] = [];
  const isEntry = timestamp !== undefined && 'entry' in timestamp.from;
  if (signature !== undefined) {
    const time = isEntry && 'entry' in timestamp.from ? `${timestamp.from.entry}${parts.timestamp}${signature.list}` : '';
    fields.push(signature.header, `${time}${parts.signature}`);
  }
  if (id !== undefined && 'header' in id) fields.push(id.header, parts.id);
  if (timestamp !== undefined && 'header' in timestamp.from) fields.push(timestamp.from.header, parts.timestamp);
  return new HeaderFields(fields);
}

/** What the gates make of it, the way they ask: `ok`, or what refused it. */
export function judge({ description, scheme, key }: PresetCase, parts: Parts): string {
  // The gate puts its own public URL before every target.
  if (scheme.signsUrl && !parts.url.startsWith(`${PUBLIC_URL}/`)) return 'another host';
  const head = scheme.readHead(toFields(description, parts), { allowDotInId: false });
  if ('code' in head) return head.code;
  const message: Message = { method: parts.method, url: parts.url, body: parts.body };
  if (scheme.verify(head, message, [key]) === undefined) return 'mismatch';
  const identity = scheme.identify(head, message);
  if ('problem' in identity) return identity.problem;
  const timestamp = identity.timestamp ?? head.timestamp;
  if (description.timestamp === undefined || timestamp === undefined) return 'ok';
  const { tolerance } = description;
  return checkRecency(timestamp, NOW, { tolerance, onSkew: () => undefined })?.code ?? 'ok';
}

/** The parts that a scheme signs, in order, by name. */
export function toSignedParts({ signed }: SchemeDescription): ('id' | 'timestamp' | 'method' | 'url' | 'body')[] {
  return signed.flatMap((piece: Piece) =>
    piece === 'id' || piece === 'timestamp' || piece === 'method' || piece === 'url' || piece === 'body'
      ? [piece]
      : piece === 'form' || piece === 'crc32'
        ? ['body' as const]
        : [],
  );
}

/** A part as bytes. */
export function getPart(parts: Parts, name: keyof Parts): Buffer {
  const value = parts[name];
  return typeof value === 'string' ? Buffer.from(value, 'latin1') : value;
}

/** The delivery with one part replaced. */
export function withPart(parts: Parts, name: keyof Parts, value: Buffer): Parts {
  return { ...parts, [name]: name === 'body' ? value : value.toString('latin1') };
}

/** What becomes of a delivery that was signed by hand. */
export function judgeParts(name: string, parts: Partial<Parts>): string {
  const empty = { id: 'id', timestamp: '', method: 'POST', url: `${PUBLIC_URL}/hook`, body: Buffer.from('{}'), signature: '' };
  return judge(toSecretCase(name), { ...empty, ...parts });
}
