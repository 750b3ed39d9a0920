/** Handshakes asked as the gates ask them, without a gate. */

import { HeaderFields } from '../../../../src/core/head.ts';
import type { Refusal } from '../../../../src/core/refusal.ts';
import { Secret } from '../../../../src/core/secret.ts';
import { compileHandshake } from '../../../../src/verify/handshakes/catalogue.ts';
import type { HandshakeOptions } from '../../../../src/verify/handshakes/handshake.ts';
import { compileScheme } from '../../../../src/verify/schemes/compile.ts';
import type { HandshakeName, SchemeDescription } from '../../../../src/verify/schemes/description.ts';
import type { VerifyKey } from '../../../../src/verify/schemes/scheme.ts';
import { toCase, toPreset } from '../../../support/preset-cases.ts';

export const KEY = 'a-key-of-sixteen-bytes-and-more';
export const TOKEN = 'a verify/token+of&enough=bytes';

/** Signs the content alone, in base64 behind `sha256=`, as X does. */
export const CONTENT_SIGNED: SchemeDescription = {
  name: 'custom',
  signature: { header: 'X-Signature', encoding: 'base64', forms: [{ prefix: 'sha256=', algorithm: 'hmac-sha256' }] },
  signed: ['body'],
  separator: '',
  secret: { encoding: 'utf8' },
  tolerance: { past: 0, future: 0 },
  contentTypes: ['application/json'],
};

/** What may differ between cases. */
export interface Case extends Partial<HandshakeOptions> {
  readonly method?: string;
  readonly query?: string;
  readonly headers?: readonly string[];
  readonly body?: string | Buffer;
  /** The token is configured, and gone. */
  readonly isTokenGone?: boolean;
  readonly keys?: readonly string[];
}

/** The keys of a test's route, by their secrets. */
export function toKeys(secrets: readonly string[], scheme = compileScheme(CONTENT_SIGNED)): VerifyKey[] {
  return secrets.map((text, index) => {
    const parsed = scheme.parseKey(`key-${index}`, new Secret(Buffer.from(text)), undefined);
    if ('problem' in parsed) throw new Error(parsed.problem);
    return parsed.key;
  });
}

/** A key of the preset of Braintree. */
export function toBraintreeKey(secret: string): VerifyKey {
  return toCase(toPreset('braintree'), { secret, signingSecret: secret }).key;
}

function toOptions(type: HandshakeName, over: Case): HandshakeOptions {
  return {
    type,
    hasToken: over.hasToken ?? true,
    parameter: over.parameter ?? 'token',
    allowedOrigins: over.allowedOrigins ?? ['eventgrid.azure.net'],
    allowedRate: over.allowedRate,
    allowQuery: over.allowQuery ?? false,
    publicKey: over.publicKey,
    scheme: over.scheme ?? compileScheme(CONTENT_SIGNED),
  };
}

/** What an unsigned request is told. */
export function ask(type: HandshakeName, over: Case = {}): Refusal | undefined {
  const options = toOptions(type, over);
  const token = options.hasToken && over.isTokenGone !== true ? new Secret(Buffer.from(TOKEN)) : undefined;
  return compileHandshake(options).open?.(
    { method: over.method ?? 'GET', query: over.query, headers: new HeaderFields(over.headers ?? []) },
    { keys: type === 'braintree' ? (over.keys ?? [KEY]).map(toBraintreeKey) : toKeys(over.keys ?? [KEY], options.scheme), token },
  );
}

/** What an unsigned POST with a small body is told, and the tokens that an operator is shown. */
export function post(
  type: HandshakeName,
  body: unknown,
  over: Case = {},
): { readonly refusal: Refusal | undefined; readonly offered: readonly string[] } {
  const options = toOptions(type, { hasToken: false, ...over });
  const token = options.hasToken && over.isTokenGone !== true ? new Secret(Buffer.from(TOKEN)) : undefined;
  const offered: string[] = [];
  const secrets = { keys: toKeys(over.keys ?? [KEY]), token };
  const request = { method: 'POST', query: over.query, headers: new HeaderFields(over.headers ?? []) };
  const { open, openBody } = compileHandshake(options);
  const offer = (secret: Secret): void => {
    offered.push(secret.expose().toString());
  };
  const refusal = open?.(request, secrets) ?? openBody?.({ ...request, body: toContent(body), offer }, secrets);
  return { refusal, offered };
}

/** What a message is told whose signature held. */
export function tell(type: HandshakeName, body: unknown, over: Case = {}): Refusal | undefined {
  const [key] = toKeys(over.keys ?? [KEY]);
  return compileHandshake(toOptions(type, over)).signed?.({
    headers: new HeaderFields(over.headers ?? []),
    body: toContent(body),
    key,
  });
}

function toContent(body: unknown): Buffer {
  return Buffer.isBuffer(body) ? body : Buffer.from(typeof body === 'string' ? body : JSON.stringify(body));
}

/** What was answered, in short: the content, or the code and why. */
export function toText(refusal: Refusal | undefined): string | undefined {
  if (refusal?.reply !== undefined) return `${refusal.reply.status} ${refusal.reply.contentType} ${refusal.reply.body}`;
  return refusal === undefined ? undefined : `${refusal.code}: ${refusal.detail}`;
}
