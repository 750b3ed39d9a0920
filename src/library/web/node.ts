/**
 * The functions of Node that the verification imports, by WebCrypto. The build of the library puts this file in place of all `node:` modules.
 * An operation throws until its result is there: `compute` (compute.ts) then runs the code again.
 */
import { readElement } from '../../core/bytes.ts';
import { need } from '../compute.ts';

const HASHES: Readonly<Record<string, string>> = { sha1: 'SHA-1', sha256: 'SHA-256', sha384: 'SHA-384', sha512: 'SHA-512' };

type ByteArray = Uint8Array<ArrayBuffer>;
type Output = BufferEncoding | 'buffer';

function toHash(name: string): string {
  const found = HASHES[name];
  if (found === undefined) throw new Error(`${name} is not supported`);
  return found;
}

function toBytes(data: string | Uint8Array): ByteArray {
  return (typeof data === 'string' ? Buffer.from(data) : data) as ByteArray;
}

function toOutput(bytes: Buffer, output: Output): string | Buffer {
  return output === 'buffer' ? bytes : bytes.toString(output);
}

/** `hash` of node:crypto. */
export function hash(name: string, data: string | Uint8Array, output: Output = 'hex'): string | Buffer {
  const bytes = toBytes(data);
  const digest = need(name, [bytes], async () => {
    const computed = await crypto.subtle.digest(toHash(name), bytes);
    return Buffer.from(new Uint8Array(computed));
  });
  return toOutput(digest, output);
}

interface KeyDetails {
  readonly namedCurve?: string;
  readonly modulusLength?: number;
  readonly publicExponent?: bigint;
}

/** The keys of this file. Its bytes are private, so that no secret is printed. */
export class KeyObject {
  readonly type: 'secret' | 'public';
  readonly #bytes: ByteArray;
  /** As in node:crypto; undefined for secrets. */
  readonly asymmetricKeyType: string | undefined;
  readonly asymmetricKeyDetails: KeyDetails | undefined;

  constructor(type: 'secret' | 'public', bytes: ByteArray, kind?: string, details?: KeyDetails) {
    this.type = type;
    this.#bytes = bytes;
    this.asymmetricKeyType = kind;
    this.asymmetricKeyDetails = details;
  }

  get symmetricKeySize(): number | undefined {
    return this.type === 'secret' ? this.#bytes.length : undefined;
  }

  export(): ByteArray {
    return this.#bytes;
  }
}

/** `createSecretKey` of node:crypto. */
export function createSecretKey(bytes: ByteArray): KeyObject {
  return new KeyObject('secret', Buffer.from(bytes) as ByteArray);
}

/** HMAC of bytes. */
export function computeHmac(name: string, key: KeyObject, data: ByteArray): Buffer {
  return need(`hmac ${name}`, [key.export(), data], () => signHmac(name, key.export(), data));
}

async function signHmac(name: string, key: ByteArray, data: ByteArray): Promise<Buffer> {
  const algorithm = { name: 'HMAC', hash: toHash(name) };
  const imported = await crypto.subtle.importKey('raw', key, algorithm, false, ['sign']);
  return Buffer.from(new Uint8Array(await crypto.subtle.sign('HMAC', imported, data)));
}

/** `createHmac` of node:crypto, for texts. */
export function createHmac(name: string, key: string): { update(data: string): { digest(): Buffer } } {
  const compute = (data: string): Buffer =>
    need(`hmac of text ${name}`, [key, data], () => signHmac(name, toBytes(key), toBytes(data)));
  return { update: (data) => ({ digest: () => compute(data) }) };
}

/** `timingSafeEqual` of node:crypto, for equal lengths: all bytes are read, also after a difference. */
export function timingSafeEqual(one: Uint8Array, other: Uint8Array): boolean {
  let difference = 0;
  for (let at = 0; at < one.length; at++) difference |= (one[at] as number) ^ (other[at] as number);
  return difference === 0;
}

const ED25519_HEAD = '302a300506032b6570032100';
const P256_HEAD = '3059301306072a8648ce3d020106082a8648ce3d030107034200';
const RSA_ALGORITHM = Buffer.from('300d06092a864886f70d0101010500', 'hex');
const [INTEGER, BIT_STRING, SEQUENCE] = [0x02, 0x03, 0x30];
const PEM_PUBLIC_KEY = /^\s*-----BEGIN PUBLIC KEY-----([A-Za-z0-9+/=\s]+)-----END PUBLIC KEY-----\s*$/;

interface Jwk {
  readonly kty?: unknown;
  readonly crv?: unknown;
  readonly [name: string]: unknown;
}
type PublicKeyInput =
  | string
  | { readonly key: Buffer; readonly format: 'der'; readonly type: string }
  | { readonly key: Jwk; readonly format: 'jwk' };

/** `createPublicKey` of node:crypto: SubjectPublicKeyInfo in DER or PEM, and JWK; Ed25519, P-256 and RSA. */
export function createPublicKey(input: PublicKeyInput): KeyObject {
  if (typeof input === 'string') return toPublicKey(fromPem(input));
  if (input.format === 'jwk') return toPublicKey(fromJwk(input.key));
  if (input.type !== 'spki') throw new Error('not SubjectPublicKeyInfo');
  return toPublicKey(input.key);
}

function fromPem(text: string): Buffer {
  const [, digits] = PEM_PUBLIC_KEY.exec(text) ?? [];
  if (digits === undefined) throw new Error('not a public key in PEM');
  return Buffer.from(digits.replaceAll(/\s/g, ''), 'base64');
}

function fromJwk(jwk: Jwk): Buffer {
  const bytes = (name: string): Buffer => Buffer.from(String(jwk[name]), 'base64url');
  if (jwk.kty === 'OKP' && jwk.crv === 'Ed25519') return Buffer.concat([Buffer.from(ED25519_HEAD, 'hex'), bytes('x')]);
  if (jwk.kty === 'EC' && jwk.crv === 'P-256')
    return Buffer.concat([Buffer.from(`${P256_HEAD}04`, 'hex'), bytes('x'), bytes('y')]);
  if (jwk.kty !== 'RSA') throw new Error('unknown kind of key');
  const numbers = ['n', 'e'].map((name) => toElement(INTEGER, Buffer.concat([Buffer.alloc(1), bytes(name)])));
  const key = toElement(BIT_STRING, Buffer.concat([Buffer.alloc(1), toElement(SEQUENCE, Buffer.concat(numbers))]));
  return toElement(SEQUENCE, Buffer.concat([RSA_ALGORITHM, key]));
}

function toElement(tag: number, value: Buffer): Buffer {
  const { length } = value;
  const size = length < 0x80 ? [length] : length < 0x100 ? [0x81, length] : [0x82, length >> 8, length & 0xff];
  return Buffer.concat([Buffer.from([tag, ...size]), value]);
}

function toPublicKey(der: Buffer): KeyObject {
  const text = der.toString('hex');
  const bytes = der as Uint8Array as ByteArray;
  if (text.startsWith(ED25519_HEAD) && der.length === 44) return new KeyObject('public', bytes, 'ed25519', {});
  if (text.startsWith(`${P256_HEAD}04`) && der.length === 91)
    return new KeyObject('public', bytes, 'ec', { namedCurve: 'prime256v1' });
  return new KeyObject('public', bytes, 'rsa', readRsa(der));
}

/** The size and the exponent of an RSA key. */
function readRsa(der: Buffer): KeyDetails {
  const outer = readElement(der, 0, SEQUENCE);
  const isRsa = outer !== undefined && der.subarray(outer.start, outer.start + RSA_ALGORITHM.length).equals(RSA_ALGORITHM);
  const bits = isRsa ? readElement(der, outer.start + RSA_ALGORITHM.length, BIT_STRING) : undefined;
  const key = bits && readElement(der, bits.start + 1, SEQUENCE);
  const modulus = key && readElement(der, key.start, INTEGER);
  const exponent = modulus && readElement(der, modulus.end, INTEGER);
  if (modulus === undefined || exponent === undefined) throw new Error('unknown kind of key');
  const read = ({ start, end }: { start: number; end: number }): bigint =>
    BigInt(`0x0${der.subarray(start, end).toString('hex')}`);
  return { modulusLength: read(modulus).toString(2).length, publicExponent: read(exponent) };
}

interface KeyWithPadding {
  readonly key: KeyObject;
  readonly padding: number;
}

/** As in node:crypto; the values only need to differ. */
export const constants = {
  RSA_PKCS1_PADDING: 1,
  RSA_PKCS1_PSS_PADDING: 6,
  RSA_PSS_SALTLEN_DIGEST: -1,
  RSA_PSS_SALTLEN_AUTO: -2,
};

/** `verify` of node:crypto. */
export function verify(name: string | null, data: Uint8Array, given: KeyObject | KeyWithPadding, signature: Uint8Array): boolean {
  const { key, padding } = given instanceof KeyObject ? { key: given, padding: 0 } : given;
  const bytes = signature as ByteArray;
  return need(`verify ${name} ${padding}`, [key.export(), data, bytes], async () => {
    for (const { algorithm, signature: each } of listForms(name, key, padding, bytes)) {
      const imported = await crypto.subtle.importKey('spki', key.export(), algorithm, false, ['verify']);
      if (await crypto.subtle.verify(algorithm, imported, each, data as ByteArray)) return true;
    }
    return false;
  });
}

interface WebSignatureForm {
  readonly algorithm: {
    readonly name: string;
    readonly hash?: string;
    readonly namedCurve?: string;
    readonly saltLength?: number;
  };
  readonly signature: ByteArray;
}

/** The forms in which WebCrypto takes a signature: it needs the length of the salt of RSASSA-PSS. */
function listForms(name: string | null, key: KeyObject, padding: number, signature: ByteArray): WebSignatureForm[] {
  if (name === null) return [{ algorithm: { name: 'Ed25519' }, signature }];
  const hashed = toHash(name);
  if (key.asymmetricKeyType === 'ec') {
    const raw = toRawEcdsa(signature);
    return raw === undefined ? [] : [{ algorithm: { name: 'ECDSA', namedCurve: 'P-256', hash: hashed }, signature: raw }];
  }
  if (padding === constants.RSA_PKCS1_PADDING) return [{ algorithm: { name: 'RSASSA-PKCS1-v1_5', hash: hashed }, signature }];
  const digestBytes = Number(hashed.slice(4)) / 8;
  const { modulusLength = 0 } = key.asymmetricKeyDetails ?? {};
  // RFC 8017 §9.1.1. Not by the length of the signature, which an untrusted client chose.
  const lengths = [digestBytes, Math.ceil((modulusLength - 1) / 8) - digestBytes - 2];
  return lengths.map((saltLength) => ({ algorithm: { name: 'RSA-PSS', hash: hashed, saltLength }, signature }));
}

/** WebCrypto takes the two numbers of 32 bytes each; senders write them in DER (RFC 3279 §2.2.3), which must be canonical. */
function toRawEcdsa(signature: ByteArray): ByteArray | undefined {
  const der = Buffer.from(signature);
  const outer = readElement(der, 0, SEQUENCE);
  const first = outer && readElement(der, outer.start, INTEGER);
  const second = first && readElement(der, first.end, INTEGER);
  if (outer?.end !== der.length || first === undefined || second?.end !== der.length) return undefined;
  const raw = new Uint8Array(64);
  for (const [at, { start, end }] of [first, second].entries()) {
    const digits = der.subarray(der[start] === 0 ? start + 1 : start, end);
    if (digits.length > 32) return undefined;
    raw.set(digits, 32 * at + 32 - digits.length);
  }
  return raw;
}

/** The library has no certificates: createVerifier rejects them with a reason. */
export class X509Certificate {
  constructor() {
    throw new Error('certificates are not supported');
  }
}

/** The library does not sign. */
export function createPrivateKey(): never {
  throw new Error('signing is not supported');
}

/** The library does not sign. */
export function sign(): never {
  return createPrivateKey();
}

/** `isUtf8` of node:buffer. */
export function isUtf8(bytes: Uint8Array): boolean {
  try {
    new TextDecoder('utf-8', { fatal: true }).decode(bytes);
    return true;
  } catch {
    return false;
  }
}

/** `isAscii` of node:buffer. */
export function isAscii(bytes: Uint8Array): boolean {
  return bytes.every((byte) => byte < 0x80);
}

const POLYNOMIAL = 0xedb88320;
const CRC_TABLE = Uint32Array.from({ length: 256 }, (_, index) => {
  let value = index;
  for (let bit = 0; bit < 8; bit++) value = value & 1 ? (value >>> 1) ^ POLYNOMIAL : value >>> 1;
  return value;
});

/** `crc32` of node:zlib. */
export function crc32(data: string | Uint8Array): number {
  let crc = 0xffffffff;
  for (const byte of toBytes(data)) crc = (crc >>> 8) ^ (CRC_TABLE[(crc ^ byte) & 0xff] as number);
  return (crc ^ 0xffffffff) >>> 0;
}

const IPV4 = /^(?:(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)(?:\.(?!$)|$)){4}$/;

/** `isIP` of node:net. */
export function isIP(host: string): 0 | 4 | 6 {
  if (IPV4.test(host)) return 4;
  return host.includes(':') && URL.canParse(`http://[${host}]`) ? 6 : 0;
}

/** `inspect` of node:util: the name of the method by which Node prints objects. */
export const inspect = { custom: Symbol.for('nodejs.util.inspect.custom') };

/** `channel` of node:diagnostics_channel. */
export function channel(): { publish(): void } {
  return { publish: () => undefined };
}
