/** The properties of a scheme that the checks use: the parts of its signatures, their headers, and how to sign. */
import { generateKeyPairSync, randomBytes } from 'node:crypto';
import type { EpochMilliseconds } from '../../core/clock.ts';
import { SidegateError } from '../../core/errors.ts';
import { Secret } from '../../core/secret.ts';
import { TIMESTAMP_FORMATS } from '../../verify/schemes/coverage.ts';
import type { SchemeDescription, SignatureDescription } from '../../verify/schemes/description.ts';
import type { Scheme } from '../../verify/schemes/scheme.ts';
import type { EncodedKey } from '../../verify/schemes/sign.ts';
import type { Fields } from './client.ts';

/** The parts of a delivery that can be signed. */
interface Signable {
  readonly id: string;
  readonly timestamp: EpochMilliseconds;
  readonly body: Buffer;
}

/** The parts of a signature header's value. */
export interface SplitSignature {
  /** Everything before the entry with the signature, including its separator. */
  readonly before: string;
  readonly prefix: string;
  readonly encoded: string;
}

/** A scheme, as the checks see it. */
export interface ProbedScheme {
  readonly description: SchemeDescription;
  /** Header names; undefined if no header holds the part. The signature header may also hold the timestamp. */
  readonly signatureName: string;
  readonly idName: string | undefined;
  readonly timestampName: string | undefined;
  readonly isBodySigned: boolean;
  /** In a separate header, and covered by the signature. */
  readonly isIdSigned: boolean;
  readonly isTimestampSigned: boolean;
  /** Between two signatures; undefined if the header holds only one. */
  readonly separator: string | undefined;
  sign(content: Signable, key?: EncodedKey): Fields;
  split(value: string): SplitSignature;
  /** Formats a timestamp. */
  toTimeText(at: EpochMilliseconds): string;
  /** A new random key for the same algorithm; undefined if the scheme cannot use one. */
  readonly foreignKey: EncodedKey | undefined;
  /** A key that signs like an empty key; undefined if keys cannot be empty. */
  readonly emptyKey: EncodedKey | undefined;
}

const SIGNABLE: Signable = { id: 'probe-a', timestamp: 1_700_000_000_000, body: Buffer.from('{"a":1}') };
/** DER-encoded ECDSA signatures differ by a few bytes in length. */
const LENGTH_SLACK = 4;

/** Inspects a scheme; `url`: for schemes that sign the URL. Throws SidegateError('user') for a secret that cannot sign. */
export function inspectScheme(scheme: Scheme, key: EncodedKey, url: string): ProbedScheme {
  const { description } = scheme;
  const { signature, signed, id, timestamp } = description;
  if (signature === undefined) {
    const why = description.isSignedInContent === true ? 'signs with a key that only the sender has' : 'has no signature';
    throw new SidegateError('user', 'nothing_signed', `${scheme.name} ${why}, so it cannot be probed`);
  }
  if (signature.header === '' || description.jwt !== undefined)
    throw new SidegateError(
      'user',
      'nothing_signed',
      description.jwt === undefined
        ? `${scheme.name} has its signature in the body or the query, so it cannot be probed`
        : `${scheme.name} signs with a JSON Web Token, which this command does not forge`,
    );
  const sign = (content: Signable, by = key): Fields => scheme.sign({ ...content, method: 'POST', url }, by.secret, by.encoding);
  const split = (value: string): SplitSignature => splitSignature(signature, value);
  const ours = split(getField(sign(SIGNABLE), signature.header));
  const isBodySigned = signed.includes('body') || signed.includes('form');
  const isLike = (other: EncodedKey): boolean => {
    const theirs = trySplit(() => split(getField(sign(SIGNABLE, other), signature.header)));
    if (theirs === undefined || theirs.prefix !== ours.prefix) return false;
    return signed.length === 0 || Math.abs(theirs.encoded.length - ours.encoded.length) <= LENGTH_SLACK;
  };
  return {
    description,
    signatureName: signature.header,
    idName: id !== undefined && 'header' in id ? id.header : undefined,
    timestampName: toTimestampName(description),
    isBodySigned,
    isIdSigned: id !== undefined && 'header' in id && signed.includes('id'),
    isTimestampSigned: timestamp !== undefined && (signed.includes('timestamp') || ('json' in timestamp.from && isBodySigned)),
    separator: signature.list,
    sign,
    split,
    toTimeText: (at) => (timestamp === undefined ? '' : TIMESTAMP_FORMATS[timestamp.unit].format(at)),
    foreignKey: toForeignKeys().find(isLike),
    // HMAC pads keys with zeros (RFC 2104 §2), so a single zero byte signs like an empty key.
    emptyKey: signed.length === 0 ? undefined : [{ secret: new Secret(Buffer.alloc(1)), encoding: 'utf8' as const }].find(isLike),
  };
}

/** The value of a field. */
export function getField(fields: Fields, name: string): string {
  return fields.find(([each]) => each === name)?.[1] ?? '';
}

/** The fields with one value changed. */
export function withField(fields: Fields, name: string | undefined, change: (value: string) => string): Fields {
  return fields.map(([each, value]) => [each, each === name ? change(value) : value]);
}

function toTimestampName({ timestamp, signature }: SchemeDescription): string | undefined {
  if (timestamp === undefined) return undefined;
  const { from } = timestamp;
  if ('header' in from) return from.header;
  return 'entry' in from || 'signaturePart' in from ? signature?.header : undefined;
}

/** The signature is the last entry; if two prefixes match, the longer one counts. */
function splitSignature({ list, forms }: SignatureDescription, value: string): SplitSignature {
  const at = list === undefined ? 0 : value.lastIndexOf(list) + 1;
  const entry = value.slice(at);
  const prefixes = forms.map(({ prefix }) => prefix).filter((prefix) => entry.startsWith(prefix));
  const prefix = prefixes.sort((a, b) => b.length - a.length)[0] ?? '';
  return { before: value.slice(0, at), prefix, encoded: entry.slice(prefix.length) };
}

function trySplit(split: () => SplitSignature): SplitSignature | undefined {
  try {
    return split();
  } catch {
    return undefined;
  }
}

/** One key of each kind. */
function toForeignKeys(): EncodedKey[] {
  const seed = randomBytes(32);
  const pairs = [generateKeyPairSync('ed25519'), generateKeyPairSync('ec', { namedCurve: 'P-256' })];
  const pems = pairs.map(({ privateKey }) => privateKey.export({ type: 'pkcs8', format: 'pem' }));
  return [
    { secret: new Secret(Buffer.from(seed.toString('hex'))), encoding: 'utf8' },
    ...pems.map((pem) => ({ secret: new Secret(Buffer.from(pem)), encoding: undefined })),
  ];
}
