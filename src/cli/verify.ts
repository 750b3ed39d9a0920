/** `sidegate verify`: verifies a signed delivery, and explains why it fails. */

import { systemClock } from '../core/clock.ts';
import { usageError } from '../core/errors.ts';
import type { SignedHead } from '../core/event.ts';
import { HeaderFields } from '../core/head.ts';
import { Refusal } from '../core/refusal.ts';
import type { Secret } from '../core/secret.ts';
import { paint, toPrintable } from '../core/text.ts';
import { splitUrl } from '../diagnostics/captured/captured.ts';
import {
  type AnalysisInput,
  type CandidateKey,
  DEFAULT_BUDGET,
  type ExplainFinding,
  type Explanation,
  Meter,
  readWholeHead,
} from '../diagnostics/explain/analysis.ts';
import { analyze } from '../diagnostics/explain/analyze.ts';
import { checkRecency } from '../gateway/pipeline/gates/signature.ts';
import { PRESETS } from '../verify/presets/catalogue.ts';
import { compileScheme } from '../verify/schemes/compile.ts';
import type { SecretEncoding } from '../verify/schemes/description.ts';
import { KeyRing } from '../verify/schemes/keys.ts';
import type { Message, Scheme, VerifyKey } from '../verify/schemes/scheme.ts';
import { toQuery } from '../verify/schemes/url.ts';
import { readBody, toSeconds, toTolerance } from './input.ts';
import { EXIT, type Io } from './io.ts';
import {
  hasSecretOption,
  readRouteKeys,
  readSender,
  readSigningSecret,
  type SenderOptions,
  type SigningSender,
  toSignedUrl,
} from './sender.ts';

/** Options of the command. */
interface VerifyOptions extends SenderOptions {
  readonly method: string;
  readonly publicUrl?: string;
  readonly header: readonly string[];
  readonly tolerance?: string;
  readonly at?: string;
}

/** Exits with 0 if the delivery is valid. */
export async function verifyDelivery(file: string | undefined, options: VerifyOptions, io: Io): Promise<number> {
  const sender = await readSender(options);
  const { scheme, allowDotInId } = sender;
  const tolerance = options.tolerance === undefined ? sender.tolerance : toTolerance(options.tolerance, scheme);
  const receivedAt = options.at === undefined ? systemClock.now() : toSeconds(options.at, '--at') * 1000;
  const headers = new HeaderFields(options.header.flatMap(toField));
  const { origin = '', target } = splitUrl(toSignedUrl(sender, options.publicUrl) || '/');
  const { keys, others } = await readKeysOf(sender, options, io);
  const body = await readBody(file, io);
  const analysisInput: AnalysisInput = {
    request: { method: options.method, target, headers, body, receivedAt },
    scheme,
    allowDotInId,
    tolerance,
    publicUrl: origin,
    keys,
    others,
    presets: PRESETS,
    compile: compileScheme,
  };
  const verification = await verifyStepwise(analysisInput);
  io.stdout(formatVerification(verification, io));
  return verification.result === 'valid' ? EXIT.ok : EXIT.failed;
}

/** The keys of the route, or the one of the command line. */
async function readKeysOf(
  sender: SigningSender,
  options: VerifyOptions,
  io: Io,
): Promise<Pick<AnalysisInput, 'keys' | 'others'>> {
  if (sender.source === undefined || hasSecretOption(options)) {
    const { secret, encoding } = await readSigningSecret(sender, options);
    return { keys: [toGivenKey(sender.scheme, secret, encoding, io)], others: [] };
  }
  if (options.encoding !== undefined) throw usageError('--encoding requires --secret-env or --secret-file');
  const { notes, ...found } = await readRouteKeys(sender.source.config, sender.source.route);
  for (const note of notes) io.stdout(`note: ${note}\n`);
  for (const { name } of sender.source.webhook.jwks)
    io.stdout(`note: the key set ${name} is not fetched; to use one of its keys, name it by --secret-file\n`);
  return found;
}

/** The key of the command line. If the scheme cannot parse it, the analysis tries other decodings. */
export function toGivenKey(scheme: Scheme, secret: Secret, encoding: SecretEncoding | undefined, io: Io): CandidateKey {
  const parsed = scheme.parseKey('given', secret, encoding);
  const key = { route: '', name: 'given', secret, encoding };
  if ('key' in parsed) return { ...key, key: parsed.key };
  io.stdout(`hint: ${parsed.problem}: ${parsed.hint}\n`);
  return key;
}

function toField(line: string): [string, string] {
  const colon = line.indexOf(':');
  if (colon < 1) throw usageError(`--header ${line}: use 'Name: value'`);
  return [line.slice(0, colon), line.slice(colon + 1).trim()];
}

// Verifies a delivery step by step for commands, and finds what would have made it pass.

/** The result. */
interface Verification {
  /** `valid`, the code of the refusal, or `not_checked` if the body is missing. */
  readonly result: string;
  /** One per step. */
  readonly lines: readonly string[];
  readonly findings: readonly ExplainFinding[];
  /** Name of the key that verified it. */
  readonly key?: string;
}

/** A larger budget, because a person is waiting for the result. */
const COMMAND_BUDGET = { bytes: 16 * DEFAULT_BUDGET.bytes, candidates: 8 * DEFAULT_BUDGET.candidates };

/** Verifies like the gates, but checks the timestamp after the signature, so that both are reported. */
export async function verifyStepwise(analysisInput: AnalysisInput): Promise<Verification> {
  const { scheme, request } = analysisInput;
  const explain = (): readonly ExplainFinding[] => explainNow(analysisInput, new Meter(COMMAND_BUDGET)).findings;
  const head = readWholeHead(analysisInput);
  if (head instanceof Refusal) {
    const line = `headers: ${head.detail ?? toMissing(scheme)}`;
    return { result: head.code, lines: [line], findings: explain() };
  }
  const lines = [`headers: well-formed, ${describe(head, scheme)}`];
  const { key, signedAt, problem, failure } = await verify(analysisInput, head);
  const isRecent = signedAt === undefined || checkTime(analysisInput, signedAt, lines);
  const rejected = (result: string, line: string): Verification => ({ result, lines: [...lines, line], findings: explain() });
  if (request.body === undefined)
    return rejected(isRecent ? 'not_checked' : 'timestamp_outside_tolerance', 'signature: not checked, as the body is missing');
  if (key === undefined) return rejected(failure?.code ?? 'signature_mismatch', failure?.line ?? '');
  lines.push(`signature: match over ${request.body.length} bytes, with the key ${key.name}`);
  if (problem !== undefined) return rejected('malformed_signature', `body: ${problem}`);
  if (!isRecent)
    return rejected('timestamp_outside_tolerance', 'the signature is valid, but the timestamp is outside the tolerance');
  return { result: 'valid', lines, findings: [], key: key.name };
}

function describe({ signatures }: SignedHead, { token }: Scheme): string {
  if (signatures.length === 0 && token !== undefined) return 'a token in the body';
  return `${signatures.length} signature${signatures.length === 1 ? '' : 's'}`;
}

interface VerificationResult {
  readonly key?: VerifyKey;
  readonly signedAt?: number | undefined;
  readonly problem?: string;
  /** Why none of the keys is accepted. */
  readonly failure?: { readonly code: string; readonly line: string };
}

/** The timestamp may be in the body, which is parsed only after its signature was verified. */
async function verify({ scheme, publicUrl, keys, request }: AnalysisInput, head: SignedHead): Promise<VerificationResult> {
  const { method, target, body = Buffer.alloc(0), receivedAt } = request;
  const message: Message = { method, url: scheme.signsUrl ? publicUrl + target : '', query: toQuery(target), body };
  const usable = keys.flatMap(({ key }) => (key === undefined ? [] : [key]));
  const live = new KeyRing({ keys: usable, unavailable: [] }).live(receivedAt);
  const tried = live.map(({ name }) => name).join(', ');
  const line = tried === '' ? 'signature: no key can be used' : `signature: no match with ${tried}`;
  const mismatch = { signedAt: head.timestamp, failure: { code: 'signature_mismatch', line } };
  if (scheme.token !== undefined) {
    const found = await scheme.token.verify(head, message, () => live, receivedAt);
    if (found === 'mismatch') return mismatch;
    if (!(found instanceof Refusal)) return { key: found.key, signedAt: found.identity.timestamp };
    return { signedAt: head.timestamp, failure: { code: found.code, line: `token: ${found.detail ?? found.code}` } };
  }
  const key = scheme.verify(head, message, live);
  if (key === undefined) return mismatch;
  const identity = scheme.identify(head, message);
  return 'problem' in identity ? { key, problem: identity.problem } : { key, signedAt: identity.timestamp };
}

function checkTime({ tolerance, request: { receivedAt } }: AnalysisInput, signedAt: number, lines: string[]): boolean {
  let skew = 0;
  const onSkew = (milliseconds: number): void => {
    skew = milliseconds / 1_000;
  };
  const isRecent = checkRecency(signedAt, receivedAt, { tolerance, onSkew }) === undefined;
  const { past = 0, future = 0 } = tolerance ?? {};
  const distance = skew >= 0 ? `${skew} s old` : `${-skew} s in the future`;
  lines.push(`timestamp: ${distance}, tolerance ${(skew >= 0 ? past : future) / 1_000} s: ${isRecent ? 'ok' : 'outside'}`);
  return isRecent;
}

function toMissing({ headerNames, description }: Scheme): string {
  const needed = [description.id, description.timestamp?.from].flatMap((at) =>
    at !== undefined && 'header' in at ? [at.header] : [],
  );
  const header = description.signature?.header;
  const names = [...needed, header === undefined || header === '' ? 'the signature' : header];
  return headerNames.length <= 1 ? `${names[0]} is missing` : `${names.slice(0, -1).join(', ')} or ${names.at(-1)} is missing`;
}

/** Formats the result as text. */
export function formatVerification({ lines, findings, result }: Verification, io: Io): string {
  const hints = findings.map(({ text, fix }, i) => {
    const hint = findings.findIndex((each) => each.text === text) === i ? [`hint: ${text}`] : [];
    return [...hint, `  fix: ${fix}`];
  });
  return [
    ...[...lines, ...hints.flat()].map(toPrintable),
    `result: ${paint(io, result === 'valid' ? 'good' : 'bad', result)}`,
    '',
  ].join('\n');
}

/** Without interruption, for commands. */
export function explainNow(analysisInput: AnalysisInput, meter: Meter): Explanation {
  const steps = analyze(analysisInput, meter);
  for (;;) {
    const { value, done } = steps.next();
    if (done === true) return value;
  }
}
