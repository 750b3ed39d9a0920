/** Parses the text of secrets and keys into key objects, as the scheme describes them, and holds the keys of each route. */

import {
  createPrivateKey,
  createPublicKey,
  createSecretKey,
  hash,
  type JsonWebKey,
  KeyObject,
  type X509Certificate,
} from 'node:crypto';
import { parseBase64Key, parseHex } from '../../core/bytes.ts';
import type { EpochMilliseconds } from '../../core/clock.ts';
import type { Secret } from '../../core/secret.ts';
import { ALGORITHMS } from './algorithms.ts';
import type { Algorithm, SchemeDescription, SecretEncoding } from './description.ts';
import { type PublicKeyDescription, transformSecret } from './key-description.ts';
import {
  findWeakKey,
  isOfKind,
  isPublicJwk,
  isPublicKey,
  PEM,
  readPublicKey,
  readRoot,
  SPKI_HEAD,
  toJwkKey,
  toKindTitle,
  type Validity,
} from './public-keys.ts';
import type { KeyFault, VerifyKey } from './scheme.ts';

/** A secret's original text, and its configured encoding. */
interface KeySource {
  readonly secret: Secret;
  readonly encoding: SecretEncoding | undefined;
}

/** Prepared key material in private fields, so that printing or serializing does not reveal it. */
export class Material {
  readonly algorithm: Algorithm;
  readonly #key: KeyObject;
  readonly #source: KeySource | undefined;
  /** When the key may be used, if its own form says so: a certificate or a JWK. */
  readonly validity: Validity | undefined;
  /** The `kid` of a JWK. */
  readonly id: string | undefined;
  /** If the key is that of a certificate. */
  readonly certificate: X509Certificate | undefined;

  constructor(
    algorithm: Algorithm,
    {
      key,
      source,
      validity,
      id,
      certificate,
    }: {
      readonly key: KeyObject;
      readonly source?: KeySource;
      readonly validity?: Validity;
      readonly id?: string;
      readonly certificate?: X509Certificate;
    },
  ) {
    this.algorithm = algorithm;
    this.#key = key;
    this.#source = source;
    this.validity = validity;
    this.id = id;
    this.certificate = certificate;
  }

  get key(): KeyObject {
    return this.#key;
  }

  /** The original text, so that a rejected signature can be tried with its other possible encodings; undefined for JWKs. */
  get source(): KeySource | undefined {
    return this.#source;
  }
}

/** The original text of a key; undefined for keys that were not parsed from text. */
export function toKeySource({ material }: VerifyKey): KeySource | undefined {
  return material instanceof Material ? material.source : undefined;
}

const ED25519_KEY_LENGTH = 32;
/** The bytes before the 32 raw bytes in DER (RFC 8410 §7). */
const PKCS8_HEAD = Buffer.from('302e020100300506032b657004220420', 'hex');

/** The scheme and the purpose that a key is parsed for. */
interface SchemeKeyUse {
  readonly description: SchemeDescription;
  readonly encoding: SecretEncoding | undefined;
  readonly purpose: 'verify' | 'sign';
}

/** Parses one secret or key. */
export function readMaterial(secret: Secret, use: SchemeKeyUse): Material | KeyFault {
  const read = toMaterial(secret, use);
  const { from } = use.description;
  // The library has no titles of senders.
  if (read instanceof Material || from?.key === undefined || from.title === '' || use.purpose === 'sign') return read;
  return { ...read, hint: `${read.hint}; for ${from.title} it is ${from.key}` };
}

function toMaterial(secret: Secret, { description, encoding, purpose }: SchemeKeyUse): Material | KeyFault {
  const text = secret.expose().toString('latin1');
  const { publicKey } = description;
  const source = { secret, encoding };
  const [symmetric, asymmetric] = toAlgorithms(description);
  if (asymmetric !== undefined && publicKey !== undefined && (symmetric === undefined || isPublicText(text, publicKey))) {
    if (purpose === 'verify') {
      const read = description.jwt?.chain === undefined ? readPublicKey(text, publicKey, asymmetric) : readRoot(text);
      return 'problem' in read ? read : new Material(asymmetric, { ...read, source });
    }
    const key = readPrivateKey(text, publicKey, asymmetric);
    return key instanceof KeyObject ? new Material(asymmetric, { key, source }) : key;
  }
  if (symmetric === undefined) return problem('this scheme has no keys', 'remove keys');
  const bytes = toSecretBytes(secret, description, encoding);
  return Buffer.isBuffer(bytes) ? new Material(symmetric, { key: toSecretKey(bytes, description), source }) : bytes;
}

function toSecretKey(bytes: Buffer, { secret: { digest } }: SchemeDescription): KeyObject {
  return createSecretKey(digest === undefined ? bytes : hash(digest, bytes, 'buffer'));
}

/** Parses a public key and its dates from a JWK (RFC 7517 §4); undefined for a JWK that is not a signature key of the scheme's algorithm. */
export function parseJwk(name: string, jwk: JsonWebKey, description: SchemeDescription): VerifyKey | undefined {
  const [, algorithm] = toAlgorithms(description);
  const read = algorithm === undefined ? undefined : toJwkKey(jwk, algorithm);
  if (algorithm === undefined || read === undefined) return undefined;
  const material = new Material(algorithm, read);
  return { name, material, notAfter: undefined, ...material.validity };
}

/** The key of a certificate that was fetched; undefined if the scheme cannot use it. */
export function toVerifyKey(name: string, key: KeyObject, description: SchemeDescription): VerifyKey | undefined {
  const [, algorithm] = toAlgorithms(description);
  if (algorithm === undefined || !isOfKind(key, algorithm) || findWeakKey(key) !== undefined) return undefined;
  return { name, material: new Material(algorithm, { key }), notAfter: undefined };
}

/** The scheme's algorithm for secrets, and the one for key pairs. */
function toAlgorithms({ signature }: SchemeDescription): [Algorithm | undefined, Algorithm | undefined] {
  const algorithms = signature?.forms.map(({ algorithm }) => algorithm) ?? [];
  return [
    algorithms.find((algorithm) => !ALGORITHMS[algorithm].isAsymmetric),
    algorithms.find((algorithm) => ALGORITHMS[algorithm].isAsymmetric),
  ];
}

function problem(text: string, hint: string): KeyFault {
  return { problem: text, hint };
}

/** With any encoding: everyone knows a public key, so it must never become a secret. */
function isPublicText(text: string, { prefix, privatePrefix }: PublicKeyDescription): boolean {
  return (
    [prefix, privatePrefix].some((start) => start !== undefined && text.startsWith(start)) || PEM.test(text) || isPublicJwk(text)
  );
}

/** Accepts PEM. If the scheme has a prefix for private keys, also a seed of 32 bytes, or the 64 bytes of seed and public key. */
function readPrivateKey(
  text: string,
  { prefix, privatePrefix }: PublicKeyDescription,
  algorithm: Algorithm,
): KeyObject | KeyFault {
  if (PEM.test(text)) {
    try {
      const key = createPrivateKey(text);
      if (isOfKind(key, algorithm)) return key;
    } catch {
      // Reported below.
    }
    return problem(`this is not ${toKindTitle(algorithm)} private key in PEM`, 'sign with the private key of the key pair');
  }
  if (privatePrefix === undefined) return problem('a public key cannot sign', 'sign with the private key, in PEM');
  if (!text.startsWith(privatePrefix)) return problem(`a ${prefix} key cannot sign`, `sign with its ${privatePrefix} key`);
  const raw = parseBase64Key(text.slice(privatePrefix.length));
  if (raw?.length !== ED25519_KEY_LENGTH && raw?.length !== 2 * ED25519_KEY_LENGTH)
    return problem(`the text after ${privatePrefix} is not base64 of 32 or 64 bytes`, 'copy the whole private key');
  return toEd25519Key(raw.subarray(0, ED25519_KEY_LENGTH));
}

/** The private key of a seed of 32 bytes. */
export function toEd25519Key(seed: Buffer): KeyObject {
  return createPrivateKey({ key: Buffer.concat([PKCS8_HEAD, seed]), format: 'der', type: 'pkcs8' });
}

/** The 32 raw bytes of the public key that belongs to an Ed25519 private key. */
export function toRawPublicKey(key: KeyObject): Buffer {
  return createPublicKey(key).export({ format: 'der', type: 'spki' }).subarray(SPKI_HEAD.length);
}

const QUOTE = /^["'`]/;
const QUOTED: KeyFault = { ...problem('the secret is in quotation marks', 'remove them'), isCertain: true };

/** The bytes of a secret. */
function toSecretBytes(
  secret: Secret,
  { secret: form }: SchemeDescription,
  named: SecretEncoding | undefined,
): Buffer | KeyFault {
  const empty = problem('the secret is empty', 'with an empty secret, anyone could sign requests');
  if (secret.length === 0) return empty;
  if (isPublicKey(secret.expose())) return toPublicProblem();
  const encoding = named ?? form.encoding;
  const { prefix = '', usualStart = '' } = form;
  const text = secret.expose().toString('latin1');
  if (usualStart !== '' && QUOTE.test(text) && text.startsWith(usualStart, 1)) return QUOTED;
  if (encoding === 'utf8') return transformSecret(secret.expose(), form.transform);
  const wrong = findWrongStart(text, prefix, named);
  if (wrong !== undefined) return wrong;
  const digits = text.startsWith(prefix) ? text.slice(prefix.length) : text;
  const bytes = encoding === 'hex' ? parseHex(digits) : parseBase64Key(digits);
  if (bytes === undefined) {
    const shown = encoding === 'hex' ? 'hex' : 'canonical base64';
    return problem(
      `the secret is not ${shown}`,
      'copy the whole secret, as the sender shows it; or set encoding: utf8, base64 or hex',
    );
  }
  if (bytes.length === 0) return empty;
  return isPublicKey(bytes) ? toPublicProblem() : bytes;
}

function findWrongStart(text: string, prefix: string, named: SecretEncoding | undefined): KeyFault | undefined {
  if (prefix !== '' && VERSION.test(text) && text.indexOf(prefix) === text.indexOf(',') + 1)
    return { ...problem(`the secret has a version before ${prefix}`, toVersionHint(text, prefix)), isCertain: true };
  if (QUOTE.test(text)) return QUOTED;
  return named === undefined && !text.startsWith(prefix)
    ? problem(`the secret has no ${prefix} prefix`, 'set its encoding: utf8, base64 or hex')
    : undefined;
}

function toPublicProblem(): KeyFault {
  return problem('this is a public key, not a secret', 'configure the secret that the sender shares with you');
}

/** Supabase shows `v1,whsec_…`, and several secrets with `|` between them. */
const VERSION = /^v[0-9][a-z]?,/;

function toVersionHint(text: string, prefix: string): string {
  const several = text.includes('|') ? ', and configure each secret between | as a separate key' : '';
  return `remove ${VERSION.exec(text)?.[0]} so that it starts with ${prefix}${several}`;
}

// MACs for senders that require proof that the gate has the key.

/** The HMACs that handshakes require. */
export type HandshakeMac = 'hmac-sha1' | 'hmac-sha256';

/** HMAC of ASCII text; undefined without a secret. `check` accepts only schemes with this algorithm, perhaps beside others. */
export function toMac(key: VerifyKey | undefined, text: string, algorithm: HandshakeMac = 'hmac-sha256'): Buffer | undefined {
  const material = key?.material;
  if (!(material instanceof Material) || material.key.type !== 'secret') return undefined;
  return ALGORITHMS[algorithm].sign(material.key, [text]);
}

/** The first key that is a secret: a route may have public keys, too. */
export function findSecretKey(keys: readonly VerifyKey[]): VerifyKey | undefined {
  return keys.find(({ material }) => material instanceof Material && material.key.type === 'secret');
}

// The keys of one route, replaced as a whole when a secret is rotated.

/** A route's keys at one moment. */
export interface KeySet {
  /** The usable keys, in the configured order. */
  readonly keys: readonly VerifyKey[];
  /** Names of keys whose secret cannot be read right now, or must not be used, because it has another purpose. */
  readonly unavailable: readonly string[];
  /** The handshake's token, if it is configured and can be read right now. */
  readonly handshakeToken?: Secret | undefined;
  /** User and password in the signed URL, if they are configured and can be read right now. */
  readonly urlCredentials?: Secret | undefined;
}

/** The validity period of a key. */
interface KeyDates {
  readonly notBefore?: EpochMilliseconds | undefined;
  readonly notAfter?: EpochMilliseconds | undefined;
}

/** Holds the current KeySet. */
export class KeyRing {
  #set: KeySet;
  /** By the configured name; undefined: no keys are available right now. */
  readonly #remote = new Map<string, readonly VerifyKey[] | undefined>();
  #keys: readonly VerifyKey[] = [];
  #isTimed = false;
  #onMiss: () => boolean = () => false;
  #next: KeyRing | null | undefined;

  constructor(set: KeySet) {
    this.#set = set;
    this.#join();
  }

  /** Replaces the set; the next request uses the new one. */
  replace(set: KeySet): void {
    this.#set = set;
    this.#join();
  }

  /**
   * A new config is active, with the ring `next` or without the route: deliveries whose bodies still arrive are verified only by keys that it, and
   * each config after it, has too and accepts.
   */
  retire(next: KeyRing | undefined): void {
    this.#next = next ?? null;
  }

  /** Replaces the keys that were fetched from a URL, by the name of the key set. */
  setRemote(name: string, keys: readonly VerifyKey[] | undefined): void {
    this.#remote.set(name, keys);
    this.#join();
  }

  /** Sets the callback for signatures that no key matches. It returns true if newer keys may be about to arrive. */
  watchMisses(action: () => boolean): void {
    this.#onMiss = action;
  }

  /** Reports a signature that no key matches. Returns true if newer keys may be about to arrive. */
  miss(): boolean {
    return this.#onMiss();
  }

  /** The keys that are valid at `now`. */
  live(now: EpochMilliseconds): readonly VerifyKey[] {
    if (this.#next !== undefined) return toKept(this.#keys, this.#next?.live(now));
    if (!this.#isTimed) return this.#keys;
    return this.#keys.filter((key) => isWithinTime(key, now));
  }

  /** The handshake's token; undefined if none is configured, or if it cannot be read right now. */
  get handshakeToken(): Secret | undefined {
    return this.#next === undefined ? this.#set.handshakeToken : this.#next?.handshakeToken;
  }

  /** User and password in the signed URL; undefined if none are configured, or if they cannot be read right now. */
  get urlCredentials(): Secret | undefined {
    return this.#next === undefined ? this.#set.urlCredentials : this.#next?.urlCredentials;
  }

  /** All configured keys, valid now or not. */
  get all(): readonly VerifyKey[] {
    return this.#set.keys;
  }

  /** Names of the keys that cannot be used right now. */
  get unavailable(): readonly string[] {
    return this.#set.unavailable;
  }

  /** Whether some key is unavailable, so that a mismatch may be our fault. */
  get isIncomplete(): boolean {
    return (
      this.#set.unavailable.length > 0 || [...this.#remote.values()].includes(undefined) || this.#next?.isIncomplete === true
    );
  }

  /** Whether the key's secret cannot be read right now. */
  isUnavailable(name: string): boolean {
    const isUnread = this.#remote.has(name) && this.#remote.get(name) === undefined;
    return isUnread || this.#set.unavailable.includes(name) || this.#next?.isUnavailable(name) === true;
  }

  #join(): void {
    this.#keys = [...[...this.#remote.values()].flatMap((keys) => keys ?? []), ...this.#set.keys];
    this.#isTimed = this.#keys.some(isTimed);
  }
}

/** Whether `now` is within the key's validity period. */
export function isWithinTime({ notBefore, notAfter }: KeyDates, now: EpochMilliseconds): boolean {
  return (notBefore === undefined || notBefore <= now) && (notAfter === undefined || now < notAfter);
}

/** The keys that are among the others. */
function toKept(keys: readonly VerifyKey[], others: readonly VerifyKey[] = []): VerifyKey[] {
  return keys.filter((key) => others.some((other) => isSameKey(key, other)));
}

/** A key may keep its name and get another secret. */
export function isSameKey(a: VerifyKey, b: VerifyKey): boolean {
  if (a.name !== b.name) return false;
  return !(a.material instanceof Material && b.material instanceof Material) || a.material.key.equals(b.material.key);
}

function isTimed({ notBefore, notAfter }: VerifyKey): boolean {
  return notBefore !== undefined || notAfter !== undefined;
}
