/** Decides which parts of a rejected delivery may be captured: those that the analysis needs, without configured secrets. */

import type { HeaderFields } from '../../core/headers.ts';
import type { RequestTarget } from '../../core/target.ts';
import { PRESETS } from '../../verify/presets/catalogue.ts';
import { coversQuery, listFieldHeaders, readsQuery } from '../../verify/schemes/coverage.ts';
import { isToken, type SchemeDescription, type SignatureDescription } from '../../verify/schemes/description.ts';
import { CONVENTIONAL_HEADERS } from './head-forms.ts';

/** Replaces a value that is not captured. */
export const REDACTED = '[redacted]';

/** A shorter secret is not searched for: it would occur by chance. */
const MIN_SECRET_BYTES = 8;
const SECRET_PREFIX = 'whsec_';
/** Fields whose values the analysis needs, in addition to those of the schemes. */
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
/** Fields that contain credentials, even if a scheme reads its signature from them. */
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

/** Redacts the deliveries of one route. */
export class CaptureRedaction {
  readonly #signature: SignatureDescription | undefined;
  readonly #kept: ReadonlySet<string>;
  readonly #signsUrl: boolean;
  readonly #digestParameter: string | undefined;

  constructor(description: SchemeDescription) {
    this.#signature = description.signature;
    this.#kept = new Set([...PRESET_HEADERS, ...toHeaderNames(description)]);
    this.#signsUrl = coversQuery(description) || readsQuery(description);
    this.#digestParameter = description.contentDigestParameter;
  }

  /** Returns every field line; its value only if the analysis needs it. */
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

  /** Returns the target. A query is kept only if the sender signs the URL, and then without values that look like credentials. */
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
    // A parameter without a name may be a credential as a whole.
    if (end < 1) return parameter === '' ? '' : 'redacted';
    // Some parsers also separate parameters by semicolons.
    const names = parameter.split(';').map((part) => toDecoded(part.split('=', 1)[0] ?? '').toString('latin1'));
    const isSensitive = names.some((name) => name !== this.#digestParameter && SENSITIVE_PARAMETER.test(name));
    return isSensitive ? `${parameter.slice(0, end)}=redacted` : parameter;
  }

  #isKept(name: string, value: string): boolean {
    if (!CREDENTIAL_HEADERS.has(name)) return this.#kept.has(name);
    // Some senders put their signature into Authorization. A value with any other prefix may be a credential.
    const signature = this.#signature;
    if (signature === undefined || isToken(signature) || signature.header.toLowerCase() !== name) return false;
    return signature.forms.some(({ prefix }) => prefix !== '' && value.startsWith(prefix));
  }
}

/** Returns the bytes to search for: the secrets as they are written in their files and variables. */
export function toSecretBytes(texts: Iterable<Buffer>): Buffer[] {
  const found: Buffer[] = [];
  for (const text of texts) {
    const trimmed = text.toString('latin1').trim();
    const bare = trimmed.startsWith(SECRET_PREFIX) ? trimmed.slice(SECRET_PREFIX.length) : trimmed;
    if (bare.length >= MIN_SECRET_BYTES) found.push(Buffer.from(bare, 'latin1'));
  }
  return found;
}

/** Whether the bytes contain one of the secrets. */
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

function toHeaderNames(description: SchemeDescription): string[] {
  const { signature, timestamp, id, kind = [], twins = {} } = description;
  const sources = [timestamp?.from, id].flatMap((source) => (source !== undefined && 'header' in source ? [source.header] : []));
  const own = signature === undefined || isToken(signature) ? [] : [signature.header, ...listFieldHeaders(description)];
  return [...own, ...sources, ...kind, ...Object.values(twins)].map((name) => name.toLowerCase());
}
