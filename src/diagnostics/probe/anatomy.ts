/** What the checks have to know of a scheme: which parts its signatures have, where they stand, and how to make other ones. */
import { generateKeyPairSync, randomBytes } from 'node:crypto';
import type { SchemeDescription, SecretEncoding, SignatureDescription } from '../../auth/schemes/description.ts';
import type { Scheme } from '../../auth/schemes/scheme.ts';
import { TIMESTAMP_FORMATS } from '../../auth/schemes/timestamp.ts';
import type { EpochMilliseconds } from '../../core/clock.ts';
import { SidegateError } from '../../core/errors.ts';
import { Secret } from '../../core/secret.ts';
import type { Fields } from './client.ts';

/** A secret as the scheme takes it. */
export interface SigningKey {
  readonly secret: Secret;
  readonly encoding: SecretEncoding | undefined;
}

/** What a delivery is made of. */
export interface Content {
  readonly id: string;
  readonly timestamp: EpochMilliseconds;
  readonly body: Buffer;
}

/** A signature header's value, taken apart. */
export interface SignatureParts {
  /** What stands before the entry with the signature, its separator with it. */
  readonly before: string;
  readonly prefix: string;
  readonly encoded: string;
}

/** A scheme, for the checks. */
export interface Anatomy {
  readonly description: SchemeDescription;
  /** Header names as they are written; undefined where no header has it. The timestamp may stand in the signature's. */
  readonly signatureName: string;
  readonly idName: string | undefined;
  readonly timestampName: string | undefined;
  readonly isBodySigned: boolean;
  /** In a header of its own, and covered by the signature. */
  readonly isIdSigned: boolean;
  readonly isTimestampSigned: boolean;
  /** Between two signatures; undefined where the header holds one only. */
  readonly separator: string | undefined;
  sign(content: Content, key?: SigningKey): Fields;
  split(value: string): SignatureParts;
  /** The timestamp's text. */
  toTimeText(at: EpochMilliseconds): string;
  /** A key that nobody has, for the same algorithm; undefined where none fits. */
  readonly foreignKey: SigningKey | undefined;
  /** A key that signs as the empty one does; undefined where keys cannot be empty. */
  readonly emptyKey: SigningKey | undefined;
}

const CONTENT: Content = { id: 'probe-a', timestamp: 1_700_000_000_000, body: Buffer.from('{"a":1}') };
/** DER-encoded ECDSA signatures differ by a few bytes in length. */
const LENGTH_SLACK = 4;

/** Takes a scheme apart; `url`: the one that is signed, if one is. Throws SidegateError('user') for a secret that cannot sign. */
export function toAnatomy(scheme: Scheme, key: SigningKey, url: string): Anatomy {
  const { description } = scheme;
  const { signature, signed, id, timestamp } = description;
  if (signature === undefined) {
    const why = description.isSignedInContent === true ? 'is signed by a key that only its sender has' : 'signs nothing';
    throw new SidegateError('user', 'nothing_signed', `${scheme.name} ${why}, so there is nothing to try`);
  }
  const sign = (content: Content, by = key): Fields => scheme.sign({ ...content, method: 'POST', url }, by.secret, by.encoding);
  const split = (value: string): SignatureParts => splitSignature(signature, value);
  const ours = split(getField(sign(CONTENT), signature.header));
  const isBodySigned = signed.includes('body') || signed.includes('form');
  const isLike = (other: SigningKey): boolean => {
    const theirs = trySplit(() => split(getField(sign(CONTENT, other), signature.header)));
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
    // HMAC fills keys up with zeros (RFC 2104 §2), so one zero byte signs as no byte does.
    emptyKey: signed.length === 0 ? undefined : [{ secret: new Secret(Buffer.alloc(1)), encoding: 'utf8' as const }].find(isLike),
  };
}

/** The value of a field, as it is sent. */
export function getField(fields: Fields, name: string): string {
  return fields.find(([each]) => each === name)?.[1] ?? '';
}

/** The fields with one value changed. */
export function withField(fields: Fields, name: string | undefined, change: (value: string) => string): Fields {
  return fields.map(([each, value]) => [each, each === name ? change(value) : value]);
}

function toTimestampName({ timestamp, signature }: SchemeDescription): string | undefined {
  if (timestamp === undefined || 'json' in timestamp.from) return undefined;
  return 'header' in timestamp.from ? timestamp.from.header : signature?.header;
}

/** The signature is the last entry; of two prefixes that fit, the longer one is meant. */
function splitSignature({ list, forms }: SignatureDescription, value: string): SignatureParts {
  const at = list === undefined ? 0 : value.lastIndexOf(list) + 1;
  const entry = value.slice(at);
  const prefixes = forms.map(({ prefix }) => prefix).filter((prefix) => entry.startsWith(prefix));
  const prefix = prefixes.sort((a, b) => b.length - a.length)[0] ?? '';
  return { before: value.slice(0, at), prefix, encoded: entry.slice(prefix.length) };
}

function trySplit(split: () => SignatureParts): SignatureParts | undefined {
  try {
    return split();
  } catch {
    return undefined;
  }
}

/** One of each kind. */
function toForeignKeys(): SigningKey[] {
  const seed = randomBytes(32);
  const pairs = [generateKeyPairSync('ed25519'), generateKeyPairSync('ec', { namedCurve: 'P-256' })];
  const pems = pairs.map(({ privateKey }) => privateKey.export({ type: 'pkcs8', format: 'pem' }));
  return [
    { secret: new Secret(Buffer.from(seed.toString('hex'))), encoding: 'utf8' },
    ...pems.map((pem) => ({ secret: new Secret(Buffer.from(pem)), encoding: undefined })),
  ];
}
