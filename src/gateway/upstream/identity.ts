/** The identity of the client and the route: its fields for the app, and for a proxy that sends auth requests, and its signed token. */
import {
  createPrivateKey,
  createPublicKey,
  createSecretKey,
  hash,
  type JsonWebKey,
  type KeyObject,
  sign as signBytes,
} from 'node:crypto';
import type { Admitted } from '../../core/admitted.ts';
import { parseBase64, parseHex } from '../../core/bytes.ts';
import type { Clock, EpochMilliseconds, Milliseconds } from '../../core/clock.ts';
import type { FieldSettings } from '../../core/field-policy.ts';
import { createHmacFunction } from '../../core/hmac.ts';
import type { Fault } from '../../core/problem.ts';
import type { Secret } from '../../core/secret.ts';

/** The data about the client that a route reports. */
export interface IdentityContext extends Pick<FieldSettings, 'user'> {
  /** The name of the route. */
  readonly route: string;
  /** Signs the identity; default: it is not signed. */
  readonly signer?: IdentitySigner;
}

const USER_FIELDS: readonly string[] = ['Sidegate-User', 'X-Forwarded-User'];

/** Adds the field lines as raw pairs. `more`: additional field names for the user; all of them are empty without a user, because a proxy copies them. */
export function addIdentity(out: string[], admitted: Admitted, context: IdentityContext, more: readonly string[] = []): void {
  const { head, sender, claimed, observed } = admitted;
  const user = context.user === 'forward' ? sender.user : undefined;
  out.push('Sidegate-Route', context.route);
  if (claimed !== undefined) out.push('Sidegate-Key', claimed.event.keyName);
  if (user !== undefined || more.length > 0) {
    const text = user === undefined ? '' : toFieldText(user.name);
    for (const name of [...USER_FIELDS, ...more]) out.push(name, text);
  }
  out.push('Sidegate-Request-Id', head.requestId);
  // A request that passed unverified in observe mode gets no token.
  if (observed !== undefined) {
    out.push('Sidegate-Observed', observed.code);
    return;
  }
  const token = context.signer?.sign(admitted);
  if (token !== undefined) out.push('Sidegate-Identity', token);
}

/**
 * Everything except visible ASCII, and `%` and the delimiters of lists, parameters and quoted strings (RFC 9110 §5.6): one name
 * stays one name.
 */
const NOT_PLAIN = /[^\x21-\x7e]|[",;%\\]/gu;

/** Formats a user name as a header value; special characters are percent-encoded UTF-8, so that it can be decoded. */
function toFieldText(user: string): string {
  return user.replace(NOT_PLAIN, (character) =>
    [...Buffer.from(character)].map((byte) => `%${byte.toString(16).toUpperCase().padStart(2, '0')}`).join(''),
  );
}

// The token (JWT, RFC 7519): signs who the client is and what it requested, so that an app can verify that a request passed sidegate.

/** The algorithms for signing tokens. */
type IdentityAlgorithm = 'hmac-sha256' | 'ed25519';

/** A public key in the form in which it is published. */
type PublishedKey = JsonWebKey & { readonly kid: string };

const toHmac = createHmacFunction('sha256');

/** The signing key; a private field, so that no log or serialization shows it. */
export class IdentityKey {
  readonly name: string;
  readonly algorithm: IdentityAlgorithm;
  /** The first part of a token, the same for all tokens. */
  readonly head: string;
  readonly #key: KeyObject;

  constructor(name: string, algorithm: IdentityAlgorithm, key: KeyObject) {
    this.name = name;
    this.algorithm = algorithm;
    this.#key = key;
    const alg = algorithm === 'ed25519' ? 'EdDSA' : 'HS256';
    this.head = toPart({ alg, typ: 'JWT', kid: this.toPublicKey()?.kid ?? name });
  }

  /** The last part of a token. */
  sign(text: string): string {
    if (this.algorithm === 'ed25519') return signBytes(null, Buffer.from(text), this.#key).toString('base64url');
    return toHmac(this.#key, [text]).toString('base64url');
  }

  /** The public key for verifiers (RFC 8037 §2); undefined if the same secret signs and verifies. */
  toPublicKey(): PublishedKey | undefined {
    if (this.algorithm !== 'ed25519') return undefined;
    const { crv, kty, x } = createPublicKey(this.#key).export({ format: 'jwk' });
    // The thumbprint (RFC 7638 §3), so that a new key under the same name has another ID.
    const kid = hash('sha256', JSON.stringify({ crv, kty, x }), 'base64url');
    return { crv, kty, x, kid, alg: 'EdDSA', use: 'sig' } as PublishedKey;
  }
}

/** The configuration of a key. */
interface IdentityKeySource {
  readonly name: string;
  readonly algorithm: IdentityAlgorithm;
  readonly encoding: 'utf8' | 'base64' | 'hex' | undefined;
}

/** RFC 7518 §3.2. */
const MIN_SECRET_BYTES = 32;
const SECOND_MS: Milliseconds = 1_000;

/** Parses the key from the content of its file or variable. */
export function parseIdentityKey({ name, algorithm, encoding }: IdentityKeySource, secret: Secret): IdentityKey | Fault {
  if (algorithm === 'ed25519') return parsePrivateKey(name, secret);
  const bytes = toBytes(secret.expose(), encoding);
  if (bytes === undefined)
    return { problem: `the secret is not ${encoding}`, hint: 'set encoding to the encoding of the secret' };
  if (bytes.length < MIN_SECRET_BYTES)
    return {
      problem: `the secret has ${bytes.length} bytes`,
      hint: `HMAC-SHA256 needs ${MIN_SECRET_BYTES} or more (openssl rand -base64 32)`,
    };
  return new IdentityKey(name, algorithm, createSecretKey(bytes));
}

function parsePrivateKey(name: string, secret: Secret): IdentityKey | Fault {
  const hint = 'a private key in PEM (openssl genpkey -algorithm ed25519)';
  try {
    const key = createPrivateKey(secret.expose());
    if (key.asymmetricKeyType === 'ed25519') return new IdentityKey(name, 'ed25519', key);
    return { problem: `the key is of type ${key.asymmetricKeyType}, not ed25519`, hint };
  } catch {
    return { problem: 'this is not a private key', hint };
  }
}

function toBytes(bytes: Buffer, encoding: IdentityKeySource['encoding']): Buffer | undefined {
  if (encoding === 'base64') return parseBase64(bytes.toString('latin1'));
  if (encoding === 'hex') return parseHex(bytes.toString('latin1'));
  return bytes;
}

interface Retired {
  readonly key: PublishedKey;
  readonly until: EpochMilliseconds;
}

/** The settings that all tokens share. */
interface TokenSettings {
  /** The app that the tokens are for (RFC 7519 §4.1.3): another app that trusts the same key must reject them. */
  readonly audience: string;
  readonly ttl: Milliseconds;
}

/** Signs with the current key, if there is one. */
export class IdentitySigner {
  readonly #clock: Clock;
  #key: IdentityKey | undefined;
  #settings: TokenSettings | undefined;
  /** Earlier keys, whose tokens may still be in use. */
  #retired: readonly Retired[] = [];

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Replaces the key, starting with the next request. Undefined: requests are not signed. */
  replace(key: IdentityKey | undefined, settings: TokenSettings | undefined): void {
    const now = this.#clock.now();
    const before = this.#key?.toPublicKey();
    const live = this.#retired.filter(({ until }) => until > now);
    this.#retired =
      before === undefined || this.#key === key ? live : [...live, { key: before, until: now + (this.#settings?.ttl ?? 0) }];
    this.#key = key;
    this.#settings = settings;
  }

  /** Returns the token; undefined without a key. */
  sign({ head, route, sender, claimed }: Admitted): string | undefined {
    const key = this.#key;
    const settings = this.#settings;
    if (key === undefined || settings === undefined) return undefined;
    const issuedAt = Math.floor(this.#clock.now() / SECOND_MS);
    const { requestId, method, target, headers } = head;
    const { user, certificateName } = sender;
    const text = `${key.head}.${toPart({
      iss: 'sidegate',
      aud: settings.audience,
      sub: user?.name,
      route,
      method,
      host: headers.get('host'),
      path: target.raw,
      certificate: certificateName,
      webhook: claimed === undefined ? undefined : { id: claimed.event.id, key: claimed.event.keyName },
      iat: issuedAt,
      exp: issuedAt + Math.ceil(settings.ttl / SECOND_MS),
      jti: requestId,
    })}`;
    return `${text}.${key.sign(text)}`;
  }

  /** Returns a JWK Set (RFC 7517 §5): the current public key, and earlier ones whose tokens are still valid. */
  toKeySet(): { readonly keys: readonly JsonWebKey[] } {
    const now = this.#clock.now();
    const current = this.#key?.toPublicKey();
    const retired = this.#retired.filter(({ until, key }) => until > now && key.kid !== current?.kid);
    return { keys: [...(current === undefined ? [] : [current]), ...retired.map(({ key }) => key)] };
  }
}

function toPart(value: object): string {
  return Buffer.from(JSON.stringify(value)).toString('base64url');
}
