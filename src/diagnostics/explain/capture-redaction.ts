/** Decides what of a rejected delivery may be captured: only what the analysis needs, and nothing that contains a known secret. */
import { PRESETS } from '../../auth/schemes/catalogue.ts';
import { isToken, type SchemeDescription, type SignatureDescription } from '../../auth/schemes/description.ts';
import type { HeaderFields } from '../../core/headers.ts';
import type { RequestTarget } from '../../core/target.ts';
import { CONVENTIONAL_HEADERS } from './head-forms.ts';

/** Stands in place of a value that is not captured. */
export const REDACTED = '[redacted]';

/** Bytes of a configured secret that are searched for; a shorter one would occur by chance. */
const MIN_SECRET_BYTES = 8;
const SECRET_PREFIX = 'whsec_';
/** Fields whose values the analysis needs, besides those of the schemes. */
const NEEDED_HEADERS: readonly string[] = [
  'host',
  'content-type',
  'content-length',
  'content-encoding',
  'transfer-encoding',
  'via',
  'x-forwarded-host',
  'x-forwarded-port',
  'x-forwarded-proto',
];
/** Fields that hold credentials, whatever a scheme reads from them. */
const CREDENTIAL_HEADERS: ReadonlySet<string> = new Set([
  'authorization',
  'proxy-authorization',
  'cookie',
  'set-cookie',
  ...PRESETS.flatMap(({ signature }) => (signature !== undefined && isToken(signature) ? [signature.header.toLowerCase()] : [])),
]);
const PRESET_HEADERS: ReadonlySet<string> = new Set([
  ...NEEDED_HEADERS,
  ...CONVENTIONAL_HEADERS,
  ...PRESETS.flatMap(toHeaderNames),
]);
const SENSITIVE_PARAMETER = /token|secret|key|pass|pwd|auth|cred|session|jwt|cookie|code|bearer/i;

/** What is captured of one route's deliveries. */
export class CaptureRedaction {
  readonly #signature: SignatureDescription | undefined;
  readonly #kept: ReadonlySet<string>;
  readonly #signsUrl: boolean;
  readonly #digestParameter: string | undefined;

  constructor(description: SchemeDescription) {
    this.#signature = description.signature;
    this.#kept = new Set([...PRESET_HEADERS, ...toHeaderNames(description)]);
    this.#signsUrl = description.signed.includes('url');
    this.#digestParameter = description.contentDigestParameter;
  }

  /** Every field line with its name; the value only if the analysis needs it. */
  toFields(headers: HeaderFields, secrets: readonly Buffer[]): (readonly [name: string, value: string])[] {
    return headers.names.map((name, i) => {
      const value = headers.raw[i * 2 + 1] as string;
      const isShown = this.#isKept(name, value) && !hasSecret(Buffer.from(value, 'latin1'), secrets);
      return [
        hasSecret(Buffer.from(name, 'latin1'), secrets) ? REDACTED : (headers.raw[i * 2] as string),
        isShown ? value : REDACTED,
      ];
    });
  }

  /** The target; a query is kept only if the sender signs the URL, without the values of parameters that look like credentials. */
  toTarget(
    { raw, path, query }: RequestTarget,
    secrets: readonly Buffer[],
  ): { readonly target: string; readonly isWhole: boolean } {
    const kept = query === undefined ? path : `${path}?${this.#toQuery(query)}`;
    const target = hasSecret(Buffer.from(kept, 'latin1'), secrets) || hasSecret(toDecoded(kept), secrets) ? '/redacted' : kept;
    return { target, isWhole: target === raw };
  }

  #toQuery(query: string): string {
    if (!this.#signsUrl) return query === '' ? '' : 'redacted';
    return query
      .split('&')
      .map((parameter) => this.#toParameter(parameter))
      .join('&');
  }

  #toParameter(parameter: string): string {
    const end = parameter.indexOf('=');
    const name = end === -1 ? '' : parameter.slice(0, end);
    const isShown =
      name === this.#digestParameter || (name !== '' && !SENSITIVE_PARAMETER.test(toDecoded(name).toString('latin1')));
    // A parameter without a name may be a credential as a whole.
    if (isShown || parameter === '') return parameter;
    return name === '' ? 'redacted' : `${name}=redacted`;
  }

  #isKept(name: string, value: string): boolean {
    if (!CREDENTIAL_HEADERS.has(name)) return this.#kept.has(name);
    // Some senders sign in Authorization: only a value in the form of their signature is none of the credentials.
    const signature = this.#signature;
    if (signature === undefined || isToken(signature) || signature.header.toLowerCase() !== name) return false;
    return signature.forms.some(({ prefix }) => prefix !== '' && value.startsWith(prefix));
  }
}

/** The bytes to search for, as the configured secrets are written. */
export function toSecretBytes(texts: Iterable<Buffer>): Buffer[] {
  const found: Buffer[] = [];
  for (const text of texts) {
    const trimmed = text.toString('latin1').trim();
    const bare = trimmed.startsWith(SECRET_PREFIX) ? trimmed.slice(SECRET_PREFIX.length) : trimmed;
    if (bare.length >= MIN_SECRET_BYTES) found.push(Buffer.from(bare, 'latin1'));
  }
  return found;
}

/** Whether one of the secrets occurs in the bytes. */
export function hasSecret(bytes: Buffer, secrets: readonly Buffer[]): boolean {
  return secrets.some((secret) => bytes.includes(secret));
}

function toDecoded(text: string): Buffer {
  try {
    return Buffer.from(decodeURIComponent(text.replaceAll('+', ' ')));
  } catch {
    return Buffer.from(text, 'latin1');
  }
}

function toHeaderNames({ signature, timestamp, id, kind = [], twins = {} }: SchemeDescription): string[] {
  const sources = [timestamp?.from, id].flatMap((source) => (source !== undefined && 'header' in source ? [source.header] : []));
  const own = signature === undefined || isToken(signature) ? [] : [signature.header];
  return [...own, ...sources, ...kind, ...Object.values(twins)].map((name) => name.toLowerCase());
}
